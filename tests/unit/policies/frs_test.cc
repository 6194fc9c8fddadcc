// SPDX-License-Identifier: Apache-2.0
// frs: equations 1 and 2 of the FRS paper (section IV-E), by hand.
#include "tests/unit/policies/turn_driver.h"

namespace sluice::policy {
namespace {

// 0 (8 ms) runs alone for 3 ms when 1 (2 ms) arrives: IS are 1 and 1, (2) gives 0, so the quantum
// is the least one: 0 runs until 4 ms. Then IS_1 = (1 + 2) / 2 = 1.5 and IS_0 = 1: 1 runs for 1.5 *
// 8 - 4 - 4 = 4 ms, more than it needs.
TEST(Frs, EquationsOneAndTwo) {
  TurnDriver d("frs");
  d.job(0, 8 * kMs);
  d.pass(3 * kMs);
  d.job(1, 2 * kMs);
  d.pass(30 * kMs);
  EXPECT_EQ(d.starts, (std::vector<VgpuId>{0, 1, 0}));
  EXPECT_EQ(d.start_ns[1] - d.start_ns[0], 4 * kMs);
  EXPECT_EQ(d.start_ns[2] - d.start_ns[1], 2 * kMs);
}

// Three at once, 10, 6 and 5 ms: all IS are 1, the least quantum for the first; then
// IS_2 = (1 + 5) / 5 = 1.2 is the highest and IS_0 = 1 the lowest: quantum 1.2 * 10 - 9 - 1 = 2 ms.
// After it (t = 3): IS_0 = 1.2, IS_1 = 9/6 = 1.5 runs; the lowest is 2: (3 + 3) / 5 = 1.2 as 0 is
// (ties: 0 is found first): 1.5 * 10 - 9 - 3 = 3 ms.
TEST(Frs, QuantumLetsTheLowestSlowdownCatchUp) {
  TurnDriver d("frs");
  d.job(0, 10 * kMs), d.job(1, 6 * kMs), d.job(2, 5 * kMs);
  d.pass(60 * kMs);
  ASSERT_GE(d.starts.size(), 4u);
  EXPECT_EQ(d.starts[1], 2u);
  EXPECT_EQ(d.start_ns[1] - d.start_ns[0], kMs);
  EXPECT_NEAR(static_cast<double>(d.start_ns[2] - d.start_ns[1]), 2e6, 2);
  EXPECT_EQ(d.starts[2], 1u);
  EXPECT_GE(d.start_ns[3] - d.start_ns[2], 3 * kMs - 2);
}

TEST(Frs, QuantaAreAtLeastAMillisecond) {
  TurnDriver d("frs");
  for (VgpuId v = 0; v < 9; ++v) d.job(v, 20 * kMs);
  d.pass(180 * kMs);
  for (size_t i = 1; i < d.start_ns.size(); ++i)
    EXPECT_GE(d.start_ns[i] - d.start_ns[i - 1], kMs) << i;
  EXPECT_EQ(d.ends.size(), 9u);
}

// Jobs of one kind end with like slowdowns: fairness is what it is for.
TEST(Frs, SlowdownsAreAlike) {
  TurnDriver d("frs");
  const uint64_t length[] = {2, 4, 8, 16, 32};
  const uint64_t start = d.now;
  for (VgpuId v = 0; v < 5; ++v) d.job(v, length[v] * kMs);
  d.pass(200 * kMs);
  for (VgpuId v = 0; v < 5; ++v) {
    const double slowdown =
        static_cast<double>(d.ends[v] - start) / static_cast<double>(length[v] * kMs);
    EXPECT_GT(slowdown, 1.2) << v;
    EXPECT_LT(slowdown, 2.6) << v;
  }
}

// A stream of short jobs cannot starve a long one: its slowdown grows until it is the highest.
TEST(Frs, ShortJobsDoNotStarveALongOne) {
  TurnDriver d("frs");
  d.job(0, 50 * kMs);
  for (int i = 0; i < 400; ++i) {
    for (VgpuId v = 1; v <= 4; ++v)
      if (d.work[v] == 0) d.job(v, 500 * kUs);
    d.pass(kMs);
  }
  EXPECT_TRUE(d.ends.contains(0));
}
}  // namespace
}  // namespace sluice::policy
