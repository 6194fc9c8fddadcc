// SPDX-License-Identifier: Apache-2.0
// WakeBudget: what many descriptors of one vGPU cost the loop together is bounded, each of them is
// served, and a neighbour's descriptor is served in the next turn of the loop.
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <vector>

#include "mediator/base/clock.h"
#include "mediator/base/fd.h"
#include "mediator/base/limits.h"
#include "mediator/io/fd_watch.h"

namespace sluice::io {
namespace {

constexpr Pace kSession{limits::kRingsPerSecond, limits::kRingBurst};
constexpr Pace kVgpu{limits::kVgpuRingsPerSecond, limits::kVgpuRingBurst};

// 64 descriptors that are always readable, as of workers that never stop ringing.
class RingFlood : public ::testing::Test {
 protected:
  static constexpr size_t kSessions = 64;
  void start(std::shared_ptr<WakeBudget> shared) {
    calls_.resize(kSessions);
    for (size_t i = 0; i < kSessions; ++i) {
      bells_.emplace_back(::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC));
      watches_.emplace_back(
          io_, bells_.back().get(), kSession, [this, i] { ++calls_[i]; }, shared);
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
  std::vector<Fd> bells_;
  std::vector<FdWatch> watches_;
  std::vector<size_t> calls_;
};

TEST_F(RingFlood, ManySessionsCostNoMoreThanTheirVgpuMay) {
  const uint64_t began_ns = monotonic_ns();
  start(std::make_shared<WakeBudget>(kVgpu));
  run_for(std::chrono::milliseconds(300));
  const double seconds = 1e-9 * static_cast<double>(monotonic_ns() - began_ns);
  // Each may overdraw by one.
  EXPECT_LE(static_cast<double>(calls()), kVgpu.burst + kSessions + seconds * kVgpu.per_second);
  EXPECT_GE(*std::min_element(calls_.begin(), calls_.end()), 1u) << "each is served";
}

// What the budget is for: by their own paces they may have many times that.
TEST_F(RingFlood, WithoutItTheirOwnPacesAddUp) {
  start(nullptr);
  while (calls() <= 2 * kVgpu.burst) io_.run_one();
}

TEST_F(RingFlood, ANeighbourIsServedInTheNextTurnOfTheLoop) {
  start(std::make_shared<WakeBudget>(kVgpu));
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
      std::make_shared<WakeBudget>(kVgpu));
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
      io_, bell.get(), Pace{100, 10}, [&] { ++count; }, std::make_shared<WakeBudget>(kVgpu));
  run_for(std::chrono::milliseconds(100));
  const double seconds = 1e-9 * static_cast<double>(monotonic_ns() - began_ns);
  EXPECT_LE(static_cast<double>(count), 10 + 1 + seconds * 100);
}

}  // namespace
}  // namespace sluice::io
