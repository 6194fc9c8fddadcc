// SPDX-License-Identifier: Apache-2.0
// sjf: by total duration, preemptive (FRS paper, section IV-A).
#include "tests/unit/policies/turn_driver.h"

namespace sluice::policy {
namespace {

TEST(Sjf, ShortestFirstAndAShorterArrivalPreempts) {
  TurnDriver d("sjf");
  d.job(0, 10 * kMs);
  d.pass(kMs);
  d.job(1, 20 * kMs), d.job(2, 3 * kMs);  // 2 is shorter than 0, 1 is not
  d.pass(kMs);
  d.job(3, 5 * kMs);
  d.pass(50 * kMs);
  EXPECT_EQ(d.starts, (std::vector<VgpuId>{0, 2, 3, 0, 1}));
  EXPECT_EQ(d.evictions, 1u);
}

// The priority is the total, not what remains: 0 has 1 ms left of 10 and still gives way to 5.
TEST(Sjf, TotalCountsNotWhatRemains) {
  TurnDriver d("sjf");
  d.job(0, 10 * kMs);
  d.pass(9 * kMs);
  d.job(1, 5 * kMs);
  d.pass(kMs / 2);
  EXPECT_EQ(d.holder, 1u);
}

TEST(Sjf, AWrongPredictionIsCorrectedByWhatWasUsed) {
  TurnDriver d("sjf");
  d.submit(0, 50 * kMs, kMs);  // claims 1 ms
  d.pass(10 * kMs);            // total is now taken for 19 ms
  d.job(1, 5 * kMs);
  d.pass(kMs);
  EXPECT_EQ(d.holder, 1u);
}

TEST(Sjf, WithoutPredictionsEarlierJobsTell) {
  TurnDriver d("sjf");
  d.submit(0, 8 * kMs, 0), d.pass(10 * kMs);
  d.submit(1, 2 * kMs, 0), d.pass(10 * kMs);
  d.submit(2, 4 * kMs, 0), d.pass(kMs);
  d.submit(0, 8 * kMs, 0), d.submit(1, 2 * kMs, 0);
  d.pass(20 * kMs);
  EXPECT_LT(d.ends[1], d.ends[0]);
}
}  // namespace
}  // namespace sluice::policy
