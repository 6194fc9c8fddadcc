// SPDX-License-Identifier: Apache-2.0
// fcfs, kernel by kernel.
#include "tests/support/rounds.h"
#include "tests/unit/policies/kernel_driver.h"
#include "tests/unit/policies/whole_driver.h"

namespace sluice::policy {
namespace {

TEST(Fcfs, KernelsRunInOrderOfArrivalAndToTheirEnd) {
  KernelDriver d("fcfs");
  for (VgpuId v = 0; v < 3; ++v) d.add(v, /*priority=*/v);
  const LaunchId a = d.launch(0, 10 * kMs), b = d.launch(2, kMs), c = d.launch(1, kMs);
  d.pass(20 * kMs);
  EXPECT_EQ(d.starts, (std::vector<LaunchId>{a, b, c}));
  EXPECT_EQ(d.evictions, 0u);
  EXPECT_EQ(d.end_ns(c) - d.end_ns(a), 2 * kMs);
}

TEST(Fcfs, AVgpusNextKernelQueuesBehindTheOthers) {
  KernelDriver d("fcfs");
  d.add(0), d.add(1);
  const LaunchId a = d.launch(0, kMs), b = d.launch(1, kMs);
  d.pass(kMs / 2);
  const LaunchId c = d.launch(0, kMs);
  d.pass(5 * kMs);
  EXPECT_EQ(d.starts, (std::vector<LaunchId>{a, b, c}));
}

TEST(Fcfs, KeepsTheContractOnRandomKernels) {
  for (uint64_t seed = 1; seed <= rounds<uint64_t>(20); ++seed) soak("fcfs", seed, {});
}
// Where launches are not announced.
TEST(Fcfs, InOrderOfArrivalUntilIdle) {
  WholeDriver d("fcfs");
  d.add(0), d.add(1), d.add(2);
  d.arrive(2), d.arrive(0), d.arrive(1);
  EXPECT_EQ(d.holder, 2u);
  d.pass(1000 * kMs);
  EXPECT_EQ(d.evicted, kNoVgpu);
  d.idle(2);
  EXPECT_EQ(d.evicted, 2u);
  d.left(2, LeftReason::kIdle);
  EXPECT_EQ(d.holder, 0u);
  d.idle(0);
  d.arrive(0);  // again, before it has left: behind the others
  d.left(0, LeftReason::kIdle);
  EXPECT_EQ(d.holder, 1u);
  d.idle(1);
  d.left(1, LeftReason::kIdle);
  EXPECT_EQ(d.holder, 0u);
}

}  // namespace
}  // namespace sluice::policy
