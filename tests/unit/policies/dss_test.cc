// SPDX-License-Identifier: Apache-2.0
// dss: tokens, debt and Algorithm 1 ("Enabling Preemptive Multiprogramming on GPUs", section 3.4).
#include "tests/support/rounds.h"
#include "tests/unit/policies/kernel_driver.h"

namespace sluice::policy {
namespace {

Config sms13() {
  Config c;
  c.machine.sm_count = 13;
  c.machine.spatial = true;
  return c;
}

TEST(Dss, AloneAKernelGoesIntoDebtForAllSms) {
  KernelDriver d("dss", sms13());
  d.add(0), d.add(1);
  const LaunchId a = d.launch(0, 10 * kMs);
  EXPECT_EQ(d.held(a), 13u);
}

TEST(Dss, ANewKernelIsGivenItsTokens) {
  KernelDriver d("dss", sms13());
  for (VgpuId v = 0; v < 4; ++v) d.add(v);
  const LaunchId a = d.launch(0, 10 * kMs), b = d.launch(1, 10 * kMs);
  // floor(13 / 2) tokens each, one more for the first; they differ by one at most.
  EXPECT_EQ(d.held(a), 7u);
  EXPECT_EQ(d.held(b), 6u);
  const LaunchId c = d.launch(2, 10 * kMs), e = d.launch(3, 10 * kMs);
  for (const LaunchId id : {a, b, c, e}) {
    EXPECT_GE(d.held(id), 3u);
    EXPECT_LE(d.held(id), 4u);
  }
}

TEST(Dss, SmsOfAKernelThatEndsGoToTheOthersOnDebt) {
  KernelDriver d("dss", sms13());
  d.add(0), d.add(1), d.add(2);
  const LaunchId a = d.launch(0, 100 * kMs), b = d.launch(1, kMs), c = d.launch(2, 100 * kMs);
  d.pass(10 * kMs);
  EXPECT_TRUE(d.ended(b));
  EXPECT_EQ(d.held(a) + d.held(c), 13u) << "no SM is idle while somebody can use it";
  EXPECT_LE(std::max(d.held(a), d.held(c)) - std::min(d.held(a), d.held(c)), 2u);
}

TEST(Dss, WeightsAreTokens) {
  Config c = sms13();
  c.machine.sm_count = 12;
  KernelDriver d("dss", c);
  d.add(0, 0, 200), d.add(1, 0, 100);
  const LaunchId a = d.launch(0, 10 * kMs), b = d.launch(1, 10 * kMs);
  EXPECT_NEAR(d.held(a), 8, 1);
  EXPECT_NEAR(d.held(b), 4, 1);
}

TEST(Dss, AKernelGetsNoMoreSmsThanItCanUse) {
  KernelDriver d("dss", sms13());
  d.add(0), d.add(1);
  const LaunchId narrow = d.launch(0, 10 * kMs, /*wanted=*/2), wide = d.launch(1, 10 * kMs);
  EXPECT_EQ(d.held(narrow), 2u);
  EXPECT_EQ(d.held(wide), 11u);
}

TEST(Dss, AReservedSmGoesToWhoHasMostTokensWhenItIsLeft) {
  KernelDriver d("dss", sms13());
  d.leave_ns = 100 * kUs;
  for (VgpuId v = 0; v < 3; ++v) d.add(v);
  const LaunchId a = d.launch(0, 100 * kMs), b = d.launch(1, 100 * kMs);
  d.pass(50 * kUs);  // SMs of a are reserved for b and still run a
  const uint32_t asked = d.evictions;
  EXPECT_EQ(d.held(a), 13u);
  const LaunchId c = d.launch(2, 100 * kMs);
  d.pass(kMs);
  EXPECT_GE(d.held(b), 4u);
  EXPECT_GE(d.held(c), 4u);
  EXPECT_GE(d.held(a), 4u);
  EXPECT_LE(d.evictions, asked + 4)
      << "the six that b was promised are shared with c, not taken again";
}

TEST(Dss, TheSteadyStateIsLeftAlone) {
  KernelDriver d("dss", sms13());
  for (VgpuId v = 0; v < 5; ++v) d.add(v);
  for (VgpuId v = 0; v < 5; ++v) d.launch(v, 100 * kMs);
  const uint32_t asked = d.evictions;
  d.pass(10 * kMs);
  EXPECT_EQ(d.evictions, asked);
}

TEST(Dss, WithoutSpatialSharingTheGpuIsOneSm) {
  Config c = sms13();
  c.machine.spatial = false;
  KernelDriver d("dss", c);
  d.add(0), d.add(1);
  const LaunchId a = d.launch(0, kMs), b = d.launch(1, kMs);
  EXPECT_EQ(d.held(a), 13u);
  d.pass(3 * kMs);
  EXPECT_TRUE(d.ended(b));
}

TEST(Dss, KeepsTheContractOnRandomKernels) {
  for (uint64_t seed = 1; seed <= rounds<uint64_t>(20); ++seed) {
    soak("dss", seed, sms13());
    soak("dss", seed, {});
  }
}
}  // namespace
}  // namespace sluice::policy
