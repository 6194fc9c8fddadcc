// SPDX-License-Identifier: Apache-2.0
// The back-off of sluiced with fake workers: what counts as an offence, who waits for it, what
// resets it and what does not. No GPU: what a fault costs is the configuration's word.
#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "mediator/base/clock.h"
#include "mediator/base/limits.h"
#include "mediator/core/worker_protocol.h"
#include "mediator/softgpu/shared/shared_gpu.h"
#include "tests/support/test_daemon.h"

namespace sluice::test {
namespace {

constexpr uint64_t kMsNs = 1'000'000;

class BackOffTest : public DaemonTest {
 protected:
  void SetUp() override {
    start();
    create("a");
    create("b");
  }
  std::unique_ptr<LocalProgram> asks(const std::string& vgpu = "a") {
    auto p = std::make_unique<LocalProgram>(daemon_->find(vgpu)->spec().local_socket);
    p->send_join();
    return p;
  }
  std::unique_ptr<LocalProgram> joined(const std::string& vgpu = "a") {
    auto p = asks(vgpu);
    EXPECT_TRUE(run_until([&] { return p->joined(); }));
    if (!p->has_answer() || p->answer().status != 0) throw std::runtime_error("no session");
    return p;
  }
  VgpuServer& a() { return *daemon_->find("a"); }
  const core::Penalty& penalty() { return a().penalty(); }
  void await_faults(uint64_t faults) {
    EXPECT_TRUE(run_until([&] { return penalty().faults() == faults; }));
  }
  // Four sessions of `a` whose kernels fault: some 25 s of waiting.
  void offend() {
    std::vector<std::unique_ptr<LocalProgram>> programs;
    const uint64_t before = penalty().faults();
    for (int i = 0; i < 4; ++i) programs.push_back(joined());
    for (auto& p : programs) p->command(fake::kEndedWith, 700);
    await_faults(before + 4);
    EXPECT_TRUE(run_until([&] { return a().sessions().empty(); }));
  }
  void make_again(const std::string& owner) {
    bool gone = false;
    ASSERT_TRUE(daemon_->remove("a", [&] { gone = true; }).ok());
    ASSERT_TRUE(run_until([&] { return gone; }));
    Daemon::CreateRequest r;
    r.name = "a";
    r.owner = owner;
    ASSERT_TRUE(daemon_->create(r).ok());
  }
  void expect_waiting(LocalProgram& p) {
    EXPECT_TRUE(run_until([&] { return a().waiting_programs() == 1; }));
    run_for_a_moment();
    EXPECT_FALSE(p.has_answer());
    EXPECT_EQ(a().sessions().size(), 0u);
  }
};

TEST_F(BackOffTest, WhoFaultsWaitsAndIsSeen) {
  auto neighbour = joined("b");
  offend();
  EXPECT_EQ(penalty().fault_stall_ns(), 600 * kMsNs);
  auto next = asks();
  expect_waiting(*next);
  const auto show = rpc(R"({"jsonrpc":"2.0","id":1,"method":"vgpu.show","params":{"name":"a"}})");
  const auto& o = show.at("result");
  EXPECT_EQ(o.at("faults").to_number<uint64_t>(), 4u);
  EXPECT_EQ(o.at("fault_stall_ms").to_number<double>(), 600.0);
  EXPECT_EQ(o.at("back_off").at("state").as_string(), "waiting");
  EXPECT_TRUE(o.at("back_off").at("holds").as_bool());
  EXPECT_EQ(o.at("back_off").at("waiting").to_number<uint64_t>(), 1u);
  EXPECT_GT(o.at("back_off").at("opens_in_ms").to_number<double>(), 0);
  // The neighbour's programs start as ever.
  auto other = joined("b");
  const auto stats = rpc(R"({"jsonrpc":"2.0","id":1,"method":"stats","params":{}})");
  for (const auto& v : stats.at("result").at("vgpus").as_array()) {
    const bool is_a = v.at("name").as_string() == "a";
    EXPECT_EQ(v.at("faults").to_number<uint64_t>(), is_a ? 4u : 0u);
    if (is_a) {
      EXPECT_GT(v.at("usage").at("charged_sm_ns").to_number<uint64_t>(), 0u)
          << "it pays out of its share";
    }
  }
}

TEST_F(BackOffTest, WhoWaitsAndLeavesIsForgotten) {
  auto neighbour = joined("b");
  offend();
  auto next = asks();
  expect_waiting(*next);
  next->close();
  EXPECT_TRUE(run_until([&] { return a().waiting_programs() == 0; }));
}

TEST_F(BackOffTest, TooManyWhoWaitReadWhy) {
  auto neighbour = joined("b");
  offend();
  std::vector<std::unique_ptr<LocalProgram>> waiting;
  for (int i = 0; i < 4; ++i) waiting.push_back(asks());
  EXPECT_TRUE(run_until([&] { return a().waiting_programs() == 4; }));
  auto refused = asks();
  ASSERT_TRUE(run_until([&] { return refused->joined(); }));
  ASSERT_TRUE(refused->has_answer());
  EXPECT_NE(refused->answer().status, 0);
  EXPECT_NE(std::string(refused->answer().reason).find("faulted"), std::string::npos)
      << refused->answer().reason;
}

TEST_F(BackOffTest, TheOperatorResetsItByDeletingTheVgpu) {
  auto neighbour = joined("b");
  offend();
  auto next = asks();
  expect_waiting(*next);
  bool gone = false;
  ASSERT_TRUE(daemon_->remove("a", [&] { gone = true; }).ok());
  ASSERT_TRUE(run_until([&] { return gone; }));
  create("a");
  joined();
  EXPECT_EQ(penalty().faults(), 0u);
}

// Or it would be reset by whoever may shut a domain off and start it.
TEST_F(BackOffTest, WhatAnOwnersVgpuOwesStaysWhenItIsMadeAnew) {
  auto neighbour = joined("b");
  make_again("libvirt:1");
  offend();
  make_again("libvirt:1");
  auto next = asks();
  expect_waiting(*next);
  next->close();
  make_again("libvirt:2");
  EXPECT_EQ(penalty().debt_ns(monotonic_ns()), 0u) << "another's";
  joined();
}

TEST_F(BackOffTest, AloneNobodyWaits) {
  offend();
  offend();
  EXPECT_EQ(penalty().faults(), 8u);
  EXPECT_EQ(penalty().debt_ns(monotonic_ns()), 0u);
  joined();
}

// Else one would open its sessions in the gaps between a neighbour's programs.
TEST_F(BackOffTest, ANeighbourThatHasJustLeftStillCounts) {
  joined("b")->close();
  EXPECT_TRUE(run_until([&] { return daemon_->find("b")->sessions().empty(); }));
  offend();
  auto next = asks();
  expect_waiting(*next);
}

TEST_F(BackOffTest, OtherSessionsRunOn) {
  auto neighbour = joined("b");
  auto good = joined(), bad = joined();
  bad->command(fake::kEndedWith, 700);
  await_faults(1);
  EXPECT_TRUE(run_until([&] { return a().sessions().size() == 1; }));
  good->command(fake::kLease, 5);
  EXPECT_TRUE(run_until([&] { return good->reply().has_value(); }));
}

class PacedLoads : public BackOffTest {
 protected:
  PacedLoads() { config_.module_stall_ms = 60'000; }
};

// A worker that was taken over asks for leave to load without end: sluiced keeps so many of its
// requests and no more.
TEST_F(PacedLoads, FewRequestsWait) {
  auto neighbour = joined("b");
  neighbour->command(fake::kReport, 1, 1);
  auto p = joined();
  const auto ask = [&] { p->command(fake::kLease, 1, worker_protocol::kModuleLoads); };
  const auto answer = [&] {
    std::optional<fake::Reply> reply;
    EXPECT_TRUE(run_until([&] { return (reply = p->reply()).has_value(); }));
    return reply ? reply->a : 999;
  };
  ask();
  EXPECT_EQ(answer(), 0u) << "the first is free";
  constexpr size_t kBeyond = 10;
  for (size_t i = 0; i < limits::kMaxWaitingExtentRequests + kBeyond; ++i) ask();
  for (size_t i = 0; i < kBeyond; ++i) ASSERT_EQ(answer(), uint64_t{ENOMEM}) << i;
  run_for_a_moment();
  EXPECT_FALSE(p->reply().has_value()) << "the others wait";
}

// Each of them could do the same, and that before the first second is over.
TEST_F(BackOffTest, SessionsOfWhoWaitsLaunchNothing) {
  auto neighbour = joined("b");
  auto good = joined(), bad = joined();
  const auto may_launch = [&](LocalProgram& p) {
    p.command(fake::kGrant);
    std::optional<fake::Reply> reply;
    EXPECT_TRUE(run_until([&] { return (reply = p.reply()).has_value(); }));
    return (reply->a & SLUICE_GRANT_OPEN) != 0;
  };
  good->command(fake::kReport, 1, 1);
  EXPECT_TRUE(run_until([&] { return may_launch(*good); }));
  bad->command(fake::kEndedWith, 700);
  await_faults(1);
  // The GPU goes to the neighbour, and does not come back however long that works.
  neighbour->command(fake::kReport, 1, 1);
  EXPECT_TRUE(run_until([&] { return may_launch(*neighbour); }));
  for (int i = 0; i < 200; ++i) {
    good->command(fake::kReport, 1, 1);
    EXPECT_FALSE(may_launch(*good));
    EXPECT_TRUE(may_launch(*neighbour));
  }
}

// The session stays, its error with it: that is one fault, when it is reported.
TEST_F(BackOffTest, AReportedFaultCountsAtOnceAndOnlyOnce) {
  auto neighbour = joined("b");
  auto p = joined();
  p->command(fake::kError, 716);
  await_faults(1);
  EXPECT_EQ(penalty().fault_stall_ns(), 78 * kMsNs);
  EXPECT_EQ(a().sessions().size(), 1u);
  p->command(fake::kError, 700);
  EXPECT_TRUE(run_until([&] { return p->reply().has_value(); }));
  p->close();
  EXPECT_TRUE(run_until([&] { return a().sessions().empty(); }));
  EXPECT_EQ(penalty().faults(), 1u);
  EXPECT_LE(penalty().fault_stall_ns(), 150 * kMsNs);
}

TEST_F(BackOffTest, WhatIsNoFaultCostsNothing) {
  auto neighbour = joined("b");
  for (const uint64_t code : {2u, 100u, 710u, 0xffffffffu}) {
    auto p = joined();
    p->command(fake::kError, code);
    EXPECT_TRUE(run_until([&] { return p->reply().has_value(); }));
    p->close();
    EXPECT_TRUE(run_until([&] { return a().sessions().empty(); }));
  }
  EXPECT_EQ(penalty().fault_stall_ns(), 0u);
}

// Every client of an MPS server gets the error of whichever faulted.
class BackOffUnderMps : public BackOffTest {
 protected:
  BackOffUnderMps() {
    config_.device = DeviceKind::kNvidia;  // whose driver nobody reaches: workers are fake
    config_.turns_by_priority = true;
    config_.mps_pipes = config_.runtime_dir + "/mps";
    std::filesystem::create_directories(config_.mps_pipes);
    std::ofstream(config_.mps_pipes + "/control").put('\n');
  }
};

TEST_F(BackOffUnderMps, VictimsOfAFaultAreNotBlamed) {
  auto neighbour = joined("b");
  auto reports = joined(), ends = joined(), leaves = joined();
  reports->command(fake::kError, 700);
  EXPECT_TRUE(run_until([&] { return reports->reply().has_value(); }));
  ends->command(fake::kEndedWith, 719);
  EXPECT_TRUE(run_until([&] { return a().sessions().size() == 2; }));
  leaves->command(fake::kError, 0, 1);  // with work in flight
  EXPECT_TRUE(run_until([&] { return leaves->reply().has_value(); }));
  leaves->close();
  reports->close();
  EXPECT_TRUE(run_until([&] { return a().sessions().empty(); }));
  EXPECT_EQ(penalty().faults() + penalty().forced_ends(), 0u);
  EXPECT_EQ(penalty().debt_ns(monotonic_ns()), 0u);
  joined()->close();
}

TEST_F(BackOffUnderMps, WhoDiesOrBreaksTheProtocolIs) {
  auto neighbour = joined("b");
  auto lies = joined();  // kept: a connection that closes may be seen before what came on it
  lies->command(fake::kGarbage);
  EXPECT_TRUE(run_until([&] { return penalty().forced_ends() == 1; }));
}

// How what was on the GPU ended is not known, and nothing measures it here.
TEST_F(BackOffTest, WhoLeavesWithWorkInFlightMayHaveFaulted) {
  auto neighbour = joined("b");
  auto p = joined();
  p->command(fake::kError, 0, 1);
  EXPECT_TRUE(run_until([&] { return p->reply().has_value(); }));
  p->close();
  EXPECT_TRUE(run_until([&] { return penalty().forced_ends() == 1; }));
  EXPECT_GE(penalty().debt_ns(monotonic_ns()), 100 * kMsNs);
}

TEST_F(BackOffTest, EndsByForceAreCounted) {
  auto neighbour = joined("b");
  auto dies = joined(), lies = joined();
  ASSERT_EQ(::kill(a().sessions().front()->worker_pid(), SIGKILL), 0);  // it is the first
  EXPECT_TRUE(run_until([&] { return penalty().forced_ends() == 1; }));
  lies->command(fake::kGarbage);
  EXPECT_TRUE(run_until([&] { return penalty().forced_ends() == 2; }));
  EXPECT_EQ(penalty().faults(), 0u);
}

TEST_F(BackOffTest, AnOrderlyEndIsNoOffence) {
  auto neighbour = joined("b");
  joined()->close();
  EXPECT_TRUE(run_until([&] { return a().sessions().empty(); }));
  EXPECT_EQ(penalty().forced_ends() + penalty().faults(), 0u);
}

// The kernel tells that with an error of the connection, and what the worker said behind it.
TEST_F(BackOffTest, AnEndBeforeAllWasReadIsNoOffence) {
  auto neighbour = joined("b");
  auto p = joined();
  p->command(fake::kEndedUnread, 0);
  ASSERT_TRUE(run_until([&] { return p->slot_state() == SLUICE_SLOT_ENDED; }));
  EXPECT_STREQ(p->slot_header().reason, "its own fault");
  p->close();
  EXPECT_TRUE(run_until([&] { return a().sessions().empty(); }));
  EXPECT_EQ(penalty().forced_ends() + penalty().faults(), 0u);
}

// Where the GPU shows how long it stood still for a process: the software GPU's file.
class BackOffMeasured : public BackOffTest {
 protected:
  void SetUp() override {
    gpu_config_.gpu_file = config_.soft_file = dir_.path + "/gpu";
    gpu_config_.memory_bytes = 64 << 20;
    auto made = softgpu::SharedGpu::open(gpu_config_);
    ASSERT_TRUE(made.ok()) << made.error().message;
    gpu_ = std::move(*made);
    config_.evict_end_ms = 60'000;  // nobody is ended for it, however slow this is
    file_.reset(::open(config_.soft_file.c_str(), O_RDWR | O_CLOEXEC));
    BackOffTest::SetUp();
  }
  void record_fault(pid_t worker, uint64_t stall_ns) {
    sluice_soft_fault fault{};
    fault.number = 1;
    fault.time_ns = monotonic_ns();
    fault.stall_ns = stall_ns;
    fault.pid = static_cast<uint32_t>(worker);
    const off_t at = SLUICE_SOFT_FAULTS_OFFSET + offsetof(sluice_soft_faults, records);
    ASSERT_EQ(::pwrite(file_.get(), &fault, sizeof fault, at), ssize_t{sizeof fault});
  }
  softgpu::Config gpu_config_;
  std::unique_ptr<softgpu::SharedGpu> gpu_;
  Fd file_;
};

// Its worker reports no error and leaves in order.
TEST_F(BackOffMeasured, AStallThatNobodyReportsIsCharged) {
  auto neighbour = joined("b");
  auto p = joined();
  const pid_t worker = a().sessions().front()->worker_pid();
  record_fault(worker, 40 * kMsNs);
  // sluiced opens the file when somebody has work.
  p->command(fake::kReport, 1, 1);
  ASSERT_TRUE(run_until(
      [&] { return daemon_->executor().fault_stall_ns(worker, 0).value_or(0) == 40 * kMsNs; }));
  p->close();
  EXPECT_TRUE(run_until([&] { return a().sessions().empty(); }));
  EXPECT_EQ(penalty().faults(), 1u);
  EXPECT_EQ(penalty().fault_stall_ns(), 40 * kMsNs);
}

// A GPU that several contexts share at once has no other figures for sluiced.
class BackOffSideBySide : public BackOffMeasured {
 protected:
  BackOffSideBySide() {
    gpu_config_.mode = SLUICE_SOFT_MPS;
    config_.turns_by_priority = true;
  }
};

TEST_F(BackOffSideBySide, AProgramThatIsKilledWithWorkInFlightIsNoOffence) {
  auto neighbour = joined("b"), p = joined();
  p->command(fake::kError, 0, 1);
  EXPECT_TRUE(run_until([&] { return p->reply().has_value(); }));
  p->close();
  EXPECT_TRUE(run_until([&] { return a().sessions().empty(); }));
  EXPECT_EQ(penalty().forced_ends() + penalty().faults(), 0u);
}

TEST_F(BackOffSideBySide, AFaultIsCharged) {
  auto neighbour = joined("b"), p = joined();
  record_fault(a().sessions().front()->worker_pid(), 40 * kMsNs);
  p->close();
  EXPECT_TRUE(run_until([&] { return penalty().fault_stall_ns() == 40 * kMsNs; }));
}

class BackOffLate : public BackOffMeasured {
 protected:
  BackOffLate() { config_.evict_warn_ms = 5; }
  // `p`'s launch has to leave, and does not.
  void stay_late(LocalProgram& neighbour, LocalProgram& p) {
    p.command(fake::kError, 0, 1);  // no error, one in flight
    EXPECT_TRUE(run_until([&] { return p.reply().has_value(); }));
    p.command(fake::kReport, 1, 1);
    neighbour.command(fake::kReport, 1, 1);
    const core::VgpuId id = a().id();
    ASSERT_TRUE(
        run_until([&] { return daemon_->executor().scheduler().stats(0, id).overdue == 1; }));
    const uint64_t until_ns = monotonic_ns() + 300 * kMsNs;
    ASSERT_TRUE(run_until([&] { return monotonic_ns() >= until_ns; }));
  }
  void expect_it_has_paid() {
    EXPECT_EQ(penalty().forced_ends(), 1u);
    EXPECT_GE(penalty().debt_ns(monotonic_ns()), 8 * kMsNs);
    EXPECT_LT(penalty().deadline_ns(monotonic_ns(), 2000 * kMsNs, 100 * kMsNs), 1990 * kMsNs)
        << "and its next one is shorter";
    auto next = asks();
    expect_waiting(*next);
  }
};

TEST_F(BackOffLate, WhoGoesBeforeItsDeadlinePays) {
  auto neighbour = joined("b"), p = joined();
  stay_late(*neighbour, *p);
  p->close();
  EXPECT_TRUE(run_until([&] { return a().sessions().empty(); }));
  expect_it_has_paid();
}

TEST_F(BackOffLate, WhoseDomainIsShutOffBeforeItsDeadlinePays) {
  make_again("libvirt:1");
  auto neighbour = joined("b"), p = joined();
  stay_late(*neighbour, *p);
  make_again("libvirt:1");
  expect_it_has_paid();
}

class BackOffDear : public BackOffTest {
 protected:
  BackOffDear() { config_.fault_stall_ms = 400; }
};

// Two of these are most of what a minute may cost: a third would not fit.
TEST_F(BackOffDear, WhoHasUsedUpItsMinuteHasNoSessionLeft) {
  auto neighbour = joined("b");
  auto good = joined(), one = joined(), two = joined();
  one->command(fake::kEndedWith, 700);
  await_faults(1);
  run_for_a_moment();
  EXPECT_EQ(good->slot_state(), uint32_t{SLUICE_SLOT_OPEN});
  two->command(fake::kEndedWith, 700);
  EXPECT_TRUE(run_until([&] { return good->slot_state() == SLUICE_SLOT_ENDED; }));
  EXPECT_EQ(good->slot_header().error, 46);
  EXPECT_NE(std::string(good->slot_header().reason).find("a minute"), std::string::npos)
      << good->slot_header().reason;
  EXPECT_TRUE(run_until([&] { return a().sessions().empty(); }));
  EXPECT_EQ(penalty().state(monotonic_ns()), core::Penalty::State::kBarred);
  EXPECT_EQ(penalty().forced_ends(), 0u) << "that it was ended is not its doing";
  EXPECT_EQ(daemon_->find("b")->sessions().size(), 1u);
}

class BackOffOff : public BackOffTest {
 protected:
  BackOffOff() { config_.back_off = false; }
};

TEST_F(BackOffOff, FaultsAreCountedAndNobodyWaits) {
  auto neighbour = joined("b");
  offend();
  offend();
  EXPECT_EQ(penalty().faults(), 8u);
  joined();
}

}  // namespace
}  // namespace sluice::test
