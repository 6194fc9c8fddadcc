// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/memory/memory_map.h"

#include <algorithm>
#include <mutex>

#include "kernels/exec/memory/fault.h"

namespace sluice::exec {
namespace {

// How many removed ranges are remembered to explain a fault; nothing else depends on it.
constexpr size_t kRemembered = 256;

std::string describe(const MemoryRange& range) {
  return "the " + std::to_string(range.bytes) + " bytes at " + hex(range.base);
}

}  // namespace

Result<void> MemoryMap::add(uint64_t base, uint64_t bytes, bool writable, uint64_t room) {
  if (bytes == 0 || base + bytes < base) return Error{0, "empty or wrapping memory range"};
  const std::unique_lock lock(mutex_);
  const auto next =
      std::lower_bound(ranges_.begin(), ranges_.end(), base,
                       [](const MemoryRange& range, uint64_t value) { return range.base < value; });
  if (next != ranges_.end() && next->base < base + bytes)
    return Error{0, "memory range overlaps another"};
  if (next != ranges_.begin()) {
    const MemoryRange& before = *std::prev(next);
    if (before.base + before.bytes > base) return Error{0, "memory range overlaps another"};
  }
  ranges_.insert(next, {base, bytes, writable, room});
  // No need to tell running blocks of what is new, but one that has met the old use of these
  // addresses must look again.
  version_.fetch_add(1, std::memory_order_acq_rel);
  return {};
}

bool MemoryMap::remove(uint64_t base) {
  const std::unique_lock lock(mutex_);
  const auto found =
      std::lower_bound(ranges_.begin(), ranges_.end(), base,
                       [](const MemoryRange& range, uint64_t value) { return range.base < value; });
  if (found == ranges_.end() || found->base != base) return false;
  removed_.push_back(*found);
  if (removed_.size() > kRemembered) removed_.pop_front();
  ranges_.erase(found);
  version_.fetch_add(1, std::memory_order_acq_rel);
  return true;
}

void MemoryMap::replace(uint64_t base, uint64_t bytes, const std::vector<MemoryRange>& ranges) {
  const std::unique_lock lock(mutex_);
  const auto below = [](const MemoryRange& range, uint64_t value) { return range.base < value; };
  const auto first = std::lower_bound(ranges_.begin(), ranges_.end(), base, below);
  const auto last = std::lower_bound(first, ranges_.end(), base + bytes, below);
  ranges_.insert(ranges_.erase(first, last), ranges.begin(), ranges.end());
  version_.fetch_add(1, std::memory_order_acq_rel);
}

MemoryRange MemoryMap::last_before(uint64_t address) const {
  const std::shared_lock lock(mutex_);
  const auto next =
      std::upper_bound(ranges_.begin(), ranges_.end(), address,
                       [](uint64_t value, const MemoryRange& range) { return value < range.base; });
  return next == ranges_.begin() ? MemoryRange{0, 0, false} : *std::prev(next);
}

MemoryRange MemoryMap::find(uint64_t address, uint64_t bytes) const {
  const MemoryRange range = last_before(address);
  if (bytes > range.bytes || address - range.base > range.bytes - bytes) return {0, 0, false};
  return range;
}

MemoryRange MemoryMap::reach(uint64_t address, uint64_t bytes) const {
  MemoryRange range = last_before(address);
  range.bytes += range.room;
  if (bytes > range.bytes || address - range.base > range.bytes - bytes) return {0, 0, false};
  return range;
}

std::string MemoryMap::near(uint64_t address, uint64_t bytes) const {
  const std::shared_lock lock(mutex_);
  for (auto it = removed_.rbegin(); it != removed_.rend(); ++it)
    if (address - it->base < it->bytes)
      return "inside " + describe(*it) + ", which have been freed";
  const auto next =
      std::upper_bound(ranges_.begin(), ranges_.end(), address,
                       [](uint64_t value, const MemoryRange& range) { return value < range.base; });
  const MemoryRange* before = next == ranges_.begin() ? nullptr : &*std::prev(next);
  const MemoryRange* after = next == ranges_.end() ? nullptr : &*next;
  if (before != nullptr && address - before->base < before->bytes)
    return "across the end of " + describe(*before);
  if (before == nullptr && after == nullptr) return "nothing is allocated";
  const uint64_t past = before == nullptr ? ~uint64_t{0} : address - before->base - before->bytes;
  const uint64_t ahead = after == nullptr ? ~uint64_t{0} : after->base - address;
  if (past <= ahead) return std::to_string(past) + " bytes after the end of " + describe(*before);
  return std::to_string(ahead) + " bytes before " + describe(*after) +
         (bytes > ahead ? ", which it reaches into" : "");
}

size_t MemoryMap::size() const {
  const std::shared_lock lock(mutex_);
  return ranges_.size();
}

}  // namespace sluice::exec
