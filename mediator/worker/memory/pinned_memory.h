// SPDX-License-Identifier: Apache-2.0
// PinnedMemory: what the driver has pinned for a session, so that kernels and copy engines address
// it: the stub pages (signal page, launch records), zeros that control blocks begin as copies of,
// and extents of the region. The report page is neither pinned nor mapped: no kernel can
// reach the word that reports what has left.
//
// Owned by the WorkerSession. Job thread, with a context of the session current; pinned once for
// all contexts. An extent that is not pinned still works, only slower.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>

#include "abi/stub.h"
#include "mediator/gpu/driver_api.h"
#include "mediator/worker/launch/objects.h"

namespace sluice::worker {

class PinnedMemory {
 public:
  PinnedMemory(const gpu::DriverApi& api, const sluice_signal_page* signal,
               sluice_launch_records* records, uint8_t* region)
      : api_(api),
        signal_(const_cast<sluice_signal_page*>(signal)),
        records_(records),
        region_(region) {}

  // Pins the pages unless they are, and sets where kernels of `context`, which is current, find
  // them.
  CUresult pin_pages(ContextObject& context);
  // ControlPool::kPageBytes of zeros; null before pin_pages().
  const void* zeros() const { return zeros_; }

  bool has_extent(uint64_t offset) const;
  void pin_extent(uint64_t offset, uint64_t bytes);
  // True: it was pinned; if a context is there, the caller passes it to unpin_extent().
  bool forget_extent(uint64_t offset);
  void unpin_extent(uint64_t offset) { (void)api_.cuMemHostUnregister(region_ + offset); }
  // A context goes, and with it perhaps what was pinned in it: everything has to be pinned anew,
  // which the driver refuses where it still holds.
  void forget_extents();
  void forget_pages() { pages_ = false; }

 private:
  CUresult pin(void* at, size_t bytes, unsigned how);

  const gpu::DriverApi& api_;
  sluice_signal_page* const signal_;
  sluice_launch_records* const records_;
  uint8_t* const region_;
  bool pages_ = false;
  void* zeros_ = nullptr;
  mutable std::mutex mutex_;
  std::set<uint64_t> extents_;  // offsets; under mutex_
};

}  // namespace sluice::worker
