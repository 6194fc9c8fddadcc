// SPDX-License-Identifier: Apache-2.0
#include "mediator/softgpu/grid/faults.h"

namespace sluice::softgpu {

CUresult to_result(exec::FaultKind kind) {
  using exec::FaultKind;
  switch (kind) {
    case FaultKind::kNone:
      return CUDA_SUCCESS;
    case FaultKind::kOutOfBounds:
    case FaultKind::kReadOnly:
    case FaultKind::kLocalBounds:
    case FaultKind::kSharedBounds:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case FaultKind::kNoBlock:
      return CUDA_ERROR_LAUNCH_FAILED;
    case FaultKind::kStackOverflow:
      return CUDA_ERROR_HARDWARE_STACK_ERROR;
    case FaultKind::kMisaligned:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case FaultKind::kWrongSpace:
      return CUDA_ERROR_INVALID_ADDRESS_SPACE;
    case FaultKind::kTrap:
    case FaultKind::kBadFree:
      return CUDA_ERROR_LAUNCH_FAILED;
    // A GPU would wait until somebody ends it; this is what that somebody, the watchdog, reports.
    case FaultKind::kDeadlock:
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    case FaultKind::kAssert:
      return CUDA_ERROR_ASSERT;
    case FaultKind::kBadBarrier:
    case FaultKind::kBadRegisters:
    case FaultKind::kBadTensorMap:
    case FaultKind::kOthersShared:
      return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    case FaultKind::kBadCall:
      return CUDA_ERROR_INVALID_PC;
  }
  return CUDA_ERROR_LAUNCH_FAILED;
}

}  // namespace sluice::softgpu
