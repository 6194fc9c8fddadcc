// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/streams/slice_queue.h"

#include <gtest/gtest.h>

namespace sluice::worker {
namespace {

constexpr uint64_t kUs = 1'000, kMs = 1'000'000;
constexpr uint32_t kDepth = 32;

// A program that has always something to launch, on a GPU that runs one launch after the other.
struct Launcher {
  SliceQueue queue{kDepth};
  uint64_t now = kMs;
  uint32_t in_flight = 0, most = 0;

  // `gates`: its gate has been closed just before.
  void fill(bool gates) {
    if (gates) (void)queue.allows(false, now);
    while (queue.allows(true, now)) queue.add(now), ++in_flight;
    most = std::max(most, in_flight);
  }
  void run(uint64_t launch_ns, int count, bool gates, uint64_t others_ns = 0) {
    most = 0;
    for (int i = 0; i < count; ++i) {
      fill(gates);
      now += launch_ns + (i % 50 == 49 ? others_ns : 0);
      queue.remove(now), --in_flight;
    }
  }
};

TEST(SliceQueue, AsDeepAsCanBeWhileTheGateIsOpen) {
  Launcher p;
  p.run(5 * kMs, 4, false);
  EXPECT_EQ(p.most, kDepth);
}

TEST(SliceQueue, WhatIsInFlightEndsSoonAfterAGateHasClosed) {
  Launcher p;
  p.fill(true);
  EXPECT_EQ(p.in_flight, 2u) << "not known yet";
  p.run(5 * kMs, 10, true);
  EXPECT_EQ(p.most, 2u);
  p.run(20 * kUs, 500, true);
  EXPECT_EQ(p.most, kDepth) << "short ones, up to the depth";
  p.run(200 * kUs, 100, true);
  p.run(200 * kUs, 100, true);
  EXPECT_EQ(p.most, 10u);
}

TEST(SliceQueue, InOthersSlicesNothingEndsAndNothingIsLearnt) {
  Launcher p;
  p.run(100 * kUs, 200, true, 5 * kMs);
  p.run(100 * kUs, 200, true, 5 * kMs);
  EXPECT_EQ(p.most, 20u);
  for (int i = 0; i < 100; ++i) {
    p.run(100 * kUs, 1, true, 5 * kMs);
    EXPECT_GE(p.in_flight, 19u) << i;
  }
}

// Turns by gates alternate.
TEST(SliceQueue, StaysShortForAWhileAfterTheGateWasClosed) {
  Launcher p;
  p.run(5 * kMs, 10, true);
  p.fill(false);
  EXPECT_EQ(p.in_flight, 2u);
  p.now += SliceQueue::kCalmNs;
  p.fill(false);
  EXPECT_EQ(p.in_flight, kDepth);
}

}  // namespace
}  // namespace sluice::worker
