// SPDX-License-Identifier: Apache-2.0
// sluice-agent against a host played by the test: slots handed out and given back, whatever way a
// program ends.
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>

#include <fstream>

#include "mediator/base/peer_socket.h"
#include "tests/support/lingering.h"
#include "tests/unit/agent/fixture.h"

namespace sluice::guest {
namespace {

TEST_F(AgentTest, AnnouncesItselfAndBeats) {
  EXPECT_NE(header().agent_epoch, 0u);
  EXPECT_EQ(doorbell(), 0u);  // peer 0, vector 0
  const uint64_t beat = load_shared(header().agent_beat);
  EXPECT_TRUE(eventually([&] { return load_shared(header().agent_beat) > beat; }));
}

TEST_F(AgentTest, HandsOutASlotAndReportsTheEnd) {
  auto program = join("the-program");
  const auto open = receive(SLUICE_CONTROL_OPEN);
  EXPECT_STREQ(open.text, "the-program");
  EXPECT_EQ(open.guest_pid, static_cast<uint32_t>(::getpid()));
  opened(open.request, 2, 99);
  program->thread.join();
  ASSERT_NE(program->channel, nullptr) << program->error;
  Channel& channel = *program->channel;
  EXPECT_EQ(channel.slot(), 2u);
  EXPECT_EQ(channel.epoch(), 99u);
  EXPECT_EQ(channel.region(), reinterpret_cast<std::byte*>(SLUICE_WINDOW_ADDRESS));
  EXPECT_FALSE(channel.ended());
  channel.bell().ring();
  EXPECT_EQ(doorbell(), 3u) << "slot 2 rings peer 0, vector 3";
  // What the host writes is what the program sees; its vector wakes it.
  region_[SLUICE_SLOT_OFFSET] = std::byte{SLUICE_SLOT_OPEN};
  Bell::for_eventfd(device_.vectors[3].get()).ring();
  channel.wait(60'000'000'000);
  EXPECT_FALSE(channel.hung_up());
  EXPECT_TRUE(silent());
  program->channel.reset();
  const auto close = receive(SLUICE_CONTROL_CLOSE);
  EXPECT_EQ(close.slot, 2u);
  EXPECT_EQ(close.epoch, 99u);
  EXPECT_TRUE(eventually([&] { return agent_->programs() == 0; }));
}

// Programs leave sockets in their connections whose last close takes an hour. The agent hands out
// slots all the same.
class AgentOfOldKernels : public AgentTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    forget_passrights_for_test(GetParam());
    AgentTest::SetUp();
  }
  void TearDown() override {
    AgentTest::TearDown();
    forget_passrights_for_test(false);
  }
};
TEST_P(AgentOfOldKernels, ClosesNothingOfAProgramsInItsLoop) {
  pause_agent();  // or the last reference may be ours
  test::Lingering lingering[4];
  for (test::Lingering& one : lingering) {
    auto socket = connect_unix(path(), SOCK_SEQPACKET);
    ASSERT_TRUE(socket.ok());
    const int fd = one.fd();
    const sluice_join noise{};
    // Where the kernel refuses it, closing it here would wait for its peer.
    if (send_with_fds(socket->get(), &noise, sizeof noise, std::span(&fd, 1))) one.let_go();
  }
  run_agent();
  auto program = join("honest");
  const auto open = receive(SLUICE_CONTROL_OPEN);
  opened(open.request, 1, 5);
  program->thread.join();
  ASSERT_NE(program->channel, nullptr) << program->error;
  program->channel.reset();
  EXPECT_EQ(receive(SLUICE_CONTROL_CLOSE).slot, 1u);
  EXPECT_TRUE(eventually([&] { return agent_->programs() == 0; }));
}
INSTANTIATE_TEST_SUITE_P(Kernels, AgentOfOldKernels, ::testing::Bool());

TEST_F(AgentTest, AProgramThatWaitsAsksAgainInANewLife) {
  auto program = join("patient");
  const auto first = receive(SLUICE_CONTROL_OPEN);
  const uint64_t epoch = load_shared(header().agent_epoch);
  store_shared<uint64_t>(header().host_epoch, 2);
  ASSERT_TRUE(eventually([&] { return load_shared(header().agent_epoch) != epoch; }));
  const auto second = receive(SLUICE_CONTROL_OPEN);
  EXPECT_STREQ(second.text, "patient");
  EXPECT_NE(second.request, first.request);
  opened(second.request, 1, 50);
  program->thread.join();
  ASSERT_NE(program->channel, nullptr) << program->error;
  EXPECT_EQ(program->channel->slot(), 1u);
  program->channel.reset();
  EXPECT_EQ(receive(SLUICE_CONTROL_CLOSE).slot, 1u);
}

// The host of this test never beats.
TEST_F(AgentTest, NobodyWaitsForAHostThatIsSilent) {
  auto waiting = join("waits");
  const auto open = receive(SLUICE_CONTROL_OPEN);
  waiting->thread.join();
  EXPECT_EQ(waiting->channel, nullptr);
  EXPECT_NE(waiting->error.find("is sluiced stopped?"), std::string::npos) << waiting->error;
  auto late = join("late");
  late->thread.join();
  EXPECT_NE(late->error.find("is sluiced stopped?"), std::string::npos) << late->error;
  // An answer that comes after all is for nobody: the slot is given back.
  opened(open.request, 3, 7);
  EXPECT_EQ(receive(SLUICE_CONTROL_CLOSE).slot, 3u);
  // It is back, which the agent sees within a step.
  store_shared<uint64_t>(header().host_beat, 1);
  for (bool asked = false; !asked;) {
    auto again = join("again");
    ASSERT_TRUE(eventually([&] { return (asked = !silent()) || again->done; }));
    if (asked) stop_agent();
    again->thread.join();
  }
}

// 'virsh detach-device' on the host: the kernel waits until nobody has the device.
TEST_F(AgentTest, ADeviceThatIsWantedBackIsGivenBack) {
  pause_agent();
  device_.wanted_back = std::move(*make_eventfd());
  run_agent();
  auto program = join("p");
  opened(receive(SLUICE_CONTROL_OPEN).request, 2, 7);
  program->thread.join();
  ASSERT_NE(program->channel, nullptr) << program->error;
  Bell::for_eventfd(device_.wanted_back.get()).ring();
  EXPECT_TRUE(eventually([&] { return end_ == static_cast<int>(DeviceProblem::kRefused); }));
  stop_agent();
  const auto close = receive(SLUICE_CONTROL_CLOSE);
  EXPECT_EQ(close.slot, 2u);
  EXPECT_EQ(close.epoch, 7u);
  EXPECT_EQ(program->channel->end_reason().reason,
            "the vGPU was detached from this virtual machine");
  EXPECT_TRUE(program->channel->poll_hang_up());
}

// Without VFIO nobody is asked. QEMU answers reads by zeros then, buses by ones.
class AgentOfGoneDevice : public AgentTest, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Bytes, AgentOfGoneDevice, ::testing::Values(0, 0xff));
TEST_P(AgentOfGoneDevice, NamesIt) {
  auto program = join("p");
  opened(receive(SLUICE_CONTROL_OPEN).request, 2, 7);
  program->thread.join();
  ASSERT_NE(program->channel, nullptr) << program->error;
  std::memset(region_, GetParam(), SLUICE_SLOT_OFFSET + kSlots * SLUICE_SLOT_STRIDE);
  EXPECT_TRUE(eventually([&] { return end_ != 0; }));
  EXPECT_EQ(end_, static_cast<int>(DeviceProblem::kNoDevice));
  ASSERT_TRUE(program->channel->ended());
  EXPECT_EQ(program->channel->end_reason().reason,
            "the vGPU was detached from this virtual machine");
}

TEST_F(AgentTest, PassesOnARefusal) {
  auto program = join("p");
  const auto open = receive(SLUICE_CONTROL_OPEN);
  sluice_control_message m{};
  m.request = open.request;
  m.status = EBUSY;
  std::strcpy(m.text, "all slots are taken");
  send(SLUICE_CONTROL_OPENED, m);
  program->thread.join();
  EXPECT_EQ(program->channel, nullptr);
  EXPECT_NE(program->error.find("all slots are taken"), std::string::npos) << program->error;
  EXPECT_TRUE(silent());
}

TEST_F(AgentTest, AProgramThatDiesBeforeItsSlotComesLeavesNone) {
  auto socket = connect_unix(path(), SOCK_SEQPACKET);
  ASSERT_TRUE(socket.ok());
  sluice_join hello{};
  hello.magic = SLUICE_JOIN_MAGIC;
  hello.version = SLUICE_CHANNEL_VERSION;
  ASSERT_TRUE(send_with_fds(socket->get(), &hello, sizeof hello, {}).ok());
  const auto open = receive(SLUICE_CONTROL_OPEN);
  socket->reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  opened(open.request, 1, 7);
  const auto close = receive(SLUICE_CONTROL_CLOSE);
  EXPECT_EQ(close.slot, 1u);
  EXPECT_EQ(close.epoch, 7u);
}

// A killed program whose forked child keeps the connection open: the process descriptor shows its
// end.
TEST_F(AgentTest, AKilledProgramsSlotIsClosedThoughItsChildLives) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto socket = connect_unix(path(), SOCK_SEQPACKET);
    sluice_join hello{};
    hello.magic = SLUICE_JOIN_MAGIC;
    hello.version = SLUICE_CHANNEL_VERSION;
    (void)send_with_fds(socket->get(), &hello, sizeof hello, {});
    const pid_t grandchild = ::fork();
    if (grandchild != 0) [[maybe_unused]]
      ssize_t n = ::write(ready[1], &grandchild, sizeof grandchild);
    for (;;) ::pause();
  }
  pid_t grandchild = 0;
  ASSERT_EQ(::read(ready[0], &grandchild, sizeof grandchild), ssize_t{sizeof grandchild});
  const auto open = receive(SLUICE_CONTROL_OPEN);
  EXPECT_EQ(open.guest_pid, static_cast<uint32_t>(child));
  opened(open.request, 0, 5);
  ::kill(child, SIGKILL);
  const auto close = receive(SLUICE_CONTROL_CLOSE);
  EXPECT_EQ(close.slot, 0u);
  ::waitpid(child, nullptr, 0);
  ::kill(grandchild, SIGKILL);
  ::close(ready[0]);
  ::close(ready[1]);
}

// O_NONBLOCK belongs to the open file description, which a program shares with the agent and with
// the slot's next program.
TEST_F(AgentTest, AProgramThatMakesItsBellBlockKeepsNobodyWaiting) {
  const auto ask = [&](uint64_t epoch) {
    auto socket = connect_unix(path(), SOCK_SEQPACKET);
    EXPECT_TRUE(socket.ok());
    sluice_join hello{};
    hello.magic = SLUICE_JOIN_MAGIC;
    hello.version = SLUICE_CHANNEL_VERSION;
    EXPECT_TRUE(send_with_fds(socket->get(), &hello, sizeof hello, {}).ok());
    opened(receive(SLUICE_CONTROL_OPEN).request, 1, epoch);
    return std::move(*socket);
  };
  Fd first = ask(98);
  sluice_joined joined{};
  auto got = receive_with_fds(first.get(), &joined, sizeof joined);
  ASSERT_TRUE(got.ok() && got->fds.size() == 2);
  const Fd wake = std::move(got->fds[1]);
  ASSERT_EQ(::fcntl(wake.get(), F_SETFL, 0), 0);
  first.reset();
  receive(SLUICE_CONTROL_CLOSE);
  Fd second = ask(99);
  pollfd answer{second.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&answer, 1, 20'000), 1) << "the agent waits for a ring";
  Bell::for_eventfd(wake.get()).ring();  // so that the test ends
}

TEST_F(AgentTest, TheHostEndsASession) {
  auto program = join("p");
  opened(receive(SLUICE_CONTROL_OPEN).request, 3, 11);
  program->thread.join();
  ASSERT_NE(program->channel, nullptr) << program->error;
  sluice_control_message m{};
  m.slot = 3;
  m.epoch = 10;  // an earlier session of that slot: not this one
  send(SLUICE_CONTROL_CLOSED, m);
  m.epoch = 11;
  std::strcpy(m.text, "killed by the operator");
  send(SLUICE_CONTROL_CLOSED, m);
  // The program may still read the slot's memory: its end is reported, though the host knows that
  // the session is over, and not before.
  auto next = join("q");
  const auto asked = receive(SLUICE_CONTROL_OPEN);  // the agent has read all before this
  EXPECT_STREQ(asked.text, "q");
  EXPECT_FALSE(program->channel->poll_hang_up());
  program->channel.reset();
  const auto close = receive(SLUICE_CONTROL_CLOSE);
  EXPECT_EQ(close.slot, 3u);
  EXPECT_EQ(close.epoch, 11u);
  sluice_control_message no{};
  no.request = asked.request;
  no.status = EBUSY;
  send(SLUICE_CONTROL_OPENED, no);
  next->thread.join();
}

TEST_F(AgentTest, WithoutItsAgentAProgramLetsGoOfTheDeviceAndKeepsItsData) {
  auto program = join("p");
  opened(receive(SLUICE_CONTROL_OPEN).request, 3, 11);
  program->thread.join();
  ASSERT_NE(program->channel, nullptr) << program->error;
  Channel& channel = *program->channel;
  std::memset(channel.region() + kRegion - 8192, 0x66, 8192);
  EXPECT_TRUE(channel.can_detach());
  EXPECT_FALSE(channel.poll_hang_up());
  stop_agent();
  EXPECT_TRUE(channel.poll_hang_up());
  channel.detach({{kRegion - 8192, 4096}});
  EXPECT_EQ(channel.region()[kRegion - 8192], std::byte{0x66});
  EXPECT_EQ(channel.region()[kRegion - 1], std::byte{0}) << "the memory is its own now";
  channel.region()[0] = std::byte{1};
  EXPECT_EQ(static_cast<uint8_t>(region_[0]), SLUICE_CHANNEL_MAGIC & 0xff);
}

TEST_F(AgentTest, ANewLifeOfTheVgpuEndsEverything) {
  auto program = join("p");
  opened(receive(SLUICE_CONTROL_OPEN).request, 3, 11);
  program->thread.join();
  ASSERT_NE(program->channel, nullptr) << program->error;
  const uint64_t before = load_shared(header().agent_epoch);
  store_shared<uint64_t>(header().host_epoch, 2);
  EXPECT_TRUE(eventually([&] { return load_shared(header().agent_epoch) != before; }));
  EXPECT_TRUE(eventually([&] {
    program->channel->wait(100'000'000);
    return program->channel->hung_up();
  }));
  program->channel.reset();  // the window is free for the next
  auto next = join("q");
  EXPECT_STREQ(receive(SLUICE_CONTROL_OPEN).text, "q");
  stop_agent();
  next->thread.join();
  EXPECT_EQ(next->channel, nullptr);
}

TEST_F(AgentTest, StopsWhenTheVgpuIsTakenAway) {
  std::strcpy(header().reason, "deleted");
  store_shared<uint32_t>(header().state, SLUICE_CHANNEL_CLOSED);
  Bell::for_eventfd(device_.vectors[0].get()).ring();
  EXPECT_TRUE(eventually([&] { return end_ != 0; }));
  EXPECT_EQ(end_, static_cast<int>(DeviceProblem::kRefused));
}

TEST_F(AgentTest, AnswersOfAnEarlierAgentFreeTheirSlots) {
  opened(12345, 2, 42);
  const auto close = receive(SLUICE_CONTROL_CLOSE);
  EXPECT_EQ(close.slot, 2u);
  EXPECT_EQ(close.epoch, 42u);
}

TEST_F(AgentTest, ManyProgramsAtOnce) {
  constexpr int kPrograms = 40;
  std::vector<Fd> sockets;
  for (int i = 0; i < kPrograms; ++i) {
    auto socket = connect_unix(path(), SOCK_SEQPACKET);
    ASSERT_TRUE(socket.ok());
    sluice_join hello{};
    hello.magic = SLUICE_JOIN_MAGIC;
    hello.version = SLUICE_CHANNEL_VERSION;
    ASSERT_TRUE(send_with_fds(socket->get(), &hello, sizeof hello, {}).ok());
    sockets.push_back(std::move(*socket));
  }
  std::vector<uint64_t> requests;
  for (int i = 0; i < kPrograms; ++i) requests.push_back(receive(SLUICE_CONTROL_OPEN).request);
  for (int i = 0; i < kPrograms; ++i) {
    sluice_control_message m{};
    m.request = requests[static_cast<size_t>(i)];
    m.status = EBUSY;
    send(SLUICE_CONTROL_OPENED, m);
  }
  for (Fd& socket : sockets) {
    sluice_joined joined{};
    auto received = receive_with_fds(socket.get(), &joined, sizeof joined);
    ASSERT_TRUE(received.ok());
    EXPECT_EQ(joined.status, uint32_t{EBUSY});
  }
  EXPECT_TRUE(eventually([&] { return agent_->programs() == 0; }));
}

TEST_F(AgentTest, AHostOfTheNextVersionThatStillSpeaksThisOneIsServed) {
  EXPECT_STREQ(header().agent_release, SLUICE_VERSION);
  stop_agent();
  constexpr uint32_t kNow = SLUICE_CHANNEL_VERSION, kOldest = SLUICE_CHANNEL_OLDEST;
  const struct {
    uint32_t version, oldest, common;
  } hosts[] = {{kNow, 0, kNow},         {kNow, kOldest, kNow}, {kNow + 1, kNow, kNow},
               {kNow + 1, kNow + 1, 0}, {kNow + 1, 0, 0},      {kOldest - 1, kOldest - 1, 0},
               {kOldest - 1, kNow, 0},  {UINT32_MAX, 1, kNow}, {0, 0, 0}};
  std::strcpy(header().host_release, "9.9");
  for (const auto& host : hosts) {
    EXPECT_EQ(sluice_channel_common(host.version, host.oldest), host.common);
    header().version = host.version;
    header().oldest = host.oldest;
    const auto checked = check_channel_header(device_);
    EXPECT_EQ(checked.ok(), host.common != 0) << host.version << ", " << host.oldest;
    if (!checked) {
      EXPECT_NE(checked.error().message.find("the host (9.9)"), std::string::npos)
          << checked.error().message;
      EXPECT_NE(
          checked.error().message.find(host.version < kNow ? "host's package" : "guest's package"),
          std::string::npos)
          << checked.error().message;
    }
  }
  // A host that does not end its text.
  std::memset(header().host_release, 'x', sizeof header().host_release);
  header().version = kNow + 1, header().oldest = kNow + 1;
  EXPECT_NE(check_channel_header(device_).error().message.find("(xxxxxxxxxxxxxxxx)"),
            std::string::npos);
}

TEST_F(AgentTest, AProgramOfTheNextVersionThatStillSpeaksThisOneIsServed) {
  constexpr uint32_t kNow = SLUICE_CHANNEL_VERSION;
  static_assert(SLUICE_JOIN_VERSION(2, 2) == 2, "what libcudas of today send");
  EXPECT_EQ(sluice_join_common(SLUICE_JOIN_VERSION(kNow + 1, kNow)), kNow);
  EXPECT_EQ(sluice_join_common(SLUICE_JOIN_VERSION(kNow + 1, kNow + 1)), 0u);
  sluice_join hello{};
  hello.magic = SLUICE_JOIN_MAGIC;
  hello.version = SLUICE_JOIN_VERSION(kNow + 1, kNow);
  auto socket = connect_unix(path(), SOCK_SEQPACKET);
  ASSERT_TRUE(socket.ok());
  ASSERT_TRUE(send_with_fds(socket->get(), &hello, sizeof hello, {}).ok());
  EXPECT_NE(receive(SLUICE_CONTROL_OPEN).request, 0u);
}

TEST_F(AgentTest, StrangersAreRefused) {
  struct {
    sluice_join join;
    char more[64];
  } right{};
  right.join.magic = SLUICE_JOIN_MAGIC;
  right.join.version = SLUICE_CHANNEL_VERSION;
  auto newer = right, other = right, noise = right;
  newer.join.version = SLUICE_CHANNEL_VERSION + 1;
  other.join.magic = 0x7f454c46;
  std::memset(&noise, 0xff, sizeof noise);
  const std::pair<const void*, size_t> strangers[] = {
      {&newer, sizeof(sluice_join)},     {&other, sizeof(sluice_join)},
      {&noise, sizeof(sluice_join)},     {&right, 1},
      {&right, sizeof(sluice_join) - 1}, {&right, sizeof right}};
  for (const auto& [hello, bytes] : strangers) {
    auto socket = connect_unix(path(), SOCK_SEQPACKET);
    ASSERT_TRUE(socket.ok());
    ASSERT_TRUE(send_with_fds(socket->get(), hello, bytes, {}).ok());
    sluice_joined joined{};
    auto received = receive_with_fds(socket->get(), &joined, sizeof joined);
    ASSERT_TRUE(received.ok());
    EXPECT_EQ(joined.status, uint32_t{EPROTO});
  }
  EXPECT_TRUE(silent());
}

TEST(AgentDevice, IsFoundByVendorAndDevice) {
  char name[] = "/tmp/sluice-sysfs-XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  const std::string sysfs = name;
  auto add = [&](const std::string& address, const char* vendor, const char* device) {
    std::string path = sysfs;
    for (const char* part : {"/bus", "/pci", "/devices"}) ::mkdir((path += part).c_str(), 0755);
    ::mkdir((path += "/" + address).c_str(), 0755);
    std::ofstream(path + "/vendor") << vendor << "\n";
    std::ofstream(path + "/device") << device << "\n";
  };
  EXPECT_TRUE(find_vgpu_devices(sysfs).empty());
  add("0000:00:02.0", "0x1af4", "0x1041");
  add("0000:02:01.0", "0x1af4", "0x1110");
  add("0000:00:03.0", "0x8086", "0x1110");
  add("0000:01:01.0", "0x1af4", "0x1110");
  const auto found = find_vgpu_devices(sysfs);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0], "0000:01:01.0");
  EXPECT_NE(describe_devices(sysfs).find("0000:02:01.0"), std::string::npos);
  [[maybe_unused]] int rc = ::system(("rm -r " + sysfs).c_str());
}

}  // namespace
}  // namespace sluice::guest
