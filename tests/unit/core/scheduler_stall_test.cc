// SPDX-License-Identifier: Apache-2.0
// The scheduler and what stops the whole GPU: a fault's stall is paid for by who faulted, and a
// vGPU may have a deadline of its own.
#include <gtest/gtest.h>

#include "tests/unit/core/scheduler_host.h"

namespace sluice::core {
namespace {

class SchedulerStall : public ::testing::Test {
 protected:
  SchedulerStall() {
    a = h.vgpu(), b = h.vgpu();
    sa = h.session(a), sb = h.session(b);
    h.report(sa, 1, 1);
    h.report(sb, 1, 0);
  }
  VgpuStats stats(VgpuId v) { return h.scheduler->stats(h.now, v); }
  bool holds(VgpuId v) { return stats(v).holds; }
  // Lets the policy's turns go round until v has the GPU.
  void await_turn(VgpuId v) {
    for (int i = 0; i < 1000 && !holds(v); ++i) {
      h.time(h.wake == kNever ? h.now + kMs : std::max(h.wake, h.now + 1));
      for (const SessionId s : {sa, sb})
        if (!(h.page(s).grant & SLUICE_GRANT_OPEN))
          h.report(s, 1, 0, SLUICE_GRANT_GENERATION(h.page(s).grant));
      for (const SessionId s : {sa, sb})
        if (h.page(s).grant & SLUICE_GRANT_OPEN) h.report(s, 1, 1);
    }
    ASSERT_TRUE(holds(v));
  }

  Host h;
  VgpuId a = 0, b = 0;
  SessionId sa = 0, sb = 0;
};

TEST_F(SchedulerStall, WhoFaultedPaysForWhatTheOtherHeldMeanwhile) {
  await_turn(b);
  const uint64_t before = stats(a).charged_sm_ns;
  h.now += 5 * kMs;  // all of b's turn until here was spoiled
  h.scheduler->on_stall(h.now, a, 100 * kMs, h.queue);
  h.drain();
  const uint64_t paid = stats(a).charged_sm_ns - before;
  EXPECT_GT(paid, 0u);
  EXPECT_LE(paid, 100 * kMs);
  EXPECT_EQ(stats(a).extra_sm_ns, paid);
  await_turn(a);
  EXPECT_GT(stats(b).refunded_sm_ns, 0u) << "it gets back what it could not use";
}

TEST_F(SchedulerStall, WhatTheClockHasChargedIsNotChargedTwice) {
  await_turn(a);
  h.now += 2 * kMs;
  h.scheduler->on_stall(h.now, a, 1 * kMs, h.queue);
  h.drain();
  EXPECT_EQ(stats(a).extra_sm_ns, 0u) << "it held the GPU all the time";
}

TEST_F(SchedulerStall, UnknownVgpusAndMoreThanAllTimeAreHarmless) {
  h.scheduler->on_stall(h.now, 77, kMs, h.queue);
  h.scheduler->on_stall(h.now, a, ~0ull, h.queue);
  h.scheduler->set_evict_end(77, 1);
  h.drain();
}

TEST_F(SchedulerStall, ADeadlineOfItsOwn) {
  await_turn(a);
  const auto overstay_ns = [this](SessionId s) {
    return h.scheduler->overstay_ns(s, EndReason::kDidNotLeave);
  };
  EXPECT_EQ(overstay_ns(sa), SchedulerConfig{}.evict_end_ns);
  h.scheduler->set_evict_end(a, 120 * kMs);
  EXPECT_EQ(overstay_ns(sa), 120 * kMs);
  EXPECT_EQ(overstay_ns(sb), SchedulerConfig{}.evict_end_ns);
  h.take();
  const uint64_t began = h.now;
  while (h.now < began + 10'000 * kMs &&
         h.did.find("end" + std::to_string(sa)) == std::string::npos)
    h.time(std::max(h.now + kMs, std::min(h.wake, h.now + 10 * kMs)));
  EXPECT_LT(h.now - began, 400 * kMs) << "its turn, and 120 ms";
  EXPECT_EQ(stats(a).ended, 1u);
}

}  // namespace
}  // namespace sluice::core
