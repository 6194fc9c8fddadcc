// SPDX-License-Identifier: Apache-2.0
// ControlPool: zeroed launch control blocks (abi/preempt.h) in the device memory of one context.
//
// Blocks come in pages of 64; a page whose blocks have all been used and given back is zeroed as a
// whole by a copy of zeros (the copy engine's work: a fill would be a kernel and wait behind the
// very launches that fill the GPU), and is used again when that has been done. Owned by its
// ContextObject, used under the session's lock. The context must be current.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "abi/preempt.h"
#include "mediator/base/sm_set.h"
#include "mediator/gpu/driver_api.h"

namespace sluice::worker {

class ControlPool {
 public:
  static constexpr uint32_t kBlocksPerPage = 64;
  // Launches of one context in the driver's queues at once, at most kMaxPages * 64. More would need
  // more device memory (32 KiB a page) that no guest is charged for.
  static constexpr uint32_t kMaxPages = 128;

  struct Block {
    CUdeviceptr address = 0;  // 0: none
    uint32_t page = 0;
    ControlPool* pool = nullptr;
  };

  // `zeros`: kPageBytes of zeros that the GPU can copy from, valid as long as the pool.
  ControlPool(const gpu::DriverApi& api, CUstream transfers, const void* zeros)
      : api_(api), transfers_(transfers), zeros_(zeros) {}

  // Makes the first pages, so that the first launches need not. Waits for them.
  CUresult prepare(uint32_t pages);
  // A zeroed block. May wait for a page to be zeroed. CUDA_ERROR_OUT_OF_MEMORY if all blocks are in
  // use.
  CUresult take(Block* block);
  // The launch is done and no physical launch names the block any more.
  void give_back(const Block& block);
  // The context is gone or broken: blocks that still come back are ignored.
  void abandon() { abandoned_ = true; }

  static constexpr size_t kPageBytes = kBlocksPerPage * sizeof(sluice_launch_control);

 private:
  struct Page {
    CUdeviceptr base = 0;
    CUevent zeroed = nullptr;
    bool zeroing = false;
    uint32_t next = 0;  // first block not handed out
    uint32_t live = 0;  // handed out and not back
  };
  CUresult add_page();
  CUresult zero(Page& page);
  bool usable(Page& page, bool wait, CUresult* error);

  const gpu::DriverApi& api_;
  CUstream transfers_;
  const void* zeros_;
  std::vector<Page> pages_;
  uint32_t current_ = 0;
  bool abandoned_ = false;
};

// LeftPool: left-over lists (sluice_launch_left), one for each stream that launches clones. They
// come zeroed, in slabs; a list that comes back is zero again but for barred SMs, because the
// launches of its stream are done.
//
// Owned by its ContextObject, used under the session's lock. The context must be current.
class LeftPool {
 public:
  // Lists of one context at once. Each takes `slots` * 8 bytes (some 70 or 140 KiB on a large GPU),
  // which its stream is charged for; a stream beyond cannot launch.
  static constexpr uint32_t kMaxLists = 4096;
  static constexpr uint32_t kSlabLists = 8;

  // `slots`: workers of two grids. `zeros`: `zero_bytes` of zeros that the GPU can copy from.
  LeftPool(const gpu::DriverApi& api, CUstream transfers, const void* zeros, size_t zero_bytes,
           uint32_t slots)
      : api_(api), transfers_(transfers), zeros_(zeros), zero_bytes_(zero_bytes), slots_(slots) {}

  // A list, zeroed but for SMs that are barred in it. Now and then makes a slab, and waits for it.
  CUresult take(CUdeviceptr* list, SmSet* barred);
  void give_back(CUdeviceptr list, const SmSet& barred) { free_.push_back({list, barred}); }
  uint32_t slots() const { return slots_; }
  uint64_t list_bytes() const { return (SLUICE_LEFT_BYTES(slots_) + 127) & ~uint64_t{127}; }

 private:
  const gpu::DriverApi& api_;
  CUstream transfers_;
  const void* zeros_;
  size_t zero_bytes_;
  uint32_t slots_;
  uint32_t made_ = 0;
  struct Free {
    CUdeviceptr list;
    SmSet barred;
  };
  std::vector<Free> free_;
};

// StatePool: what the blocks of resumable launches save (sluice_resume_state), device memory of one
// context. A launch keeps its piece until it is done; pieces are used again, never given back to
// the driver, because that would wait for the GPU.
//
// Owned by its ContextObject, used under the session's lock. The context must be current.
class StatePool {
 public:
  // Of one context, all launches together.
  static constexpr uint64_t kMaxBytes = uint64_t{64} << 20;

  struct Piece {
    CUdeviceptr address = 0;  // 0: none
    uint64_t bytes = 0;
    StatePool* pool = nullptr;
  };
  // `pay`: charges this many bytes more, for good; false: they are not there.
  StatePool(const gpu::DriverApi& api, std::function<bool(uint64_t bytes)> pay)
      : api_(api), pay_(std::move(pay)) {}

  // At least `bytes`, not cleared. Nothing where there is no more: the launch then runs as it is.
  Piece take(uint64_t bytes);
  void give_back(const Piece& piece) { free_.push_back(piece); }

 private:
  const gpu::DriverApi& api_;
  std::function<bool(uint64_t bytes)> pay_;
  uint64_t made_ = 0;
  std::vector<Piece> free_;
};

}  // namespace sluice::worker
