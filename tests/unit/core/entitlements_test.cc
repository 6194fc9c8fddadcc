// SPDX-License-Identifier: Apache-2.0
// What is shown as each vGPU's entitlement (mediator/core/sharing/entitlements.h), by hand.
#include "mediator/core/sharing/entitlements.h"

#include <gtest/gtest.h>

#include <random>

namespace sluice::core {
namespace {

using accounting::ShareMeter;
using policy::VgpuShare;
using Parts = std::vector<int>;

class EntitlementsTest : public ::testing::Test {
 protected:
  void add(const VgpuShare& share) {
    e_.add(now_, count_, share);
    e_.set_busy(now_, count_++, true);
  }
  // What each is entitled to of 1,000 ns, to the ns.
  Parts parts() {
    std::vector<ShareMeter::Totals> before;
    for (uint32_t v = 0; v < count_; ++v) before.push_back(meter_.totals(now_, v));
    meter_.set_holder(now_, 0);
    now_ += 1000;
    meter_.set_holder(now_, ShareMeter::kNobody);
    Parts parts;
    for (uint32_t v = 0; v < count_; ++v)
      parts.push_back(
          static_cast<int>(meter_.totals(now_, v).own_entitled_ns - before[v].own_entitled_ns));
    return parts;
  }

  ShareMeter meter_;
  Entitlements e_{meter_};
  uint32_t count_ = 0;
  uint64_t now_ = 0;
};

TEST_F(EntitlementsTest, AMinimumIsHadAtTheOthersCost) {
  add({.min_permille = 400}), add({}), add({.weight = 200});
  EXPECT_EQ(parts(), (Parts{400, 200, 400}));
  e_.set_busy(now_, 2, false);  // its weight's part is more: the minimum adds nothing
  EXPECT_EQ(parts(), (Parts{500, 500, 0}));
  e_.set_busy(now_, 2, true);
  e_.set(now_, 0, {});
  EXPECT_EQ(parts(), (Parts{250, 250, 500}));
}

TEST_F(EntitlementsTest, WhatAMaximumLeavesIsTheOthers) {
  add({.max_permille = 100}), add({}), add({.weight = 200});
  EXPECT_EQ(parts(), (Parts{100, 300, 600}));
  // What the first leaves lifts the second above its minimum.
  e_.set(now_, 1, {.min_permille = 280});
  EXPECT_EQ(parts(), (Parts{100, 300, 600}));
  // And here what the second needs takes the third below its maximum.
  e_.set(now_, 1, {.min_permille = 500});
  e_.set(now_, 2, {.weight = 200, .max_permille = 450});
  EXPECT_EQ(parts(), (Parts{100, 500, 400}));
  e_.set_busy(now_, 1, false);  // all that have work have a maximum: parts of what they use
  EXPECT_EQ(parts(), (Parts{182, 0, 818}));
}

// The root has group 1 (at most 50 %), group 2 (at least 60 %) and vGPU 3, of one weight.
TEST_F(EntitlementsTest, GroupsHaveLimitsToo) {
  e_.set_group(0, 1, {.max_permille = 500});
  e_.set_group(0, 2, {.min_permille = 600});
  add({.max_permille = 120, .group = 1}), add({.group = 1}), add({.group = 2}), add({});
  EXPECT_EQ(parts(), (Parts{100, 100, 600, 200}));
  e_.set_busy(now_, 3, false);
  EXPECT_EQ(parts(), (Parts{120, 280, 600, 0}));
  e_.set_busy(now_, 2, false);  // the group comes to a half, whatever else is free
  EXPECT_EQ(parts(), (Parts{240, 760, 0, 0}));
  e_.set_busy(now_, 3, true);
  EXPECT_EQ(parts(), (Parts{120, 380, 0, 500}));
  // Of a group whose members cannot use what it may have, and of one whose members have minima.
  e_.set(now_, 1, {.max_permille = 80, .group = 1});
  EXPECT_EQ(parts(), (Parts{120, 80, 0, 800}));
  e_.set(now_, 1, {.min_permille = 400, .group = 1});
  e_.set(now_, 3, {.weight = 900});
  EXPECT_EQ(parts(), (Parts{0, 400, 0, 600}));
  // A group in a group, and moved to the root again.
  e_.set_busy(now_, 2, true);
  e_.set(now_, 1, {.group = 1}), e_.set(now_, 3, {});
  e_.set_group(now_, 2, {.parent = 1, .min_permille = 300});
  EXPECT_EQ(parts(), (Parts{100, 100, 300, 500}));
  e_.set_group(now_, 2, {});
  e_.set_group(now_, 1, {}), e_.set(now_, 0, {.group = 1});  // no limits any more
  EXPECT_EQ(parts(), (Parts{167, 167, 333, 333}));
}

// Each part is within its bounds, and those that are not at a bound have parts like their weights.
TEST_F(EntitlementsTest, RandomLimitsAreKept) {
  std::mt19937_64 r(7);
  for (uint32_t v = 0; v < 12; ++v) add({});
  for (int round = 0; round < 300; ++round) {
    std::vector<VgpuShare> shares(count_);
    double most = 0;
    for (uint32_t v = 0; v < count_; ++v) {
      VgpuShare& s = shares[v];
      s.weight = 1 + r() % 1000;
      s.min_permille = r() % 4 ? 0 : r() % 80;  // 12 of these come to less than 1000
      s.max_permille = r() % 2 ? 0 : s.min_permille + 1 + r() % 200;
      most += s.max_permille ? s.max_permille : 1000;
      e_.set(now_, v, s);
    }
    const Parts got = parts();
    if (most < 1000) continue;
    double low = 1e9, high = 0;  // the part of a unit of weight, of those with more and with less
    for (uint32_t v = 0; v < count_; ++v) {
      const VgpuShare& s = shares[v];
      const int min = static_cast<int>(s.min_permille),
                max = s.max_permille ? static_cast<int>(s.max_permille) : 1000;
      EXPECT_GE(got[v] + 1, min) << round;
      EXPECT_LE(got[v] - 1, max) << round;
      if (got[v] + 1 < max) low = std::min(low, (got[v] + 1.0) / s.weight);
      if (got[v] - 1 > min) high = std::max(high, (got[v] - 1.0) / s.weight);
    }
    EXPECT_LE(high, low) << round;
  }
}

}  // namespace
}  // namespace sluice::core
