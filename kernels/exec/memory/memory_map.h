// SPDX-License-Identifier: Apache-2.0
// MemoryMap: which host addresses a kernel may touch. Device addresses are host virtual addresses
// of this process; everything not added here faults. Owned by the software GPU's context, read by
// all threads that run its blocks.
//
// Threads: all members may be called from any thread. Blocks keep small caches of ranges that are
// checked against version(), so a change is seen by the next access of a running block. remove()
// does not wait for an access that is under way: unmap the memory only after every Block::run on
// this map that had begun before remove() has returned (CUDA's free synchronises anyway).
// Does not: allocate, map or unmap anything.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <shared_mutex>
#include <string>
#include <vector>

#include "kernels/exec/memory/texture.h"
#include "mediator/base/result.h"

namespace sluice::exec {

struct MemoryRange {
  uint64_t base = 0;
  uint64_t bytes = 0;
  bool writable = true;
  // Bytes behind it that kernels may touch, too, as on a GPU, whose memory ends with a page and not
  // with an allocation.
  uint64_t room = 0;
};

class MemoryMap {
 public:
  MemoryMap() = default;
  MemoryMap(const MemoryMap&) = delete;
  MemoryMap& operator=(const MemoryMap&) = delete;

  // Error when empty, wrapping, or overlapping a range that is there.
  Result<void> add(uint64_t base, uint64_t bytes, bool writable = true, uint64_t room = 0);
  // Removes the range that begins at `base`; false when there is none.
  bool remove(uint64_t base);
  // In one step for all readers: the ranges that begin in [base, base + bytes) go, and `ranges`,
  // sorted and in there, come.
  void replace(uint64_t base, uint64_t bytes, const std::vector<MemoryRange>& ranges);
  // The range that holds [address, address + bytes), or one of 0 bytes.
  MemoryRange find(uint64_t address, uint64_t bytes) const;
  // The same for a kernel's access: the range's bytes are with its room.
  MemoryRange reach(uint64_t address, uint64_t bytes) const;
  // For people: what lies nearest to an address that no range holds, or what has been removed
  // there.
  std::string near(uint64_t address, uint64_t bytes) const;
  // Grows with each change; acquire.
  uint64_t version() const { return version_.load(std::memory_order_acquire); }
  size_t size() const;
  // The textures and surfaces whose handles kernels may use.
  TextureTable& textures() { return textures_; }
  const TextureTable& textures() const { return textures_; }

 private:
  MemoryRange last_before(uint64_t address) const;  // or one of 0 bytes

  TextureTable textures_;
  mutable std::shared_mutex mutex_;
  std::vector<MemoryRange> ranges_;  // sorted by base
  std::deque<MemoryRange> removed_;  // the latest, for near()
  std::atomic<uint64_t> version_{1};
};

}  // namespace sluice::exec
