// SPDX-License-Identifier: Apache-2.0
// ExtentMap: which 2 MiB extents of one vGPU's region belong to which session. Pure bookkeeping,
// owned by the vGPU's region in sluiced's one thread; it does not touch the memory. The caller
// punches an extent out *before* giving it back with `release`, so whatever `allocate` returns is
// zero.
#pragma once

#include <cstdint>
#include <vector>

#include "mediator/base/result.h"

namespace sluice {

// A range of the region: both in bytes, both multiples of SLUICE_EXTENT_BYTES.
struct ExtentRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  bool operator==(const ExtentRange&) const = default;
};

class ExtentMap {
 public:
  using Owner = uint32_t;  // not 0

  // Extents in [bulk_offset, region_bytes); the offset is a multiple of the extent's size, a rest
  // smaller than an extent at the end is not used.
  ExtentMap(uint64_t bulk_offset, uint64_t region_bytes);

  // `bytes` (rounded up to whole extents; 0 is refused) of adjacent extents for `owner`: first fit.
  // ENOMEM if there is no such gap.
  Result<ExtentRange> allocate(Owner owner, uint64_t bytes);

  // Whether the range is aligned, not empty, and wholly `owner`'s. For values that a worker sent.
  bool owns(Owner owner, uint64_t offset, uint64_t bytes) const;

  // Gives back a range that `owner` owns (checked: a broken invariant otherwise).
  void release(Owner owner, const ExtentRange& range);

  // Makes a range that `from` owns (checked) `to`'s: it stays in use.
  void hand_over(Owner from, Owner to, const ExtentRange& range);

  // All ranges of `owner`, adjacent extents merged, ascending.
  std::vector<ExtentRange> of(Owner owner) const;

  uint64_t total_bytes() const;
  uint64_t used_bytes() const;
  uint64_t used_bytes(Owner owner) const;

 private:
  uint64_t bulk_offset_;
  std::vector<Owner> owners_;  // 0: free
  uint64_t used_ = 0;          // extents
};

}  // namespace sluice
