// SPDX-License-Identifier: Apache-2.0
// cfs: an epoch shared by the jobs that are ready (FRS paper, section IV-D).
#include "tests/unit/policies/turn_driver.h"

namespace sluice::policy {
namespace {

TEST(Cfs, TheEpochIsDividedByTheNumberOfJobs) {
  for (uint32_t n : {2u, 4u, 8u}) {
    TurnDriver d("cfs", cheap());
    for (VgpuId v = 0; v < n; ++v) d.job(v, 100 * kMs);
    d.pass(40 * kMs);
    ASSERT_GE(d.start_ns.size(), 3u * n);
    for (size_t i = n + 1; i < 2 * n; ++i)
      EXPECT_EQ(d.start_ns[i] - d.start_ns[i - 1], 4 * kMs / n) << n;
  }
}

TEST(Cfs, ANewcomerWaitsForTheNextEpochBehindWhoWaitedLonger) {
  TurnDriver d("cfs", cheap());
  d.job(0, 100 * kMs), d.job(1, 100 * kMs);
  d.pass(9 * kMs);
  const size_t before = d.starts.size();
  d.job(2, 100 * kMs);
  d.pass(20 * kMs);
  // Whoever runs goes on, the other has waited longer than 2.
  EXPECT_EQ(d.starts[before + 1], 2u);
  std::vector<uint64_t> got;
  for (VgpuId v = 0; v < 3; ++v) got.push_back(d.used[v]);
  d.pass(400 * kMs / 3);
  for (VgpuId v = 0; v < 3; ++v)
    EXPECT_NEAR(static_cast<double>(d.used[v] - got[v]), 400e6 / 9, 1.5e6);
}

TEST(Cfs, QuantaAreNotShorterThanAHandover) {
  TurnDriver d("cfs");  // 200 us
  for (VgpuId v = 0; v < 100; ++v) d.job(v, 10 * kMs);
  d.pass(200 * kMs);
  for (size_t i = 150; i < 300; ++i) EXPECT_EQ(d.start_ns[i] - d.start_ns[i - 1], 200 * kUs);
}
}  // namespace
}  // namespace sluice::policy
