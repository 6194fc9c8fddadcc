// SPDX-License-Identifier: Apache-2.0
// VirtualRanges: reservations, mappings and access against a model.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "mediator/base/virtual_ranges.h"

namespace sluice {
namespace {

// Against a byte-by-byte model of a small address space, with ranges that may be anything.
TEST(VirtualRanges, AgreesWithAMapOfPages) {
  struct Page {
    int reservation = 0, mapping = 0, access = 0;
  };
  std::mt19937_64 random(7);
  constexpr uint64_t kPages = 24;
  VirtualRanges<int> ranges;
  std::vector<Page> model(kPages);
  std::map<int, std::pair<uint64_t, uint64_t>> reserved, mapped;
  int next = 1;
  const auto all = [&](uint64_t base, uint64_t bytes, auto&& is) {
    if (bytes == 0 || base >= kPages || bytes > kPages - base) return false;
    return std::all_of(model.begin() + static_cast<ptrdiff_t>(base),
                       model.begin() + static_cast<ptrdiff_t>(base + bytes), is);
  };
  const auto whole = [&](uint64_t base, uint64_t bytes) {
    if (!all(base, bytes, [](const Page& p) { return p.reservation != 0 && p.mapping != 0; }))
      return false;
    return mapped.at(model[base].mapping).first == base &&
           mapped.at(model[base + bytes - 1].mapping).first +
                   mapped.at(model[base + bytes - 1].mapping).second ==
               base + bytes;
  };
  const auto uncut = [&](uint64_t base, uint64_t bytes) {
    if (!all(base, bytes, [](const Page& p) { return p.reservation != 0; })) return false;
    const int first = model[base].mapping, last = model[base + bytes - 1].mapping;
    return (first == 0 || mapped.at(first).first == base) &&
           (last == 0 || mapped.at(last).first + mapped.at(last).second == base + bytes);
  };
  int done[6] = {};
  for (int step = 0; step < 60000; ++step) {
    const uint64_t base = random() % kPages, bytes = random() % 50 == 0 ? random() : random() % 5;
    const int what = static_cast<int>(random() % 6);
    bool expected = false, got = false;
    switch (what) {
      case 0:
        expected = bytes != 0 && bytes <= kPages - base;
        for (uint64_t i = base; expected && i < base + bytes; ++i)
          expected = model[i].reservation == 0;
        if (bytes != 0 && bytes < kPages && base + bytes > kPages) continue;  // beyond the model
        if (bytes >= kPages && base <= UINT64_MAX - bytes) continue;
        ASSERT_EQ(got = ranges.reserve(base, bytes), expected);
        if (got) {
          for (uint64_t i = base; i < base + bytes; ++i) model[i].reservation = next;
          reserved[next++] = {base, bytes};
        }
        break;
      case 1:
        expected = model[base].reservation != 0 &&
                   reserved.at(model[base].reservation) == std::pair(base, bytes) &&
                   all(base, bytes, [](const Page& p) { return p.mapping == 0; });
        ASSERT_EQ(got = ranges.unreserve(base, bytes), expected);
        if (got) std::fill_n(model.begin() + static_cast<ptrdiff_t>(base), bytes, Page{});
        break;
      case 2:
        // A mapping lies in one reservation.
        expected = all(base, bytes, [&](const Page& p) {
          return p.reservation != 0 && p.reservation == model[base].reservation && p.mapping == 0;
        });
        ASSERT_EQ(ranges.can_map(base, bytes), expected);
        ASSERT_EQ(got = ranges.map(base, bytes, next), expected);
        if (got) {
          for (uint64_t i = base; i < base + bytes; ++i) model[i].mapping = next;
          mapped[next++] = {base, bytes};
        }
        break;
      case 3: {
        expected = uncut(base, bytes);
        ASSERT_EQ(ranges.can_unmap(base, bytes), expected);
        auto out = ranges.unmap(base, bytes);
        ASSERT_EQ(got = out.has_value(), expected);
        if (got && random() % 2 == 0) {
          ranges.put_back(std::move(*out));
        } else if (got) {
          for (uint64_t i = base; i < base + bytes; ++i) model[i].mapping = model[i].access = 0;
        }
        break;
      }
      case 4: {
        const int access = static_cast<int>(random() % 3);
        expected = whole(base, bytes);
        ASSERT_EQ(ranges.is_whole(base, bytes), expected);
        ASSERT_EQ(got = ranges.set_access(base, bytes, access), expected);
        if (got)
          for (uint64_t i = base; i < base + bytes; ++i) model[i].access = access;
        break;
      }
      default:
        expected =
            all(base, std::max<uint64_t>(bytes, 1), [](const Page& p) { return p.access != 0; });
        ASSERT_EQ(got = ranges.contains(base, bytes), expected);
        ASSERT_EQ(ranges.is_reserved(base), model[base].reservation != 0);
        ASSERT_EQ(ranges.find(base) != nullptr, model[base].mapping != 0);
        std::vector<int> seen(kPages);
        for (const auto& [from, length] : ranges.reservations())
          ranges.for_each_run(from, [&](uint64_t at, uint64_t n, int access) {
            for (uint64_t i = at; i < at + n; ++i) seen[i] = access;
          });
        for (uint64_t i = 0; i < kPages; ++i) ASSERT_EQ(seen[i], model[i].access);
    }
    done[what] += got;
  }
  for (const int times : done) EXPECT_GT(times, 50) << "not all of it was tried";
}

}  // namespace
}  // namespace sluice
