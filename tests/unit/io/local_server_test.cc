// SPDX-License-Identifier: Apache-2.0
// LocalServer: what a program has said counts before what it has not.
#include "mediator/io/peers/local_server.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/support/test_daemon.h"

namespace sluice::test {
namespace {

struct JoinOwner : io::LocalServer::Owner {
  void on_join(io::LocalServer::ConnectionId, const std::string& program,
               const PeerCredentials&) override {
    joined = program;
  }
  void on_left(io::LocalServer::ConnectionId) override {}
  std::string joined;
};

// The loop has no processor from the moment of the connection until its deadline has passed and the
// join lies in the socket. The system call that tells it of its descriptors brings 128 at most: the
// deadline and other descriptors come before the join.
TEST(LocalServer, AJoinThatLiesInTheSocketIsReadBeforeItsDeadlineIsJudged) {
  constexpr uint32_t kDeadlineMs = 10;
  TempDir dir;
  boost::asio::io_context io;
  auto peers = std::make_shared<io::PeerThread>(io);
  io::LoopBudgets budgets{io::LoopShares{}};
  JoinOwner owner;
  ListenOptions options;
  options.mode = 0600;
  auto server = io::LocalServer::open(io, dir.path + "/s", options, kDeadlineMs, peers,
                                      budgets.make(), owner);
  ASSERT_TRUE(server) << server.error().message;
  std::vector<Fd> others;
  std::vector<io::FdWatch> watches;
  for (int i = 0; i < 200; ++i) {
    others.emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    watches.emplace_back(io, others.back().get(), [fd = others.back().get()] {
      uint64_t count;
      (void)!::read(fd, &count, sizeof count);
    });
  }
  io.poll();

  auto program = connect_unix(dir.path + "/s", SOCK_SEQPACKET);
  ASSERT_TRUE(program) << program.error().message;
  while (io.poll() == 0) {
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(2 * kDeadlineMs));
  for (const Fd& other : others) {
    const uint64_t one = 1;
    ASSERT_EQ(::write(other.get(), &one, sizeof one), 8);
  }
  sluice_join join{};
  join.magic = SLUICE_JOIN_MAGIC;
  join.version = SLUICE_JOIN_VERSION(SLUICE_CHANNEL_VERSION, SLUICE_CHANNEL_OLDEST);
  std::snprintf(join.program, sizeof join.program, "late");
  ASSERT_EQ(::send(program->get(), &join, sizeof join, MSG_NOSIGNAL), ssize_t{sizeof join});
  for (int i = 0; i < 10; ++i) io.poll();
  EXPECT_EQ(owner.joined, "late");

  // Who says nothing is turned away all the same.
  auto silent = connect_unix(dir.path + "/s", SOCK_SEQPACKET);
  ASSERT_TRUE(silent) << silent.error().message;
  sluice_joined refused{};
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (::recv(silent->get(), &refused, sizeof refused, MSG_DONTWAIT) < 0 &&
         std::chrono::steady_clock::now() < until)
    io.run_one_for(std::chrono::milliseconds(kDeadlineMs));
  EXPECT_EQ(refused.status, uint32_t{ETIMEDOUT});
}

}  // namespace
}  // namespace sluice::test
