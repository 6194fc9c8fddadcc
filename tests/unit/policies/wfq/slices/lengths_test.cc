// SPDX-License-Identifier: Apache-2.0
// SliceLengths: the mean slice, how long a round is, and a slice of it.
#include "policies/wfq/slices/lengths.h"

#include "tests/unit/policies/wfq/slices/sliced_gpu_test.h"

namespace sluice::policy::slices {
namespace {

class SliceLengthsTest : public SlicedGpuTest {
 protected:
  double round(size_t vgpus, double weights = 0, double lightest = 100, double for_riders = 0,
               bool calm = false) {
    if (weights == 0) weights = 100.0 * static_cast<double>(vgpus);
    return gpu.lengths.begin_round(vgpus, weights, lightest, for_riders, calm) / kMs;
  }
  double slice(uint32_t weight, double lead_ns = 0) {
    return static_cast<double>(gpu.lengths.slice_for(weight, lead_ns)) / kMs;
  }
};

TEST_F(SliceLengthsTest, AMeanSlicePaysForASwitch) {
  Config c = config();
  EXPECT_EQ(SliceLengths(c).mean_slice_ns(), kMeanNs);
  c.machine.handover_ns = kSecond;
  EXPECT_EQ(SliceLengths(c).mean_slice_ns(), c.max_quantum_ns);
  c.machine.handover_ns = 1000;
  EXPECT_EQ(SliceLengths(c).mean_slice_ns(), c.machine.slice_floor_ns);
  c.handover_loss = 0;
  EXPECT_EQ(SliceLengths(c).mean_slice_ns(), c.machine.slice_floor_ns);
}

TEST_F(SliceLengthsTest, TheCostOfASwitchIsLearntWithinABound) {
  gpu.lengths.learn(120 * kUs);
  EXPECT_NEAR(gpu.lengths.handover_ns(), 190e3, 1);
  EXPECT_NEAR(gpu.lengths.soon_ns(), 380e3, 2);
  for (int i = 0; i < 200; ++i) gpu.lengths.learn(kSecond);
  EXPECT_NEAR(gpu.lengths.handover_ns(), 1.2e6, 1) << "4 % of the longest quantum";
}

TEST_F(SliceLengthsTest, SlicesBesideThoseThatAreExpected) {
  Config c = config();
  SliceLengths lengths(c);
  EXPECT_EQ(lengths.beside_low_ns(), 200 * kUs);
  EXPECT_EQ(lengths.expecting_low_ns(), 100 * kUs);
  EXPECT_EQ(lengths.beside_normal_ns(), kMs);
  c.machine.slice_least_ns = 0;
  EXPECT_EQ(lengths.expecting_low_ns(), lengths.beside_low_ns());
  c.machine.slice_floor_ns = 50 * kUs;
  EXPECT_EQ(lengths.beside_low_ns(), 200 * kUs);
  c.machine.slice_floor_ns = 2 * kMs;
  EXPECT_EQ(lengths.beside_low_ns(), 2 * kMs);
  EXPECT_EQ(lengths.beside_normal_ns(), 2 * kMs);
  EXPECT_EQ(lengths.shortest_turn_ns(), 2.2e6);
  c.machine.slice_ceiling_ns = kMs;
  EXPECT_EQ(lengths.ceiling_ns(), 2 * kMs) << "no ceiling is below the floor";
}

TEST_F(SliceLengthsTest, ARoundHasAMeanSliceAndASwitchOfEach) {
  EXPECT_NEAR(round(1), 5.2, 1e-9);
  EXPECT_NEAR(round(4), 20.8, 0.5);
  EXPECT_NEAR(gpu.lengths.quantum_ns(100), 5.2e6, 0.2e6);
  EXPECT_NEAR(gpu.lengths.work_part(), 5 / 5.2, 0.01);
}

// Where one more or less of them in a second matters.
TEST_F(SliceLengthsTest, RoundsAreAWholeNumberInASecond) {
  for (size_t vgpus = 2; vgpus < 60; ++vgpus) {
    const double rounds = 1000 / round(vgpus);
    EXPECT_NEAR(rounds, std::round(rounds), 1e-6) << vgpus;
    EXPECT_LE(rounds, 1000 / (5.2 * static_cast<double>(vgpus))) << "none is shorter";
  }
  EXPECT_NEAR(round(80), 80 * 5.2, 1e-9) << "two in a second would grow much";
}

TEST_F(SliceLengthsTest, ARoundGrowsForTheLightestIfItIsNotLongThen) {
  const double least = 0.4 * 51 / 1;  // a floor slice and a switch for a fiftieth
  EXPECT_GE(round(2, 51, 1), least);
  EXPECT_LT(round(2, 51, 1), 1.2 * least);
  EXPECT_GE(gpu.lengths.quantum_ns(1), 0.4e6);
  EXPECT_NEAR(round(2, 102, 2), round(2, 51, 1), 1e-9);
  EXPECT_GE(round(2, 149, 1), 0.4 * 149) << "59.6 ms";
  EXPECT_NEAR(round(2, 151, 1), 10.4, 0.2) << "60.4 ms would be too long";
}

TEST_F(SliceLengthsTest, ARoundGrowsForRidersUpToALongerOne) {
  EXPECT_NEAR(round(2, 200, 100, 100e6), 100, 1e-6);
  EXPECT_NEAR(round(2, 200, 100, 5e6), 10.4, 0.2) << "it is longer already";
  EXPECT_GE(round(2, 200, 100, 149e6), 149);
  EXPECT_NEAR(round(2, 200, 100, 151e6), 10.4, 0.2) << "too long";
}

TEST_F(SliceLengthsTest, ShortRoundsAreAThirdLongerWhereNobodyComesAndGoes) {
  EXPECT_NEAR(round(2, 200, 100, 0, /*calm=*/true), 1.35 * 10.4, 0.2);
  EXPECT_NEAR(round(5, 500, 100, 0, true), 30, 0.6) << "up to 30 ms";
  EXPECT_NEAR(round(10, 1000, 100, 0, true), round(10), 1e-9);
}

// Where use is work without its switches; else a turn has its switch in it.
TEST_F(SliceLengthsTest, ASliceIsItsQuantumWithoutSwitches) {
  const double round_ms = round(2, 400);
  EXPECT_NEAR(slice(300) / slice(100), 3, 1e-3);
  EXPECT_NEAR(slice(300) + slice(100), round_ms - 0.4, 1e-3);
  const Config other_machine = config(/*free_alone=*/false);
  SliceLengths other(other_machine);
  other.begin_round(2, 400, 100, 0, false);
  EXPECT_NEAR(static_cast<double>(other.slice_for(300, 0)), other.quantum_ns(300) - 200e3, 2);
  EXPECT_NEAR(static_cast<double>(other.slice_for(100, 0)), other.quantum_ns(100) - 200e3, 2);
}

TEST_F(SliceLengthsTest, APartOfALeadIsTakenBackAndNotMoreThanAQuarterOfATurn) {
  round(2);
  const double mean = slice(100), work = gpu.lengths.work_part();
  EXPECT_NEAR(slice(100, 2e6), mean - 0.5 * work, 1e-3);
  EXPECT_NEAR(slice(100, -2e6), mean + 0.5 * work, 1e-3);
  EXPECT_NEAR(slice(100, 1e9), 0.75 * mean, 1e-3);
  EXPECT_NEAR(slice(100, -1e9), 1.25 * mean, 1e-3);
}

TEST_F(SliceLengthsTest, ASliceIsWithinTheBoundsOfTheMachine) {
  round(2, 10'001, 1);
  EXPECT_EQ(gpu.lengths.slice_for(1, 0), 200 * kUs);
  Config c = config(false);
  c.machine.slice_ceiling_ns = 3 * kMs;
  SliceLengths lengths(c);
  lengths.begin_round(2, 200, 100, 0, false);
  EXPECT_EQ(lengths.slice_for(100, 0), 3 * kMs);
}

TEST_F(SliceLengthsTest, WithoutALossASliceIsAsShortAsTheMachineHasIt) {
  Config c = config();
  c.handover_loss = 0;
  EXPECT_EQ(SliceLengths(c).mean_slice_ns(), 200 * kUs);
}

// However much switches cost: else no slice would have a length.
TEST_F(SliceLengthsTest, HalfOfARoundIsWorkAtLeast) {
  Config c = config();
  c.machine.handover_ns = 50 * kMs;
  SliceLengths lengths(c);
  lengths.begin_round(4, 400, 100, 0, false);
  EXPECT_EQ(lengths.work_part(), 0.5);
}

}  // namespace
}  // namespace sluice::policy::slices
