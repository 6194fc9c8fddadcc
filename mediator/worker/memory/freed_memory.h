// SPDX-License-Identifier: Apache-2.0
// FreedMemory: device memory that a program gave back in the order of a stream (cuMemFreeAsync),
// and that the driver still has. Its next allocations of that size take it from here: the driver's
// own free waits until the GPU is idle, and a loop of allocations and launches would wait each
// time.
//
//   state     it means                                    who may take it    leaves for
//   kQueued   its stream has not come to the free yet     the same stream    kPassed
//   kPassed   nothing that uses it is queued any more     every stream       the driver's free
//
// A block is taken for sizes down to 7/8 of its own. It stays charged to the vGPU, so it goes back
// to the driver when it was not taken for kKeptNs, or when memory runs out, and all blocks together
// are at most a part of what the vGPU may have (WorkerSession::keep_freed).
//
// Owned by the WorkerSession, used under its lock. Calls no driver, reads no clock. An owner is a
// context's handle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "mediator/core/allocations.h"

namespace sluice::worker {

class FreedMemory {
 public:
  // Shorter: programs that pause between their rounds allocate anew; longer: other programs of the
  // vGPU find less memory for longer.
  static constexpr uint64_t kKeptNs = 100'000'000;

  // At once. More: a search in one size gets longer.
  static constexpr size_t kMost = 1024;

  // Names a block for passed(). 0, and nothing is kept: there are too many.
  uint64_t add(const Allocation& freed, uint32_t stream, uint64_t now_ns);
  // The stream has come to the free. Nothing if the block was taken meanwhile.
  void passed(uint64_t block);
  // A block for an allocation of `owner` in the order of `stream`: its address and charge, and
  // `bytes`.
  std::optional<Allocation> take(uint64_t owner, uint32_t stream, uint64_t bytes);

  // Takes out the blocks in kPassed that were freed at least this long ago.
  std::vector<Allocation> take_passed(uint64_t now_ns, uint64_t age_ns = 0);
  bool has_passed() const;
  // Takes out whatever is the owner's, which is gone.
  std::vector<Allocation> remove_owner(uint64_t owner);

  uint64_t charged_bytes() const { return charged_; }
  bool empty() const { return blocks_.empty(); }

 private:
  struct Block {
    Allocation allocation;
    uint32_t stream;
    bool passed;
    uint64_t freed_ns;
  };
  using Blocks = std::map<uint64_t, Block>;
  template <class Which>
  std::vector<Allocation> take_if(Which which);
  Blocks::iterator erase(Blocks::iterator block);

  Blocks blocks_;  // by name: the oldest first
  std::multimap<uint64_t, uint64_t> by_bytes_;
  uint64_t next_ = 1, charged_ = 0;
};

}  // namespace sluice::worker
