// SPDX-License-Identifier: Apache-2.0
// RiderRounds: rounds are longer while one whose kernels no gate stops falls further ahead.
#include "policies/wfq/slices/riders.h"

#include "tests/unit/policies/wfq/slices/sliced_gpu_test.h"

namespace sluice::policy::slices {
namespace {

constexpr double kForOneMs = 1.1 * 2 * 0.4;  // its slice and its switch, of two of equal weight
constexpr double kRoundMs = 10.4;

class RidersTest : public SlicedGpuTest {
 protected:
  RidersTest() {
    add_busy(), add_busy();
    gpu[kRider].rides_until_ns = ~0ull;
    begin_round();
  }
  // In ms, `ns` later, by when it has used so much more than the other.
  double least(uint64_t ns, uint64_t more_ns) {
    now += ns;
    charge(kRider, more_ns);
    gpu.find_top();
    return RiderRounds::least_ns(gpu, now, gpu.weight_of_top) / kMs;
  }
  static constexpr VgpuId kRider = 1;
};

TEST_F(RidersTest, ARoundIsLongEnoughForOneContext) {
  EXPECT_EQ(least(kMs, 3 * kMs), 0) << "it leads by 1.5 ms";
  EXPECT_NEAR(least(kMs, kMs), kForOneMs, 0.01);
  EXPECT_NEAR(least(RiderRounds::kCheckNs, 36 * kMs), kForOneMs, 0.01) << "four quanta are 20.8 ms";
  gpu[kRider].rides_until_ns = now;
  EXPECT_EQ(least(kMs, kMs), 0);
}

TEST_F(RidersTest, LongerAsLongAsItsLeadGrows) {
  double last = least(kMs, 50 * kMs);
  EXPECT_NEAR(last, 1.5 * kRoundMs, 0.1);
  for (int i = 0; i < 3; ++i) {
    const double next = least(RiderRounds::kCheckNs, 10 * kMs);
    EXPECT_NEAR(next, 1.5 * last, 1e-6) << i;
    last = next;
  }
  EXPECT_EQ(least(RiderRounds::kCheckNs - 1, 10 * kMs), last) << "it was looked at just now";
  for (int i = 0; i < 20; ++i) last = least(RiderRounds::kCheckNs, kMs);
  EXPECT_EQ(last, 150) << "no longer than others can wait";
}

TEST_F(RidersTest, ShorterOnceItFallsBack) {
  for (int i = 0; i < 4; ++i) least(RiderRounds::kCheckNs, 100 * kMs);
  double last = least(kMs, 0);
  charge(1 - kRider, 20 * kMs);
  EXPECT_NEAR(least(RiderRounds::kCheckNs, 0), 0.9 * last, 1e-6);
  for (int i = 0; i < 60; ++i) last = least(RiderRounds::kCheckNs, 0);
  EXPECT_NEAR(last, kForOneMs, 0.01);
}

TEST_F(RidersTest, ALighterOneNeedsALongerRound) {
  const VgpuId light = add_busy({.weight = 10});
  gpu[kRider].rides_until_ns = 0;
  gpu[light].rides_until_ns = ~0ull;
  gpu[light].ride_checked_ns = now;
  charge(light, 10 * kMs);
  EXPECT_NEAR(least(0, 0), 1.1 * 0.4 * 210 / 10, 0.1);
}

}  // namespace
}  // namespace sluice::policy::slices
