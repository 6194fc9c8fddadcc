// SPDX-License-Identifier: Apache-2.0
// ExtentMap: properties over random sequences against a plain model.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "abi/channel.h"
#include "mediator/core/extents.h"

namespace sluice {
namespace {

constexpr uint64_t kExtent = SLUICE_EXTENT_BYTES;

TEST(Extents, RangesNeverOverlapAndComeBackWhole) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    const uint64_t bulk = 9 * kExtent, region = 64 * kExtent;
    ExtentMap map(bulk, region);
    std::map<uint64_t, std::pair<ExtentRange, uint32_t>> held;  // by offset
    for (int step = 0; step < 2000; ++step) {
      const uint32_t owner = 1 + random() % 5;
      if (random() % 2) {
        const uint64_t bytes = 1 + random() % (8 * kExtent);
        auto r = map.allocate(owner, bytes);
        if (!r) {
          EXPECT_EQ(r.error().code, ENOMEM);
          continue;
        }
        EXPECT_GE(r->bytes, bytes);
        EXPECT_LT(r->bytes, bytes + kExtent);
        EXPECT_EQ(r->offset % kExtent, 0u);
        EXPECT_GE(r->offset, bulk);
        EXPECT_LE(r->offset + r->bytes, region);
        auto next = held.lower_bound(r->offset);
        if (next != held.end()) {
          EXPECT_LE(r->offset + r->bytes, next->first);
        }
        if (next != held.begin()) {
          auto before = std::prev(next);
          EXPECT_LE(before->first + before->second.first.bytes, r->offset);
        }
        EXPECT_TRUE(map.owns(owner, r->offset, r->bytes));
        held[r->offset] = {*r, owner};
      } else if (!held.empty()) {
        auto it = std::next(held.begin(), static_cast<long>(random() % held.size()));
        const auto [range, its_owner] = it->second;
        EXPECT_FALSE(map.owns(its_owner + 1, range.offset, range.bytes));
        map.release(its_owner, range);
        EXPECT_FALSE(map.owns(its_owner, range.offset, kExtent));
        held.erase(it);
      }
      uint64_t used = 0;
      for (const auto& [offset, h] : held) used += h.first.bytes;
      ASSERT_EQ(map.used_bytes(), used);
    }
    for (uint32_t owner = 1; owner <= 5; ++owner)
      for (const ExtentRange& r : map.of(owner)) map.release(owner, r);
    EXPECT_EQ(map.used_bytes(), 0u);
    EXPECT_EQ(map.allocate(1, region - bulk)->bytes, region - bulk);
  }
}

TEST(Extents, GuestValuesAreBounded) {
  ExtentMap map(2 * kExtent, 10 * kExtent);
  auto r = map.allocate(3, 2 * kExtent);
  ASSERT_TRUE(r.ok());
  EXPECT_FALSE(map.owns(3, r->offset, 0));
  EXPECT_FALSE(map.owns(3, r->offset + 1, kExtent));
  EXPECT_FALSE(map.owns(3, r->offset, kExtent + 1));
  EXPECT_FALSE(map.owns(3, r->offset, 3 * kExtent));
  EXPECT_FALSE(map.owns(3, 0, kExtent)) << "below the bulk";
  EXPECT_FALSE(map.owns(3, 0u - kExtent, 2 * kExtent)) << "wraps";
  EXPECT_FALSE(map.owns(3, r->offset, 0u - kExtent)) << "wraps";
  EXPECT_FALSE(map.owns(3, 100 * kExtent, kExtent)) << "beyond the end";
  EXPECT_FALSE(map.allocate(3, 0).ok());
  EXPECT_FALSE(map.allocate(3, UINT64_MAX).ok());
}

}  // namespace
}  // namespace sluice
