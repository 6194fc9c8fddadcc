// SPDX-License-Identifier: Apache-2.0
// Workers' cgroups as this kernel keeps them: their folders, and limits that it enforces. Skipped
// where it has no cgroup2 or delegates no controllers; a guest runs them, too
// (tests/system/guests/cases_limits.py).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "mediator/spawner/walls/cgroups.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
using spawner::CgroupLimits;
using spawner::Cgroups;

constexpr uint64_t kMebibyte = 1 << 20;

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
  EXPECT_EQ(run({256 * kMebibyte, 100}, [] { return touch(16 * kMebibyte); }), 0);
  const int status = run({64 * kMebibyte, 100}, [] { return touch(160 * kMebibyte); });
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
