// SPDX-License-Identifier: Apache-2.0
// Caches of machine code (mediator/spawner/code_caches.h): what one worker of a vGPU keeps there
// its next one finds, and nobody else does. The workers are shells that do what the test says.
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "mediator/core/spawner_protocol.h"
#include "mediator/spawner/code_caches.h"
#include "mediator/spawner/walls/prison.h"
#include "mediator/spawner/walls/root.h"
#include "tests/support/test_daemon.h"

namespace sluice::test {
namespace {

using spawner_protocol::Packet;
using spawner_protocol::Type;

TEST(WorkerEnvironment, SaysWhereItsVgpusCacheIsAndHowMuchItHolds) {
  const spawner::CodeCaches::Place code{0, "/elsewhere", 5, 64 << 20};
  const std::string own = spawner::kOwnFolder;
  EXPECT_EQ(
      spawner::worker_environment({"CUDA_CACHE_PATH=/x", "CUDA_CACHE_MAXSIZE=5"}, true, &code),
      (std::vector<std::string>{"HOME=" + own, "TMPDIR=" + own, "CUDA_CACHE_PATH=/run/code",
                                "CUDA_CACHE_MAXSIZE=58720256"}));
}

class CodeCachesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    link_.reset(pair[0]);
    Fd theirs(pair[1]);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(theirs.get(), spawner_protocol::kControlFd);
      ::execl(SLUICE_TEST_SPAWNER, "sluice-spawner", nullptr);
      ::_exit(127);
    }
    // A shell runs this file first where it reads its commands from no terminal.
    std::ofstream(scripts_.path + "/commands") << "read -r -u 3 command\neval \"$command\"\nexit\n";
    ASSERT_EQ(::chmod(scripts_.path.c_str(), 0755), 0);
  }
  void TearDown() override {
    socket_.reset();
    link_.reset();
    ::waitpid(pid_, nullptr, 0);
  }

  // False: this host does not allow caches.
  bool set_up(const std::string& uids, uint64_t bytes) {
    Packet p;
    p.header.type = Type::kSetup;
    p.add("runtime", dir_.path);
    p.add("worker", "/usr/bin/bash");
    p.add("library", "/none");
    p.add("see", scripts_.path);
    p.add("uids", uids);
    p.add("env", "PATH=/usr/bin");
    p.add("env", "BASH_ENV=" + scripts_.path + "/commands");
    p.add("code-cache", std::to_string(bytes));
    send(link_, p);
    p = {};
    p.header.type = Type::kLaunch;
    send(link_, p);
    auto launched = answer(link_);
    EXPECT_TRUE(launched && launched->header.type == Type::kLaunched && fds_.size() == 1);
    socket_ = std::move(fds_.at(0));
    auto hello = answer(socket_);
    EXPECT_TRUE(hello && hello->header.code == 0);
    return hello && hello->one("no-code-cache").empty();
  }
  void send(const Fd& socket, const Packet& p, std::vector<int> fds = {}) {
    const std::string bytes = spawner_protocol::encode(p);
    ASSERT_TRUE(send_with_fds(socket.get(), bytes.data(), bytes.size(), fds).ok());
  }
  std::optional<Packet> answer(const Fd& socket) {
    pollfd wait{socket.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&wait, 1, 60'000), 1);
    std::string bytes(spawner_protocol::kMaxBytes, '\0');
    auto got = receive_with_fds(socket.get(), bytes.data(), bytes.size());
    if (!got || got->bytes == 0) return std::nullopt;
    fds_ = std::move(got->fds);
    return spawner_protocol::decode(std::string_view(bytes.data(), got->bytes));
  }

  // A worker that has not been told yet what to do.
  struct Worker {
    Fd control, output;
  };
  Worker start(uint64_t vgpu) {
    int control[2], output[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control), 0);
    EXPECT_EQ(::pipe(output), 0);
    Fd theirs(control[1]), their_output(output[1]);
    Packet p;
    p.header.type = Type::kSpawn;
    p.header.id = ++workers_;
    p.header.vgpu = vgpu;
    send(socket_, p, {theirs.get(), their_output.get()});
    auto spawned = answer(socket_);
    EXPECT_TRUE(spawned && spawned->header.type == Type::kSpawned);
    return {Fd(control[0]), Fd(output[0])};
  }
  // What it says until it ends.
  std::string tell(Worker worker, const std::string& command) {
    const std::string line = "exec 1>&2; " + command + "\n";
    EXPECT_EQ(::write(worker.control.get(), line.data(), line.size()),
              static_cast<ssize_t>(line.size()));
    std::string said;
    char buffer[4096];
    for (ssize_t n; (n = ::read(worker.output.get(), buffer, sizeof buffer)) > 0;)
      said.append(buffer, static_cast<size_t>(n));
    auto exited = answer(socket_);
    EXPECT_TRUE(exited && exited->header.type == Type::kExited);
    return said;
  }
  std::string run(uint64_t vgpu, const std::string& command) { return tell(start(vgpu), command); }
  void forget(uint64_t vgpu) {
    Packet p;
    p.header.type = Type::kForget;
    p.header.id = vgpu;
    send(socket_, p);
  }

  TempDir dir_, scripts_;
  Fd link_, socket_;
  std::vector<Fd> fds_;
  pid_t pid_ = -1;
  uint64_t workers_ = 0;
};

TEST_F(CodeCachesTest, WorkersOfOneVgpuShareAFolderAndNobodyElseSeesIt) {
  if (!set_up("2000000000-2000000063", 1 << 20)) GTEST_SKIP() << "no mounts here";
  EXPECT_EQ(run(7, "umask 077; mkdir $CUDA_CACHE_PATH/a; echo made > $CUDA_CACHE_PATH/a/b"), "");
  EXPECT_EQ(run(7, "cat $CUDA_CACHE_PATH/a/b"), "made\n");
  EXPECT_EQ(run(8, "ls -A $CUDA_CACHE_PATH /run/code"), "/run/code:\n\n/run/code:\n")
      << "another vGPU's";
  EXPECT_EQ(run(0, "echo \"${CUDA_CACHE_PATH-none}\"; ls -A /run/code"), "none\n");
  for (const uint64_t vgpu : {0, 7, 8}) {
    const std::string said = run(vgpu, "ls -A /run/codes; cat /run/codes/0/a/b /run/codes/1/a/b");
    EXPECT_EQ(said.find("made"), std::string::npos) << said;
  }
  const std::string of_7 = run(7, "id -u");
  EXPECT_EQ(run(7, "id -u"), of_7);
  EXPECT_NE(run(8, "id -u"), of_7);
  EXPECT_NE(run(0, "id -u"), of_7);
}

TEST_F(CodeCachesTest, WhoFillsItsOwnFillsNobodyElses) {
  if (!set_up("2000000000-2000000063", 1 << 20)) GTEST_SKIP() << "no mounts here";
  const std::string fill = run(7, "head -c 4000000 /dev/zero > $CUDA_CACHE_PATH/x");
  EXPECT_NE(fill.find("No space left"), std::string::npos) << fill;
  EXPECT_EQ(run(8, "head -c 900000 /dev/zero > $CUDA_CACHE_PATH/x"), "");
  EXPECT_NE(run(7, "i=0; while : > $CUDA_CACHE_PATH/f$i; do i=$((i+1)); done").find("No space"),
            std::string::npos)
      << "as many files as it likes";
  EXPECT_EQ(run(7, "rm $CUDA_CACHE_PATH/*; echo y > $CUDA_CACHE_PATH/y"), "");
}

TEST_F(CodeCachesTest, WhatItsVgpuHadGoesWithIt) {
  if (!set_up("2000000000-2000000063", 1 << 20)) GTEST_SKIP() << "no mounts here";
  EXPECT_EQ(run(7, "echo made > $CUDA_CACHE_PATH/a"), "");
  Worker late = start(7);
  forget(99);  // of none
  forget(7);
  EXPECT_EQ(run(7, "ls -A $CUDA_CACHE_PATH"), "");
  EXPECT_EQ(tell(std::move(late), "cat $CUDA_CACHE_PATH/a"), "made\n")
      << "a worker's own stays until it ends";
}

TEST_F(CodeCachesTest, MoreVgpusThanFoldersTakeTheOldestThatIsNotInUse) {
  if (!set_up("2000000000-2000000015", 1 << 20)) GTEST_SKIP() << "no mounts here";  // two folders
  EXPECT_EQ(run(1, "echo one > $CUDA_CACHE_PATH/a"), "");
  EXPECT_EQ(run(2, "echo two > $CUDA_CACHE_PATH/a"), "");
  Worker first = start(1);
  EXPECT_EQ(run(3, "ls -A $CUDA_CACHE_PATH; echo three > $CUDA_CACHE_PATH/a"), "") << "it was 2's";
  Worker third = start(3);
  EXPECT_EQ(run(4, "echo \"${CUDA_CACHE_PATH-none}\""), "none\n") << "both are in use";
  EXPECT_EQ(tell(std::move(first), "cat $CUDA_CACHE_PATH/a"), "one\n");
  EXPECT_EQ(tell(std::move(third), "cat $CUDA_CACHE_PATH/a"), "three\n");
  EXPECT_EQ(run(2, "ls -A $CUDA_CACHE_PATH"), "") << "it was 1's";
}

}  // namespace
}  // namespace sluice::test
