// SPDX-License-Identifier: Apache-2.0
// Sessions of sluiced over the local transport, with a fake worker: opening, leases, extents, and
// every way to end, after each of which nothing may be left.
#include <fcntl.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tests/support/test_daemon.h"

namespace sluice::test {
namespace {

class SessionTest : public DaemonTest {
 protected:
  // A program whose session is open.
  std::unique_ptr<LocalProgram> joined(const std::string& vgpu = "a") {
    auto p = std::make_unique<LocalProgram>(daemon_->find(vgpu)->spec().local_socket);
    p->send_join();
    EXPECT_TRUE(run_until([&] { return p->joined(); }));
    if (!p->has_answer() || p->answer().status != 0)  // the test could not go on without it
      throw std::runtime_error(p->has_answer() ? p->answer().reason : "no answer to the join");
    return p;
  }
  fake::Reply ask(LocalProgram& p, fake::What what, uint64_t a = 0, uint64_t b = 0) {
    p.command(what, a, b);
    std::optional<fake::Reply> r;
    EXPECT_TRUE(run_until([&] { return (r = p.reply()).has_value(); }));
    return r.value_or(fake::Reply{});
  }
  void expect_all_free(const std::string& vgpu = "a") {
    VgpuServer& v = *daemon_->find(vgpu);
    EXPECT_TRUE(run_until([&] { return v.sessions().empty(); }));
    EXPECT_EQ(v.memory_used_bytes(), 0u);
    EXPECT_TRUE(run_until([&] { return v.shared_memory().used_bytes == 0; }));
    size_t others = 0;
    for (const auto& [name, other] : daemon_->vgpus()) others += other->sessions().size();
    EXPECT_EQ(daemon_->executor().session_count(), others);
  }
};

TEST_F(SessionTest, AJoinOpensASlotWithAWorker) {
  start();
  create("a");
  auto p = joined();
  EXPECT_EQ(p->slot_state(), uint32_t{SLUICE_SLOT_OPEN});
  EXPECT_EQ(p->slot_header().epoch, p->answer().epoch);
  EXPECT_EQ(p->slot_header().staging_bytes, config_.staging_bytes);
  EXPECT_EQ(p->answer().region_bytes, config_.region_bytes);
  const auto& h = *p->region().as<sluice_channel_header>();
  EXPECT_EQ(h.magic, uint64_t{SLUICE_CHANNEL_MAGIC});
  EXPECT_EQ(h.state, uint32_t{SLUICE_CHANNEL_READY});
  EXPECT_EQ(h.slot_count, 1u) << "a region of its own";
  p->close();
  expect_all_free();
}

// NVIDIA's driver is never reached: the worker is a fake one.
TEST_F(SessionTest, WithoutItsMpsServerNoProgramIsTakenAndWithItAgain) {
  config_.device = DeviceKind::kNvidia;
  config_.turns_by_priority = true;
  config_.mps_pipes = config_.runtime_dir + "/mps";
  EXPECT_FALSE(Daemon::make(io_, config_).ok()) << "there was none to begin with";
  const std::string control = config_.mps_pipes + "/control";
  std::filesystem::create_directories(config_.mps_pipes);
  std::ofstream(control).put('\n');
  start();
  create("a");
  joined()->close();
  expect_all_free();

  std::filesystem::remove(control);
  LocalProgram refused(daemon_->find("a")->spec().local_socket);
  refused.send_join();
  ASSERT_TRUE(run_until([&] { return refused.joined(); }));
  ASSERT_TRUE(refused.has_answer());
  EXPECT_EQ(refused.answer().status, uint32_t{ENODEV});
  const std::string reason = refused.answer().reason;
  EXPECT_NE(reason.find("no MPS server at " + config_.mps_pipes), std::string::npos) << reason;
  expect_all_free();

  std::ofstream(control).put('\n');
  joined()->close();
  expect_all_free();
}

TEST_F(SessionTest, AWorkerInheritsNothingElseAndCannotWriteTheHostPage) {
  start();
  create("a");
  auto p = joined();
  EXPECT_EQ(ask(*p, fake::kOpenFds).a, 0u);
  const auto r = ask(*p, fake::kWriteHostPage);
  EXPECT_EQ(r.a, 0u) << "mapped writable";
  EXPECT_EQ(r.b, 0u) << "made writable";
}

TEST_F(SessionTest, TheRegionIsSealed) {
  start();
  create("a");
  auto p = joined();
  const int fd = daemon_->find("a")->channel().region_fd();
  EXPECT_NE(::ftruncate(fd, 4096), 0);
  EXPECT_NE(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST_F(SessionTest, AKilledWorkerEndsItsSessionOnlyAndFreesAll) {
  start();
  create("a");
  create("b");
  auto victim = joined("a"), same = joined("a"), other = joined("b");
  EXPECT_EQ(ask(*victim, fake::kLease, 1 << 20).a, 0u);
  EXPECT_EQ(ask(*victim, fake::kExtent, 4 << 20).a, 0u);
  // From outside: it is the first process of its pid namespace, which SIGKILL from within does not
  // end. Each local program has slot 0 of a region of its own, so by the order of joining.
  ASSERT_EQ(::kill(daemon_->find("a")->sessions().front()->worker_pid(), SIGKILL), 0);
  ASSERT_TRUE(run_until([&] { return victim->slot_state() == SLUICE_SLOT_ENDED; }));
  EXPECT_NE(victim->slot_header().error, 0);
  EXPECT_NE(std::string(victim->slot_header().reason).find("signal 9"), std::string::npos)
      << victim->slot_header().reason;
  EXPECT_TRUE(run_until([&] { return victim->hung_up(); }));
  EXPECT_TRUE(run_until([&] { return drain_eventfd(victim->wake_fd()); }))
      << "a sleeping program must be woken";
  EXPECT_EQ(daemon_->find("a")->sessions().size(), 1u);
  EXPECT_EQ(daemon_->find("a")->memory_used_bytes(), 0u);
  // The neighbours work on.
  EXPECT_EQ(ask(*same, fake::kLease, 5).a, 0u);
  EXPECT_EQ(ask(*other, fake::kLease, 5).a, 0u);
  same->close();
  other->close();
  victim->close();
  expect_all_free("a");
  expect_all_free("b");
}

TEST_F(SessionTest, WhatAWorkerSaysAboutItsEndReachesTheProgram) {
  start();
  create("a");
  auto p = joined();
  p->command(fake::kEndedWith, 700);
  ASSERT_TRUE(run_until([&] { return p->slot_state() == SLUICE_SLOT_ENDED; }));
  EXPECT_EQ(p->slot_header().error, 700);
  EXPECT_STREQ(p->slot_header().reason, "its own fault");
  p->close();
  expect_all_free();
}

TEST_F(SessionTest, AWorkerThatExitsWithoutAWordIsAnError) {
  start();
  create("a");
  auto p = joined();
  p->command(fake::kExit, 4);
  ASSERT_TRUE(run_until([&] { return p->slot_state() == SLUICE_SLOT_ENDED; }));
  EXPECT_EQ(p->slot_header().error, 999);
  EXPECT_STREQ(p->slot_header().reason, "its worker exited with status 4");
  p->close();
  expect_all_free();
}

TEST_F(SessionTest, AWorkerThatBreaksTheProtocolIsKilled) {
  for (auto [what, a] : {std::pair{fake::kGarbage, 0u}, {fake::kUnlease, 1u}}) {
    start();
    create("a");
    auto p = joined();
    p->command(what, a);
    ASSERT_TRUE(run_until([&] { return p->slot_state() == SLUICE_SLOT_ENDED; }));
    EXPECT_NE(std::string(p->slot_header().reason).find("protocol"), std::string::npos)
        << p->slot_header().reason;
    p->close();
    expect_all_free();
    daemon_.reset();
  }
}

TEST_F(SessionTest, ExtentsThatAreNotItsOwnCannotBeGivenBack) {
  start();
  create("a");
  auto mine = joined(), other = joined();
  const auto theirs = ask(*other, fake::kExtent, 2 << 20);
  ASSERT_EQ(theirs.a, 0u);
  mine->command(fake::kReturnExtent, theirs.b, theirs.c);
  ASSERT_TRUE(run_until([&] { return mine->slot_state() == SLUICE_SLOT_ENDED; }));
  EXPECT_EQ(other->slot_state(), uint32_t{SLUICE_SLOT_OPEN});
}

TEST_F(SessionTest, AWorkerThatIgnoresEndIsKilledAtTheDeadline) {
  start();
  create("a");
  auto p = joined();
  ask(*p, fake::kDeaf);
  p->close();
  expect_all_free();
}

TEST_F(SessionTest, ReusedExtentsAndSlotsAreZero) {
  start();
  create("a");
  auto p = joined();
  const auto extent = ask(*p, fake::kExtent, 2 << 20);
  ASSERT_EQ(extent.a, 0u);
  std::memset(p->region().as<char>(extent.b), 0xaa, extent.c);
  const uint64_t staging = p->slot_header().staging_offset;
  std::memset(p->region().as<char>(staging), 0xbb, 4096);
  p->command(fake::kReturnExtent, extent.b, extent.c);
  ASSERT_TRUE(run_until([&] { return *p->region().as<char>(extent.b) == 0; }));
  EXPECT_EQ(p->region().as<char>(extent.b)[extent.c - 1], 0);
  p->close();
  expect_all_free();
  for (uint32_t i = 0; i < config_.slots; ++i) {
    auto again = joined();
    EXPECT_EQ(*again->region().as<char>(again->slot_header().staging_offset), 0);
    again->close();
    expect_all_free();
  }
}

TEST_F(SessionTest, AfterItsWorkersEndAProgramReadsWhatItHad) {
  config_.slots = 2;
  start();
  create("a");
  auto p = joined();
  const auto extent = ask(*p, fake::kExtent, 2 << 20);
  ASSERT_EQ(extent.a, 0u);
  std::memset(p->region().as<char>(extent.b), 0xaa, extent.c);
  const uint64_t staging = p->slot_header().staging_offset;
  std::memset(p->region().as<char>(staging), 0xbb, 4096);
  ASSERT_EQ(::kill(daemon_->find("a")->sessions().front()->worker_pid(), SIGKILL), 0);
  ASSERT_TRUE(run_until([&] { return p->hung_up(); }));
  run_for_a_moment();
  const VgpuServer& a = *daemon_->find("a");
  EXPECT_EQ(a.slots_in(SlotState::kEnded), 1u);
  EXPECT_EQ(a.shared_memory().used_bytes, extent.c + config_.staging_bytes);
  // Its place stays taken.
  auto other = joined();
  LocalProgram third(a.spec().local_socket);
  third.send_join();
  ASSERT_TRUE(run_until([&] { return third.joined(); }));
  EXPECT_EQ(third.answer().status, uint32_t{EBUSY});
  for (uint64_t at = 0; at < extent.c; at += 4096)
    ASSERT_EQ(*p->region().as<unsigned char>(extent.b + at), 0xaa) << at;
  EXPECT_EQ(*p->region().as<unsigned char>(staging), 0xbb);
  p->close();
  ASSERT_TRUE(run_until([&] { return a.slots_in(SlotState::kEnded) == 0; }));
  joined();
  // Nothing that the host would pay for is left in what the program may still have mapped.
  ASSERT_TRUE(run_until([&] { return *p->region().as<unsigned char>(extent.b) == 0; }));
  other->close();
  expect_all_free();
}

TEST_F(SessionTest, LocalProgramsShareNoMemoryWithEachOtherOrTheVm) {
  start();
  create("a");
  auto p = joined(), q = joined();
  const uint64_t at = p->answer().region_bytes - 4096;
  *p->region().as<uint64_t>(at) = 0x5555;
  EXPECT_EQ(*q->region().as<uint64_t>(at), 0u);
  char vm = 1;
  ASSERT_EQ(::pread(daemon_->find("a")->channel().region_fd(), &vm, 1, static_cast<off_t>(at)), 1);
  EXPECT_EQ(vm, 0);
  EXPECT_NE(p->region().as<sluice_channel_header>()->host_epoch,
            q->region().as<sluice_channel_header>()->host_epoch);
}

TEST_F(SessionTest, TheSharedMemoryOfAllLocalProgramsIsOneVgpus) {
  start();
  create("a");
  auto p = joined(), q = joined();
  const RegionPool& pool = daemon_->find("a")->shared_memory();
  const uint64_t left = pool.limit_bytes - pool.used_bytes;
  EXPECT_LT(pool.limit_bytes, config_.region_bytes);
  const auto most = ask(*p, fake::kExtent, left);
  ASSERT_EQ(most.a, 0u);
  EXPECT_EQ(ask(*q, fake::kExtent, 1).a, uint64_t{ENOMEM}) << "though its own region is empty";
  // What is given back can be had again at once, although it has to be punched out first.
  for (int i = 0; i < 20; ++i) {
    p->command(fake::kReturnExtent, most.b, most.c);
    ASSERT_EQ(ask(*p, fake::kExtent, left).a, 0u) << i;
  }
  p->close();
  q->close();
  expect_all_free();
}

TEST_F(SessionTest, AProgramThatUsesMemoryThatItWasNotGivenLosesItsSession) {
  start();
  create("a");
  auto thief = joined(), honest = joined();
  std::memset(thief->region().as<char>(thief->answer().region_bytes - (16u << 20)), 1, 16u << 20);
  ASSERT_TRUE(run_until([&] { return thief->slot_state() == SLUICE_SLOT_ENDED; }));
  EXPECT_NE(std::string(thief->slot_header().reason).find("not given"), std::string::npos);
  // Nor is anything kept for it, though it holds on to its connection.
  EXPECT_TRUE(run_until(
      [&] { return daemon_->find("a")->shared_memory().used_bytes == config_.staging_bytes; }));
  EXPECT_EQ(thief->region().as<char>(thief->answer().region_bytes)[-1], 0);
  EXPECT_EQ(honest->slot_state(), uint32_t{SLUICE_SLOT_OPEN});
}

TEST_F(SessionTest, ASlotIsNotLostWhenItsSessionCannotStart) {
  config_.worker = "/nonexistent/worker";
  start();
  create("a");
  for (uint32_t i = 0; i < 3 * config_.slots; ++i) {
    LocalProgram p(daemon_->find("a")->spec().local_socket);
    p.send_join();
    ASSERT_TRUE(run_until([&] { return p.joined(); }));
    EXPECT_EQ(p.answer().status, uint32_t{ENOENT});
  }
  expect_all_free();
}

TEST_F(SessionTest, MemoryLimitsHoldForTheVgpuAsAWhole) {
  start();
  create("a", 100);
  auto p = joined(), q = joined();
  EXPECT_EQ(ask(*p, fake::kLease, 60).a, 0u);
  EXPECT_EQ(ask(*q, fake::kLease, 60).a, uint64_t{ENOMEM});
  EXPECT_EQ(ask(*q, fake::kLease, UINT64_MAX).a, uint64_t{ENOMEM});
  EXPECT_EQ(ask(*q, fake::kLease, 40).a, 0u);
  p->close();
  ASSERT_TRUE(run_until([&] { return daemon_->find("a")->memory_used_bytes() == 40; }));
  EXPECT_EQ(ask(*q, fake::kLease, 60).a, 0u);
}

TEST_F(SessionTest, MemoryOfTheHostHasALimitOfItsOwn) {
  config_.host_memory_bytes = 16u << 20;
  start();
  create("a", 100);
  constexpr uint64_t kHost = worker_protocol::kHostMemory;
  auto p = joined(), q = joined();
  EXPECT_EQ(ask(*p, fake::kLease, 12u << 20, kHost).a, 0u);
  EXPECT_EQ(ask(*q, fake::kLease, 8u << 20, kHost).a, uint64_t{ENOMEM});
  EXPECT_EQ(ask(*q, fake::kLease, 100).a, 0u) << "the device's is another";
  EXPECT_EQ(daemon_->find("a")->host_memory_used_bytes(), 12u << 20);
  p->close();
  ASSERT_TRUE(run_until([&] { return daemon_->find("a")->host_memory_used_bytes() == 0; }));
  EXPECT_EQ(ask(*q, fake::kLease, 8u << 20, kHost).a, 0u);
}

TEST_F(SessionTest, AResourceThatThereIsNotEndsTheWorker) {
  for (auto what : {fake::kLease, fake::kUnlease}) {
    start();
    create("a");
    auto p = joined();
    p->command(what, 1, 7);
    ASSERT_TRUE(run_until([&] { return p->slot_state() == SLUICE_SLOT_ENDED; }));
    p->close();  // until then it keeps its memory
    expect_all_free();
    daemon_.reset();
  }
}

TEST_F(SessionTest, SlotsAndSharedMemoryRunOutWithAReason) {
  start();
  create("a");
  std::vector<std::unique_ptr<LocalProgram>> programs;
  for (uint32_t i = 0; i < config_.slots; ++i) programs.push_back(joined());
  LocalProgram more(daemon_->find("a")->spec().local_socket);
  more.send_join();
  ASSERT_TRUE(run_until([&] { return more.joined(); }));
  EXPECT_EQ(more.answer().status, uint32_t{EBUSY}) << more.answer().reason;
  EXPECT_NE(std::string(more.answer().reason), "");
  EXPECT_EQ(ask(*programs[0], fake::kExtent, 1u << 30).a, uint64_t{ENOMEM});
  EXPECT_EQ(ask(*programs[0], fake::kExtent, 0).a, uint64_t{ENOMEM});
  programs.clear();
  expect_all_free();
  joined();
}

TEST_F(SessionTest, WorkersThatDoNotStartAreReportedToTheProgram) {
  struct Case {
    const char* mode;
    const char* reason;
  };
  config_.worker_start_ms = 200;
  for (const Case& c : {Case{"exit", "exited with status 3"}, Case{"refuse", "no device here"},
                        Case{"mute", "did not start"}}) {
    start(c.mode);
    create("a");
    LocalProgram p(daemon_->find("a")->spec().local_socket);
    p.send_join();
    ASSERT_TRUE(run_until([&] { return p.joined(); }));
    EXPECT_NE(p.answer().status, 0u);
    EXPECT_NE(std::string(p.answer().reason).find(c.reason), std::string::npos)
        << p.answer().reason;
    expect_all_free();
    daemon_.reset();
  }
  config_.worker = "/nonexistent/worker";
  start();
  create("a");
  LocalProgram p(daemon_->find("a")->spec().local_socket);
  p.send_join();
  ASSERT_TRUE(run_until([&] { return p.joined(); }));
  EXPECT_EQ(p.answer().status, uint32_t{ENOENT});
  expect_all_free();
}

// As long as its vGPU's latency class and priority say, if it has a seat; from the next poll on.
TEST_F(SessionTest, AWorkerOfAnUrgentVgpuPollsForLonger) {
  config_.spin_processors = 2;
  start();
  create("a");
  VgpuServer& v = *daemon_->find("a");
  const auto polls_us = [&](LocalProgram& p) { return ask(p, fake::kPolls).a; };
  auto first = joined();
  EXPECT_EQ(polls_us(*first), config_.spin_us);
  v.set_share({.weight = 100, .latency = policy::LatencyClass::kLow});
  EXPECT_TRUE(run_until([&] { return polls_us(*first) == config_.spin_low_us; }));
  auto second = joined(), third = joined();
  EXPECT_EQ(polls_us(*second), config_.spin_low_us);
  EXPECT_EQ(polls_us(*third), worker_protocol::Start{}.call_spin_us) << "it has no seat";
  v.set_share({.weight = 100});
  EXPECT_TRUE(run_until([&] { return polls_us(*first) == config_.spin_us; }));
  v.set_share({.weight = 100, .priority = 1});
  EXPECT_TRUE(run_until([&] { return polls_us(*first) == config_.spin_low_us; }));
  EXPECT_EQ(polls_us(*third), worker_protocol::Start{}.call_spin_us);
}

// The loop polls for the next ring of an urgent vGPU, and of no other.
TEST_F(SessionTest, RingsOfAnUrgentVgpuAreExpected) {
  start();
  create("a");
  auto p = joined();
  p->command(fake::kReport, 1, 1);
  ASSERT_TRUE(run_until([&] { return ask(*p, fake::kGrant).a & SLUICE_GRANT_OPEN; }));
  EXPECT_EQ(daemon_->expects_ring_until_ns(), 0u);
  daemon_->find("a")->set_share({.weight = 100, .priority = 1});
  const uint64_t until_ns = monotonic_ns() + config_.spin_low_us * 1000ull;
  p->command(fake::kReport, 1, 0);
  EXPECT_TRUE(run_until([&] { return daemon_->expects_ring_until_ns() >= until_ns; }));
}

// One with many sessions holds no seat that one with fewer wants, however long it has had it.
TEST_F(SessionTest, NoVgpuTakesAllSeatsOfWorkersThatPoll) {
  config_.spin_processors = 2;
  start();
  create("a");
  create("b");
  const auto polls_us = [&](LocalProgram& p) { return ask(p, fake::kPolls).a; };
  const uint64_t without_us = worker_protocol::Start{}.call_spin_us;
  auto first = joined(), second = joined(), third = joined();
  EXPECT_EQ(polls_us(*second), config_.spin_us);
  EXPECT_EQ(polls_us(*third), without_us);
  auto other = joined("b"), another = joined("b");
  EXPECT_EQ(polls_us(*other), config_.spin_us);
  EXPECT_TRUE(run_until([&] { return polls_us(*second) == without_us; }));
  EXPECT_EQ(polls_us(*first), config_.spin_us);
  EXPECT_EQ(polls_us(*another), without_us) << "each has one now";
  second->close();
  another->close();
  EXPECT_EQ(polls_us(*first), config_.spin_us);
  other->close();
  ASSERT_TRUE(run_until([&] { return daemon_->find("b")->sessions().empty(); }));
  EXPECT_EQ(polls_us(*joined("b")), config_.spin_us);
}

TEST_F(SessionTest, AWorkerThatIsReadyTwiceIsKilled) {
  start("twice");
  create("a");
  auto p = joined();
  ASSERT_TRUE(run_until([&] { return p->slot_state() == SLUICE_SLOT_ENDED; }));
  p->close();
  expect_all_free();
}

TEST_F(SessionTest, AProgramThatLeavesBeforeItsWorkerIsUpLeavesNothing) {
  start("mute");
  create("a");
  LocalProgram p(daemon_->find("a")->spec().local_socket);
  p.send_join();
  ASSERT_TRUE(run_until([&] { return !daemon_->find("a")->sessions().empty(); }));
  p.close();
  expect_all_free();
}

TEST_F(SessionTest, MalformedJoinsAreRefusedAndDisturbNobody) {
  config_.join_ms = 100;
  start();
  create("a");
  auto good = joined();
  const std::string path = daemon_->find("a")->spec().local_socket;
  sluice_join join{};
  join.magic = SLUICE_JOIN_MAGIC;
  join.version = SLUICE_CHANNEL_VERSION;
  struct {
    sluice_join join;
    char more;
  } longer{join, 1};
  sluice_join wrong_magic = join, wrong_version = join;
  wrong_magic.magic = 1;
  wrong_version.version = 77;
  struct Case {
    const void* data;
    size_t bytes;
  };
  for (Case c : {Case{&longer, sizeof longer}, Case{&join, 5}, Case{&wrong_magic, sizeof join},
                 Case{&wrong_version, sizeof join}, Case{nullptr, 0} /* says nothing */}) {
    LocalProgram p(path);
    if (c.data) p.send(c.data, c.bytes);
    ASSERT_TRUE(run_until([&] { return p.joined(); }));
    ASSERT_TRUE(p.has_answer());
    EXPECT_NE(p.answer().status, 0u);
    EXPECT_TRUE(run_until([&] { return p.hung_up(); }));
  }
  EXPECT_EQ(ask(*good, fake::kLease, 1).a, 0u);
  EXPECT_EQ(daemon_->find("a")->sessions().size(), 1u);
}

TEST_F(SessionTest, TheGateOpensForAVgpuWithWork) {
  start();
  create("a");
  auto p = joined();
  p->command(fake::kReport, 1, 3);
  fake::Reply r{};
  ASSERT_TRUE(run_until([&] {
    if (!(r.a & SLUICE_GRANT_OPEN)) r = ask(*p, fake::kGrant);
    return (r.a & SLUICE_GRANT_OPEN) != 0;
  }));
  EXPECT_TRUE(daemon_->executor().stats(daemon_->find("a")->id()).busy);
  EXPECT_EQ(daemon_->executor().stats(daemon_->find("a")->id()).guest.launches, 1u);
}

TEST_F(SessionTest, DeletingAVgpuEndsItsSessionsAndRemovesItsSockets) {
  start();
  create("a");
  create("b");
  auto p = joined("a"), other = joined("b");
  const std::string path = daemon_->find("a")->spec().local_socket;
  bool gone = false;
  ASSERT_TRUE(daemon_->remove("a", [&] { gone = true; }).ok());
  EXPECT_FALSE(daemon_->remove("a", [] {}).ok()) << "twice";
  ASSERT_TRUE(run_until([&] { return gone; }));
  EXPECT_EQ(daemon_->find("a"), nullptr);
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
  EXPECT_EQ(p->slot_state(), uint32_t{SLUICE_SLOT_ENDED});
  EXPECT_EQ(p->region().as<sluice_channel_header>()->state, uint32_t{SLUICE_CHANNEL_CLOSED});
  EXPECT_EQ(other->slot_state(), uint32_t{SLUICE_SLOT_OPEN});
  create("a");
  joined("a");
}

// A number that was not given back is missing at the next creation.
TEST_F(SessionTest, ADeletedVgpusNumberIsFreeAgain) {
  start();
  std::vector<core::VgpuId> ids;
  for (int i = 0; i < 2; ++i) {
    ids.push_back(create("first")->id());
    bool gone = false;
    ASSERT_TRUE(daemon_->remove("first", [&] { gone = true; }).ok());
    EXPECT_TRUE(run_until([&] { return gone; }));
  }
  EXPECT_EQ(ids[0], ids[1]);
}

TEST_F(SessionTest, ShuttingDownEndsEveryWorker) {
  start();
  create("a");
  create("b");
  auto p = joined("a"), q = joined("b");
  const pid_t workers[] = {daemon_->find("a")->sessions()[0]->worker_pid(),
                           daemon_->find("b")->sessions()[0]->worker_pid()};
  bool done = false;
  daemon_->shut_down([&] { done = true; });
  ASSERT_TRUE(run_until([&] { return done; }));
  for (pid_t pid : workers) EXPECT_NE(::kill(pid, 0), 0);
}

TEST_F(SessionTest, DestroyingTheDaemonLeavesNoWorker) {
  start();
  create("a");
  auto p = joined();
  const pid_t pid = daemon_->find("a")->sessions()[0]->worker_pid();
  daemon_.reset();
  EXPECT_NE(::kill(pid, 0), 0);
}

}  // namespace
}  // namespace sluice::test
