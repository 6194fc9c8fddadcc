// SPDX-License-Identifier: Apache-2.0
// Warp: what an instruction handler sees of a warp, and how it answers. Internal to kernels/exec.
// One thread at a time (the one in Block::run).
#pragma once

#include <cstdint>

#include "kernels/exec/memory/fault.h"
#include "kernels/exec/program/inst.h"

namespace sluice::exec::detail {

struct BlockState;

// What the warp loop does after a handler.
enum class Flow : uint32_t {
  kNext = 0,
  kFault,    // Warp::fault_* are set
  kControl,  // the op is control flow; the loop's slow part takes it
};

inline constexpr uint32_t kRangeCacheSize = 16;

struct Warp {
  uint8_t* regs = nullptr;
  const uint8_t* consts = nullptr;
  uint32_t* preds = nullptr;
  uint32_t exec = 0;  // lanes that execute this instruction
  uint32_t live = 0;  // lanes that exist and have not exited
  uint32_t cc = 0;    // carry flag, bit = lane
  BlockState* block = nullptr;
  uint32_t index = 0;           // %warpid
  const uint32_t* tid[3] = {};  // 32 lanes each
  uint8_t* local = nullptr;     // lane 0's local memory; lanes are local_bytes apart
  // Likely polls since the warp was last switched in: strong loads and atomics that found nothing
  // new, and reads the clock.
  uint32_t spin = 0;
  uint32_t registers = 0;  // setmaxnreg's last number; 0: none yet
  bool slept = false;      // nanosleep was executed: give others a turn
  // Set with Flow::kFault.
  FaultKind fault_kind = FaultKind::kNone;
  uint32_t fault_lane = 0;
  uint32_t fault_bytes = 0;
  uint64_t fault_address = 0;
  uint64_t range_version = 0;
  CachedRange read_ranges[kRangeCacheSize], write_ranges[kRangeCacheSize];

  Flow fault(FaultKind kind, uint32_t lane, uint64_t address, uint32_t bytes) {
    fault_kind = kind;
    fault_lane = lane;
    fault_address = address;
    fault_bytes = bytes;
    return Flow::kFault;
  }
  uint32_t pred(uint32_t operand) const {
    const uint32_t value = preds[operand & ~kPredNegate];
    return (operand & kPredNegate) != 0 ? ~value : value;
  }
  void set_pred(uint32_t operand, uint32_t value) {
    uint32_t& p = preds[operand];
    p = (p & ~exec) | (value & exec);
  }
};

using Handler = Flow (*)(Warp& warp, const Inst& inst);

// The handler of each Op for the best instruction set of this machine. Chosen once.
const Handler* handlers();

}  // namespace sluice::exec::detail
