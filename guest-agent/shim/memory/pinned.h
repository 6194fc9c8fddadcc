// SPDX-License-Identifier: Apache-2.0
// Pinned host memory: extents of the shared region, at the same address here and in the worker, so
// that a copy from or to them moves no byte between guest and host.
//
// Large requests get extents of their own; small ones share an extent. Process-wide, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "guest-agent/shim/session/worker_link.h"

namespace sluice::guest {

class PinnedMemory {
 public:
  // `bytes` > 0, zeroed the first time an extent is used. CUDA_ERROR_OUT_OF_MEMORY: the region or
  // the vGPU's limit is used up.
  CUresult allocate(WorkerLink& link, uint64_t context, size_t bytes, void** address);
  // Waits until no copy uses it any more.
  CUresult release(WorkerLink& link, uint64_t context, void* address, size_t bytes);

  // Extents as such, for what is too large for staging: `bulk` is region offset and size.
  static CUresult take_extents(WorkerLink& link, uint64_t context, uint64_t bytes,
                               sluice_bulk* bulk);
  // Waits until all that the session has queued is done.
  static CUresult give_extents(WorkerLink& link, uint64_t context, const sluice_bulk& bulk);
  // Does not wait. Until then the session has them: take_extents() waits if there are no others.
  static void give_extents_later(WorkerLink& link, uint64_t context, const sluice_bulk& bulk);

 private:
  static constexpr size_t kAlign = 512;           // as CUDA gives
  static constexpr size_t kOwnExtents = 1 << 20;  // from this size on
  struct Arena {
    uint64_t bytes = 0;
    size_t used = 0;
    std::map<uint64_t, uint64_t> free;  // offset in the region -> bytes
  };
  std::mutex mutex_;
  std::map<uint64_t, Arena> arenas_;  // by offset in the region
};

PinnedMemory& pinned_memory();

}  // namespace sluice::guest
