// SPDX-License-Identifier: Apache-2.0
// The integer arithmetic operations: X(name, (handler)). The names are what decode composes from an
// instruction's words and type. Internal to kernels/exec.
#pragma once

// Rows of a table.
// clang-format off
// One operation of three equal operands for each width, or each type.
#define SLUICE_EXEC_B(X, n, F)                                                     \
  X(n##_b16, (op2<u16, u16, u16, F>)) X(n##_b32, (op2<u32, u32, u32, F>))          \
  X(n##_b64, (op2<u64, u64, u64, F>))
#define SLUICE_EXEC_US(X, n, F)                                                    \
  X(n##_u16, (op2<u16, u16, u16, F>)) X(n##_s16, (op2<s16, s16, s16, F>))          \
  X(n##_u32, (op2<u32, u32, u32, F>)) X(n##_s32, (op2<s32, s32, s32, F>))          \
  X(n##_u64, (op2<u64, u64, u64, F>)) X(n##_s64, (op2<s64, s64, s64, F>))
#define SLUICE_EXEC_US3(X, n, F)                                                   \
  X(n##_u16, (op3<u16, u16, u16, u16, F>)) X(n##_s16, (op3<s16, s16, s16, s16, F>)) \
  X(n##_u32, (op3<u32, u32, u32, u32, F>)) X(n##_s32, (op3<s32, s32, s32, s32, F>)) \
  X(n##_u64, (op3<u64, u64, u64, u64, F>)) X(n##_s64, (op3<s64, s64, s64, s64, F>))

#define SLUICE_EXEC_INT_OPS(X) \
  X(nop, (nop)) SLUICE_EXEC_B(X, add, Add) SLUICE_EXEC_B(X, sub, Sub) \
  SLUICE_EXEC_B(X, mullo, MulLo) SLUICE_EXEC_US(X, mulhi, MulHi) SLUICE_EXEC_US(X, min, Min) \
  SLUICE_EXEC_US(X, max, Max) SLUICE_EXEC_US(X, div, Div) SLUICE_EXEC_US(X, rem, Rem) \
  X(mulwide_u16, (op2<u32, u16, u16, MulWide<u32>>)) \
  X(mulwide_s16, (op2<s32, s16, s16, MulWide<s32>>)) \
  X(mulwide_u32, (op2<u64, u32, u32, MulWide<u64>>)) \
  X(mulwide_s32, (op2<s64, s32, s32, MulWide<s64>>)) \
  X(madwide_u16, (op3<u32, u16, u16, u32, MadWide<u32>>)) \
  X(madwide_s16, (op3<s32, s16, s16, s32, MadWide<s32>>)) \
  X(madwide_u32, (op3<u64, u32, u32, u64, MadWide<u64>>)) \
  X(madwide_s32, (op3<s64, s32, s32, s64, MadWide<s64>>)) \
  X(madlo_b16, (op3<u16, u16, u16, u16, MadLo>)) X(madlo_b32, (op3<u32, u32, u32, u32, MadLo>)) \
  X(madlo_b64, (op3<u64, u64, u64, u64, MadLo>)) SLUICE_EXEC_US3(X, madhi, MadHi) \
  SLUICE_EXEC_US3(X, sad, Sad) X(addsat_s32, (op2<s32, s32, s32, AddSat>)) \
  X(subsat_s32, (op2<s32, s32, s32, SubSat>)) \
  X(madhisat_s32, (op3<s32, s32, s32, s32, MadHiSat>)) \
  X(mul24lo_u32, (op2<u32, u32, u32, Mul24<u32, 0>>)) \
  X(mul24lo_s32, (op2<s32, s32, s32, Mul24<s32, 0>>)) \
  X(mul24hi_u32, (op2<u32, u32, u32, Mul24<u32, 16>>)) \
  X(mul24hi_s32, (op2<s32, s32, s32, Mul24<s32, 16>>)) \
  X(mad24lo_u32, (op3<u32, u32, u32, u32, Mul24<u32, 0>>)) \
  X(mad24lo_s32, (op3<s32, s32, s32, s32, Mul24<s32, 0>>)) \
  X(mad24hi_u32, (op3<u32, u32, u32, u32, Mul24<u32, 16>>)) \
  X(mad24hi_s32, (op3<s32, s32, s32, s32, Mul24<s32, 16>>)) X(abs_s16, (op1<s16, s16, AbsInt>)) \
  X(abs_s32, (op1<s32, s32, AbsInt>)) X(abs_s64, (op1<s64, s64, AbsInt>)) \
  X(neg_s16, (op1<s16, s16, NegInt>)) X(neg_s32, (op1<s32, s32, NegInt>)) \
  X(neg_s64, (op1<s64, s64, NegInt>)) X(addcc_b32, (add_carry<u32, false>)) \
  X(addcc_b64, (add_carry<u64, false>)) X(subcc_b32, (add_carry<u32, true>)) \
  X(subcc_b64, (add_carry<u64, true>)) X(madlocc_b32, (mad_carry<u32, false>)) \
  X(madlocc_b64, (mad_carry<u64, false>)) X(madhicc_u32, (mad_carry<u32, true>)) \
  X(madhicc_u64, (mad_carry<u64, true>)) X(madhicc_s32, (mad_carry<s32, true>)) \
  X(madhicc_s64, (mad_carry<s64, true>)) X(dp4a, (slow3<u32, u32, u32, u32, Dp4a>)) \
  X(dp2a, (slow3<u32, u32, u32, u32, Dp2a>))
// clang-format on
