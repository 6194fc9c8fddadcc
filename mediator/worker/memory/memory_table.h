// SPDX-License-Identifier: Apache-2.0
// MemoryTable: the memory that a session's guest may name in a call. Everything else is refused:
// under unified addressing any other address could be the worker's own memory.
//
//   allocations   device memory of cuMemAlloc, and the variables of modules
//   mappings      device memory of cuMemMap
//   extents       ranges of the channel's region that sluiced has lent to the session
//   shared        which allocations other programs may open, and which are others'
//
// What is freed in stream order is named no more, but still there (`freed`).
//
// Owned by the WorkerSession, used under its lock. Offsets and lengths are bytes. Every address,
// offset and length is the guest's and may be anything. Calls no driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "mediator/base/virtual_ranges.h"
#include "mediator/core/allocations.h"
#include "mediator/worker/memory/freed_memory.h"
#include "mediator/worker/memory/shared_memory.h"

namespace sluice::worker {

struct MemoryObject;

class MemoryTable {
 public:
  AllocationMap allocations;
  VirtualRanges<std::shared_ptr<MemoryObject>> mappings;
  SharedMemory shared;
  FreedMemory freed;

  // An extent that sluiced has lent.
  void add_extent(uint64_t offset, uint64_t bytes) { extents_[offset] = bytes; }
  // False, and nothing changed: no extent begins there and has this length.
  bool remove_extent(uint64_t guest_offset, uint64_t guest_bytes);
  std::vector<std::pair<uint64_t, uint64_t>> extents() const {
    return {extents_.begin(), extents_.end()};
  }

  // The range lies in one extent. A range of no bytes: its offset does.
  bool owns_region(uint64_t guest_offset, uint64_t guest_bytes) const;
  // The range lies in one allocation, in mappings, or in an extent, by the address that the region
  // has in every process.
  bool owns_range(uint64_t guest_address, uint64_t guest_bytes) const;
  // The same of `rows` rows of `width` bytes, `pitch` bytes apart.
  bool owns_rows(uint64_t guest_address, uint64_t width, uint64_t pitch, uint64_t rows) const;
  // Of the allocations and mappings that the first kParamWords words of a launch's parameters point
  // into: how large its input is, as far as that shows. One counts as often as it is named.
  uint64_t bytes_behind(std::span<const std::byte> guest_params) const;
  static constexpr size_t kParamWords = 16;  // each is a search; more would slow every launch

 private:
  std::map<uint64_t, uint64_t> extents_;  // offset -> bytes
};

}  // namespace sluice::worker
