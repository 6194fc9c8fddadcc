// SPDX-License-Identifier: Apache-2.0
// How many sessions one call of sluiced's loop looks at, where there are thousands. Sessions share
// pages here, so that a thousand of them need few descriptors.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <vector>

#include "mediator/base/clock.h"
#include "mediator/base/limits.h"
#include "mediator/base/log.h"
#include "mediator/base/peer_socket.h"
#include "mediator/daemon/scheduling/grant_executor.h"
#include "mediator/io/mapping.h"
#include "mediator/io/stub_pages.h"

namespace sluice {
namespace {

const AccountingSettings kNoSources{.registers = false, .switch_log = false, .words = false};

// What a worker reports.
struct Reporter {
  Reporter()
      : pages(std::move(*io::StubPages::make())),
        mapping(std::move(*io::Mapping::map(pages.report_fd(), SLUICE_REPORT_BYTES, true))),
        wake(std::move(*make_wake_pair())) {}
  sluice_report_header& report() { return *mapping.as<sluice_report_header>(); }
  io::StubPages pages;
  io::Mapping mapping;
  WakePair wake;
};

class Reports : public ::testing::Test {
 protected:
  Reports() {
    log::init("test", log::Level::kError);
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;  // 1024 is usual
    ::setrlimit(RLIMIT_NOFILE, &files);
    executor_ = std::move(*GrantExecutor::make(io_, {.policy = "wfq"}, kNoSources));
  }
  core::VgpuId vgpu(const char* name) { return *executor_->add_vgpu(name, "", {.weight = 1}); }
  void session(core::VgpuId vgpu, Reporter& r, int ring) {
    ASSERT_TRUE(executor_
                    ->add_session(
                        vgpu, r.pages, r.wake.ours.get(), ring, ++workers_, [](core::EndReason) {},
                        [](uint64_t) {}, [] {})
                    .ok());
  }
  // What was last read of its sessions, in sum.
  uint64_t launches(core::VgpuId vgpu) {
    return executor_->scheduler().stats(monotonic_ns(), vgpu).guest.launches;
  }
  // One call of the loop after the other until `vgpu`'s sum has changed.
  void await_change(core::VgpuId vgpu) {
    const uint64_t before = launches(vgpu);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (launches(vgpu) == before && std::chrono::steady_clock::now() < end)
      io_.run_one_for(std::chrono::seconds(1)), io_.restart();
  }

  boost::asio::io_context io_{1};
  std::unique_ptr<GrantExecutor> executor_;
  pid_t workers_ = 1 << 30;  // no process has such a number
};

TEST_F(Reports, OneBeatReadsThoseThatOthersWaitForAndSoManyOfTheRest) {
  constexpr size_t kSessions = limits::kReportsPerBeat + 10;
  Reporter idle, holder, waiting;
  std::vector<Fd> rings;
  const core::VgpuId many = vgpu("many"), a = vgpu("a"), b = vgpu("b");
  for (size_t i = 0; i < kSessions; ++i) {
    rings.emplace_back(::dup(idle.wake.ours.get()));
    ASSERT_GE(rings.back().get(), 0);
    session(many, idle, rings.back().get());
  }
  holder.report().demand = holder.report().in_flight = 1;
  session(a, holder, holder.wake.ours.get());  // the last ones, so that their turn would come late
  waiting.report().demand = 1;
  session(b, waiting, waiting.wake.ours.get());
  for (const size_t read : {limits::kReportsPerBeat, kSessions}) {
    idle.report().launches = 1;
    ++holder.report().launches;
    await_change(many);
    EXPECT_EQ(launches(many), read);
    EXPECT_EQ(launches(a), holder.report().launches);
  }
}

// Until the next read a holder would count as one that waits, and be charged nothing.
TEST_F(Reports, AGateThatOpensIsNotedAtOnce) {
  struct Slices final : TimeSlices {
    explicit Slices(std::map<pid_t, Work>& n) : noted(n) {}
    uint64_t set(pid_t, uint64_t) override { return 0; }
    void forget(pid_t) override {}
    void read_use(uint64_t, bool, const Works&, const Used&) override {}
    void note_work(uint64_t, pid_t worker, Work work) override { noted[worker] = work; }
    std::map<pid_t, Work>& noted;
  };
  std::map<pid_t, TimeSlices::Work> noted;
  executor_->set_time_slices(std::make_unique<Slices>(noted));
  Reporter reporter;
  reporter.report().demand = 1;
  session(vgpu("a"), reporter, reporter.wake.ours.get());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto runs = [&] { return noted[workers_] == TimeSlices::Work::kRuns; };
  while (!runs() && std::chrono::steady_clock::now() < end)
    io_.run_one_for(std::chrono::seconds(1)), io_.restart();
  EXPECT_TRUE(runs());
}

TEST(Words, AreTakenOfSoManySessionsAtOnceAndOfIdleOnesNot) {
  constexpr size_t kSessions = limits::kWordSessions + 10;
  boost::asio::io_context io{1};
  AccountingSettings settings = kNoSources;
  settings.words = true;
  Accounting accounting(io, settings, [](auto...) {});
  auto records = std::make_unique<sluice_launch_records>();
  sluice_report_header idle{}, active{.launches_done = 1};
  for (core::VgpuId v = 0; v < kSessions + 1; ++v) {
    accounting.add_vgpu(v, "v");
    accounting.add_session(v, v, 1, v == 0 ? &idle : &active, records.get());
  }
  accounting.event(monotonic_ns(), core::LogEvent::kBusy, 0);
  accounting.event(monotonic_ns(), core::LogEvent::kGranted, 0);
  const uint64_t now = monotonic_ns();
  sluice_launch_record& r = records->records[0];
  r.launch_id = 1;
  r.start_ns = now - 1000, r.left_ns = now;
  r.state = SLUICE_LAUNCH_DONE;
  const auto taken = [&] {
    size_t sum = 0;
    for (core::VgpuId v = 0; v < kSessions + 1; ++v) {
      const auto words = accounting.read(v).by[static_cast<size_t>(accounting::Source::kWords)];
      sum += words && words->used_ns > 0;
    }
    return sum;
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (const size_t expected : {limits::kWordSessions, kSessions}) {
    const size_t before = taken();
    while (taken() == before && std::chrono::steady_clock::now() < end)
      io.run_one_for(std::chrono::seconds(1)), io.restart();
    EXPECT_EQ(taken(), expected);
  }
}

}  // namespace
}  // namespace sluice
