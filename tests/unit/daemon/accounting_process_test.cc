// SPDX-License-Identifier: Apache-2.0
// sluiced's Accounting against two processes on one software GPU, whose own counters are the truth:
// time on the engine by turns and slices, side by side in mps mode; and against a shared file that
// somebody hostile writes. Nothing here depends on how fast this machine is: what the sources say
// is compared with what the GPU says it did.
#include <fcntl.h>
#include <sys/stat.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <filesystem>
#include <functional>

#include "mediator/base/clock.h"
#include "mediator/base/log.h"
#include "mediator/daemon/scheduling/accounting.h"
#include "tests/unit/softgpu/contention/contender.h"

namespace sluice {
namespace {

using core::LogEvent;
using softgpu::Contender;
constexpr uint64_t kMs = 1'000'000;

class Process : public softgpu::ContentionTest {
 protected:
  // A vGPU with one session whose worker is a contender.
  struct Tenant {
    std::unique_ptr<Contender> process;
    uint32_t tsgid = 0;
  };
  void SetUp() override {
    ContentionTest::SetUp();
    log::init("test", log::Level::kError);
    settings_.soft_gpu_file = path_;
  }
  void start(const char* mode, size_t n = 2) {
    accounting_ = std::make_unique<Accounting>(
        io_, settings_, [this](core::VgpuId v, uint64_t refund, uint64_t extra) {
          extra_[v] += extra;
          refund_[v] += refund;
        });
    for (uint32_t v = 0; v < n; ++v) {
      tenants_.push_back({std::make_unique<Contender>(
          path_, std::map<std::string, std::string>{{"SLUICE_SOFT_MODE", mode},
                                                    {"SLUICE_SOFT_STALL_MS", "5000"},
                                                    {"SLUICE_SOFT_THREADS", "1"}})});
      tenants_[v].tsgid = static_cast<uint32_t>(tenants_[v].process->ask('i'));
      accounting_->add_vgpu(v, "v" + std::to_string(v));
      accounting_->add_session(v, v, tenants_[v].process->pid(), &report_, &records_);
    }
  }
  void tell(LogEvent event, core::VgpuId v) { accounting_->event(monotonic_ns(), event, v); }
  void run_for(uint64_t ms) {
    io_.run_for(std::chrono::milliseconds(ms));
    io_.restart();
  }
  bool run_until(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) return false;
      run_for(1);
    }
    return true;
  }
  uint64_t engine_ns(uint32_t v) { return channel(tenants_[v].tsgid).engine_ns; }
  // Both have work, one holds: kernels that end by themselves. Returns what the engine's counter
  // says of it.
  void turn(core::VgpuId v) {
    tell(LogEvent::kGranted, v);
    Contender& c = *tenants_[v].process;
    const uint64_t kernels = channel(tenants_[v].tsgid).kernels;
    ASSERT_EQ(c.ask('C'), 0);
    ASSERT_TRUE(run_until([&] {
      return channel(tenants_[v].tsgid).kernels >= kernels + 1 && running() != tenants_[v].tsgid;
    }));
    tell(LogEvent::kLeft, v);
  }
  // |used - truth| within the bound and what the truth itself leaves open. The bound is 3.3
  // standard errors, so that one run in some hundreds would fail by chance; half as much again is
  // 5, and none does.
  void expect_within(core::VgpuId v, uint64_t least, uint64_t most, const char* what) {
    const auto r = accounting_->read(v);
    const uint64_t bound = r.used.error_ns + r.used.error_ns / 2;
    EXPECT_GE(r.used.used_ns + bound, least) << what << " v" << v;
    EXPECT_LE(r.used.used_ns - std::min(r.used.used_ns, bound), most) << what << " v" << v;
    // How wide the registers' bound is depends on how often this machine lets the reader come late;
    // the log's does not.
    if (accounting_->source() == "switch_log") {
      EXPECT_LE(r.used.error_ns, r.held_ns / 10) << what;
    }
  }
  // Overwrites a part of the shared file, as any worker could.
  void scribble(off_t at, const void* data, size_t bytes) {
    Fd fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(::pwrite(fd.get(), data, bytes, at), static_cast<ssize_t>(bytes));
  }
  std::string state_of(const std::string& source) {
    for (const auto& s : accounting_->sources())
      if (s.name == source) return s.state;
    return "?";
  }

  boost::asio::io_context io_{1};
  AccountingSettings settings_{.words = false};
  sluice_report_header report_{};
  sluice_launch_records records_{};
  std::vector<Tenant> tenants_;
  std::unique_ptr<Accounting> accounting_;
  uint64_t extra_[4] = {}, refund_[4] = {};
};

// Between taking the engine and showing that it runs, and until its counter is written, a process
// may be interrupted, and changes of context (82 us and a sleep's overshoot) are the counter's but
// not use: the log shows when each began.
TEST_F(Process, TurnsAgreeWithTheGpusOwnCounters) {
  for (const char* sources : {"all", "registers", "log"}) {
    settings_.registers = sources != std::string("log");
    settings_.switch_log = sources != std::string("registers");
    start("fcfs");
    for (uint32_t v : {0u, 1u}) tell(LogEvent::kBusy, v);
    auto log = *gpu::SoftGpu::open(path_, false);
    uint64_t before[2], switches = 0;
    for (uint32_t v : {0u, 1u}) before[v] = engine_ns(v);
    for (int i = 0; i < 2; ++i) turn(0), turn(1);
    run_for(30);
    EXPECT_EQ(accounting_->source(), settings_.registers ? "registers" : "switch_log");
    std::vector<gpu::SoftGpu::SwitchRecord> records;
    log->read_log(records);
    for (size_t i = 1; i < records.size(); ++i)
      if (records[i].start) switches += records[i].time_ns - records[i - 1].time_ns;
    for (uint32_t v : {0u, 1u}) {
      const uint64_t truth = engine_ns(v) - before[v];
      EXPECT_GT(truth, 5 * kMs);
      // By the log alone it is what was held while resident: that is at least the truth.
      const uint64_t most = settings_.registers ? truth : accounting_->read(v).held_ns;
      expect_within(v, truth - std::min(truth, switches), most, sources);
      EXPECT_EQ(accounting_->read(v).contradictions, 0u);
    }
    accounting_.reset();
    tenants_.clear();
    ::munmap(file_, softgpu::kGpuFileBytes);
    file_ = nullptr;
    ::unlink(path_.c_str());
  }
}

// Both run at once by the GPU's own slices, though one only was granted: the other is charged.
TEST_F(Process, SlicesTakenWithoutAGrantAreSeenAndCharged) {
  start("timeslice");
  for (uint32_t v : {0u, 1u}) tell(LogEvent::kBusy, v);
  tell(LogEvent::kGranted, 0);
  ASSERT_EQ(tenants_[0].process->ask('s'), 0);
  await_running(tenants_[0].tsgid);
  ASSERT_TRUE(run_until([&] { return accounting_->source() == "registers"; }));
  const uint64_t before = engine_ns(1);
  ASSERT_EQ(tenants_[1].process->ask('s'), 0);
  ASSERT_TRUE(run_until([&] { return extra_[1] > 100 * kMs; }));
  EXPECT_EQ(tenants_[1].process->ask('r'), 0);
  EXPECT_EQ(tenants_[0].process->ask('r'), 0);
  EXPECT_LE(extra_[1], engine_ns(1) - before) << "never more than it used";
  EXPECT_EQ(extra_[0], 0u);
  EXPECT_GE(refund_[0], extra_[1] / 2);
  EXPECT_GE(accounting_->read(1).ungranted_ns, 100 * kMs);
  EXPECT_EQ(accounting_->read(1).used.used_ns, 0u) << "used is what was granted";
}

TEST_F(Process, SideBySideOneHolderIsKnownAndOfTwoTheBoundSaysSo) {
  start("mps");
  for (uint32_t v : {0u, 1u}) tell(LogEvent::kBusy, v);
  uint64_t before[2];
  for (uint32_t v : {0u, 1u}) before[v] = channel(tenants_[v].tsgid).kernels;
  const auto busy = [&] { return SLUICE_STATUS0_BUSY(status0()) != 0; };
  uint64_t held[2] = {};
  for (int i = 0; i < 2; ++i)
    for (uint32_t v : {0u, 1u}) {
      const uint64_t begin = monotonic_ns();
      tell(LogEvent::kGranted, v);
      ASSERT_EQ(tenants_[v].process->ask('C'), 0);
      ASSERT_TRUE(run_until([&] {
        return channel(tenants_[v].tsgid).kernels > before[v] + static_cast<uint64_t>(i) && !busy();
      }));
      tell(LogEvent::kLeft, v);
      held[v] += monotonic_ns() - begin;
    }
  EXPECT_EQ(state_of("switch_log"), "unavailable");
  EXPECT_EQ(accounting_->source(), "registers");
  // A block is on an SM for all of the time in which its context has work; with one SM thread no
  // less.
  for (uint32_t v : {0u, 1u})
    expect_within(v, channel(tenants_[v].tsgid).sm_ns / 4, held[v], "mps");
  const auto alone = accounting_->read(0);
  for (uint32_t v : {0u, 1u}) tell(LogEvent::kGranted, v);
  const uint64_t begin = monotonic_ns();
  for (uint32_t v : {0u, 1u}) ASSERT_EQ(tenants_[v].process->ask('C'), 0);
  ASSERT_TRUE(run_until([&] { return monotonic_ns() > begin + 100 * kMs && !busy(); }));
  const uint64_t both = monotonic_ns() - begin;
  for (uint32_t v : {0u, 1u}) tell(LogEvent::kLeft, v);
  const auto side = accounting_->read(0);
  EXPECT_GE(side.used.error_ns, alone.used.error_ns + both * 2 / 5)
      << "nobody can tell whose of the two it was";
}

TEST_F(Process, WhoeverSpoilsTheFileTakesTheSourceAwayAndNothingElse) {
  start("fcfs");
  for (uint32_t v : {0u, 1u}) tell(LogEvent::kBusy, v);
  tell(LogEvent::kGranted, 0);
  run_for(20);
  ASSERT_EQ(accounting_->source(), "registers");
  EXPECT_EQ(state_of("switch_log"), "in use");
  // Records from the future and the past, at any place.
  Fd fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  for (uint64_t time : {UINT64_MAX, uint64_t{0}, uint64_t{1} << 62}) {
    std::vector<sluice_switch_record> noise(SLUICE_SOFT_LOG_RECORDS);
    uint64_t put = 0;
    ASSERT_EQ(::pread(fd.get(), &put, 8, SLUICE_SOFT_LOG_OFFSET), 8);
    for (uint64_t n = put; n < put + 1000; ++n)
      noise[n % SLUICE_SOFT_LOG_RECORDS] = {.tag = SLUICE_SWITCH_START,
                                            .seq = static_cast<uint16_t>(n + 1),
                                            .cid = 1,
                                            .time_ns = time};
    scribble(SLUICE_SOFT_LOG_OFFSET + SLUICE_SWITCH_LOG_RECORDS_AT, noise.data(),
             noise.size() * sizeof noise[0]);
    put += 1000;
    scribble(SLUICE_SOFT_LOG_OFFSET, &put, 8);
    run_for(30);
  }
  ASSERT_TRUE(run_until([&] { return accounting_->source() == "clock"; }))
      << "impossible records, again and again";
  EXPECT_EQ(state_of("registers"), "unavailable");
  const auto r = accounting_->read(0);
  EXPECT_LE(r.used.used_ns, r.held_ns);
  EXPECT_EQ(extra_[0] + extra_[1], 0u) << "nobody is charged for noise";
}

TEST_F(Process, AFileCutShortIsNoticed) {
  start("fcfs");
  for (uint32_t v : {0u, 1u}) tell(LogEvent::kBusy, v);
  tell(LogEvent::kGranted, 0);
  run_for(20);
  ASSERT_EQ(accounting_->source(), "registers");
  for (auto& t : tenants_) t.process->kill();  // they would meet SIGBUS themselves
  ASSERT_EQ(::truncate(path_.c_str(), 0), 0);
  ASSERT_TRUE(run_until([&] { return accounting_->source() == "clock"; }));
  tell(LogEvent::kLeft, 0);
  EXPECT_LE(accounting_->read(0).used.used_ns, accounting_->read(0).held_ns);
}

TEST_F(Process, AloneItReadsRarelyAndIdleNotAtAll) {
  start("fcfs");
  tell(LogEvent::kBusy, 0);
  tell(LogEvent::kGranted, 0);
  run_for(300);
  EXPECT_TRUE(accounting_->polling());
  EXPECT_LE(accounting_->reads(), 40u) << "no dense phase";
  tell(LogEvent::kIdle, 0);
  tell(LogEvent::kLeft, 0);
  ASSERT_TRUE(run_until([&] { return !accounting_->polling(); }));
  const uint64_t reads = accounting_->reads();
  run_for(100);
  EXPECT_EQ(accounting_->reads(), reads);
  // Somebody else comes: from now on it is counted.
  tell(LogEvent::kBusy, 0);
  tell(LogEvent::kGranted, 0);
  tell(LogEvent::kBusy, 1);
  ASSERT_TRUE(run_until([&] { return accounting_->reads() > reads + 1000; })) << "a dense phase";
}

// One vGPU that comes and goes beside another: each time had cost a dense phase, of a whole core.
TEST_F(Process, WhoComesAndGoesDoesNotHaveItReadWithoutPause) {
  start("fcfs");
  tell(LogEvent::kBusy, 0);
  tell(LogEvent::kGranted, 0);
  const uint64_t began_ns = monotonic_ns();
  for (int i = 0; i < 100; ++i) {
    tell(LogEvent::kBusy, 1);
    run_for(2);
    tell(LogEvent::kIdle, 1);
    run_for(2);
  }
  const uint64_t elapsed_ms = (monotonic_ns() - began_ns) / kMs;
  EXPECT_GE(accounting_->dense_phases(), 1u);
  EXPECT_LE(accounting_->dense_phases(), 2 + elapsed_ms / 50) << "in " << elapsed_ms << " ms";
}

TEST(NvidiaRegisters, WhatCannotBeReadIsSaidAndTheClockGoesOn) {
  boost::asio::io_context io{1};
  AccountingSettings s;
  s.nvidia = true;
  s.registers_file = "/nonexistent/resource0";
  Accounting accounting(io, s, [](auto...) {});
  accounting.add_vgpu(0, "v");
  accounting.event(monotonic_ns(), LogEvent::kBusy, 0);
  accounting.event(monotonic_ns(), LogEvent::kGranted, 0);
  io.run_for(std::chrono::milliseconds(20));
  EXPECT_EQ(accounting.source(), "clock");
  for (const auto& x : accounting.sources()) {
    if (x.name == "registers") {
      EXPECT_EQ(x.state, "unavailable");
      EXPECT_NE(x.why.find("/nonexistent/resource0"), std::string::npos);
    }
    if (x.name == "words") {
      EXPECT_EQ(x.state, "off");
    }
  }
  accounting.event(monotonic_ns(), LogEvent::kLeft, 0);
  EXPECT_GT(accounting.read(0).used.used_ns, 0u);
}

}  // namespace
}  // namespace sluice
