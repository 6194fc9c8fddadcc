// SPDX-License-Identifier: Apache-2.0
// srt: by what remains (FRS paper, section IV-B).
#include "tests/unit/policies/turn_driver.h"

namespace sluice::policy {
namespace {

TEST(Srt, WhatRemainsCountsNotTheTotal) {
  TurnDriver d("srt");
  d.job(0, 10 * kMs);
  d.pass(9 * kMs);
  d.job(1, 5 * kMs);  // 0 has 1 ms left
  d.pass(kMs / 2);
  EXPECT_EQ(d.holder, 0u);
  EXPECT_EQ(d.evictions, 0u);
  d.pass(10 * kMs);
  EXPECT_EQ(d.starts, (std::vector<VgpuId>{0, 1}));
}

TEST(Srt, AnEvictedJobKeepsItsProgress) {
  TurnDriver d("srt");
  d.job(0, 10 * kMs);
  d.pass(4 * kMs);
  d.job(1, 2 * kMs), d.job(2, 7 * kMs);  // 1 preempts; then 0 (6 left) goes before 2
  d.pass(30 * kMs);
  EXPECT_EQ(d.starts, (std::vector<VgpuId>{0, 1, 0, 2}));
}

TEST(Srt, LaunchesAddedToAJobCount) {
  TurnDriver d("srt");
  d.job(0, 4 * kMs), d.job(1, 5 * kMs);
  d.pass(kMs);
  d.job(0, 20 * kMs);  // 0 now has 23 ms left
  d.pass(30 * kMs);
  EXPECT_LT(d.ends[1], d.ends[0]);
}

TEST(Srt, WhatIsAnnouncedAsAWholeReplacesWhatWasAnnounced) {
  TurnDriver d("srt");
  d.whole(0, 10 * kMs, 10 * kMs), d.whole(1, 6 * kMs, 6 * kMs);  // 1 preempts
  EXPECT_EQ(d.evictions, 1u);
  d.pass(kMs);
  d.tell(1, 40 * kMs);  // more was queued
  d.pass(kMs / 10);
  EXPECT_EQ(d.holder, 0u);
  d.tell(1, 2 * kMs);  // or not
  EXPECT_EQ(d.evicted, 0u);
  d.pass(30 * kMs);
  EXPECT_LT(d.ends[1], d.ends[0]);
}

TEST(Srt, WhoOutlivesWhatItAnnouncedIsNotTrustedAgain) {
  TurnDriver d("srt");
  d.whole(0, 1000 * kMs, kMs);
  d.pass(10 * kMs);  // 9 ms more than that
  d.whole(1, 10 * kMs, 10 * kMs);
  EXPECT_EQ(d.evictions, 0u) << "9 ms are expected of 0";
  d.tell(0, kMs);
  d.pass(kMs / 10);
  EXPECT_EQ(d.holder, 0u);
  d.pass(20 * kMs);
  d.tell(0, kMs);  // it has run 29 ms beyond what it announced
  d.pass(kMs / 10);
  EXPECT_EQ(d.holder, 1u);
  d.tell(0, kMs);
  d.pass(12 * kMs);
  EXPECT_GT(d.ends[1], 0u);
}

TEST(Srt, WhatIsNotBelievedAddsUp) {
  TurnDriver d("srt");
  d.whole(0, 1000 * kMs, kMs);
  d.whole(1, 300 * kMs, 300 * kMs);
  for (int polls = 0; polls < 10 && d.holder == 0u; ++polls) {
    d.pass(100 * kMs);
    d.tell(0, kMs);
    d.pass(kMs / 10);
  }
  EXPECT_EQ(d.holder, 1u);
  EXPECT_LT(d.used[0], 500 * kMs);
}

TEST(Srt, AnEvictionMustBeWorthItsCost) {
  for (const uint64_t cost : {kMs, 3 * kMs}) {
    TurnDriver d("srt");
    d.whole(0, 6 * kMs, 6 * kMs, cost);
    d.whole(1, 4 * kMs, 4 * kMs);
    EXPECT_EQ(d.evictions, cost == kMs ? 1u : 0u);
  }
}

TEST(Srt, TasksPerTimeStandInForPredictions) {
  TurnDriver d("srt");
  d.submit(0, 10 * kMs, 0, 100);
  d.now += 5 * kMs;
  d.policy->on_usage(d.now, 0, {.sm_ns = 5 * kMs, .launch = 1, .tasks_done = 90});
  d.work[0] = kMs;  // so 0.56 ms are expected to remain
  d.job(1, 2 * kMs);
  EXPECT_EQ(d.evicted, kNoVgpu);
  d.pass(5 * kMs);
  EXPECT_LT(d.ends[0], d.ends[1]);
}

// What a task takes is known of the kernel that ran. The next one's are a thousand times as many
// and as short: it is expected to take what a launch of this job takes, 5 ms, not five seconds.
TEST(Srt, TasksOfAnotherKernelAreNotOfThisOnesLength) {
  TurnDriver d("srt");
  d.submit(0, 10 * kMs, 0, 10);
  d.now += 5 * kMs;
  d.policy->on_usage(d.now, 0, {.sm_ns = 5 * kMs, .launch = 1, .tasks_done = 10});
  d.work[0] = 5 * kMs;
  Launch next{.id = 2, .vgpu = 0, .tasks_total = 10'000};
  d.policy->on_launch_done(d.now, {.id = 1, .vgpu = 0, .tasks_total = 10, .tasks_done = 10}, d.out);
  d.policy->on_launch_queued(d.now, next, d.out);
  d.job(1, 7 * kMs);
  EXPECT_EQ(d.evicted, kNoVgpu);
  d.pass(13 * kMs);
  EXPECT_LT(d.ends[0], d.ends[1]);
  EXPECT_TRUE(d.ends.contains(0) && d.ends.contains(1));
}
}  // namespace
}  // namespace sluice::policy
