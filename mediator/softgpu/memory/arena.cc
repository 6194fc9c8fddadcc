// SPDX-License-Identifier: Apache-2.0
#include "mediator/softgpu/memory/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "mediator/base/check.h"

namespace sluice::softgpu {
namespace {
constexpr uint64_t kAddressFactor = 4;

uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }
}  // namespace

Result<void> Arena::make(uint64_t memory_bytes, Arena& arena) {
  const uint64_t bytes = round_up(memory_bytes, kGranule) * kAddressFactor;
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return Error::from_errno("reserving addresses for device memory");
  ::madvise(p, bytes, MADV_DONTDUMP);
  arena.base_ = reinterpret_cast<uint64_t>(p);
  arena.bytes_ = bytes;
  arena.next_ = arena.base_;
  arena.free_.emplace(arena.base_, bytes);
  return {};
}

Arena::~Arena() {
  if (bytes_ != 0) ::munmap(reinterpret_cast<void*>(base_), bytes_);
}

uint64_t Arena::allocate(uint64_t bytes) {
  if (bytes == 0 || bytes > bytes_) return 0;
  const uint64_t need = round_up(bytes, kGranule) + kGranule;
  std::lock_guard guard(mutex_);
  // From where the last search ended: first in the middle of the piece there, then piece by piece.
  auto it = free_.upper_bound(next_);
  uint64_t base = 0;
  if (it != free_.begin()) {
    const auto here = std::prev(it);
    if (next_ + need <= here->first + here->second) {
      base = next_;
      it = here;
    }
  }
  if (base == 0) {
    const auto start = it;
    const auto large_enough = [&](const auto& piece) { return piece.second >= need; };
    it = std::find_if(start, free_.end(), large_enough);
    if (it == free_.end()) {
      it = std::find_if(free_.begin(), start, large_enough);
      if (it == start) return 0;
    }
    base = it->first;
  }
  const uint64_t front = base - it->first, back = it->first + it->second - (base + need);
  if (front == 0) {
    free_.erase(it);
  } else {
    it->second = front;
  }
  if (back != 0) free_.emplace(base + need, back);
  used_.emplace(base, need);
  next_ = base + need;
  return base;
}

void Arena::free(uint64_t base) {
  std::lock_guard guard(mutex_);
  const auto it = used_.find(base);
  SLUICE_CHECK(it != used_.end());
  uint64_t bytes = it->second;
  used_.erase(it);
  const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t first = round_up(base, page), last = (base + bytes) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  auto next = free_.lower_bound(base);
  if (next != free_.end() && base + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == base) {
      previous->second += bytes;
      return;
    }
  }
  free_.emplace(base, bytes);
}

}  // namespace sluice::softgpu
