// SPDX-License-Identifier: Apache-2.0
// npq: priorities without preemption ("Enabling Preemptive Multiprogramming on GPUs", section 4.2).
#include "tests/support/rounds.h"
#include "tests/unit/policies/kernel_driver.h"

namespace sluice::policy {
namespace {

TEST(Npq, TheHighestPriorityWaitsForTheRunningKernelAlone) {
  KernelDriver d("npq");
  d.add(0), d.add(1), d.add(2, 5);
  const LaunchId a = d.launch(0, 10 * kMs), b = d.launch(1, 10 * kMs);
  d.pass(kMs);
  const LaunchId high = d.launch(2, kMs);
  d.pass(30 * kMs);
  EXPECT_EQ(d.starts, (std::vector<LaunchId>{a, high, b}));
  EXPECT_EQ(d.evictions, 0u);
}

TEST(Npq, EqualsGoInOrderOfArrival) {
  KernelDriver d("npq");
  d.add(0, 3), d.add(1, 3), d.add(2, 3);
  const LaunchId a = d.launch(2, kMs), b = d.launch(0, kMs), c = d.launch(1, kMs);
  d.pass(4 * kMs);
  EXPECT_EQ(d.starts, (std::vector<LaunchId>{a, b, c}));
}

TEST(Npq, APriorityThatChangesCountsForThoseThatWait) {
  KernelDriver d("npq");
  d.add(0), d.add(1), d.add(2);
  d.launch(0, kMs);
  const LaunchId b = d.launch(1, kMs), c = d.launch(2, kMs);
  d.policy->on_vgpu_changed(d.now, 2, {.weight = 100, .priority = 9}, d.out);
  d.pass(4 * kMs);
  EXPECT_LT(d.end_ns(c), d.end_ns(b));
}

TEST(Npq, KeepsTheContractOnRandomKernels) {
  for (uint64_t seed = 1; seed <= rounds<uint64_t>(20); ++seed) soak("npq", seed, {});
}
}  // namespace
}  // namespace sluice::policy
