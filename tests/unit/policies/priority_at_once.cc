// SPDX-License-Identifier: Apache-2.0
// piv and ppq: a higher priority takes the GPU at once. Two papers arrived at one rule (EffiSha,
// section 7; "Enabling Preemptive Multiprogramming on GPUs", section 4.2); both policies are held
// to it.
#include "tests/unit/policies/priority_at_once.h"
#include "tests/support/rounds.h"

namespace sluice::policy {
TEST_P(PriorityAtOnce, AHigherPriorityTakesTheGpuAtOnce) {
  KernelDriver d(GetParam());
  d.add(0, 1), d.add(1, 2);
  d.leave_ns = 80 * kUs;
  const LaunchId low = d.launch(0, 10 * kMs);
  d.pass(kMs);
  const LaunchId high = d.launch(1, kMs);
  EXPECT_EQ(d.evictions, 1u);
  EXPECT_EQ(d.on(), low) << "it is leaving";
  d.pass(80 * kUs);
  EXPECT_EQ(d.on(), high);
  d.pass(20 * kMs);
  EXPECT_EQ(d.starts, (std::vector<LaunchId>{low, high, low}));
  EXPECT_EQ(d.end_ns(low) - 1000 * kMs, 11 * kMs) << "it worked while it left";
}

TEST_P(PriorityAtOnce, EqualAndLowerPrioritiesWait) {
  KernelDriver d(GetParam());
  d.add(0, 2), d.add(1, 2), d.add(2, 1);
  const LaunchId a = d.launch(0, 10 * kMs), low = d.launch(2, kMs), b = d.launch(1, kMs);
  d.pass(20 * kMs);
  EXPECT_EQ(d.starts, (std::vector<LaunchId>{a, b, low}));
  EXPECT_EQ(d.evictions, 0u);
}

TEST_P(PriorityAtOnce, AnEvictedKernelKeepsItsPlaceAmongItsEquals) {
  KernelDriver d(GetParam());
  d.add(0, 1), d.add(1, 1), d.add(2, 7);
  const LaunchId a = d.launch(0, 10 * kMs), b = d.launch(1, kMs);
  d.pass(kMs);
  const LaunchId high = d.launch(2, kMs);
  d.pass(30 * kMs);
  EXPECT_EQ(d.starts, (std::vector<LaunchId>{a, high, a, b}));
}

TEST_P(PriorityAtOnce, AStillHigherOneThatComesDuringTheEvictionRunsFirst) {
  KernelDriver d(GetParam());
  d.add(0, 1), d.add(1, 2), d.add(2, 3);
  d.leave_ns = 100 * kUs;
  const LaunchId a = d.launch(0, 10 * kMs), b = d.launch(1, kMs);
  d.pass(50 * kUs);
  const LaunchId c = d.launch(2, kMs);
  d.pass(30 * kMs);
  EXPECT_EQ(d.starts, (std::vector<LaunchId>{a, c, b, a}));
  EXPECT_EQ(d.evictions, 1u);
}

TEST_P(PriorityAtOnce, KeepsTheContractOnRandomKernels) {
  for (uint64_t seed = 1; seed <= rounds<uint64_t>(20); ++seed) soak(GetParam(), seed, {});
}

}  // namespace sluice::policy
