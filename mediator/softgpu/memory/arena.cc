// SPDX-License-Identifier: Apache-2.0
#include "mediator/softgpu/memory/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "mediator/base/check.h"
#include "mediator/softgpu/memory/moving_pages.h"

namespace sluice::softgpu {
namespace {
constexpr uint64_t kAddressFactor = 4;
constexpr uint64_t kPage = 4096;

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

std::pair<uint64_t, uint64_t> Arena::pages_of(uint64_t base, uint64_t bytes) {
  const uint64_t first = base / kPage * kPage;
  return {first, round_up(base + bytes, kPage) - first};
}

// Where `need` bytes, of which `bytes` are used, lie in a free piece; 0: nowhere.
uint64_t Arena::place(uint64_t need, uint64_t bytes, uint64_t begin, uint64_t end) const {
  const bool crosses = begin / kPage != (begin + bytes - 1) / kPage;
  const uint64_t base = crosses ? round_up(begin, kPage) : begin;
  return base < end && need <= end - base ? base : 0;
}

uint64_t Arena::allocate(uint64_t bytes) {
  if (bytes == 0 || bytes > bytes_) return 0;
  uint64_t need = round_up(bytes, kGranule) + kGranule;
  if (bytes >= kPage) need = round_up(need, kPage);
  std::lock_guard guard(mutex_);
  // From where the last search ended: first in the middle of the piece there, then piece by piece.
  auto it = free_.upper_bound(next_);
  uint64_t base = 0;
  if (it != free_.begin()) {
    const auto here = std::prev(it);
    const uint64_t end = here->first + here->second;
    if (next_ < end) base = place(need, bytes, next_, end);
    if (base != 0) it = here;
  }
  const auto start = it;
  const auto fits = [&](const auto& piece) {
    base = place(need, bytes, piece.first, piece.first + piece.second);
    return base != 0;
  };
  if (base == 0) it = std::find_if(start, free_.end(), fits);
  if (base == 0) it = std::find_if(free_.begin(), start, fits);
  if (base == 0) return 0;
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
      return unshare(previous->first, base + bytes);
    }
  }
  free_.emplace(base, bytes);
  unshare(base, base + bytes);
}

Result<void> Arena::share(uint64_t base, uint64_t bytes, Fd file) {
  const auto [first, length] = pages_of(base, bytes);
  std::lock_guard guard(mutex_);
  auto moved = move_pages(reinterpret_cast<void*>(first), length, file.get(),
                          {reinterpret_cast<char*>(base_), bytes_});
  if (moved) shared_[first] = {length, std::move(file)};
  return moved;
}

int Arena::file_of(uint64_t page) const {
  std::lock_guard guard(mutex_);
  const auto it = shared_.find(page);
  return it == shared_.end() ? -1 : it->second.file.get();
}

// Pages that are free and lie in files: others may still have those.
void Arena::unshare(uint64_t begin, uint64_t end) {
  for (auto it = shared_.lower_bound(begin); it != shared_.end() && it->first < end;) {
    if (it->first + it->second.bytes > end) break;
    SLUICE_CHECK(
        ::mmap(reinterpret_cast<void*>(it->first), it->second.bytes, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED);
    it = shared_.erase(it);
  }
}

}  // namespace sluice::softgpu
