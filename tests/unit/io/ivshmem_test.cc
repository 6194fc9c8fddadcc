// SPDX-License-Identifier: Apache-2.0
// A vGPU's ivshmem side against a QEMU of our own making: the handshake as QEMU reads it, peers
// that are too many, half-open or gone, the agent's rings, honest and hostile.
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "mediator/base/clock.h"
#include "mediator/base/limits.h"
#include "mediator/io/loop_budget.h"
#include "tests/support/fake_qemu.h"
#include "tests/support/test_daemon.h"

namespace sluice::test {
namespace {

class IvshmemTest : public DaemonTest {
 protected:
  void SetUp() override {
    start();
    vgpu_ = create("a");
    vectors_ = config_.slots + 1;
  }
  std::unique_ptr<FakeQemu> connect() {
    auto q = std::make_unique<FakeQemu>(vgpu_->spec().socket);
    EXPECT_TRUE(run_until([&] { return q->complete(vectors_); }));
    return q;
  }
  sluice_control_message receive(FakeAgent& a, uint16_t opcode) {
    std::optional<sluice_control_message> m;
    EXPECT_TRUE(run_until([&] { return (m = a.receive(opcode)).has_value(); }));
    return m.value_or(sluice_control_message{});
  }
  sluice_control_message open(FakeAgent& a, uint64_t request) {
    a.send(SLUICE_CONTROL_OPEN, request);
    auto m = receive(a, SLUICE_CONTROL_OPENED);
    EXPECT_EQ(m.request, request);
    return m;
  }
  void expect_all_free_of(VgpuServer* vgpu) {
    EXPECT_TRUE(run_until([&] { return vgpu->sessions().empty(); }));
    EXPECT_TRUE(run_until([&] { return vgpu->shared_memory().used_bytes == 0; }));
    EXPECT_EQ(vgpu->memory_used_bytes(), 0u);
  }
  void expect_all_free() {
    expect_all_free_of(vgpu_);
    EXPECT_EQ(daemon_->executor().session_count(), 0u);
  }
  // Bytes of QEMU's that sluiced has not read yet.
  int unread_notifications() {
    int bytes = 0;
    EXPECT_EQ(::ioctl(vgpu_->connection().at(0), SIOCINQ, &bytes), 0);
    return bytes;
  }
  void run_for_a_turn() {
    io_.poll();
    io_.restart();
  }
  VgpuServer* vgpu_ = nullptr;
  uint32_t vectors_ = 0;
};

TEST_F(IvshmemTest, TheHandshakeIsWhatQemuExpects) {
  auto q = connect();
  EXPECT_EQ(q->value(0), 0) << "protocol version";
  EXPECT_EQ(q->fd(0), -1);
  EXPECT_EQ(q->value(1), 1) << "its own id";
  EXPECT_EQ(q->value(2), -1) << "memory";
  ASSERT_GE(q->fd(2), 0);
  EXPECT_EQ(::lseek(q->fd(2), 0, SEEK_END), static_cast<off_t>(config_.region_bytes));
  for (uint32_t v = 0; v < vectors_; ++v) {
    EXPECT_EQ(q->value(3 + v), 0) << "the host's vector " << v;
    EXPECT_EQ(q->value(3 + vectors_ + v), 1) << "the guest's vector " << v;
    EXPECT_GE(q->host_bell(v), 0);
    EXPECT_GE(q->guest_bell(v, vectors_), 0);
  }
  run_for_a_moment();
  q->read();
  EXPECT_EQ(q->count(), 3 + 2 * vectors_);
  EXPECT_FALSE(q->closed());
  EXPECT_TRUE(vgpu_->has_live_peer());
}

TEST_F(IvshmemTest, ASecondPeerIsRefusedWithAReasonAndStaysConnected) {
  auto first = connect();
  FakeQemu second(vgpu_->spec().socket);
  ASSERT_TRUE(run_until([&] { return second.set_up(); }));
  EXPECT_EQ(second.value(0), 0);
  EXPECT_EQ(second.value(2), -1);
  auto page = second.memory();
  EXPECT_EQ(page.bytes(), 4096u);
  const auto& h = *page.as<sluice_channel_header>();
  EXPECT_EQ(h.magic, uint64_t{SLUICE_CHANNEL_MAGIC});
  EXPECT_EQ(h.state, uint32_t{SLUICE_CHANNEL_REFUSED});
  EXPECT_STRNE(h.reason, "");
  run_for_a_moment();
  second.read();
  EXPECT_FALSE(second.closed());
  EXPECT_TRUE(vgpu_->has_live_peer());
  second.close();
  run_for_a_moment();
  EXPECT_TRUE(vgpu_->has_live_peer()) << "the first is not disturbed";
}

TEST_F(IvshmemTest, TheNextPeerAfterAnEndGetsFreshMemory) {
  auto q = connect();
  auto memory = q->memory();
  const uint64_t epoch = memory.as<sluice_channel_header>()->host_epoch;
  std::memset(memory.as<char>(memory.bytes() - 4096), 0x55, 4096);
  q->close();
  ASSERT_TRUE(run_until([&] { return !vgpu_->has_live_peer(); }));
  auto again = connect();
  auto fresh = again->memory();
  EXPECT_NE(fresh.as<sluice_channel_header>()->host_epoch, epoch);
  EXPECT_EQ(*fresh.as<char>(fresh.bytes() - 4096), 0);
}

TEST_F(IvshmemTest, PeersThatDoNotReadOrTalkDisturbNobody) {
  FakeQemu silent(vgpu_->spec().socket);  // takes the live place and reads nothing
  ASSERT_TRUE(run_until([&] { return vgpu_->has_live_peer(); }));
  const char noise[4096] = {};
  for (int i = 0; i < 8; ++i)
    [[maybe_unused]] auto n = ::send(silent.socket(), noise, sizeof noise, MSG_DONTWAIT);
  auto other = create("b");
  FakeQemu q(other->spec().socket);
  EXPECT_TRUE(run_until([&] { return q.complete(vectors_); }));
  EXPECT_TRUE(run_until([&] { return silent.complete(vectors_); })) << "and it can still go on";
  silent.close();
  EXPECT_TRUE(run_until([&] { return !vgpu_->has_live_peer(); }));
}

TEST_F(IvshmemTest, AFloodOfPeersIsBounded) {
  auto live = connect();
  std::vector<std::unique_ptr<FakeQemu>> flood;
  for (int i = 0; i < 40; ++i) {
    flood.push_back(std::make_unique<FakeQemu>(vgpu_->spec().socket));
    run_for_a_turn();  // connecting would block once the backlog is full
  }
  ASSERT_TRUE(run_until([&] {
    size_t done = 0;
    for (auto& q : flood) {
      q->read();
      done += q->closed() || q->count() >= 3;
    }
    return done == flood.size();
  }));
  size_t refused = 0;
  for (auto& q : flood) refused += q->count() >= 3;
  EXPECT_EQ(refused, limits::kMaxRefusedPeers);
  EXPECT_TRUE(vgpu_->has_live_peer());
}

TEST_F(IvshmemTest, AnAgentOpensAndClosesSessions) {
  auto q = connect();
  FakeAgent agent(*q, 1);
  auto one = open(agent, 11), two = open(agent, 12);
  EXPECT_EQ(one.status, 0u) << one.text;
  EXPECT_NE(one.slot, two.slot);
  EXPECT_EQ(load_shared(agent.slot(one.slot).state), uint32_t{SLUICE_SLOT_OPEN});
  EXPECT_EQ(agent.slot(one.slot).epoch, one.epoch);
  // A wrong epoch closes nothing.
  agent.send(SLUICE_CONTROL_CLOSE, 0, one.slot, one.epoch + 100);
  agent.send(SLUICE_CONTROL_CLOSE, 0, 9999, one.epoch);
  agent.send(SLUICE_CONTROL_CLOSE, 0, two.slot, two.epoch);
  auto closed = receive(agent, SLUICE_CONTROL_CLOSED);
  EXPECT_EQ(closed.slot, two.slot);
  EXPECT_EQ(closed.epoch, two.epoch);
  EXPECT_EQ(vgpu_->sessions().size(), 1u);
  EXPECT_EQ(vgpu_->sessions()[0]->slot(), one.slot);
}

TEST_F(IvshmemTest, TheGuestsEndEndsItsSessions) {
  auto q = connect();
  {
    FakeAgent agent(*q, 1);
    EXPECT_EQ(open(agent, 1).status, 0u);
    EXPECT_EQ(open(agent, 2).status, 0u);
  }
  q->close();
  expect_all_free();
  auto again = connect();
  FakeAgent agent(*again, 2);
  EXPECT_EQ(open(agent, 1).status, 0u);
}

TEST_F(IvshmemTest, ANewAgentEpochEndsTheSessionsBefore) {
  auto q = connect();
  FakeAgent before(*q, 5);
  ASSERT_EQ(open(before, 1).status, 0u);
  FakeAgent after(*q, 6);
  expect_all_free();
  EXPECT_EQ(open(after, 7).status, 0u);
  EXPECT_EQ(vgpu_->agent().agent_epoch(), 6u);
}

// Its first words are in the ring before sluiced takes up its epoch, which it does a while after
// the one before. They are not that one's, which ends.
TEST_F(IvshmemTest, AnAgentThatStartsRightAfterAnotherIsHeardAsItself) {
  auto q = connect();
  FakeAgent before(*q, 5);
  ASSERT_TRUE(run_until([&] { return vgpu_->agent().agent_epoch() == 5; }));
  FakeAgent after(*q, 6);
  const auto opened = open(after, 7);
  EXPECT_EQ(opened.status, 0u) << opened.text;
  EXPECT_EQ(vgpu_->agent().agent_epoch(), 6u);
  EXPECT_EQ(open(after, 8).status, 0u);
  EXPECT_EQ(vgpu_->sessions().size(), 2u);
  EXPECT_FALSE(after.receive(SLUICE_CONTROL_CLOSED));
}

// Notifications of a patched QEMU.
constexpr int64_t kDeviceReset = -2, kDeviceClosed = -3;

TEST_F(IvshmemTest, AResetThatQemuReportsEndsTheGuestsSessionsAtOnce) {
  auto q = connect();
  LocalProgram local(vgpu_->spec().local_socket);
  local.send_join();
  ASSERT_TRUE(run_until([&] { return local.joined(); }));
  uint64_t epoch = 0;
  for (int64_t value : {kDeviceReset, kDeviceClosed}) {
    FakeAgent agent(*q, ++epoch);
    ASSERT_EQ(open(agent, 1).status, 0u);
    q->notify(value);
    EXPECT_TRUE(run_until([&] { return vgpu_->sessions().size() == 1; }));
    EXPECT_TRUE(run_until([&] { return vgpu_->channel().slots_in_use() == 0; }));
    EXPECT_TRUE(vgpu_->has_live_peer()) << "QEMU is still there";
  }
  EXPECT_EQ(local.slot_state(), uint32_t{SLUICE_SLOT_OPEN}) << "not the guest's";
}

TEST_F(IvshmemTest, ANotificationInPiecesIsOne) {
  auto q = connect();
  FakeAgent agent(*q, 1);
  ASSERT_EQ(open(agent, 1).status, 0u);
  const auto* bytes = reinterpret_cast<const char*>(&kDeviceReset);
  q->send_bytes(bytes, 3);
  run_for_a_moment();
  EXPECT_EQ(vgpu_->sessions().size(), 1u);
  q->send_bytes(bytes + 3, 5);
  EXPECT_TRUE(run_until([&] { return vgpu_->sessions().empty(); }));
}

TEST_F(IvshmemTest, NumbersThatAreNoNotificationEndNothing) {
  auto q = connect();
  FakeAgent agent(*q, 1);
  ASSERT_EQ(open(agent, 1).status, 0u);
  for (int64_t value : {int64_t{0}, int64_t{-1}, int64_t{-4}, int64_t{1}, INT64_MIN, INT64_MAX})
    q->notify(value);
  run_for_a_moment();
  EXPECT_EQ(vgpu_->sessions().size(), 1u);
  EXPECT_TRUE(vgpu_->has_live_peer());
  q->notify(kDeviceReset);  // still in step
  EXPECT_TRUE(run_until([&] { return vgpu_->sessions().empty(); }));
}

TEST_F(IvshmemTest, ALateNotificationOfARebootEndsNothingOfAfterIt) {
  auto q = connect();
  FakeAgent before(*q, 1);
  ASSERT_EQ(open(before, 1).status, 0u);
  // Many times what the pace allows: the rest is read long after the new agent began.
  const std::vector<int64_t> many(4000, kDeviceReset);
  q->send_bytes(many.data(), many.size() * sizeof many[0]);
  FakeAgent after(*q, 2);
  ASSERT_TRUE(run_until([&] { return vgpu_->agent().agent_epoch() == 2; }));
  const auto opened = open(after, 2);
  ASSERT_EQ(opened.status, 0u) << opened.text;
  const int unread = unread_notifications();
  EXPECT_TRUE(run_until([&] { return unread == 0 || unread_notifications() < unread; }));
  ASSERT_EQ(vgpu_->sessions().size(), 1u);
  EXPECT_EQ(vgpu_->sessions()[0]->state(), GuestSession::State::kOpen);
}

TEST_F(IvshmemTest, ANotificationOfARefusedPeerEndsNothing) {
  auto q = connect();
  FakeAgent agent(*q, 1);
  ASSERT_EQ(open(agent, 1).status, 0u);
  FakeQemu stranger(vgpu_->spec().socket);
  ASSERT_TRUE(run_until([&] { return stranger.set_up(); }));
  stranger.notify(kDeviceReset);
  run_for_a_moment();
  EXPECT_EQ(vgpu_->sessions().size(), 1u);
}

TEST_F(IvshmemTest, AFloodOfNotificationsDisturbsNobodyElse) {
  auto other = create("b");
  FakeQemu other_qemu(other->spec().socket);
  ASSERT_TRUE(run_until([&] { return other_qemu.complete(vectors_); }));
  FakeAgent other_agent(other_qemu, 1);
  ASSERT_EQ(open(other_agent, 1).status, 0u);
  auto q = connect();
  const std::vector<int64_t> flood(4096, kDeviceReset);
  [[maybe_unused]] auto n =
      ::send(q->socket(), flood.data(), flood.size() * sizeof flood[0], MSG_DONTWAIT);
  EXPECT_EQ(open(other_agent, 2).status, 0u);
  EXPECT_EQ(other->sessions().size(), 2u);
  q->close();
  EXPECT_TRUE(run_until([&] { return !vgpu_->has_live_peer(); }));
}

TEST_F(IvshmemTest, MoreOpensThanSlotsAreAnswered) {
  auto q = connect();
  FakeAgent agent(*q, 1);
  for (uint64_t i = 0; i < config_.slots; ++i) ASSERT_EQ(open(agent, i).status, 0u);
  auto refused = open(agent, 99);
  EXPECT_EQ(refused.status, uint32_t{EBUSY});
  EXPECT_STRNE(refused.text, "");
}

TEST_F(IvshmemTest, ABrokenAgentLosesItsSessionsAndNobodyElseDoes) {
  auto other = create("b");
  FakeQemu other_qemu(other->spec().socket);
  ASSERT_TRUE(run_until([&] { return other_qemu.complete(vectors_); }));
  FakeAgent other_agent(other_qemu, 1);
  ASSERT_EQ(open(other_agent, 1).status, 0u);

  using Attack = std::function<void(FakeAgent&)>;
  const Attack attacks[] = {
      [](FakeAgent& a) { a.to_host().head += uint64_t{1} << 40; },
      [](FakeAgent& a) { a.to_host().head += 8; },
      [](FakeAgent& a) { a.to_host().head -= 32; },
      [](FakeAgent& a) { a.send(4711, 1); },
      [](FakeAgent& a) {
        const std::byte body[32] = {};
        sluice_record r{};
        r.opcode = SLUICE_CONTROL_OPEN;
        a.send_raw(r, body);
      },
      [](FakeAgent& a) {  // a record that claims more than was written
        sluice_record r{};
        r.bytes = 0xfffffff0;
        std::memcpy(control_to_host(a.memory().data()).data + (a.to_host().head & 16383), &r,
                    sizeof r);
        a.to_host().head += 160;
      },
  };
  uint64_t epoch = 100;
  for (const Attack& attack : attacks) {
    auto q = connect();
    FakeAgent agent(*q, ++epoch);
    ASSERT_EQ(open(agent, 1).status, 0u);
    attack(agent);
    agent.ring();
    EXPECT_TRUE(run_until([&] { return vgpu_->sessions().empty(); }));
    EXPECT_TRUE(vgpu_->has_live_peer());
    q->close();
    ASSERT_TRUE(run_until([&] { return !vgpu_->has_live_peer(); }));
    expect_all_free_of(vgpu_);
  }
  EXPECT_EQ(other->sessions().size(), 1u);
  EXPECT_EQ(open(other_agent, 2).status, 0u);
}

TEST_F(IvshmemTest, ARebootHealsABrokenAgent) {
  auto q = connect();
  FakeAgent agent(*q, 1);
  ASSERT_EQ(open(agent, 1).status, 0u);
  agent.send(4711, 1);
  EXPECT_TRUE(run_until([&] { return vgpu_->sessions().empty(); }));
  FakeAgent again(*q, 2);  // same QEMU, new agent: indices are taken over
  expect_all_free();
  EXPECT_EQ(open(again, 2).status, 0u);
}

TEST_F(IvshmemTest, AnAgentThatNeverReadsIsBounded) {
  auto q = connect();
  FakeAgent agent(*q, 1);
  for (uint64_t i = 0; i < config_.slots; ++i) ASSERT_EQ(open(agent, i).status, 0u);
  // Every further OPEN is refused with an answer that nobody takes.
  int sent = 0;
  while (
      !vgpu_->sessions().empty()) {  // a full ring is only a host that rests: its bells have a pace
    sent += agent.try_send(SLUICE_CONTROL_OPEN, 1000);
    run_for_a_turn();
    ASSERT_LT(sent, 2000);
  }
  EXPECT_GT(sent, 256);
  EXPECT_TRUE(run_until([&] { return vgpu_->sessions().empty(); }));
  q->close();
  expect_all_free();
}

// Its messages, too, which are read by bell and then by timer, draw on its vGPU's part of the loop.
TEST_F(IvshmemTest, AnAgentRestsWhileItsVgpuOwesLoopTime) {
  constexpr int kMessages = 3 * limits::kAgentBurst;  // more than a bell and a timer read
  auto q = connect();
  FakeAgent agent(*q, 1);
  ASSERT_EQ(open(agent, 1).status, 0u);
  const auto all_read = [&] {
    return load_shared(agent.to_host().tail) == load_shared(agent.to_host().head);
  };
  const auto send_all = [&] {
    for (int i = 0; i < kMessages; ++i) agent.send(SLUICE_CONTROL_CLOSE, 0, 9999, 1);
  };
  send_all();
  EXPECT_TRUE(run_until(all_read));
  const auto loop_time = daemon_->executor().loop_time(vgpu_->id());
  (void)loop_time->take(monotonic_ns(), uint64_t{1'000'000'000'000});
  send_all();
  for (int i = 0; i < 10; ++i) run_for_a_moment();
  EXPECT_FALSE(all_read());
  EXPECT_TRUE(vgpu_->has_live_peer());
}

TEST_F(IvshmemTest, ASlotKeepsItsContentsUntilTheAgentClosesIt) {
  auto q = connect();
  FakeAgent agent(*q, 1);
  std::vector<sluice_control_message> slots;
  for (uint64_t i = 0; i < config_.slots; ++i) slots.push_back(open(agent, i));
  const auto& ended = slots[1];
  ASSERT_EQ(ended.status, 0u);
  const uint64_t staging = agent.slot(ended.slot).staging_offset;
  std::memset(agent.memory().as<char>(staging), 0x77, 4096);
  for (const auto& s : vgpu_->sessions())
    if (s->slot() == ended.slot) ::kill(s->worker_pid(), SIGKILL);
  EXPECT_EQ(receive(agent, SLUICE_CONTROL_CLOSED).slot, ended.slot);
  EXPECT_EQ(open(agent, 50).status, uint32_t{EBUSY}) << "the program may still be there";
  EXPECT_EQ(*agent.memory().as<char>(staging), 0x77);
  EXPECT_EQ(load_shared(agent.slot(ended.slot).state), uint32_t{SLUICE_SLOT_ENDED});
  // Words of another time close nothing.
  agent.send(SLUICE_CONTROL_CLOSE, 0, ended.slot, ended.epoch - 1);
  agent.send(SLUICE_CONTROL_CLOSE, 0, ended.slot, 0);
  EXPECT_EQ(open(agent, 51).status, uint32_t{EBUSY});
  agent.send(SLUICE_CONTROL_CLOSE, 0, ended.slot, ended.epoch);
  agent.send(SLUICE_CONTROL_CLOSE, 0, ended.slot, ended.epoch);
  const auto next = open(agent, 52);
  EXPECT_EQ(next.status, 0u) << next.text;
  EXPECT_EQ(next.slot, ended.slot);
  EXPECT_EQ(*agent.memory().as<char>(staging), 0);
  // A new agent: all programs of the one before have gone.
  FakeAgent again(*q, 2);
  EXPECT_TRUE(run_until([&] { return vgpu_->channel().slots_in_use() == 0; }));
  expect_all_free();
}

TEST_F(IvshmemTest, LocalProgramsOutliveTheVirtualMachine) {
  auto q = connect();
  LocalProgram local(vgpu_->spec().local_socket);
  local.send_join();
  ASSERT_TRUE(run_until([&] { return local.joined(); }));
  ASSERT_EQ(local.answer().status, 0u) << local.answer().reason;
  q->close();
  ASSERT_TRUE(run_until([&] { return !vgpu_->has_live_peer(); }));
  run_for_a_moment();
  EXPECT_EQ(local.slot_state(), uint32_t{SLUICE_SLOT_OPEN});
  EXPECT_FALSE(local.hung_up());
}

TEST_F(IvshmemTest, TheHostsHeartbeatGoesOnWithoutSessions) {
  auto q = connect();
  auto memory = q->memory();
  const auto& header = *memory.as<sluice_channel_header>();
  const uint64_t before = load_shared(header.host_beat);
  EXPECT_TRUE(run_until([&] { return load_shared(header.host_beat) > before; }));
}

TEST_F(IvshmemTest, OpeningInALoopIsSlowedDownAndNotRefused) {
  auto q = connect();
  FakeAgent agent(*q, 1);
  // More than the burst: the later ones wait for their turn.
  for (uint64_t i = 0; i < static_cast<uint64_t>(limits::kSessionBurst) + 5; ++i) {
    auto opened = open(agent, i);
    ASSERT_EQ(opened.status, 0u) << i << ": " << opened.text;
    agent.send(SLUICE_CONTROL_CLOSE, 0, opened.slot, opened.epoch);
    receive(agent, SLUICE_CONTROL_CLOSED);
  }
}

TEST_F(IvshmemTest, DeletingTellsTheGuest) {
  auto q = connect();
  auto memory = q->memory();
  FakeAgent agent(*q, 1);
  ASSERT_EQ(open(agent, 1).status, 0u);
  bool gone = false;
  ASSERT_TRUE(daemon_->remove("a", [&] { gone = true; }).ok());
  ASSERT_TRUE(run_until([&] { return gone; }));
  EXPECT_EQ(memory.as<sluice_channel_header>()->state, uint32_t{SLUICE_CHANNEL_CLOSED});
}

}  // namespace
}  // namespace sluice::test
