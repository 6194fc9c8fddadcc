// SPDX-License-Identifier: Apache-2.0
// wfq where parts of the GPU can be given: SMs by weight, and what is left of a whole SM by turns.
#include "tests/unit/policies/kernel_driver.h"

namespace sluice::policy {
namespace {

Config sms(uint32_t n) {
  Config c;
  c.machine.sm_count = n;
  c.machine.spatial = true;
  c.machine.handover_ns = 20 * kUs;
  return c;
}

// What each launch has got so far, SM-ns.
uint64_t got(const KernelDriver& d, LaunchId id, uint64_t whole) {
  return whole - d.kernels.at(id).left_sm_ns;
}

TEST(WfqSpatial, AloneItHasAllAndNoTimer) {
  KernelDriver d("wfq", sms(16));
  d.add(0);
  const LaunchId a = d.launch(0, 100 * kMs);
  EXPECT_EQ(d.held(a), 16u);
  EXPECT_EQ(d.wake_ns, 0u);
}

TEST(WfqSpatial, WholeSmsAreHeldForGood) {
  KernelDriver d("wfq", sms(20));
  for (VgpuId v = 0; v < 4; ++v) d.add(v, 0, v == 0 ? 100 : 300);
  LaunchId id[4];
  for (VgpuId v = 0; v < 4; ++v) id[v] = d.launch(v, 1000 * kMs), d.pass(kMs);
  d.pass(100 * kMs);  // who was first is ahead by what it had alone
  const uint32_t before = d.evictions;
  d.pass(100 * kMs);
  EXPECT_EQ(d.evictions - before, 0u);
  EXPECT_EQ(d.held(id[0]), 2u);
  for (VgpuId v = 1; v < 4; ++v) EXPECT_EQ(d.held(id[v]), 6u);
}

// 3 on 4 SMs: a third of an SM each goes by turns.
TEST(WfqSpatial, PartsOfAnSmGoByTurns) {
  for (const bool tells : {true, false}) {
    KernelDriver d("wfq", sms(4));
    d.tells_launches = tells;
    d.leave_ns = 30 * kUs;
    LaunchId id[3];
    for (VgpuId v = 0; v < 3; ++v) d.add(v), id[v] = d.launch(v, 10'000 * kMs);
    d.pass(100 * kMs);
    uint64_t before[3];
    for (int v = 0; v < 3; ++v) before[v] = got(d, id[v], 0);
    d.pass(1000 * kMs);
    for (int v = 0; v < 3; ++v) {
      const double share = static_cast<double>(got(d, id[v], 0) - before[v]);
      EXPECT_NEAR(share, 4e9 / 3, 0.01 * 4e9 / 3) << v;
    }
  }
}

// Far more vGPUs than SMs, and weights that differ by 200.
TEST(WfqSpatial, MoreVgpusThanSms) {
  KernelDriver d("wfq", sms(4));
  d.leave_ns = 10 * kUs;
  std::vector<LaunchId> id;
  std::vector<uint64_t> before;
  double weights = 0;
  for (VgpuId v = 0; v < 40; ++v) {
    const uint32_t weight = v == 39 ? 1 : 200 - v;
    weights += weight;
    d.add(v, 0, weight), id.push_back(d.launch(v, 10'000 * kMs));
  }
  d.pass(200 * kMs);
  for (const LaunchId i : id) before.push_back(got(d, i, 0));
  d.pass(1000 * kMs);
  for (VgpuId v = 0; v < 40; ++v) {
    const double owed = 4e9 * (v == 39 ? 1 : 200 - v) / weights;
    const double turn = 60e3;  // the least, and leaving, and what two timers may lie apart
    EXPECT_NEAR(static_cast<double>(got(d, id[v], 0) - before[v]), owed,
                std::max(0.01 * owed, turn))
        << v;
  }
}

TEST(WfqSpatial, AHigherPriorityTakesWhatItCanUseAndNoMore) {
  KernelDriver d("wfq", sms(8));
  d.add(0), d.add(1, 3);
  const LaunchId low = d.launch(0, 100 * kMs), high = d.launch(1, 10 * kMs, 5);
  EXPECT_EQ(d.held(high), 5u);
  EXPECT_EQ(d.held(low), 3u);
  d.pass(11 * kMs);
  EXPECT_TRUE(d.ended(high));
  EXPECT_EQ(d.held(low), 8u);
}

TEST(WfqSpatial, SmsOfAnIdleOneGoToTheOthersAtOnce) {
  KernelDriver d("wfq", sms(8));
  d.add(0), d.add(1);
  const LaunchId a = d.launch(0, 100 * kMs), b = d.launch(1, 10 * kMs);
  d.pass(5 * kMs);
  EXPECT_EQ(d.held(a), 4u);
  d.pass(40 * kMs);
  EXPECT_TRUE(d.ended(b));
  EXPECT_EQ(d.held(a), 8u);
}

// A short job does not wait for anybody's turn to end: it has its share of the SMs at once.
TEST(WfqSpatial, AShortJobStartsAtOnce) {
  KernelDriver d("wfq", sms(16));
  for (VgpuId v = 0; v < 4; ++v) d.add(v);
  for (VgpuId v = 0; v < 3; ++v) d.launch(v, 1000 * kMs);
  d.pass(50 * kMs);
  const uint64_t begin = d.now;
  const LaunchId s = d.launch(3, kMs);  // 1 ms on 16 SMs, 4 ms on its share of them
  d.pass(10 * kMs);
  ASSERT_TRUE(d.ended(s));
  EXPECT_LT(d.end_ns(s) - begin, 4 * kMs + 100 * kUs);
}

TEST(WfqSpatial, ClaimingToBeShortDoesNotPay) {
  KernelDriver d("wfq", sms(16));
  d.leave_ns = 10 * kUs;
  for (VgpuId v = 0; v < 3; ++v) d.add(v);
  const LaunchId a = d.launch(0, 10'000 * kMs), b = d.launch(1, 10'000 * kMs);
  d.pass(50 * kMs);
  const uint64_t a0 = got(d, a, 0), b0 = got(d, b, 0);
  uint64_t liar = 0;
  for (const uint64_t end = d.now + 200 * kMs; d.now < end;) {
    if (!d.busy(2)) d.launch(2, kMs / 2, 0, 0.001), liar += 16 * kMs / 2;
    d.pass(100 * kUs);
  }
  const double third = 3.2e9 / 3, frame = 5e6 * 16 / 3;
  EXPECT_GT(static_cast<double>(got(d, a, 0) - a0), third - frame);
  EXPECT_GT(static_cast<double>(got(d, b, 0) - b0), third - frame);
  EXPECT_LT(static_cast<double>(liar), third + frame + 16 * kMs / 2);
}

TEST(WfqSpatial, AWeightThatChangesMovesSms) {
  KernelDriver d("wfq", sms(12));
  d.add(0), d.add(1);
  const LaunchId a = d.launch(0, 1000 * kMs), b = d.launch(1, 1000 * kMs);
  d.pass(20 * kMs);
  EXPECT_EQ(d.held(a), 6u);
  d.change(0, 300);
  d.pass(100 * kMs);
  EXPECT_NEAR(d.held(a), 9, 1);
  EXPECT_NEAR(d.held(b), 3, 1);
}

// Who could use two SMs of its eight for a while is not owed the other six afterwards.
TEST(WfqSpatial, WhatItCouldNotUseIsNotOwed) {
  KernelDriver d("wfq", sms(16));
  d.add(0), d.add(1);
  const LaunchId a = d.launch(0, 10'000 * kMs);
  d.launch(1, 500 * kMs, 2);
  d.pass(501 * kMs);
  EXPECT_EQ(d.held(a), 16u);
  const LaunchId wide = d.launch(1, 1000 * kMs);
  d.pass(500 * kMs);
  // 30 ms of credit on 16 SMs at most, not 3 s of SM-time.
  EXPECT_LT(static_cast<double>(1000 * kMs * 16 - d.kernels.at(wide).left_sm_ns),
            4e9 + 16 * 30e6 + 8 * 5e6);
  EXPECT_GE(d.held(a), 7u);
}

TEST(WfqSpatial, Soak) {
  for (uint64_t seed = 1; seed <= 15; ++seed)
    soak("wfq", seed, sms(static_cast<uint32_t>(2 + seed % 13)));
}

}  // namespace
}  // namespace sluice::policy
