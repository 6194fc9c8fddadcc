// SPDX-License-Identifier: Apache-2.0
// LoopBudget: what many descriptors of one vGPU cost the loop together is bounded whatever a call
// costs, many vGPUs do not add up, each descriptor is served, and a neighbour's is served in the
// next turn of the loop. LoopBudget itself is tried in virtual time with costs that are given; what
// a FdWatch does with it, with calls that take processor time.
#include "mediator/io/loop_budget.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <thread>
#include <vector>

#include "mediator/base/clock.h"
#include "mediator/base/fd.h"
#include "mediator/base/process/processor_time.h"
#include "mediator/io/fd_watch.h"
#include "tests/support/rounds.h"

namespace sluice::io {
namespace {

constexpr LoopShares kShares;
constexpr uint64_t kUs = 1000, kMs = 1'000'000, kOneSecond = 1'000'000'000;

// A loop in virtual time. Descriptors that are always readable are served in turn, each when it has
// rested; their calls cost what they are said to.
class Floods : public ::testing::Test {
 protected:
  struct Descriptor {
    std::shared_ptr<LoopBudget> budget;
    uint64_t cost_ns;
    uint64_t ready_ns = 0;
    uint64_t used_ns = 0;
    size_t calls = 0;
  };
  std::shared_ptr<LoopBudget> vgpu(size_t descriptors, uint64_t cost_ns) {
    auto budget = budgets_.make();
    for (size_t i = 0; i < descriptors; ++i) all_.push_back({budget, cost_ns, now_ns_});
    return budget;
  }
  void serve(Descriptor& d) {
    now_ns_ += d.cost_ns;
    d.used_ns += d.cost_ns;
    ++d.calls;
    d.ready_ns = now_ns_ + d.budget->take(now_ns_, d.cost_ns);
  }
  void run_for(uint64_t ns) {
    const uint64_t end_ns = now_ns_ + ns;
    while (now_ns_ < end_ns) {
      const uint64_t turn_ns = now_ns_;
      for (Descriptor& d : all_)
        if (d.ready_ns <= turn_ns) serve(d);
      if (now_ns_ != turn_ns) continue;
      uint64_t next_ns = end_ns;
      for (const Descriptor& d : all_) next_ns = std::min(next_ns, d.ready_ns);
      now_ns_ = next_ns;
    }
  }
  uint64_t used_ns(const std::shared_ptr<LoopBudget>& by = nullptr) const {
    uint64_t sum = 0;
    for (const Descriptor& d : all_)
      if (!by || d.budget == by) sum += d.used_ns;
    return sum;
  }
  size_t fewest_calls() const {
    size_t least = SIZE_MAX;
    for (const Descriptor& d : all_) least = std::min(least, d.calls);
    return least;
  }

  LoopBudgets budgets_{kShares};
  std::vector<Descriptor> all_;
  uint64_t now_ns_ = kOneSecond;
};

TEST_F(Floods, AVgpuTakesItsShareWhateverACallCosts) {
  for (const uint64_t cost_ns : {2 * kUs, 30 * kUs, 1 * kMs}) {
    for (const size_t descriptors : {1, 6, 64}) {
      all_.clear();
      vgpu(descriptors, cost_ns);
      const uint64_t time_ns = (cost_ns < 1 * kMs ? rounds<uint64_t>(10) : 10) * kOneSecond;
      const double share_ns = kShares.each * static_cast<double>(time_ns);
      run_for(time_ns);
      // Each descriptor may overdraw by one call.
      EXPECT_LE(static_cast<double>(used_ns()), share_ns + static_cast<double>(kShares.burst_ns) +
                                                    static_cast<double>(descriptors * cost_ns));
      EXPECT_GE(static_cast<double>(used_ns()), 0.9 * share_ns) << "it is not kept from its share";
      EXPECT_GE(fewest_calls(), 2u) << "each is served, and again";
    }
  }
}

// What the budget is for.
TEST_F(Floods, WithoutABudgetTheyTakeTheWholeLoop) {
  LoopShares none = kShares;
  none.each = none.all = 1;
  budgets_ = LoopBudgets(none);
  vgpu(6, 30 * kUs);
  run_for(kOneSecond);
  EXPECT_GE(used_ns(), kOneSecond);
}

TEST_F(Floods, ManyVgpusDoNotAddUp) {
  for (const size_t vgpus : {4, 10, 64}) {
    all_.clear();
    for (size_t v = 0; v < vgpus; ++v) vgpu(8, 30 * kUs);
    run_for(kOneSecond);
    const uint64_t before_ns = used_ns(), time_ns = rounds<uint64_t>(10) * kOneSecond;
    run_for(time_ns);
    // Once their bursts are used up.
    EXPECT_LE(static_cast<double>(used_ns() - before_ns),
              1.1 * kShares.all * static_cast<double>(time_ns))
        << vgpus;
    EXPECT_GE(fewest_calls(), 10u);
  }
}

// Each below its own share, by pausing.
TEST_F(Floods, ManyVgpusThatStayBelowTheirSharesDoNotAddUpEither) {
  constexpr size_t kVgpus = 40;
  for (size_t v = 0; v < kVgpus; ++v) vgpu(1, 30 * kUs);
  const double pause_ns = 30 * kUs / (0.9 * kShares.each);
  uint64_t at_1_s_ns = 0;
  for (const uint64_t began_ns = now_ns_; now_ns_ < began_ns + 11 * kOneSecond;) {
    const uint64_t turn_ns = now_ns_;
    for (Descriptor& d : all_) {
      if (d.ready_ns > turn_ns) continue;
      serve(d);
      d.ready_ns = std::max(d.ready_ns, now_ns_ + static_cast<uint64_t>(pause_ns));
    }
    if (now_ns_ == turn_ns) now_ns_ += 10 * kUs;
    if (at_1_s_ns == 0 && now_ns_ >= began_ns + kOneSecond) at_1_s_ns = used_ns();
  }
  EXPECT_LE(static_cast<double>(used_ns() - at_1_s_ns), 1.1 * kShares.all * 10 * kOneSecond);
}

TEST_F(Floods, AnHonestNeighbourNeverRests) {
  for (size_t v = 0; v < 20; ++v) vgpu(8, 30 * kUs);
  auto honest = budgets_.make();
  uint64_t rested_ns = 0;
  for (size_t i = 0; i < 2000; ++i) {
    run_for(5 * kMs);
    // 20 us of 5 ms: 0.4 %, where an equal part would be 1.4 %.
    for (size_t ring = 0; ring < 2; ++ring) {
      now_ns_ += 10 * kUs;
      rested_ns += honest->take(now_ns_, 10 * kUs);
    }
  }
  EXPECT_EQ(rested_ns, 0u);
}

TEST_F(Floods, OneAloneThatUsesLittleMoreRestsForThatOnly) {
  auto budget = budgets_.make();
  uint64_t rest_ns = 0;
  while (rest_ns == 0) rest_ns = budget->take(now_ns_ += 30 * kUs, 30 * kUs);
  EXPECT_LE(static_cast<double>(rest_ns), 30 * kUs / kShares.each + 1);
  EXPECT_EQ(budget->take(now_ns_ += kOneSecond, 30 * kUs), 0u) << "it is paid back";
}

// Holders of the GPU whose vGPUs flood: what they report is heard, however deep the debt.
TEST_F(Floods, WhatOthersWaitForIsHeardInTimeAndCostsItsShare) {
  for (const size_t sessions : {1, 4, 64}) {
    auto debtor = budgets_.make();
    (void)debtor->take(now_ns_, 100 * kOneSecond);
    uint64_t used_ns = 0, longest_ns = 0;
    std::vector<uint64_t> ready_ns(sessions, now_ns_), heard_ns(sessions, now_ns_);
    for (const uint64_t end_ns = now_ns_ + 2 * kOneSecond; now_ns_ < end_ns;) {
      const size_t next = static_cast<size_t>(std::min_element(ready_ns.begin(), ready_ns.end()) -
                                              ready_ns.begin());
      now_ns_ = std::max(now_ns_, ready_ns[next]) + 20 * kUs;
      used_ns += 20 * kUs;
      longest_ns = std::max(longest_ns, now_ns_ - heard_ns[next]);
      heard_ns[next] = now_ns_;
      ready_ns[next] = now_ns_ + debtor->take(now_ns_, 20 * kUs, LoopBudget::Descriptor::kAwaited);
    }
    EXPECT_LE(static_cast<double>(used_ns), 1.1 * kShares.awaited * 2 * kOneSecond +
                                                static_cast<double>(kShares.awaited_burst_ns));
    EXPECT_LE(longest_ns, 2 * sessions * 20 * kUs / kShares.awaited) << sessions;
    EXPECT_GT(debtor->take(now_ns_ += 20 * kUs, 0), 60 * kOneSecond) << "it owes what it owed";
  }
}

// One that is not in debt pays for itself.
TEST_F(Floods, WhoIsNotInDebtIsAwaitedAtItsOwnCost) {
  auto budget = budgets_.make();
  uint64_t rest_ns = 0;
  for (uint64_t taken_ns = 0; taken_ns <= kShares.burst_ns; taken_ns += kMs)
    rest_ns = budget->take(now_ns_, kMs, LoopBudget::Descriptor::kAwaited);
  EXPECT_EQ(rest_ns, 0u);
  EXPECT_GT(budget->take(now_ns_, 0), 0u);
}

void burn(uint64_t cpu_ns) {
  for (const uint64_t began_ns = thread_cpu_ns(); thread_cpu_ns() - began_ns < cpu_ns;) continue;
}

// Of workers that never stop ringing.
class RingFlood : public ::testing::Test {
 protected:
  static constexpr size_t kSessions = 64;
  static constexpr uint64_t kCostNs = 50 * kUs;
  static constexpr Pace kSession{limits::kRingsPerSecond, limits::kRingBurst};
  void start(std::shared_ptr<LoopBudget> shared, uint64_t cost_ns = kCostNs) {
    const size_t first = calls_.size();
    calls_.resize(first + kSessions);
    for (size_t i = first; i < first + kSessions; ++i) {
      bells_.emplace_back(::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC));
      watches_.emplace_back(
          io_, bells_.back().get(), kSession,
          [this, i, cost_ns] {
            ++calls_[i];
            burn(cost_ns);
          },
          shared);
    }
  }
  size_t calls() const {
    size_t sum = 0;
    for (const size_t n : calls_) sum += n;
    return sum;
  }
  void run_for(std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) io_.run_one_for(std::chrono::milliseconds(10));
  }

  boost::asio::io_context io_;
  LoopBudgets budgets_{kShares};
  std::vector<Fd> bells_;
  std::vector<FdWatch> watches_;
  std::vector<size_t> calls_;
};

TEST_F(RingFlood, ManySessionsCostNoMoreThanTheirVgpuMay) {
  const uint64_t began_ns = monotonic_ns();
  start(budgets_.make());
  run_for(std::chrono::milliseconds(400));
  const double elapsed_ns = static_cast<double>(monotonic_ns() - began_ns);
  EXPECT_LE(
      static_cast<double>(calls() * kCostNs),
      static_cast<double>(kShares.burst_ns + kSessions * kCostNs) + kShares.each * elapsed_ns);
  EXPECT_GE(*std::min_element(calls_.begin(), calls_.end()), 1u) << "each is served";
}

TEST_F(RingFlood, ANeighbourIsServedInTheNextTurnOfTheLoop) {
  start(budgets_.make());
  run_for(std::chrono::milliseconds(50));
  Fd bell(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  size_t served = 0;
  FdWatch neighbour(
      io_, bell.get(), kSession,
      [&] {
        ++served;
        uint64_t count;
        ASSERT_EQ(::read(bell.get(), &count, sizeof count), ssize_t{sizeof count});
      },
      budgets_.make());
  for (int i = 0; i < 100; ++i) {
    const auto before = calls_;
    const size_t was = served;
    const uint64_t one = 1;
    ASSERT_EQ(::write(bell.get(), &one, sizeof one), ssize_t{sizeof one});
    while (served == was) io_.run_one();
    // What had been queued before it, and one more turn.
    for (size_t s = 0; s < kSessions; ++s) EXPECT_LE(calls_[s] - before[s], 3u);
  }
}

TEST_F(RingFlood, EachWatchKeepsItsOwnPace) {
  const uint64_t began_ns = monotonic_ns();
  Fd bell(::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC));
  size_t count = 0;
  FdWatch watch(
      io_, bell.get(), Pace{100, 10}, [&] { ++count; }, budgets_.make());
  run_for(std::chrono::milliseconds(100));
  const double seconds = 1e-9 * static_cast<double>(monotonic_ns() - began_ns);
  EXPECT_LE(static_cast<double>(count), 10 + 1 + seconds * 100);
}

// A machine that rings without end wakes the loop as often as its pace allows, not at each ring.
TEST_F(RingFlood, WhatRestsDoesNotWakeTheLoop) {
  Fd bell(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  std::atomic<bool> over{false};
  std::thread ringer([&] {
    const uint64_t one = 1;
    while (!over) (void)!::write(bell.get(), &one, sizeof one);
  });
  size_t count = 0;
  FdWatch watch(io_, bell.get(), Pace{100, 1}, [&] { ++count; });
  const uint64_t began_ns = monotonic_ns(), used_ns = thread_cpu_ns();
  while (monotonic_ns() - began_ns < 100 * kMs || count < 2)
    io_.run_one_for(std::chrono::milliseconds(10));
  const uint64_t cost_ns = thread_cpu_ns() - used_ns, elapsed_ns = monotonic_ns() - began_ns;
  over = true;
  ringer.join();
  EXPECT_LE(cost_ns, elapsed_ns / 5) << "of " << elapsed_ns;
}

// One that rests for minutes is heard as soon as others wait for it, and as long as they do.
TEST_F(RingFlood, OneThatOthersWaitForDoesNotRest) {
  LoopShares slow = kShares;
  slow.each = slow.all = 1e-6;
  auto budget = LoopBudgets(slow).make();
  (void)budget->take(monotonic_ns(), 10 * kShares.burst_ns);
  Fd bell(::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC));
  size_t count = 0;
  FdWatch watch(
      io_, bell.get(), kSession,
      [&] {
        ++count;
        burn(kCostNs);
      },
      budget);
  run_for(std::chrono::milliseconds(20));
  ASSERT_EQ(count, 0u);
  watch.set_awaited(true);
  while (count < 5) io_.run_one_for(std::chrono::milliseconds(10));
  watch.set_awaited(false);
  io_.run_one();  // it is served once more, and then rests again
  const size_t before = count;
  run_for(std::chrono::milliseconds(20));
  EXPECT_EQ(count, before);
}

// All at once, each for the first time: what one turn of the loop costs does not grow with their
// number.
TEST_F(RingFlood, ManySessionsOfManyVgpusThatComeAtOnceTakeTurns) {
  constexpr size_t kVgpus = 10;
  constexpr uint64_t kEachNs = 20 * kUs;
  LoopShares slow = kShares;
  slow.each = 0.03, slow.all = 0.09;
  slow.burst_ns = slow.all_burst_ns = kMs;
  LoopBudgets budgets(slow);
  for (size_t v = 0; v < kVgpus; ++v) start(budgets.make(), kEachNs);
  const uint64_t began_ns = monotonic_ns();
  while (io_.poll_one() != 0 && calls() < kVgpus * kSessions) continue;
  const double elapsed_ns = static_cast<double>(monotonic_ns() - began_ns);
  EXPECT_LE(static_cast<double>(calls() * kEachNs),
            static_cast<double>(4 * kMs + kVgpus * kEachNs) + slow.all * elapsed_ns)
      << calls() << " calls in a row";
  while (*std::min_element(calls_.begin(), calls_.end()) == 0) io_.run_one();
}

// A peer that connects and goes, or asks for what ends its connection, pays as any other.
TEST_F(RingFlood, ACallThatStopsItsOwnWatchIsPaidFor) {
  auto budget = budgets_.make();
  Fd bell(::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC));
  FdWatch watch;
  watch = FdWatch(
      io_, bell.get(), kSession,
      [&] {
        burn(2 * kShares.burst_ns);
        watch.stop();
      },
      budget);
  while (watch) io_.run_one();
  EXPECT_GT(budget->take(monotonic_ns(), 0), 0u) << "its vGPU is in debt";
}

}  // namespace
}  // namespace sluice::io
