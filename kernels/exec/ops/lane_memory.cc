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

namespace {

// One lane's address as the space that it is in has it.
struct InSpace {
  uint32_t space;
  uint64_t address;
  uint64_t given;  // as the program has it, for faults
  uint32_t lane;
};
InSpace in_space(uint32_t space, uint64_t address, uint32_t lane) {
  if (space != kSpaceGeneric) return {space, address, address, lane};
  const uint64_t inside = address & (kWindowBytes - 1);
  switch (address & ~(kWindowBytes - 1)) {
    case kSharedWindow:
      return {kSpaceCluster, inside, address, lane};
    case kLocalWindow:
      return {kSpaceLocal, inside, address, lane};
    case kParamWindow:
      return {kSpaceParam, inside, address, lane};
    default:
      return {kSpaceGlobal, address, address, lane};
  }
}

// Each of these: the host address, or 0 and the fault is set.
uint64_t resolve_global(Warp& w, const LaneAccess& at, const InSpace& to) {
  const auto find = [&](bool write) -> uint64_t {
    CachedRange cached;
    return to.address >= kSharedWindow ? 0 : find_global(w, to.address, at.bytes, write, cached);
  };
  const uint64_t host = find(at.write);
  if (host == 0) {
    const bool readable = at.write && find(false) != 0;
    w.fault(readable ? FaultKind::kReadOnly : FaultKind::kOutOfBounds, to.lane, to.given, at.bytes);
  }
  return host;
}
uint64_t resolve_shared(Warp& w, const LaneAccess& at, const InSpace& to) {
  const uint64_t host = find_shared(*w.block, to.space, to.address, at.bytes);
  if (host == 0) w.fault(shared_fault(*w.block, to.space, to.address), to.lane, to.given, at.bytes);
  return host;
}
uint64_t resolve_within(Warp& w, const LaneAccess& at, const InSpace& to, const uint8_t* base,
                        uint64_t size, FaultKind out) {
  if (size >= at.bytes && to.address <= size - at.bytes)
    return reinterpret_cast<uint64_t>(base) + to.address;
  w.fault(out, to.lane, to.given, at.bytes);
  return 0;
}
uint64_t resolve_space(Warp& w, const LaneAccess& at, const InSpace& to) {
  const BlockState& block = *w.block;
  switch (to.space) {
    case kSpaceGlobal:
      return resolve_global(w, at, to);
    case kSpaceShared:
    case kSpaceCluster:
      return resolve_shared(w, at, to);
    case kSpaceLocal:
      return resolve_within(w, at, to, w.local + size_t{to.lane} * block.local_bytes,
                            block.local_bytes, FaultKind::kLocalBounds);
    default:
      if (!at.write)
        return resolve_within(w, at, to, block.params, block.param_bytes, FaultKind::kOutOfBounds);
      w.fault(FaultKind::kWrongSpace, to.lane, to.given, at.bytes);
      return 0;
  }
}

}  // namespace

uint64_t resolve_lane_access(Warp& w, const LaneAccess& at, uint64_t address, uint32_t lane) {
  if ((address & (at.align - 1)) != 0) {
    w.fault(FaultKind::kMisaligned, lane, address, at.bytes);
    return 0;
  }
  const InSpace to = in_space(at.space, address, lane);
  const uint64_t host = resolve_space(w, at, to);
  if (host != 0 && w.block->checker != nullptr)
    w.block->checker->lane_access(w, to.space, to.address, at.bytes, at.write, lane);
  return host;
}

}  // namespace sluice::exec::detail
