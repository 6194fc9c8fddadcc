// fcfs, kernel by kernel. (What it does where launches are not told: policy_wfq_test.cc.)
#include "tests/unit/policy_kernel_driver.h"

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
  for (uint64_t seed = 1; seed <= 20; ++seed) soak("fcfs", seed, {});
}
}  // namespace
}  // namespace sluice::policy
