// SPDX-License-Identifier: Apache-2.0
// Logic, shifts, bit fields and permutations: X(name, (handler)); see ops_int.h.
#pragma once

// Rows of a table.
// clang-format off
#include "kernels/exec/program/ops_int.h"

#define SLUICE_EXEC_BITS_OPS(X) \
  SLUICE_EXEC_B(X, and, And) SLUICE_EXEC_B(X, or, Or) SLUICE_EXEC_B(X, xor, Xor) \
  X(not_b16, (op1<u16, u16, Not>)) X(not_b32, (op1<u32, u32, Not>)) \
  X(not_b64, (op1<u64, u64, Not>)) X(cnot_b16, (op1<u16, u16, Cnot>)) \
  X(cnot_b32, (op1<u32, u32, Cnot>)) X(cnot_b64, (op1<u64, u64, Cnot>)) \
  X(shl_b16, (op2<u16, u16, u32, Shl>)) X(shl_b32, (op2<u32, u32, u32, Shl>)) \
  X(shl_b64, (op2<u64, u64, u32, Shl>)) X(shr_u16, (op2<u16, u16, u32, Shr>)) \
  X(shr_u32, (op2<u32, u32, u32, Shr>)) X(shr_u64, (op2<u64, u64, u32, Shr>)) \
  X(shr_s16, (op2<s16, s16, u32, Shr>)) X(shr_s32, (op2<s32, s32, u32, Shr>)) \
  X(shr_s64, (op2<s64, s64, u32, Shr>)) X(shf_l_wrap_b32, (op3<u32, u32, u32, u32, ShfLWrap>)) \
  X(shf_r_wrap_b32, (op3<u32, u32, u32, u32, ShfRWrap>)) \
  X(shf_l_clamp_b32, (op3<u32, u32, u32, u32, ShfLClamp>)) \
  X(shf_r_clamp_b32, (op3<u32, u32, u32, u32, ShfRClamp>)) \
  X(prmt_b32, (op3<u32, u32, u32, u32, Prmt>)) \
  X(prmtmode_b32, (slow3<u32, u32, u32, u32, PrmtMode>)) \
  X(bfe_u32, (op3<u32, u32, u32, u32, Bfe>)) X(bfe_s32, (op3<s32, s32, u32, u32, Bfe>)) \
  X(bfe_u64, (op3<u64, u64, u32, u32, Bfe>)) X(bfe_s64, (op3<s64, s64, u32, u32, Bfe>)) \
  X(bfi_b32, (bfi<u32>)) X(bfi_b64, (bfi<u64>)) X(popc_b32, (op1<u32, u32, Popc>)) \
  X(popc_b64, (op1<u32, u64, Popc>)) X(clz_b32, (op1<u32, u32, Clz>)) \
  X(clz_b64, (op1<u32, u64, Clz>)) X(brev_b32, (op1<u32, u32, Brev>)) \
  X(brev_b64, (op1<u64, u64, Brev>)) X(bfind_u32, (slow1<u32, u32, Bfind>)) \
  X(bfind_s32, (slow1<u32, s32, Bfind>)) X(bfind_u64, (slow1<u32, u64, Bfind>)) \
  X(bfind_s64, (slow1<u32, s64, Bfind>)) X(bmskwrap_b32, (op2<u32, u32, u32, BmskWrap>)) \
  X(bmskclamp_b32, (op2<u32, u32, u32, BmskClamp>)) \
  X(szextwrap_u32, (op2<u32, u32, u32, SzextWrap>)) \
  X(szextwrap_s32, (op2<s32, s32, u32, SzextWrap>)) \
  X(szextclamp_u32, (op2<u32, u32, u32, SzextClamp>)) \
  X(szextclamp_s32, (op2<s32, s32, u32, SzextClamp>)) \
  X(fns_b32, (slow3<u32, u32, u32, s32, Fns>)) X(lop3_b32, (lop3))
// clang-format on
