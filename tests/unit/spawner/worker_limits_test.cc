// SPDX-License-Identifier: Apache-2.0
// WorkerLimits: what a worker's cgroup limits, where the host delegates controllers, and what is
// said where it does not. First in folders made by hand, then, where this host has them, in
// cgroups.
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

TEST(WorkerFolders, OfAVgpuGoWithItsLastWorker) {
  auto c = Cgroups::open("folders-test." + std::to_string(::getpid()) + ".vgpus");
  if (!c) GTEST_SKIP() << c.error().message;
  for (const char* name : {"v1/w0", "v1/w1", "v2/w2", "w3"}) ASSERT_TRUE(c->make(name)) << name;
  EXPECT_TRUE(c->remove("v1/w0"));
  EXPECT_TRUE(fs::exists(c->path() + "/v1/w1"));
  EXPECT_TRUE(c->remove("v1/w1"));
  EXPECT_FALSE(fs::exists(c->path() + "/v1"));
  EXPECT_TRUE(fs::exists(c->path() + "/v2/w2"));
  c->end();
  EXPECT_FALSE(fs::exists(c->path()));
}

// A folder stays where its spawner was killed. The next one's removes it, and no folder of one that
// lives.
TEST(WorkerFolders, OfTheDeadAreRemoved) {
  const std::string mine = "folders-test." + std::to_string(::getpid());
  auto dead = Cgroups::open(mine + ".dead");
  if (!dead) GTEST_SKIP() << dead.error().message;
  const std::string left = dead->path();
  ASSERT_TRUE(dead->make("v1/w0"));
  { const Cgroups dies = std::move(*dead); }
  ASSERT_TRUE(fs::exists(left + "/v1/w0"));
  auto living = Cgroups::open(mine + ".living");
  ASSERT_TRUE(living) << living.error().message;
  EXPECT_FALSE(fs::exists(left));
  auto another = Cgroups::open(mine + ".another");
  ASSERT_TRUE(another) << another.error().message;
  EXPECT_TRUE(fs::exists(living->path())) << "it has no workers now";
  EXPECT_TRUE(living->make("w0"));
  for (Cgroups* c : {&*living, &*another}) {
    c->end();
    EXPECT_FALSE(fs::exists(c->path()));
  }
}

// As by an owner who tidies up: the kernel allows it while no worker runs.
TEST(WorkerFolders, ThatWereRemovedAreMadeAgain) {
  auto c = Cgroups::open("folders-test." + std::to_string(::getpid()) + ".removed");
  if (!c) GTEST_SKIP() << c.error().message;
  ASSERT_EQ(::rmdir(c->path().c_str()), 0);
  auto made = c->make("v1/w0");
  ASSERT_TRUE(made) << made.error().message;
  const pid_t child = ::fork();
  if (child == 0)
    for (;;) ::pause();
  const int procs = ::openat(made->get(), "cgroup.procs", O_WRONLY);
  const std::string pid = std::to_string(child);
  EXPECT_EQ(::write(procs, pid.data(), pid.size()), ssize_t(pid.size()));
  ::close(procs);
  EXPECT_EQ(c->end_all(), 1u);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  c->end();
  EXPECT_FALSE(fs::exists(c->path()));
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

// In the cgroup of this test, where that may have others below it.
class WorkerLimitsHere : public ::testing::Test {
 protected:
  void SetUp() override {
    auto c = Cgroups::open("limits-test." + std::to_string(::getpid()));
    if (!c) GTEST_SKIP() << c.error().message;
    path_ = c->path();
    if (!c->missing_limits().empty()) GTEST_SKIP() << c->missing_limits().front();
    cgroups_ = std::move(*c);
  }
  void TearDown() override {
    if (!path_.empty()) spawner::end_cgroups_at(path_);
  }
  // What becomes of a process in a cgroup with these limits that does `work`.
  template <class Work>
  int run(const CgroupLimits& limits, Work work) {
    auto folder = cgroups_->make("w0", limits);
    EXPECT_TRUE(folder) << folder.error().message;
    if (!folder) return -1;
    const pid_t child = ::fork();
    if (child == 0) {
      const int procs = ::openat(folder->get(), "cgroup.procs", O_WRONLY);
      if (::write(procs, "0", 1) != 1) ::_exit(99);
      ::_exit(work());
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    cgroups_->remove("w0");
    return status;
  }

  std::string path_;
  std::optional<Cgroups> cgroups_;
};

int touch(size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 98;
  std::memset(memory, 1, bytes);
  return 0;
}

TEST_F(WorkerLimitsHere, WhoTakesMoreMemoryIsEnded) {
  EXPECT_EQ(run({256 * kMiB, 100}, [] { return touch(16 * kMiB); }), 0);
  const int status = run({64 * kMiB, 100}, [] { return touch(512 * kMiB); });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
}

TEST_F(WorkerLimitsHere, NoMoreProcessesThanThat) {
  const auto forks = [] {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    return child < 0 ? 1 : 0;
  };
  EXPECT_EQ(WEXITSTATUS(run({0, 2}, forks)), 0);
  EXPECT_EQ(WEXITSTATUS(run({0, 1}, forks)), 1);
}

}  // namespace
}  // namespace sluice::test
