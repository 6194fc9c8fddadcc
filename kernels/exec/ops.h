// Op: every decoded operation. Internal to kernels/exec.
#pragma once

#include <cstdint>

#include "kernels/exec/ops_control.h"
#include "kernels/exec/ops_float.h"
#include "kernels/exec/ops_int.h"
#include "kernels/exec/ops_mem.h"

namespace sluice::exec::detail {

#define SLUICE_EXEC_ENUM(name, handler) k_##name,
#define SLUICE_EXEC_ENUM1(name) k_##name,
enum class Op : uint16_t {
  SLUICE_EXEC_INT_OPS(SLUICE_EXEC_ENUM)
  SLUICE_EXEC_FLOAT_OPS(SLUICE_EXEC_ENUM)
  SLUICE_EXEC_MEM_OPS(SLUICE_EXEC_ENUM)
  SLUICE_EXEC_CONTROL_OPS(SLUICE_EXEC_ENUM1)
  kCount
};
#undef SLUICE_EXEC_ENUM
#undef SLUICE_EXEC_ENUM1
inline constexpr uint32_t kOpCount = static_cast<uint32_t>(Op::kCount);

// The Op of that name; kCount: there is none.
Op find_op(const char* name, uint32_t length);

}  // namespace sluice::exec::detail
