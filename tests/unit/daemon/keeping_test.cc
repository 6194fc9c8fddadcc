// SPDX-License-Identifier: Apache-2.0
// vGPUs through a restart of sluiced: a systemd of our own making keeps what the first Daemon
// stores, and a second one finds the virtual machine where it was.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <iterator>
#include <random>

#include "mediator/base/peer_socket.h"
#include "mediator/daemon/guests/kept_vgpu.h"
#include "tests/support/fake_qemu.h"
#include "tests/support/test_daemon.h"

namespace sluice::test {
namespace {

Fd bound(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  Fd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return fd;
}

// The end of sd_notify that a service manager has.
class FakeSystemd {
 public:
  explicit FakeSystemd(std::string path) : path_(std::move(path)) { socket_ = bound(path_); }
  // Carries out what has come.
  void read() {
    char text[4096];
    for (;;) {
      auto r = receive_with_fds(socket_.get(), text, sizeof text, MSG_DONTWAIT);
      if (!r) return;
      const std::string message(text, r->bytes);
      const std::string name = value(message, "FDNAME=");
      if (message.starts_with("FDSTOREREMOVE=1")) stored_.erase(name);
      if (message == "READY=1\n") ++ready_;
      if (!message.starts_with("FDSTORE=1\n")) continue;
      EXPECT_EQ(value(message, "FDPOLL="), "0");
      ASSERT_EQ(r->fds.size(), 1u);
      stored_[name] = std::move(r->fds[0]);
    }
  }
  io::FdStore store() {
    read();
    std::map<std::string, Fd> copies;
    for (const auto& [name, fd] : stored_) copies[name] = Fd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
    return {path_, std::move(copies)};
  }
  // How often a service said that it has started.
  int ready() {
    read();
    return ready_;
  }
  std::vector<std::string> names() {
    read();
    std::vector<std::string> names;
    for (const auto& [name, fd] : stored_) names.push_back(name);
    return names;
  }

 private:
  static std::string value(const std::string& message, const std::string& key) {
    const size_t at = message.find(key) + key.size();
    return message.substr(at, message.find('\n', at) - at);
  }
  std::string path_;
  Fd socket_;
  int ready_ = 0;
  std::map<std::string, Fd> stored_;
};

class KeepingTest : public DaemonTest {
 protected:
  using Names = std::vector<std::string>;

  KeepingTest() : systemd_(dir_.path + "/notify") {}
  ~KeepingTest() override { forget_passrights_for_test(false); }
  void start_kept() {
    auto daemon = Daemon::make(io_, config_, {}, systemd_.store());
    ASSERT_TRUE(daemon.ok()) << daemon.error().message;
    daemon_ = std::move(*daemon);
  }
  // As systemd restarts the unit.
  void restart() {
    bool over = false;
    daemon_->shut_down([&] { over = true; });
    ASSERT_TRUE(run_until([&] { return over; }));
    daemon_.reset();
    start_kept();
  }
  // No session is ended, and nobody is notified: what was not stored yet is lost.
  void crash() {
    stored_ = systemd_.store();
    daemon_.reset();
    start_kept();
  }
  std::unique_ptr<FakeQemu> connect() {
    auto q = std::make_unique<FakeQemu>(daemon_->find("a")->spec().socket);
    EXPECT_TRUE(run_until([&] { return q->complete(config_.slots + 1); }));
    return q;
  }
  bool is_stored() {
    return run_until([&] { return systemd_.names() == Names{"vgpu.a"}; });
  }
  sluice_control_message opened(FakeAgent& agent, uint64_t request) {
    agent.send(SLUICE_CONTROL_OPEN, request);
    std::optional<sluice_control_message> m;
    EXPECT_TRUE(run_until([&] { return (m = agent.receive(SLUICE_CONTROL_OPENED)).has_value(); }));
    return m.value_or(sluice_control_message{});
  }

  FakeSystemd systemd_;
  io::FdStore stored_;
};

// Domains that start with the host come then (Type=notify).
TEST_F(KeepingTest, SystemdHearsThatItServes) {
  EXPECT_EQ(systemd_.ready(), 0);
  start_kept();
  EXPECT_EQ(systemd_.ready(), 1);
  EXPECT_TRUE(connect_unix(config_.admin_socket_path(), SOCK_STREAM).ok());
  restart();
  EXPECT_EQ(systemd_.ready(), 2);
  // One that cannot start says nothing.
  daemon_.reset();
  config_.admin_socket = dir_.path + "/none/socket";
  EXPECT_FALSE(Daemon::make(io_, config_, {}, systemd_.store()).ok());
  EXPECT_EQ(systemd_.ready(), 2);
}

TEST_F(KeepingTest, AVirtualMachineFindsItsVgpuAgain) {
  start_kept();
  Daemon::CreateRequest r;
  r.name = "a";
  r.weight = 300;
  r.memory_bytes = 1 << 30;
  r.priority = 3;
  r.owner = "libvirt:1";
  r.limits.latency = policy::LatencyClass::kLow;
  ASSERT_TRUE(daemon_->create(r).ok());
  auto q = connect();
  auto agent = std::make_unique<FakeAgent>(*q, 1);
  const auto before = opened(*agent, 7);
  ASSERT_EQ(before.status, 0u) << before.text;
  const uint64_t bulk = daemon_->find("a")->spec().geometry.bulk_offset();
  *agent->memory().as<std::byte>(bulk) = std::byte{42};
  ASSERT_TRUE(is_stored());
  const uint64_t host_epoch = agent->header().host_epoch;
  daemon_->find("a")->set_paused(true);

  restart();
  q->read();
  EXPECT_FALSE(q->closed());
  VgpuServer* v = daemon_->find("a");
  ASSERT_NE(v, nullptr);
  EXPECT_TRUE(v->has_live_peer());
  EXPECT_TRUE(v->paused());
  EXPECT_EQ(v->spec().share.weight, 300u);
  EXPECT_EQ(v->spec().share.priority, 3u);
  EXPECT_EQ(v->spec().share.latency, policy::LatencyClass::kLow);
  EXPECT_EQ(v->spec().memory_bytes, 1u << 30);
  EXPECT_EQ(v->spec().owner, "libvirt:1");
  EXPECT_EQ(agent->header().state, uint32_t{SLUICE_CHANNEL_READY});
  EXPECT_NE(agent->header().host_epoch, host_epoch) << "the agent starts anew for this";

  // The program of before is notified, and its memory is its own until the agent closes it.
  EXPECT_EQ(agent->slot(before.slot).state, uint32_t{SLUICE_SLOT_ENDED});
  EXPECT_STREQ(agent->slot(before.slot).reason, "sluiced ends");
  run_for_a_moment();
  EXPECT_EQ(v->slots_in(SlotState::kEnded), config_.slots);
  EXPECT_EQ(opened(*agent, 8).status, uint32_t{EBUSY});

  FakeAgent again(*q, 2);
  EXPECT_TRUE(run_until([&] { return v->slots_in(SlotState::kFree) == config_.slots; }));
  EXPECT_TRUE(run_until([&] { return v->shared_memory().used_bytes == 0; }));
  const auto after = opened(again, 9);
  EXPECT_EQ(after.status, 0u) << after.text;
  EXPECT_EQ(again.slot(after.slot).state, uint32_t{SLUICE_SLOT_OPEN});
  EXPECT_EQ(*again.memory().as<std::byte>(bulk), std::byte{0}) << "nothing of the programs before";

  // Its end is seen, and the next virtual machine gets memory of its own.
  q->close();
  EXPECT_TRUE(run_until([&] { return !v->has_live_peer(); }));
  auto next = connect();
  EXPECT_EQ(next->memory().as<sluice_channel_header>()->agent_epoch, 0u);
}

TEST_F(KeepingTest, ACrashIsARestart) {
  start_kept();
  create("a");
  auto q = connect();
  FakeAgent agent(*q, 1);
  const auto before = opened(agent, 7);
  ASSERT_EQ(before.status, 0u);
  // Stored with the connection: two descriptors and the bells.
  ASSERT_TRUE(run_until([&] {
    auto parcels = systemd_.store().take();
    return parcels.contains("vgpu.a") && parcels["vgpu.a"].fds.size() == 2 + 2 * (4 + 1);
  }));
  crash();
  q->read();
  EXPECT_FALSE(q->closed());
  EXPECT_EQ(agent.slot(before.slot).state, uint32_t{SLUICE_SLOT_ENDED});
  FakeAgent again(*q, 2);
  EXPECT_TRUE(run_until([&] { return daemon_->find("a")->slots_in(SlotState::kFree) == 4; }));
  EXPECT_EQ(opened(again, 8).status, 0u);
}

// A hostile machine writes to any words of its region while sluiced is away, and asks for sessions
// until it goes; two restarts follow one another. The next agent is served, and nothing is left.
TEST_F(KeepingTest, WhateverAMachineWritesBetweenTwoRestarts) {
  start_kept();
  create("a");
  auto q = connect();
  ASSERT_TRUE(is_stored());
  io::Mapping memory = q->memory();
  const uint64_t words[] = {0, 1, 2, 3, SLUICE_MAX_SLOTS, 1ull << 32, 1ull << 63, ~0ull};
  std::mt19937_64 random(1);
  uint64_t agents = 0;
  const auto write_anything = [&] {
    // The header, the control rings, and the slots' headers.
    for (int i = 0; i < 2000; ++i) {
      const uint64_t slot = random() % (config_.slots + 2);
      const uint64_t at = slot < config_.slots    ? SLUICE_SLOT_OFFSET + slot * SLUICE_SLOT_STRIDE
                          : slot == config_.slots ? 0
                                                  : SLUICE_CONTROL_OFFSET;
      const uint64_t word = random() % 8 == 0 ? random() : words[random() % std::size(words)];
      const uint64_t size = slot <= config_.slots ? 4096 : 40960;
      *memory.as<uint64_t>(at + random() % size / 8 * 8) = word;
    }
    for (uint32_t v = 0; v <= config_.slots; ++v) signal_eventfd(q->host_bell(v));
  };
  for (int round = 0; round < 4; ++round) {
    {
      FakeAgent agent(*q, (1ull << 40) + ++agents);
      for (uint32_t i = 0; i < 2 * config_.slots; ++i) agent.try_send(SLUICE_CONTROL_OPEN, i + 1);
      if (round % 2 == 0)
        run_until([&] { return daemon_->find("a")->slots_in(SlotState::kOpen) > 0; });
    }
    for (int i = 0; i < 2; ++i) {
      write_anything();
      restart();
      ASSERT_TRUE(daemon_->find("a")->has_live_peer());
    }
    write_anything();
    run_for_a_moment();
  }
  // An honest one makes its ring's ends equal first: what was there is nobody's.
  std::memset(memory.as<std::byte>(SLUICE_CONTROL_OFFSET), 0, 40960);
  restart();
  FakeAgent honest(*q, (1ull << 41));
  VgpuServer* v = daemon_->find("a");
  EXPECT_TRUE(run_until([&] { return v->slots_in(SlotState::kFree) == config_.slots; }));
  EXPECT_TRUE(run_until([&] { return v->shared_memory().used_bytes == 0; }));
  EXPECT_EQ(opened(honest, 1).status, 0u);
  q->close();
  EXPECT_TRUE(run_until([&] { return v->sessions().empty() && !v->has_live_peer(); }));
  EXPECT_EQ(v->memory_used_bytes(), 0u);
}

TEST_F(KeepingTest, GroupsAndVgpusWithoutAMachineStayAndWhatGoesIsForgotten) {
  start_kept();
  Daemon::Group outer, inner;
  outer.share.weight = 7;
  ASSERT_TRUE(daemon_->set_group("z-outer", outer).ok());
  inner.parent = "z-outer";
  inner.share.max_permille = 500;
  ASSERT_TRUE(daemon_->set_group("a-inner", inner).ok());
  Daemon::CreateRequest r;
  r.name = "a";
  r.limits.group = *daemon_->group_id("a-inner");
  ASSERT_TRUE(daemon_->create(r).ok());
  create("b");
  ASSERT_TRUE(run_until([&] { return systemd_.names() == Names{"groups", "vgpu.a", "vgpu.b"}; }));
  restart();
  EXPECT_EQ(daemon_->groups().at("a-inner").parent, "z-outer");
  EXPECT_EQ(daemon_->groups().at("a-inner").share.max_permille, 500u);
  EXPECT_EQ(daemon_->groups().at("z-outer").share.weight, 7u);
  ASSERT_NE(daemon_->find("a"), nullptr);
  EXPECT_EQ(daemon_->group_name(daemon_->find("a")->spec().share.group), "a-inner");
  EXPECT_FALSE(daemon_->find("a")->has_live_peer());
  bool gone = false;
  ASSERT_TRUE(daemon_->remove("b", [&] { gone = true; }).ok());
  EXPECT_TRUE(run_until([&] { return gone; }));
  EXPECT_TRUE(run_until([&] { return systemd_.names() == Names{"groups", "vgpu.a"}; }));
}

// Restarts are the host's, but who owes would gain by each.
TEST_F(KeepingTest, WhatAVgpuOwesOutlivesSluiced) {
  start_kept();
  create("a");
  create("b");
  core::Penalty penalty(150'000'000);
  penalty.on_offence(monotonic_ns(), core::Offence::kDidNotLeave, 2'000'000'000, true);
  daemon_->find("a")->take_over_debts(penalty, {});
  const uint64_t opens_at_ns = penalty.opens_at_ns(monotonic_ns());
  restart();
  const auto owes = [&](const char* name) {
    return daemon_->find(name)->penalty().debt_ns(monotonic_ns());
  };
  EXPECT_GT(owes("a"), 0u);
  EXPECT_EQ(owes("b"), 0u);
  EXPECT_EQ(daemon_->find("a")->penalty().opens_at_ns(monotonic_ns()), opens_at_ns);
  crash();
  EXPECT_GT(owes("a"), 0u);
  LocalProgram neighbour(daemon_->find("b")->spec().local_socket);
  neighbour.send_join();
  EXPECT_TRUE(run_until([&] { return neighbour.joined(); }));
  EXPECT_GT(daemon_->find("a")->back_off_ns(), 0u) << "its programs wait";
}

TEST_F(KeepingTest, AMachineThatEndedMeanwhileIsGone) {
  start_kept();
  create("a");
  auto q = connect();
  ASSERT_TRUE(is_stored());
  bool over = false;
  daemon_->shut_down([&] { over = true; });
  ASSERT_TRUE(run_until([&] { return over; }));
  daemon_.reset();
  q.reset();
  start_kept();
  EXPECT_TRUE(run_until([&] { return !daemon_->find("a")->has_live_peer(); }));
  auto next = connect();
  EXPECT_EQ(opened(*std::make_unique<FakeAgent>(*next, 5), 1).status, 0u);
}

TEST_F(KeepingTest, WithoutAStoreTheGuestIsToldThatItsVgpuHasGone) {
  start();
  create("a");
  auto q = connect();
  FakeAgent agent(*q, 1);
  bool over = false;
  daemon_->shut_down([&] { over = true; });
  ASSERT_TRUE(run_until([&] { return over; }));
  EXPECT_EQ(agent.header().state, uint32_t{SLUICE_CHANNEL_CLOSED});
  daemon_.reset();
  start();
  EXPECT_EQ(daemon_->find("a"), nullptr);
}

// On a kernel on which peers can pass descriptors, systemd may be the last who closes the
// connection: nothing of the peer's may be in it.
TEST_F(KeepingTest, AKeptConnectionCannotCarryDescriptors) {
  forget_passrights_for_test(true);
  start_kept();
  create("a");
  auto q = connect();
  ASSERT_TRUE(run_until([&] {
    auto parcels = systemd_.store().take();
    return parcels.contains("vgpu.a") && !parcels["vgpu.a"].fds.empty();
  }));
  Fd passed(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int fds[] = {passed.get()};
  EXPECT_FALSE(send_with_fds(q->socket(), "x", 1, fds, MSG_DONTWAIT | MSG_NOSIGNAL).ok());
  restart();
  q->read();
  EXPECT_FALSE(q->closed());
  EXPECT_FALSE(send_with_fds(q->socket(), "x", 1, fds, MSG_DONTWAIT | MSG_NOSIGNAL).ok());
  EXPECT_TRUE(daemon_->find("a")->has_live_peer());
  q->close();
  EXPECT_FALSE(daemon_->find("a")->has_live_peer()) << "at once";
  connect();
}

TEST_F(KeepingTest, DescriptorsThatCameBeforeEndTheConnection) {
  forget_passrights_for_test(true);
  start_kept();
  create("a");
  FakeQemu q(daemon_->find("a")->spec().socket);
  Fd passed(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int fds[] = {passed.get()};
  ASSERT_TRUE(send_with_fds(q.socket(), "x", 1, fds, MSG_DONTWAIT | MSG_NOSIGNAL).ok());
  EXPECT_TRUE(run_until([&] {
    q.read();
    return q.closed();
  }));
  EXPECT_TRUE(run_until([&] { return systemd_.names() == Names{"vgpu.a"}; }));
  for (auto& [name, parcel] : systemd_.store().take()) EXPECT_TRUE(parcel.fds.empty()) << name;
}

TEST_F(KeepingTest, WhatCannotBeReadIsLeftOutAndForgotten) {
  config_.region_bytes = 64u << 20;
  std::string good = kept_text(KeptVgpu{.name = "good",
                                        .share = {},
                                        .group = {},
                                        .memory_bytes = 0,
                                        .socket = config_.runtime_dir + "/vgpu/good.sock",
                                        .owner = {},
                                        .mode = {},
                                        .region_bytes = config_.region_bytes,
                                        .slots = 4,
                                        .paused = false,
                                        .owed = {},
                                        .life = 0});
  std::string later = good, bad_slots = good;
  later.replace(later.find("\"version\":1"), 11, "\"version\":9");
  bad_slots.replace(bad_slots.find("\"slots\":4"), 9, "\"slots\":99");
  io::FdStore first = systemd_.store();
  good.replace(good.find("\"debt_ns\""), good.find("\"life\"") - good.find("\"debt_ns\""), "");
  ASSERT_TRUE(first.put("vgpu.good", good, {}).ok());
  ASSERT_TRUE(first.put("vgpu.later", later, {}).ok());
  ASSERT_TRUE(first.put("vgpu.slots", bad_slots, {}).ok());
  ASSERT_TRUE(first.put("vgpu.noise", "{]", {}).ok());
  systemd_.read();  // its queue is short
  ASSERT_TRUE(first.put("groups", "[]", {}).ok());
  const int one[] = {STDIN_FILENO};
  ASSERT_TRUE(first.put("vgpu.few", good, one).ok());
  start_kept();
  EXPECT_EQ(daemon_->vgpus().size(), 1u);
  EXPECT_NE(daemon_->find("good"), nullptr);
  EXPECT_TRUE(run_until([&] { return systemd_.names() == Names{"vgpu.good"}; }));
}

// Its owner wants no other tenant's fault to reach it. A restart is no way around that.
TEST_F(KeepingTest, WhoInsistsOnAModeIsNotTakenIntoTheOther) {
  start_kept();
  Daemon::CreateRequest r;
  r.name = "a";
  r.mode = config_.mode_name();
  ASSERT_TRUE(daemon_->create(r).ok());
  ASSERT_TRUE(is_stored());
  const std::string other = r.mode == "strict" ? "shared" : "strict";
  io::FdStore earlier = systemd_.store();
  ASSERT_TRUE(earlier
                  .put("vgpu.b",
                       kept_text(KeptVgpu{.name = "b",
                                          .share = {},
                                          .group = {},
                                          .memory_bytes = 0,
                                          .socket = config_.runtime_dir + "/vgpu/b.sock",
                                          .owner = {},
                                          .mode = other,
                                          .region_bytes = config_.region_bytes,
                                          .slots = 4,
                                          .paused = false,
                                          .owed = {},
                                          .life = 0}),
                       {})
                  .ok());
  restart();
  ASSERT_NE(daemon_->find("a"), nullptr);
  EXPECT_EQ(daemon_->find("a")->spec().mode, r.mode) << "after the next restart, too";
  EXPECT_EQ(daemon_->find("b"), nullptr);
  EXPECT_TRUE(is_stored()) << "and b is forgotten";
}

TEST(FdStore, WithoutSystemdNothingIsKeptAndNothingFails) {
  io::FdStore store;
  EXPECT_FALSE(store.available());
  EXPECT_TRUE(store.put("a", "text", {}).ok());
  EXPECT_TRUE(store.take().empty());
}

TEST(FdStore, AFullQueueIsAnErrorAndDoesNotWait) {
  TempDir dir;
  const std::string path = dir.path + "/notify";
  const Fd nobody_reads = bound(path);
  io::FdStore store(path, {});
  Result<void> put;
  for (int i = 0; i < 100000 && put; ++i) put = store.put("a", "text", {});
  EXPECT_EQ(put.error().code, EAGAIN);
}

}  // namespace
}  // namespace sluice::test
