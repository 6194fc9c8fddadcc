// SPDX-License-Identifier: Apache-2.0
// The memory operations: X(name, (handler)); see ops_int.h. The space is in Inst::mod (kSpace...).
#pragma once

// clang-format off
#define SLUICE_EXEC_LD(X, n, N) \
  X(ld##n##_u8, (load<u8, N>)) \
  X(ld##n##_s8, (load<s8, N>)) \
  X(ld##n##_u16, (load<u16, N>)) \
  X(ld##n##_s16, (load<s16, N>)) \
  X(ld##n##_b32, (load<u32, N>)) \
  X(ld##n##_b64, (load<u64, N>)) \
  X(st##n##_u8, (store<u8, N>)) \
  X(st##n##_u16, (store<u16, N>)) \
  X(st##n##_b32, (store<u32, N>)) \
  X(st##n##_b64, (store<u64, N>))

#define SLUICE_EXEC_MEM_OPS(X) \
  SLUICE_EXEC_LD(X, , 1) \
  SLUICE_EXEC_LD(X, v2, 2) \
  SLUICE_EXEC_LD(X, v4, 4) \
  X(cpasync, (copy_async)) \
  X(fence, (fence))
// clang-format on
