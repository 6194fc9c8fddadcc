// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/extents.h"

#include <cerrno>

#include "abi/channel.h"
#include "mediator/base/check.h"

namespace sluice {

constexpr uint64_t kExtent = SLUICE_EXTENT_BYTES;

ExtentMap::ExtentMap(uint64_t bulk_offset, uint64_t region_bytes) : bulk_offset_(bulk_offset) {
  SLUICE_CHECK(bulk_offset % kExtent == 0 && bulk_offset <= region_bytes);
  owners_.resize((region_bytes - bulk_offset) / kExtent, 0);
}

Result<ExtentRange> ExtentMap::allocate(Owner owner, uint64_t bytes) {
  SLUICE_CHECK(owner != 0);
  if (bytes == 0) return Error{EINVAL, "extent request of 0 bytes"};
  if (bytes > total_bytes()) return Error{ENOMEM, "more shared memory asked than the region has"};
  uint64_t count = (bytes + kExtent - 1) / kExtent;
  uint64_t run = 0;
  for (uint64_t i = 0; i < owners_.size(); ++i) {
    run = owners_[i] == 0 ? run + 1 : 0;
    if (run < count) continue;
    uint64_t first = i + 1 - count;
    for (uint64_t k = first; k <= i; ++k) owners_[k] = owner;
    used_ += count;
    return ExtentRange{bulk_offset_ + first * kExtent, count * kExtent};
  }
  return Error{ENOMEM, "no gap of that size in the vGPU's shared memory"};
}

bool ExtentMap::owns(Owner owner, uint64_t offset, uint64_t bytes) const {
  if (bytes == 0 || offset % kExtent || bytes % kExtent || offset < bulk_offset_) return false;
  uint64_t first = (offset - bulk_offset_) / kExtent;
  uint64_t count = bytes / kExtent;
  if (first >= owners_.size() || count > owners_.size() - first) return false;
  for (uint64_t i = first; i < first + count; ++i)
    if (owners_[i] != owner) return false;
  return true;
}

void ExtentMap::release(Owner owner, const ExtentRange& range) {
  SLUICE_CHECK(owner != 0 && owns(owner, range.offset, range.bytes));
  uint64_t first = (range.offset - bulk_offset_) / kExtent;
  uint64_t count = range.bytes / kExtent;
  for (uint64_t i = first; i < first + count; ++i) owners_[i] = 0;
  used_ -= count;
}

void ExtentMap::hand_over(Owner from, Owner to, const ExtentRange& range) {
  SLUICE_CHECK(from != 0 && to != 0 && owns(from, range.offset, range.bytes));
  const uint64_t first = (range.offset - bulk_offset_) / kExtent;
  for (uint64_t i = first; i < first + range.bytes / kExtent; ++i) owners_[i] = to;
}

std::vector<ExtentRange> ExtentMap::of(Owner owner) const {
  std::vector<ExtentRange> ranges;
  for (uint64_t i = 0; i < owners_.size(); ++i) {
    if (owners_[i] != owner) continue;
    uint64_t offset = bulk_offset_ + i * kExtent;
    if (!ranges.empty() && ranges.back().offset + ranges.back().bytes == offset)
      ranges.back().bytes += kExtent;
    else
      ranges.push_back({offset, kExtent});
  }
  return ranges;
}

uint64_t ExtentMap::total_bytes() const { return owners_.size() * kExtent; }
uint64_t ExtentMap::used_bytes() const { return used_ * kExtent; }

uint64_t ExtentMap::used_bytes(Owner owner) const {
  uint64_t count = 0;
  for (Owner o : owners_) count += o == owner;
  return count * kExtent;
}

}  // namespace sluice
