// SPDX-License-Identifier: Apache-2.0
// Peers that would make sluiced wait: eventfds without O_NONBLOCK, descriptors whose last close
// lingers, sockets that nobody reads, a full stderr. Each test ends only because the loop goes on.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "mediator/base/peer_socket.h"
#include "tests/support/lingering.h"
#include "tests/support/test_daemon.h"

namespace {
std::atomic<size_t> punched_in_loop{0}, punched_elsewhere{0};
}  // namespace

// Instead of libc's: the kernel may take as long over it as the memory is large.
extern "C" int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  if ((mode & FALLOC_FL_PUNCH_HOLE) != 0)
    (::gettid() == ::getpid() ? punched_in_loop : punched_elsewhere)++;
  return static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, bytes));
}

namespace sluice::test {
namespace {

void block(int fd) { ASSERT_EQ(::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK), 0); }
void fill(int eventfd) {
  drain_eventfd(eventfd);
  block(eventfd);
  const uint64_t full = UINT64_MAX - 1;
  ASSERT_EQ(::write(eventfd, &full, sizeof full), 8);
}

class HostilePeer : public DaemonTest, public ::testing::WithParamInterface<bool> {
 protected:
  HostilePeer() { forget_passrights_for_test(GetParam()); }
  ~HostilePeer() override { forget_passrights_for_test(false); }

  std::unique_ptr<LocalProgram> joined() {
    auto p = std::make_unique<LocalProgram>(daemon_->find("a")->spec().local_socket);
    p->send_join();
    EXPECT_TRUE(run_until([&] { return p->joined(); }));
    EXPECT_TRUE(p->has_answer() && p->answer().status == 0);
    return p;
  }
  // Sends `bytes` with the descriptor; whether the kernel let it through.
  static bool pass(int socket, size_t bytes, int fd, int flags = 0) {
    char data[64] = {};
    iovec iov{data, bytes};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr msg{};
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control;
    msg.msg_controllen = sizeof control;
    cmsghdr* c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
    return ::sendmsg(socket, &msg, flags | MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
  }
  void expect_served() {
    run_for_a_moment();
    EXPECT_TRUE(rpc(R"({"jsonrpc":"2.0","id":1,"method":"version","params":{}})").is_object());
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, HostilePeer, ::testing::Values(false, true),
                         [](const auto& kernel) { return kernel.param ? "before_6_16" : "this"; });

TEST_P(HostilePeer, AProgramsFullWakeDescriptor) {
  start();
  create("a");
  auto p = joined();
  fill(p->wake_fd());
  ASSERT_EQ(::kill(daemon_->find("a")->sessions().at(0)->worker_pid(), SIGKILL), 0);
  EXPECT_TRUE(run_until([&] { return daemon_->find("a")->sessions().empty(); }));
  expect_served();
}

TEST_P(HostilePeer, AVirtualMachinesBells) {
  start();
  VgpuServer* a = create("a");
  auto qemu = connect_unix(a->spec().socket, SOCK_STREAM);
  ASSERT_TRUE(qemu.ok());
  std::vector<Fd> bells;
  EXPECT_TRUE(run_until([&] {
    int64_t value;
    while (auto got = receive_with_fds(qemu->get(), &value, sizeof value, MSG_DONTWAIT))
      for (Fd& fd : got->fds) bells.push_back(std::move(fd));
    return bells.size() == 1 + 2 * (config_.slots + 1);
  }));
  bells.erase(bells.begin());  // the region
  // Empty ones make a read wait, full ones a write.
  for (size_t i = 0; i < bells.size(); ++i)
    if (i <= config_.slots)
      block(bells[i].get());
    else
      fill(bells[i].get());
  auto p = joined();  // takes a slot, whose bells are drained
  p->close();
  EXPECT_TRUE(run_until([&] { return a->sessions().empty(); }));
  expect_served();
}

TEST_P(HostilePeer, DescriptorsThatLingerOverEverySocket) {
  start();
  VgpuServer* a = create("a");
  struct Way {
    std::string path;
    int type;
    size_t bytes;
    int flags;
  };
  const std::string admin = config_.admin_socket_path();
  for (const Way& way : {Way{a->spec().socket, SOCK_STREAM, 1, 0},
                         {a->spec().socket, SOCK_STREAM, 1, MSG_OOB},
                         {a->spec().local_socket, SOCK_SEQPACKET, 64, 0},
                         {a->spec().local_socket, SOCK_SEQPACKET, 0, 0},
                         {admin, SOCK_STREAM, 1, 0},
                         {admin, SOCK_STREAM, 1, MSG_OOB}}) {
    for (bool accepted : {false, true}) {
      SCOPED_TRACE(way.path + (accepted ? ", accepted" : ", before accept"));
      Lingering lingering;
      auto peer = connect_unix(way.path, way.type);
      ASSERT_TRUE(peer.ok());
      if (accepted) run_for_a_moment();
      const bool through = pass(peer->get(), way.bytes, lingering.fd(), way.flags);
      if (GetParam()) {
        EXPECT_TRUE(through);
      }
      // Where the kernel refused it, closing it here would wait for its peer.
      if (through) lingering.let_go();
      if (way.flags) (void)!::send(peer->get(), "x", 1, MSG_NOSIGNAL);
      expect_served();
      peer->reset();
      expect_served();
    }
  }
}

// As much as the socket takes: what sluiced drops a little at a time, it would read for minutes.
void fill_with_noise(int socket) {
  const int bytes = 16 << 20;
  if (::setsockopt(socket, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes) != 0)
    ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  const char noise[4096] = {};
  while (::send(socket, noise, sizeof noise, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
}

TEST_P(HostilePeer, NoiseHoldsNoPlaceAfterItsSenderHasGone) {
  start();
  VgpuServer* a = create("a");
  auto qemu = connect_unix(a->spec().socket, SOCK_STREAM);
  ASSERT_TRUE(qemu.ok());
  ASSERT_TRUE(run_until([&] { return a->has_live_peer(); }));
  fill_with_noise(qemu->get());
  qemu->reset();
  EXPECT_TRUE(run_until([&] { return !a->has_live_peer(); }));
  auto p = joined();
  fill_with_noise(p->socket());
  p->close();
  EXPECT_TRUE(run_until([&] { return a->sessions().empty(); }));
  expect_served();
}

// Who has taken all descriptors of sluiced, and starts a session, ends no neighbour's.
TEST_P(HostilePeer, WithoutDescriptorsOnlyTheNewSessionFails) {
  start();
  create("a");
  create("b");
  auto victim = std::make_unique<LocalProgram>(daemon_->find("b")->spec().local_socket);
  victim->send_join();
  ASSERT_TRUE(run_until([&] { return victim->joined(); }));
  LocalProgram attacker(daemon_->find("a")->spec().local_socket);
  attacker.send_join();
  // Its worker is asked for, and what the spawner answers is not read yet.
  ASSERT_TRUE(run_until([&] { return daemon_->find("a")->sessions().size() == 1; }));
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{3, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_TRUE(run_until([&] { return daemon_->find("a")->sessions().empty(); }));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(run_until([&] { return attacker.joined(); }));
  ASSERT_TRUE(attacker.has_answer());
  EXPECT_EQ(attacker.answer().status, uint32_t{EMFILE}) << attacker.answer().reason;
  EXPECT_EQ(victim->slot_state(), uint32_t{SLUICE_SLOT_OPEN});
  victim->command(fake::kLease, 5);
  EXPECT_TRUE(run_until([&] { return victim->reply().has_value(); })) << "its worker has ended";
  EXPECT_EQ(joined()->answer().status, 0u) << "and the next one starts";
}

TEST_P(HostilePeer, NoMemoryIsPunchedOutInTheLoop) {
  start();
  VgpuServer* a = create("a");
  punched_in_loop = punched_elsewhere = 0;
  auto p = joined();
  std::optional<fake::Reply> extent;
  p->command(fake::kExtent, SLUICE_EXTENT_BYTES);
  ASSERT_TRUE(run_until([&] { return (extent = p->reply()).has_value(); }));
  ASSERT_EQ(extent->a, 0u);
  p->command(fake::kReturnExtent, extent->b, SLUICE_EXTENT_BYTES);
  EXPECT_TRUE(run_until([&] { return punched_elsewhere == 1; })) << "what a program gives back";
  p->close();
  EXPECT_TRUE(run_until([&] { return a->sessions().empty(); }));
  EXPECT_TRUE(run_until([&] { return punched_elsewhere == 2; })) << "its region";
  EXPECT_EQ(punched_in_loop, 0u);
}

TEST_P(HostilePeer, AWakeSocketPassesDescriptorsOrIsNeverRead) {
  auto pair = make_wake_pair();
  ASSERT_TRUE(pair.ok());
  block(pair->theirs.get());
  for (int i = 0; i < 10000; ++i) ring_wake(pair->ours.get());  // nobody reads
  drain_trusted_wake(pair->theirs.get());
  EXPECT_EQ(drain_wake(pair->ours.get()), Drained::kNothing);
  ring_wake(pair->theirs.get());
  EXPECT_EQ(drain_wake(pair->ours.get()), Drained::kRung);
  EXPECT_EQ(drain_wake(pair->ours.get()), Drained::kNothing);
  const bool through = pass(pair->theirs.get(), 1, 2);
  EXPECT_EQ(drain_wake(pair->ours.get()), through ? Drained::kDescriptors : Drained::kNothing);
}

}  // namespace
}  // namespace sluice::test
