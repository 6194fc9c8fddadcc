// srt: by what remains (FRS paper, section IV-B).
#include "tests/unit/policy_turn_driver.h"

namespace sluice::policy {
namespace {
constexpr uint64_t kMs = TurnDriver::kMs;

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
}  // namespace
}  // namespace sluice::policy
