// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/allocations.h"

#include <iterator>

namespace sluice {

std::optional<uint64_t> rows_span(uint64_t width, uint64_t pitch, uint64_t rows) {
  if (rows == 0 || width == 0) return 0;
  if (rows == 1) return width;
  if (width > pitch) return std::nullopt;
  uint64_t span;
  if (__builtin_mul_overflow(pitch, rows - 1, &span)) return std::nullopt;
  if (__builtin_add_overflow(span, width, &span)) return std::nullopt;
  return span;
}

bool AllocationMap::add(const Allocation& a) {
  uint64_t end;
  if (a.bytes == 0 || __builtin_add_overflow(a.address, a.bytes, &end)) return false;
  auto next = by_address_.lower_bound(a.address);
  if (next != by_address_.end() && next->first < end) {
    const Allocation& there = next->second;
    return there.address == a.address && there.bytes == a.bytes && there.owner == a.owner &&
           there.charged_bytes == 0 && a.charged_bytes == 0;
  }
  if (next != by_address_.begin()) {
    const Allocation& before = std::prev(next)->second;
    if (before.address + before.bytes > a.address) return false;
  }
  if (by_address_.size() >= kMost) return false;
  by_address_.emplace_hint(next, a.address, a);
  charged_ += a.charged_bytes;
  return true;
}

std::optional<Allocation> AllocationMap::remove(uint64_t guest_address) {
  auto it = by_address_.find(guest_address);
  if (it == by_address_.end() || it->second.charged_bytes == 0) return std::nullopt;
  Allocation a = it->second;
  charged_ -= a.charged_bytes;
  by_address_.erase(it);
  return a;
}

const Allocation* AllocationMap::find(uint64_t guest_address) const {
  auto it = by_address_.upper_bound(guest_address);
  if (it == by_address_.begin()) return nullptr;
  --it;
  return guest_address - it->first < it->second.bytes ? &it->second : nullptr;
}

bool AllocationMap::contains(uint64_t guest_address, uint64_t guest_bytes) const {
  const Allocation* a = find(guest_address);
  return a && guest_bytes <= a->bytes - (guest_address - a->address);
}

std::vector<Allocation> AllocationMap::remove_owner(uint64_t owner) {
  std::vector<Allocation> out;
  for (auto it = by_address_.begin(); it != by_address_.end();) {
    if (it->second.owner == owner) {
      charged_ -= it->second.charged_bytes;
      out.push_back(it->second);
      it = by_address_.erase(it);
    } else {
      ++it;
    }
  }
  return out;
}

}  // namespace sluice
