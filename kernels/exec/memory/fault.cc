// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/memory/fault.h"

namespace sluice::exec {

const char* to_string(FaultKind kind) {
  switch (kind) {
    case FaultKind::kNone:
      return "no fault";
    case FaultKind::kOutOfBounds:
      return "address outside all allocations";
    case FaultKind::kReadOnly:
      return "write to read-only memory";
    case FaultKind::kMisaligned:
      return "misaligned address";
    case FaultKind::kSharedBounds:
      return "address beyond the block's shared memory";
    case FaultKind::kNoBlock:
      return "shared memory of a block that is not there";
    case FaultKind::kOthersShared:
      return "shared memory of another block";
    case FaultKind::kLocalBounds:
      return "address beyond the thread's local memory";
    case FaultKind::kStackOverflow:
      return "stack overflow";
    case FaultKind::kWrongSpace:
      return "operation not allowed on this state space";
    case FaultKind::kTrap:
      return "trap";
    case FaultKind::kAssert:
      return "assertion failed";
    case FaultKind::kBadFree:
      return "invalid free";
    case FaultKind::kDeadlock:
      return "deadlock in the block";
    case FaultKind::kBadBarrier:
      return "bad barrier number or thread count, or a barrier in memory made twice or not at all";
    case FaultKind::kBadRegisters:
      return "setmaxnreg that takes away where it should give, or the other way round";
    case FaultKind::kBadTensorMap:
      return "copy by what is no tensor map for it";
    case FaultKind::kBadCall:
      return "indirect jump or call to nowhere";
  }
  return "unknown fault";
}

std::string hex(uint64_t value) {
  std::string text = "0x";
  bool begun = false;
  for (int shift = 60; shift >= 0; shift -= 4) {
    const uint64_t digit = value >> shift & 15;
    begun = begun || digit != 0 || shift == 0;
    if (begun) text += "0123456789abcdef"[digit];
  }
  return text;
}

std::string Fault::describe() const {
  const auto dim = [](Dim3 d) {
    std::string text("(");
    return text.append(std::to_string(d.x))
        .append(",")
        .append(std::to_string(d.y))
        .append(",")
        .append(std::to_string(d.z))
        .append(")");
  };
  std::string text = std::string(to_string(kind)) + " in " + kernel + " at PTX line " +
                     std::to_string(line) + ", block " + dim(block) + ", thread " + dim(thread);
  if (bytes != 0) {
    char digits[32];
    int n = 0;
    for (int shift = 60; shift >= 0; shift -= 4)
      digits[n++] = "0123456789abcdef"[(address >> shift) & 15];
    text += ", " + std::to_string(bytes) + " bytes at 0x" + std::string(digits, 16);
    if (!space.empty()) text += " (" + space + ")";
  }
  if (!detail.empty()) text += ": " + detail;
  return text;
}

}  // namespace sluice::exec
