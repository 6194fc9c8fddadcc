// SPDX-License-Identifier: Apache-2.0
// WasteMeter: GPU time that open gates keep and nobody uses is paid for by those that kept it.
#include "policies/wfq/slices/waste.h"

#include "tests/unit/policies/wfq/slices/sliced_gpu_test.h"

namespace sluice::policy::slices {
namespace {

// Half of a second, less what is borne, 30 ms, switches and a tenth, costs twice as much as use.
constexpr double kWasteOfHalfASecondMs = 2 * (500 - 30 - 1000 * (0.2 / 5.2 + 0.1));

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
  EXPECT_NEAR(paid_ms(1), kWasteOfHalfASecondMs, 10);
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
  pass(300, 5 * kMs, 3700 * kUs);
  EXPECT_EQ(paid_ms(1), 0);
  pass(300, 5 * kMs, 3400 * kUs);  // 2.2 % more than that, of 3 s
  EXPECT_NEAR(paid_ms(1), 2 * (64.6 - 30), 5);
}

// Each time: what was borne is borne again when the GPU was used for long enough.
TEST_F(WasteTest, WhatIsUsedBeyondThatMakesRoomForAnotherMoment) {
  pass(3, 0, 0);
  for (int i = 0; i < 20; ++i) {
    pass(40, 5 * kMs, 5 * kMs);
    pass(2, 0, 0);
  }
  EXPECT_EQ(paid_ms(0) + paid_ms(1), 0);
  pass(10, 0, 0);
  EXPECT_NEAR(paid_ms(0) + paid_ms(1), 2 * (100 - 14 - 10 - 2 * 10), 30);
}

// Rounds may be much shorter than a log is late.
TEST_F(WasteTest, ShortRoundsAreCountedTogether) {
  for (int i = 0; i < 1000; ++i) {
    now += kMs;
    if (i % 10 == 9) use(0, 5 * kMs);
    waste.charge(now);
    waste.begin_round();
  }
  EXPECT_EQ(paid_ms(0), 0);
  EXPECT_NEAR(paid_ms(1), kWasteOfHalfASecondMs, 10);
}

// Who used less than it kept while that was borne has a part in what is not.
TEST_F(WasteTest, WhatOneHasNotUsedLatelyCounts) {
  pass(100, 3700 * kUs, 5 * kMs);
  EXPECT_EQ(paid_ms(0) + paid_ms(1), 0);
  pass(10, 5 * kMs, 0);
  EXPECT_GT(paid_ms(0), 1);
  EXPECT_GT(paid_ms(1), 2 * paid_ms(0));
  pass(100, 5 * kMs, 5 * kMs);
  const double paid = paid_ms(0);
  pass(20, 5 * kMs, 0);
  EXPECT_EQ(paid_ms(0), paid) << "that was long ago";
}

// Having used much is a credit for what the log may tell yet, not for more.
TEST_F(WasteTest, UseBeyondWhatOneKeepsIsACreditWithinABound) {
  pass(100, 10 * kMs, 0);
  EXPECT_EQ(paid_ms(1), 0) << "all of the GPU is used";
  pass(20, 0, 5 * kMs);
  EXPECT_GT(paid_ms(0), 20);
}

// Nobody is kept from the GPU meanwhile.
TEST_F(WasteTest, UseWhileAllGatesAreOpenIsNoCredit) {
  pass(2, 5 * kMs, 5 * kMs);
  gpu.gate(now, 2, false);
  waste.begin_round();
  pass(100, 5 * kMs, 5 * kMs);
  gpu.gate(now, 2, true);
  waste.begin_round();
  pass(100, 5 * kMs, 0);
  EXPECT_NEAR(paid_ms(1), kWasteOfHalfASecondMs, 5);
}

// Until the next round it may have a longer slice than all open ones had.
TEST_F(WasteTest, NobodyKeepsMoreThanAllTheTime) {
  for (int i = 0; i < 100; ++i) {
    gpu[1].slice_ns = 50 * kMs;
    now += 10 * kMs;
    use(0, 10 * kMs);
    waste.charge(now);
    gpu[1].slice_ns = 5 * kMs;
    waste.begin_round();
  }
  EXPECT_EQ(paid_ms(1), 0);
  gpu[1].slice_ns = 50 * kMs;
  now += 10 * kMs;
  waste.keep(now, 1);
  EXPECT_EQ(gpu[1].kept_ns, 10e6);
}

// Nor for what others waste afterwards.
TEST_F(WasteTest, WhoHasPaidDoesNotPayAgain) {
  pass(100, 5 * kMs, 0);
  const double paid = paid_ms(1);
  pass(50, 0, 5 * kMs);
  EXPECT_LT(paid_ms(1) - paid, 30);
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
  EXPECT_NEAR(paid_ms(0), 2 * (50 - 30 - 50 * (0.2 / 5.2 + 0.1)), 1);
  EXPECT_EQ(paid_ms(1), 0);
}

// Rounds do not end while one is away for a moment only.
TEST_F(WasteTest, WhatOneKeepsIsTimeThatAnotherWanted) {
  waste.pass(now), waste.keep(now, 2);
  go(2);
  gpu.gate(now, 1, true);
  waste.begin_round();
  waste.keep(now, 1);
  go(1);
  now += 10 * kSecond;
  waste.keep(now, 0);
  EXPECT_EQ(gpu[0].kept_ns, 0) << "alone";
  gpu[0].kept_from_ns = now - 10 * kSecond;
  come(1);
  waste.on_arrival(now, 1);
  now += 5 * kMs;
  waste.keep(now, 0);
  EXPECT_EQ(gpu[0].kept_ns, 5e6) << "since the other one is back";
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
