// SPDX-License-Identifier: Apache-2.0
// wfq-srt, event by event: the rules that open policies/wfq/wfq_srt.cc.
#include "tests/unit/policies/policy_units.h"
#include "tests/unit/policies/whole_driver.h"

namespace sluice::policy {
namespace {

void begin(WholeDriver& d, VgpuId v, uint64_t known_ns) {
  static LaunchId id = 0;
  const Launch l = launch_of(++id, v, known_ns);
  d.call([&] { d.policy->on_launch_queued(d.now, l, d.out); });
  d.arrive(v);
}

TEST(WfqSrt, TheShorterTakesTheGpuAtOnce) {
  WholeDriver d("wfq-srt");
  d.add(0), d.add(1);
  begin(d, 0, 20 * kMs);
  d.pass(5 * kMs);
  begin(d, 1, kMs);
  EXPECT_EQ(d.evicted, 0u);
  EXPECT_EQ(d.out.back().next, 1u);
}

TEST(WfqSrt, NobodyIsEvictedForLessThanAHandover) {
  WholeDriver d("wfq-srt");
  d.add(0), d.add(1);
  begin(d, 0, kMs);
  d.pass(kMs / 10);
  begin(d, 1, kMs - kMs / 5);  // the holder needs 0.9 ms; a hand-over is guessed at 0.2
  EXPECT_EQ(d.evicted, kNoVgpu);
  d.pass(kMs / 2);
  EXPECT_EQ(d.evicted, kNoVgpu) << "a short holder ends what it said";
}

TEST(WfqSrt, WorkBeyondTheCreditWaitsForItsTurn) {
  WholeDriver d("wfq-srt");
  d.add(0), d.add(1);
  begin(d, 0, 0);
  d.pass(100'000);
  begin(d, 1, 31 * kMs);  // the credit is max_quantum_ns, 30 ms
  EXPECT_EQ(d.evicted, kNoVgpu);
}

TEST(WfqSrt, ClaimingToBeShortDoesNotPay) {
  WholeDriver d("wfq-srt");
  for (VgpuId v = 0; v < 3; ++v) d.add(v);
  for (VgpuId v = 0; v < 3; ++v) d.arrive(v);
  uint64_t got[3] = {};
  for (int i = 0; i < 60'000; ++i) {
    Launch l = launch_of(0, 2, kMs / 2);
    l.run_predicted_sm_ns = l.predicted_sm_ns;
    if (i % 10 == 0) d.call([&] { d.policy->on_launch_queued(d.now, l, d.out); });
    if (d.evicted != kNoVgpu) d.left(d.evicted);
    got[d.holder] += kMs / 10;
    d.pass(kMs / 10);
    if (d.evicted != kNoVgpu) d.left(d.evicted);
  }
  for (const uint64_t g : got) EXPECT_NEAR(static_cast<double>(g), 2e9, 0.04e9);
}

}  // namespace
}  // namespace sluice::policy
