// SPDX-License-Identifier: Apache-2.0
// One lane's access to memory, checked: for the instructions whose addresses follow no pattern
// worth a fast path (matrices, memory barriers, asynchronous copies). Internal to kernels/exec; the
// thread in Block::run. ops_mem.cc has the fast paths.
#pragma once

#include <cstdint>

#include "kernels/exec/block/warp.h"
#include "kernels/exec/program/inst.h"

namespace sluice::exec::detail {

struct LaneAccess {
  uint32_t space = kSpaceGeneric;  // kSpace...
  uint32_t bytes = 0;
  uint32_t align = 1;
  bool write = false;
};

// The host address of one lane's access, or 0 with the warp's fault set.
uint64_t resolve_lane_access(Warp& warp, const LaneAccess& access, uint64_t address, uint32_t lane);

// A 32- or 64-bit source operand of one lane.
inline uint32_t lane_u32(const Warp& w, uint32_t operand, uint32_t lane) {
  const uint8_t* base = (operand & kConstBit) != 0 ? w.consts : w.regs;
  return reinterpret_cast<const uint32_t*>(base + (operand & ~kConstBit))[lane];
}
inline uint64_t lane_u64(const Warp& w, uint32_t operand, uint32_t lane) {
  const uint8_t* base = (operand & kConstBit) != 0 ? w.consts : w.regs;
  return reinterpret_cast<const uint64_t*>(base + (operand & ~kConstBit))[lane];
}
inline void set_lane_u32(Warp& w, uint32_t operand, uint32_t lane, uint32_t value) {
  reinterpret_cast<uint32_t*>(w.regs + operand)[lane] = value;
}
inline void set_lane_u64(Warp& w, uint32_t operand, uint32_t lane, uint64_t value) {
  reinterpret_cast<uint64_t*>(w.regs + operand)[lane] = value;
}
// An address operand, whose register may be 32 bits wide.
inline uint64_t lane_address(const Warp& w, uint32_t operand, bool narrow, uint32_t lane) {
  return narrow ? lane_u32(w, operand, lane) : lane_u64(w, operand, lane);
}

}  // namespace sluice::exec::detail
