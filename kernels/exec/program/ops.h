// SPDX-License-Identifier: Apache-2.0
// Op: every decoded operation. Internal to kernels/exec.
#pragma once

#include <cstdint>

#include "kernels/exec/program/ops_atomic.h"
#include "kernels/exec/program/ops_bits.h"
#include "kernels/exec/program/ops_control.h"
#include "kernels/exec/program/ops_convert.h"
#include "kernels/exec/program/ops_float.h"
#include "kernels/exec/program/ops_int.h"
#include "kernels/exec/program/ops_mem.h"
#include "kernels/exec/program/ops_move.h"
#include "kernels/exec/program/ops_rare.h"
#include "kernels/exec/program/ops_tensor.h"
#include "kernels/exec/program/plain_ops.h"

namespace sluice::exec::detail {

// All operations that have a handler.
// clang-format off
#define SLUICE_EXEC_LANE_OPS(X) \
  SLUICE_EXEC_INT_OPS(X) \
  SLUICE_EXEC_BITS_OPS(X) \
  SLUICE_EXEC_MOVE_OPS(X) \
  SLUICE_EXEC_FLOAT_OPS(X) \
  SLUICE_EXEC_CONVERT_OPS(X) \
  SLUICE_EXEC_MEM_OPS(X) \
  SLUICE_EXEC_ATOMIC_OPS(X) \
  SLUICE_EXEC_TENSOR_OPS(X) \
  SLUICE_EXEC_WARPGROUP_OPS(X) \
  SLUICE_EXEC_PLAIN_OPS(X) \
  SLUICE_EXEC_RARE_OPS(X)
// clang-format on

#define SLUICE_EXEC_ENUM(name, handler) k_##name,
#define SLUICE_EXEC_ENUM1(name) k_##name,
enum class Op : uint16_t {
  SLUICE_EXEC_LANE_OPS(SLUICE_EXEC_ENUM) SLUICE_EXEC_CONTROL_OPS(SLUICE_EXEC_ENUM1) kCount
};
#undef SLUICE_EXEC_ENUM
#undef SLUICE_EXEC_ENUM1
inline constexpr uint32_t kOpCount = static_cast<uint32_t>(Op::kCount);

#define SLUICE_EXEC_NAME_OF(name, handler) #name,
#define SLUICE_EXEC_NAME_OF1(name) #name,
inline constexpr const char* kOpNames[] = {SLUICE_EXEC_LANE_OPS(SLUICE_EXEC_NAME_OF)
                                               SLUICE_EXEC_CONTROL_OPS(SLUICE_EXEC_NAME_OF1)};
#undef SLUICE_EXEC_NAME_OF
#undef SLUICE_EXEC_NAME_OF1
static_assert(sizeof(kOpNames) / sizeof(kOpNames[0]) == kOpCount);

// The Op of that name; kCount: there is none.
Op find_op(const char* name, uint32_t length);

}  // namespace sluice::exec::detail
