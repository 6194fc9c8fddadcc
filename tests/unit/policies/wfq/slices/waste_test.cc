// SPDX-License-Identifier: Apache-2.0
// WasteMeter: GPU time that open gates keep and nobody uses is paid for by those that kept it.
#include "policies/wfq/slices/waste.h"

#include "tests/unit/policies/wfq/slices/sliced_gpu_test.h"

namespace sluice::policy::slices {
namespace {

class WasteTest : public SlicedGpuTest {
 protected:
  // Two have open gates, and one is kept from the GPU.
  WasteTest() {
    for (int i = 0; i < 3; ++i) {
      const VgpuId v = add_busy();
      gpu[v].slice_ns = 5 * kMs;
      waste.on_arrival(now, v);
    }
    waste.pass(now);
    gpu.gate(now, 2, true);
    SlicedGpuTest::begin_round();
    waste.begin_round();
  }
  // `rounds` of 10 ms, in which the two with open gates use so much.
  void pass(int rounds, uint64_t a_ns, uint64_t b_ns) {
    for (int i = 0; i < rounds; ++i) {
      now += 10 * kMs;
      use(0, a_ns), use(1, b_ns);
      waste.charge(now);
      waste.begin_round();
    }
  }
  void use(VgpuId v, uint64_t ns) {
    charge(v, ns);
    waste.on_use(v, static_cast<double>(ns));
    used[v] += ns;
  }
  // What v was charged beyond what it has used.
  double paid_ms(VgpuId v) const {
    return static_cast<double>(gpu.clock[v].used_sm_ns / kSms - used[v]) / kMs;
  }
  WasteMeter waste{gpu};
  uint64_t used[3] = {};
};

TEST_F(WasteTest, WhoUsesWhatItKeepsPaysNothing) {
  pass(100, 5 * kMs, 5 * kMs);
  for (const VgpuId v : {0, 1, 2}) EXPECT_EQ(paid_ms(v), 0) << v;
}

TEST_F(WasteTest, WhoKeepsTheGpuAndUsesNothingPays) {
  pass(100, 5 * kMs, 0);
  EXPECT_EQ(paid_ms(0), 0);
  EXPECT_EQ(paid_ms(2), 0);
  // Half of a second, twice as dear as use, less what is borne: 30 ms, switches and a tenth.
  EXPECT_GT(paid_ms(1), 600);
  EXPECT_LT(paid_ms(1), 1000);
}

TEST_F(WasteTest, AsMuchAsEachHasNotUsed) {
  pass(100, 4 * kMs, kMs);
  EXPECT_GT(paid_ms(1), 3 * paid_ms(0));
  EXPECT_GT(paid_ms(1), 300);
}

// The log is late, and a machine may stand still for a moment.
TEST_F(WasteTest, AMomentIsBorne) {
  pass(100, 5 * kMs, 5 * kMs);
  pass(2, 0, 0);
  pass(2, 10 * kMs, 10 * kMs);  // told late
  pass(100, 5 * kMs, 5 * kMs);
  for (const VgpuId v : {0, 1}) EXPECT_EQ(paid_ms(v), 0) << v;
}

TEST_F(WasteTest, ATenthBeyondSwitchesIsBorne) {
  pass(100, 5 * kMs, 4300 * kUs);
  EXPECT_EQ(paid_ms(1), 0);
}

// Nobody is kept from the GPU.
TEST_F(WasteTest, WhereAllGatesAreOpenNothingIsWaste) {
  gpu.gate(now, 2, false);
  waste.begin_round();
  pass(100, 0, 0);
  for (const VgpuId v : {0, 1, 2}) EXPECT_EQ(paid_ms(v), 0) << v;
}

TEST_F(WasteTest, ByTheSlicesThatTheyKeep) {
  gpu[0].slice_ns = 6 * kMs, gpu[1].slice_ns = 2 * kMs;
  waste.begin_round();
  pass(100, 0, 0);
  EXPECT_NEAR(paid_ms(0) / paid_ms(1), 3, 0.8);
}

TEST_F(WasteTest, OneThatOthersWaitForPaysLikeAnOpenGate) {
  gpu.gate(now, 1, true);
  gpu[1].is_awaited = true, gpu[1].wanted_ns = 5 * kMs;
  waste.begin_round();
  pass(100, 5 * kMs, 0);
  EXPECT_GT(paid_ms(1), 600);
}

TEST_F(WasteTest, WhoIsAloneKeepsTheGpuFromNobody) {
  go(1), go(2);
  pass(100, 0, 0);
  EXPECT_EQ(paid_ms(0), 0);
}

// What was before somebody else came is not counted.
TEST_F(WasteTest, OnlyTimeInWhichOthersWantedTheGpuCounts) {
  waste.pass(now), waste.keep(now, 1), waste.keep(now, 2);
  go(1), go(2);
  now += 10 * kSecond;
  waste.pass(now);
  come(1);
  waste.on_arrival(now, 1);
  gpu.gate(now, 1, true);
  waste.begin_round();
  now += 50 * kMs;
  waste.charge(now);
  EXPECT_LT(paid_ms(0), 100);
  EXPECT_EQ(paid_ms(1), 0);
}

TEST_F(WasteTest, WhatOneHadAloneIsNothingThatItKept) {
  waste.pass(now), waste.keep(now, 1), waste.keep(now, 2);
  go(1), go(2);
  now += 10 * kSecond;
  waste.pass(now);
  for (const VgpuId v : {1, 2}) come(v), waste.on_arrival(now, v);
  gpu.gate(now, 2, true);
  waste.begin_round();
  pass(100, 5 * kMs, 0);
  EXPECT_EQ(paid_ms(0), 0);
  EXPECT_GT(paid_ms(1), 600);
}

TEST_F(WasteTest, NorIsTheTimeThatOneWasAway) {
  waste.pass(now), waste.keep(now, 1);
  go(1);
  for (int i = 0; i < 100; ++i) {
    now += 10 * kMs;
    use(0, 10 * kMs);
    waste.charge(now);
    waste.begin_round();
  }
  come(1);
  waste.on_arrival(now, 1);
  waste.begin_round();
  pass(100, 0, 5 * kMs);
  EXPECT_EQ(paid_ms(1), 0);
  EXPECT_GT(paid_ms(0), 500);
}

// What it had kept when it went counts, too: to come and go is no way out.
TEST_F(WasteTest, WhoComesAndGoesPaysForWhatItKept) {
  for (int i = 0; i < 100; ++i) {
    now += 9 * kMs;
    use(0, 4500 * kUs);
    waste.pass(now), waste.keep(now, 1);
    go(1);
    now += kMs;
    use(0, 500 * kUs);
    waste.pass(now);
    come(1);
    waste.on_arrival(now, 1);
    waste.charge(now);
    waste.begin_round();
  }
  EXPECT_GT(paid_ms(1), 500);
}

// Beside turns of those that stay a quarter may be visitors' and their switches'.
TEST_F(WasteTest, AHolderBesideVisitorsPaysLater) {
  gpu.stay_turns = true;
  gpu[0].stays = true;  // 1 visits it
  waste.begin_round();
  pass(100, 7700 * kUs, 0);
  EXPECT_EQ(paid_ms(0), 0);
  EXPECT_EQ(paid_ms(1), 0);
  pass(100, 5 * kMs, 0);
  EXPECT_GT(paid_ms(0), 100);
  EXPECT_EQ(paid_ms(1), 0);
}

}  // namespace
}  // namespace sluice::policy::slices
