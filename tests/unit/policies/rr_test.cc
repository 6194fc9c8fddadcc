// SPDX-License-Identifier: Apache-2.0
// rr: equal quanta in order of arrival (FRS paper, section IV-C).
#include "tests/unit/policies/turn_driver.h"

namespace sluice::policy {
namespace {

TEST(Rr, QuantaOfOneMillisecondInTurn) {
  TurnDriver d("rr", cheap());
  d.job(0, 10 * kMs), d.job(1, 10 * kMs), d.job(2, 10 * kMs);
  d.pass(6 * kMs - 1);
  EXPECT_EQ(d.starts, (std::vector<VgpuId>{0, 1, 2, 0, 1, 2}));
  for (VgpuId v = 0; v < 3; ++v) EXPECT_NEAR(static_cast<double>(d.used[v]), 2e6, 1);
}

TEST(Rr, WhoFinishesWithinItsQuantumGivesTheRestAway) {
  TurnDriver d("rr", cheap());
  d.job(0, 5 * kMs), d.job(1, 300 * kUs), d.job(2, 5 * kMs);
  d.pass(4 * kMs);
  EXPECT_EQ(d.starts[2], 2u);
  EXPECT_EQ(d.start_ns[2] - d.start_ns[1], 300 * kUs);
}

TEST(Rr, ANewcomerGoesToTheEnd) {
  TurnDriver d("rr", cheap());
  d.job(0, 5 * kMs), d.job(1, 5 * kMs);
  d.pass(kMs + 500 * kUs);  // 1 runs, 0 waits
  d.job(2, 5 * kMs);
  d.pass(2 * kMs);
  EXPECT_EQ(d.starts, (std::vector<VgpuId>{0, 1, 0, 2}));
}

TEST(Rr, AQuantumIsNeverShorterThanAHandover) {
  Config c;
  c.machine.handover_ns = 3 * kMs;
  TurnDriver d("rr", c);
  d.job(0, 50 * kMs), d.job(1, 50 * kMs);
  d.pass(9 * kMs - 1);
  EXPECT_EQ(d.starts.size(), 3u);
}

TEST(Rr, AloneItIsNeverEvicted) {
  TurnDriver d("rr", cheap());
  d.job(0, 50 * kMs);
  d.pass(60 * kMs);
  EXPECT_EQ(d.evictions, 0u);
  EXPECT_EQ(d.wake_ns, 0u);
  d.job(0, kMs);  // it still holds the GPU
  d.pass(2 * kMs);
  EXPECT_EQ(d.starts.size(), 1u);
}
}  // namespace
}  // namespace sluice::policy
