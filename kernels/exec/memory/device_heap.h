// SPDX-License-Identifier: Apache-2.0
// DeviceHeap: what malloc and free in kernels give and take. One per context, as in CUDA: what a
// kernel has allocated stays until a kernel frees it or the context ends, whichever kernel that is,
// and is no allocation of the driver API's. Its memory is one piece, mapped with the first malloc
// and visible in the MemoryMap as a whole; the books are kept outside of it, so that no kernel can
// spoil them.
//
// Threads: all members from any thread. Does not: share memory between contexts, return memory to
// the system before its end.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>

#include "kernels/exec/memory/memory_map.h"

namespace sluice::exec {

inline constexpr uint64_t kDefaultHeapBytes = 8ull << 20;  // CUDA's own default

class DeviceHeap {
 public:
  // `map` must outlive the heap.
  explicit DeviceHeap(MemoryMap& map, uint64_t bytes = kDefaultHeapBytes)
      : map_(map), capacity_(bytes) {}
  ~DeviceHeap();
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;

  // False: memory has been handed out already, the size stays.
  bool resize(uint64_t bytes);
  // The address of `bytes` bytes, a multiple of 16; 0: there is no such piece.
  uint64_t allocate(uint64_t bytes);
  // False: `address` is not what allocate() gave, or has been freed.
  bool free(uint64_t address);
  struct Use {
    uint64_t bytes = 0, pieces = 0;
  };
  Use use() const;

 private:
  MemoryMap& map_;
  mutable std::mutex mutex_;
  uint64_t capacity_;
  uint64_t base_ = 0;  // 0: not mapped yet
  uint64_t mapped_ = 0;
  uint64_t used_ = 0;
  std::map<uint64_t, uint64_t> free_;  // address, bytes; no two are neighbours
  std::unordered_map<uint64_t, uint64_t> pieces_;
};

}  // namespace sluice::exec
