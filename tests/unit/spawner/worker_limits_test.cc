// SPDX-License-Identifier: Apache-2.0
// WorkerLimits: what a worker's cgroup limits, where the host delegates controllers, and what is
// said where it does not; in folders made by hand. In cgroups: cgroups_here_test.cc.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "mediator/spawner/limits.h"
#include "mediator/spawner/walls/cgroups.h"
#include "tests/support/test_daemon.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
using spawner::CgroupLimits;
using spawner::Cgroups;

constexpr uint64_t kMiB = 1 << 20;

// A folder as the kernel shows one, with one worker's in it.
class WorkerLimits : public ::testing::Test {
 protected:
  void make(const std::string& controllers) {
    fs::create_directories(worker());
    for (const std::string& f : {dir_.path, workers()}) {
      write(f + "/cgroup.controllers", controllers);
      write(f + "/cgroup.subtree_control", "");
    }
    write(workers() + "/cgroup.kill", "");
    for (const char* f :
         {"memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.weight"})
      write(worker() + "/" + f, "");
  }
  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }
  static std::string read(const std::string& path) {
    std::string text;
    std::getline(std::ifstream(path), text);
    return text;
  }
  std::string workers() const { return dir_.path + "/sluice-workers.t"; }
  std::string worker() const { return workers() + "/w0"; }

  TempDir dir_;
};

TEST_F(WorkerLimits, AreSetWhereControllersAreDelegated) {
  make("cpuset cpu io memory pids");
  const std::string host = dir_.path + "/" + spawner::kHostFolder;
  fs::create_directories(host);
  write(host + "/cpu.weight", "100");
  auto c = Cgroups::open_in(dir_.path, "t");
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_TRUE(c->missing_limits().empty()) << c->missing_limits().front();
  // A file keeps what was written over it: the last one that was handed on.
  EXPECT_NE(read(workers() + "/cgroup.subtree_control"), "");
  ASSERT_TRUE(c->make("w0", {64 * kMiB, 100}));
  EXPECT_EQ(read(worker() + "/memory.max"), "67108864");
  EXPECT_EQ(read(worker() + "/memory.swap.max"), "0");
  EXPECT_EQ(read(worker() + "/pids.max"), "100");
  EXPECT_EQ(read(worker() + "/cpu.weight"), std::to_string(spawner::limits::kCpuWeight));
  EXPECT_EQ(read(host + "/cpu.weight"), std::to_string(spawner::limits::kHostCpuWeight));
}

TEST_F(WorkerLimits, ThatAreMissingAreNamedAndLeftOut) {
  make("cpuset pids");
  auto c = Cgroups::open_in(dir_.path, "t");
  ASSERT_TRUE(c) << c.error().message;
  ASSERT_EQ(c->missing_limits().size(), 2u);
  EXPECT_EQ(c->missing_limits()[0], "memory: not delegated to " + dir_.path);
  EXPECT_EQ(c->missing_limits()[1], "cpu: not delegated to " + dir_.path);
  ASSERT_TRUE(c->make("w0", {64 * kMiB, 100}));
  EXPECT_EQ(read(worker() + "/memory.max"), "");
  EXPECT_EQ(read(worker() + "/pids.max"), "100");
}

TEST_F(WorkerLimits, AWorkerWhoseLimitCannotBeSetIsNotStarted) {
  make("cpu memory pids");
  auto c = Cgroups::open_in(dir_.path, "t");
  ASSERT_TRUE(c) << c.error().message;
  fs::remove(worker() + "/memory.max");
  const auto made = c->make("w0", {64 * kMiB, 100});
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("memory.max"), std::string::npos) << made.error().message;
}

TEST_F(WorkerLimits, TheKernelsCountOfLackingProcessorsIsRead) {
  make("");
  auto c = Cgroups::open_in(dir_.path, "t");
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_FALSE(c->starved_ns("w0")) << "no such file";
  const std::string some = "some avg10=2.00 avg60=1.50 avg300=0.50 total=77\n";
  write(worker() + "/cpu.pressure", some);
  EXPECT_FALSE(c->starved_ns("w0")) << "a kernel before 5.13";
  write(worker() + "/cpu.pressure", some + "full avg10=1.00 avg60=0.50 avg300=0.10 total=1234\n");
  EXPECT_EQ(c->starved_ns("w0"), 1'234'000u);
  // Others of its vGPU have run instead.
  fs::create_directories(workers() + "/v7/w3");
  write(workers() + "/v7/w3/cpu.pressure", "full avg10=1.00 avg60=0.50 avg300=0.10 total=99\n");
  write(workers() + "/v7/cpu.pressure", "full avg10=1.00 avg60=0.50 avg300=0.10 total=5\n");
  EXPECT_EQ(c->starved_ns("v7/w3"), 5'000u);
}

// As the kernel shows them: what a worker's cgroup lacks is what its vGPU's does not hand on.
TEST_F(WorkerLimits, AVgpuHasOneShareOfTheProcessorsWhateverItsWorkers) {
  make("cpu memory pids");
  const std::string vgpu = workers() + "/v7";
  fs::create_directories(vgpu + "/w3");
  write(vgpu + "/cgroup.controllers", "cpu memory pids");
  write(vgpu + "/cgroup.subtree_control", "");
  write(vgpu + "/cpu.weight", "");
  for (const char* f :
       {"memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.weight"})
    write(vgpu + "/w3/" + f, "");
  auto c = Cgroups::open_in(dir_.path, "t");
  ASSERT_TRUE(c) << c.error().message;
  ASSERT_TRUE(c->make("v7/w3", {64 * kMiB, 100}));
  EXPECT_EQ(read(vgpu + "/cpu.weight"), std::to_string(spawner::limits::kCpuWeight));
  EXPECT_NE(read(vgpu + "/cgroup.subtree_control"), "");
  EXPECT_EQ(read(vgpu + "/w3/cpu.weight"), std::to_string(spawner::limits::kCpuWeight));
  EXPECT_EQ(read(vgpu + "/w3/memory.max"), "67108864");
  fs::remove(vgpu + "/cpu.weight");
  const auto made = c->make("v7/w3", {64 * kMiB, 100});
  ASSERT_FALSE(made) << "a worker whose vGPU has no limit is not started";
  EXPECT_NE(made.error().message.find("v7/cpu.weight"), std::string::npos) << made.error().message;
}

// In a folder that is made again the controllers are handed on as before: here there is no kernel
// that would show them.
TEST_F(WorkerLimits, ThatAreLostWithTheirFolderStartNoWorker) {
  make("cpu memory pids");
  auto c = Cgroups::open_in(dir_.path, "t");
  ASSERT_TRUE(c) << c.error().message;
  fs::remove_all(workers());
  const auto made = c->make("w0", {64 * kMiB, 100});
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("cannot be made again"), std::string::npos)
      << made.error().message;
  EXPECT_FALSE(fs::exists(workers())) << "the next worker's start tries it again";
  make("cpu memory pids");
  EXPECT_TRUE(c->make("w0", {64 * kMiB, 100}));
  EXPECT_EQ(read(worker() + "/pids.max"), "100");
  fs::remove_all(dir_.path);
  EXPECT_NE(c->make("w0").error().message.find("systemctl restart sluiced"), std::string::npos);
}

}  // namespace
}  // namespace sluice::test
