// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/memory/device_heap.h"

#include <sys/mman.h>

#include <iterator>

namespace sluice::exec {
namespace {

constexpr uint64_t kGranule = 16;  // what malloc promises to be aligned to
// A kernel that asks for more than this asks for more than any GPU has.
constexpr uint64_t kMaxHeapBytes = 1ull << 40;

}  // namespace

DeviceHeap::~DeviceHeap() {
  if (base_ == 0) return;
  map_.remove(base_);
  ::munmap(reinterpret_cast<void*>(base_), mapped_);
}

bool DeviceHeap::resize(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (base_ != 0) return bytes == capacity_;
  capacity_ = bytes;
  return true;
}

uint64_t DeviceHeap::allocate(uint64_t bytes) {
  if (bytes > kMaxHeapBytes) return 0;
  const uint64_t size = bytes == 0 ? kGranule : (bytes + kGranule - 1) / kGranule * kGranule;
  const std::lock_guard lock(mutex_);
  if (base_ == 0) {
    const uint64_t whole = capacity_ / kGranule * kGranule;
    if (whole == 0 || whole > kMaxHeapBytes) return 0;
    void* const pages = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return 0;
    if (!map_.add(reinterpret_cast<uint64_t>(pages), whole)) {
      ::munmap(pages, whole);
      return 0;
    }
    base_ = reinterpret_cast<uint64_t>(pages);
    mapped_ = whole;
    free_.emplace(base_, whole);
  }
  // First fit by address: frees of neighbours come together again.
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < size) continue;
    const uint64_t address = it->first, rest = it->second - size;
    free_.erase(it);
    if (rest != 0) free_.emplace(address + size, rest);
    pieces_.emplace(address, size);
    used_ += size;
    return address;
  }
  return 0;
}

bool DeviceHeap::free(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto piece = pieces_.find(address);
  if (piece == pieces_.end()) return false;
  uint64_t begin = address, size = piece->second;
  used_ -= size;
  pieces_.erase(piece);
  const auto next = free_.lower_bound(begin);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first;
      size += before->second;
      free_.erase(before);
    }
  }
  if (next != free_.end() && begin + size == next->first) {
    size += next->second;
    free_.erase(next);
  }
  free_.emplace(begin, size);
  return true;
}

DeviceHeap::Use DeviceHeap::use() const {
  const std::lock_guard lock(mutex_);
  return {used_, pieces_.size()};
}

}  // namespace sluice::exec
