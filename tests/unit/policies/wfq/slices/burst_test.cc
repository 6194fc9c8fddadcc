// SPDX-License-Identifier: Apache-2.0
// Bursts of class low on time slices: when one begins and for how long its credit lasts.
#include "policies/wfq/slices/burst.h"

#include "tests/unit/policies/wfq/slices/sliced_gpu_test.h"

namespace sluice::policy::slices {
namespace {

class BurstTest : public SlicedGpuTest {
 protected:
  using SlicedGpuTest::SlicedGpuTest;
  // v came the last time `ago_ns` ago; it comes again, and is known for bursts of `burst_ns`.
  bool comes(VgpuId v, uint64_t ago_ns, double burst_ns, double gap_ns = 50e6) {
    has_habit(v, burst_ns, gap_ns);
    gpu[v].habit.came_ns = now;
    now += ago_ns;
    come_as_before(v);
    return bursts(gpu, v);
  }
  void come_as_before(VgpuId v) {
    gpu.clock.turn_busy(v);
    begin_burst(gpu, now, v);
    gpu.enter(v);
  }
};

TEST_F(BurstTest, BeginsWhenTheCreditPaysForIt) {
  add_busy();
  EXPECT_TRUE(comes(add(kLow), 20 * kMs, 9e6)) << "half of 20 ms";
  EXPECT_FALSE(comes(add(kLow), 20 * kMs, 9e6)) << "a third";
}

TEST_F(BurstTest, EndsWithTheCredit) {
  add_busy();
  const VgpuId v = add(kLow);
  ASSERT_TRUE(comes(v, 20 * kMs, 9e6));
  gpu[v].credit_ns = 0;
  EXPECT_FALSE(bursts(gpu, v));
}

TEST_F(BurstTest, ACreditIsTwoLatencyTargetsByShareAndOneAtMost) {
  const VgpuId alone = add(kLow);
  comes(alone, kSecond, 1e6);
  EXPECT_EQ(gpu[alone].credit_ns, 40e6);
  go(alone);
  add_busy({.weight = 700});
  comes(alone, kSecond, 1e6);
  EXPECT_EQ(gpu[alone].credit_ns, 10e6) << "an eighth of two";
}

TEST_F(BurstTest, ACreditAddsUpOverPauses) {
  add_busy();
  const VgpuId v = add(kLow);
  comes(v, 10 * kMs, 1e6);
  EXPECT_EQ(gpu[v].credit_ns, 5e6);
  go(v);
  comes(v, 10 * kMs, 1e6);
  EXPECT_EQ(gpu[v].credit_ns, 10e6);
}

TEST_F(BurstTest, OnlyOfClassLow) {
  add_busy();
  EXPECT_FALSE(comes(add(), 100 * kMs, 9e6));
  EXPECT_FALSE(comes(add({.latency = LatencyClass::kBatch}), 100 * kMs, 9e6));
}

// More than a visitor would use, after more than a wait.
TEST_F(BurstTest, NotForShortWorkOrAfterAShortGap) {
  add_busy();
  const double soon_ns = gpu.lengths.soon_ns();
  EXPECT_FALSE(comes(add(kLow), 100 * kMs, soon_ns - 1));
  EXPECT_TRUE(comes(add(kLow), 100 * kMs, soon_ns));
  EXPECT_FALSE(comes(add(kLow), 100 * kMs, 3e6, soon_ns - 1));
}

class BurstOnOtherMachine : public BurstTest {
 protected:
  BurstOnOtherMachine() : BurstTest(config(/*free_alone=*/false)) {}
};

TEST_F(BurstOnOtherMachine, NoneWhereShortSlicesCost) {
  add_busy();
  EXPECT_FALSE(comes(add(kLow), 100 * kMs, 9e6));
}

}  // namespace
}  // namespace sluice::policy::slices
