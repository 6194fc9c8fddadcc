#include "kernels/exec/memory_map.h"

#include <algorithm>
#include <mutex>

namespace sluice::exec {

Result<void> MemoryMap::add(uint64_t base, uint64_t bytes, bool writable) {
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
  ranges_.insert(next, {base, bytes, writable});
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
  ranges_.erase(found);
  version_.fetch_add(1, std::memory_order_acq_rel);
  return true;
}

MemoryRange MemoryMap::find(uint64_t address, uint64_t bytes) const {
  const std::shared_lock lock(mutex_);
  const auto next =
      std::upper_bound(ranges_.begin(), ranges_.end(), address,
                       [](uint64_t value, const MemoryRange& range) { return value < range.base; });
  if (next == ranges_.begin()) return {0, 0, false};
  const MemoryRange& range = *std::prev(next);
  if (bytes > range.bytes || address - range.base > range.bytes - bytes) return {0, 0, false};
  return range;
}

size_t MemoryMap::size() const {
  const std::shared_lock lock(mutex_);
  return ranges_.size();
}

}  // namespace sluice::exec
