// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/ops/lane_memory.h"

#include "kernels/exec/block/block.h"
#include "kernels/exec/block/block_state.h"
#include "kernels/exec/checker/checker_block.h"

namespace sluice::exec::detail {

const BlockState* owner_of(const BlockState& block, uint64_t inside) {
  const uint64_t place = inside >> kRankShift;
  if (place == 0) return &block;
  if (block.cluster.empty()) return place == 1 ? &block : nullptr;
  return place <= block.cluster.size() ? block.cluster[place - 1] : nullptr;
}

uint64_t find_shared(const BlockState& block, uint32_t space, uint64_t inside, uint32_t bytes) {
  const BlockState* const owner = owner_of(block, inside);
  if (owner == nullptr || owner->ended || (space == kSpaceShared && owner != &block)) return 0;
  const uint64_t offset = inside & (kRankStride - 1);
  if (offset >= kReservedShared && offset <= kReservedShared + kReservedSharedBytes - bytes)
    return reinterpret_cast<uint64_t>(owner->reserved_shared) + (offset - kReservedShared);
  if (owner->shared_bytes < bytes || offset > owner->shared_bytes - bytes) return 0;
  return reinterpret_cast<uint64_t>(owner->shared) + offset;
}

FaultKind shared_fault(const BlockState& block, uint32_t space, uint64_t inside) {
  const BlockState* const owner = owner_of(block, inside);
  if (space == kSpaceShared)
    return owner == nullptr || owner == &block ? FaultKind::kSharedBounds
                                               : FaultKind::kOthersShared;
  return owner == nullptr || owner->ended ? FaultKind::kNoBlock : FaultKind::kSharedBounds;
}

uint64_t resolve_lane_access(Warp& w, const LaneAccess& at, uint64_t address, uint32_t lane) {
  if ((address & (at.align - 1)) != 0) {
    w.fault(FaultKind::kMisaligned, lane, address, at.bytes);
    return 0;
  }
  uint32_t space = at.space;
  uint64_t inside = address;
  if (space == kSpaceGeneric) {
    const uint64_t window = address & ~(kWindowBytes - 1);
    space = window == kSharedWindow  ? kSpaceCluster
            : window == kLocalWindow ? kSpaceLocal
            : window == kParamWindow ? kSpaceParam
                                     : kSpaceGlobal;
    if (space != kSpaceGlobal) inside = address & (kWindowBytes - 1);
  }
  const BlockState& block = *w.block;
  uint64_t base = 0, size = 0;
  FaultKind out = FaultKind::kOutOfBounds;
  switch (space) {
    case kSpaceGlobal: {
      CachedRange cached;
      const uint64_t p =
          address >= kSharedWindow ? 0 : find_global(w, address, at.bytes, at.write, cached);
      if (p == 0) {
        CachedRange other;
        const bool readable = at.write && address < kSharedWindow &&
                              find_global(w, address, at.bytes, false, other) != 0;
        w.fault(readable ? FaultKind::kReadOnly : FaultKind::kOutOfBounds, lane, address, at.bytes);
      }
      if (p != 0 && block.checker != nullptr)
        block.checker->lane_access(w, space, address, at.bytes, at.write, lane);
      return p;
    }
    case kSpaceShared:
    case kSpaceCluster: {
      const uint64_t host = find_shared(block, space, inside, at.bytes);
      if (host == 0) {
        w.fault(shared_fault(block, space, inside), lane, address, at.bytes);
      } else if (block.checker != nullptr) {
        block.checker->lane_access(w, space, inside, at.bytes, at.write, lane);
      }
      return host;
    }
    case kSpaceLocal:
      base = reinterpret_cast<uint64_t>(w.local) + uint64_t{lane} * block.local_bytes;
      size = block.local_bytes;
      out = FaultKind::kLocalBounds;
      break;
    default:
      if (at.write) {
        w.fault(FaultKind::kWrongSpace, lane, address, at.bytes);
        return 0;
      }
      base = reinterpret_cast<uint64_t>(block.params);
      size = block.param_bytes;
      break;
  }
  if (size < at.bytes || inside > size - at.bytes) {
    w.fault(out, lane, address, at.bytes);
    return 0;
  }
  if (block.checker != nullptr)
    block.checker->lane_access(w, space, inside, at.bytes, at.write, lane);
  return base + inside;
}

}  // namespace sluice::exec::detail
