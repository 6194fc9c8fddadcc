// SPDX-License-Identifier: Apache-2.0
// loga: the rules of LoGA section 3.4 on a GPU that alternates by itself.
#include "tests/unit/policies/wfq/slice_driver.h"

namespace sluice::policy {
namespace {

// Who waits after each short kernel gives its slice away, so plain round robin favours the other
// (the paper's "applications which submit longer commands"); suspending who is ahead corrects it.
TEST(Loga, ALongRunningTenantDoesNotTakeMoreThanItsPart) {
  SliceDriver d("loga");
  const auto a = d.add(100, 500 * kUs, 10 * kUs), b = d.add(100, 5 * kMs, 0);
  d.run(30 * kSecond);
  SliceDriver free("loga");  // the same two, never polled to an end: what the hardware gives them
  const auto c = free.add(100, 500 * kUs, 10 * kUs), e = free.add(100, 5 * kMs, 0);
  free.deaf = true;
  free.run(30 * kSecond);
  EXPECT_LT(free.ratio(c, e), 0.35);
  EXPECT_GT(d.ratio(a, b), 1.0);  // and more than corrected: see loga.cc
}

TEST(Loga, EqualTenantsAreNotSuspended) {
  SliceDriver d("loga");
  const auto a = d.add(100, kMs, 0), b = d.add(100, kMs, 0);
  d.run(20 * kSecond);
  EXPECT_NEAR(d.ratio(a, b), 1.0, 0.05);
}

// section 3.4: t_sys follows the active only, and who was idle is moved up to it.
TEST(Loga, IdlenessSavesNothingUp) {
  SliceDriver d("loga");
  const auto a = d.add(100, kMs, 0), b = d.add(100, kMs, 0), c = d.add(100, kMs, 0);
  d.tenants[c].next_ns = d.now + 10 * kSecond;
  d.run(10 * kSecond);
  const uint64_t before_a = d.tenants[a].used_ns, before_b = d.tenants[b].used_ns;
  d.run(3 * kSecond);
  EXPECT_NEAR(static_cast<double>(d.tenants[c].used_ns), 0.93e9, 0.15e9);
  EXPECT_NEAR(static_cast<double>(d.tenants[a].used_ns - before_a), 0.93e9, 0.15e9);
  EXPECT_NEAR(static_cast<double>(d.tenants[b].used_ns - before_b), 0.93e9, 0.15e9);
}

TEST(Loga, AloneIsLeftAlone) {
  SliceDriver d("loga");
  d.add(100, kMs, 0);
  d.run(kSecond);
  EXPECT_EQ(d.wake_ns, 0u);
  EXPECT_EQ(d.slice_actions, 1u);
}

TEST(Loga, ASuspensionEndsWithThePause) {
  SliceDriver d("loga");
  const auto a = d.add(100, 200 * kUs, 100 * kMs), b = d.add(100, kMs, 0);
  d.run(10 * kSecond);
  EXPECT_GT(d.tenants[b].used_ns, 8 * kSecond);
  EXPECT_GT(d.tenants[a].kernels, 80u);
}
}  // namespace
}  // namespace sluice::policy
