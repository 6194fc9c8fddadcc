// SPDX-License-Identifier: Apache-2.0
// Comparisons, predicates, selections, moves, integer conversions: X(name, (handler)); see
// ops_int.h.
#pragma once

// clang-format off
#define SLUICE_EXEC_SETP_I(X, c, F) \
  X(setp_##c##_u16, (compare<u16, F>)) \
  X(setp_##c##_s16, (compare<s16, F>)) \
  X(setp_##c##_u32, (compare<u32, F>)) \
  X(setp_##c##_s32, (compare<s32, F>)) \
  X(setp_##c##_u64, (compare<u64, F>)) \
  X(setp_##c##_s64, (compare<s64, F>))
#define SLUICE_EXEC_CVT_I(X, s) \
  X(cvt_u8_##s, (op1<u8, s, Convert<u8>>)) \
  X(cvt_s8_##s, (op1<s8, s, Convert<s8>>)) \
  X(cvt_u16_##s, (op1<u16, s, Convert<u16>>)) \
  X(cvt_s16_##s, (op1<s16, s, Convert<s16>>)) \
  X(cvt_u32_##s, (op1<u32, s, Convert<u32>>)) \
  X(cvt_s32_##s, (op1<s32, s, Convert<s32>>)) \
  X(cvt_u64_##s, (op1<u64, s, Convert<u64>>)) \
  X(cvt_s64_##s, (op1<s64, s, Convert<s64>>))

#define SLUICE_EXEC_MOVE_OPS(X) \
  SLUICE_EXEC_SETP_I(X, eq, Eq) \
  SLUICE_EXEC_SETP_I(X, ne, Ne) \
  SLUICE_EXEC_SETP_I(X, lt, Lt) \
  SLUICE_EXEC_SETP_I(X, le, Le) \
  SLUICE_EXEC_SETP_I(X, gt, Gt) \
  SLUICE_EXEC_SETP_I(X, ge, Ge) \
  X(and_pred, (pred_and)) \
  X(or_pred, (pred_or)) \
  X(xor_pred, (pred_xor)) \
  X(not_pred, (pred_not)) \
  X(mov_pred, (pred_mov)) \
  X(mov_b32, (op1<u32, u32, Same>)) \
  X(mov_b64, (op1<u64, u64, Same>)) \
  X(selp_b32, (select<u32>)) \
  X(selp_b64, (select<u64>)) \
  X(slct_b32_s32, (op3<u32, u32, u32, s32, Slct>)) \
  X(slct_b64_s32, (op3<u64, u64, u64, s32, Slct>)) \
  X(slct_b32_f32, (op3<u32, u32, u32, f32, Slct>)) \
  X(slct_b64_f32, (op3<u64, u64, u64, f32, Slct>)) \
  X(special, (special)) \
  X(pack2_b64, (op2<u64, u32, u32, Pack64>)) \
  X(pack2_b32, (op2<u32, u32, u32, Pack32>)) \
  X(pack4_b64, (pack4<u64, 16>)) \
  X(pack4_b32, (pack4<u32, 8>)) \
  X(part_b32_b64, (part<u32, u64>)) \
  X(part_b16_b64, (part<u16, u64>)) \
  X(part_b16_b32, (part<u16, u32>)) \
  X(part_b8_b32, (part<u8, u32>)) \
  SLUICE_EXEC_CVT_I(X, u8) \
  SLUICE_EXEC_CVT_I(X, s8) \
  SLUICE_EXEC_CVT_I(X, u16) \
  SLUICE_EXEC_CVT_I(X, s16) \
  SLUICE_EXEC_CVT_I(X, u32) \
  SLUICE_EXEC_CVT_I(X, s32) \
  SLUICE_EXEC_CVT_I(X, u64) \
  SLUICE_EXEC_CVT_I(X, s64) \
  X(cvtsat_int, (convert_saturating)) \
  X(isspacep, (is_space))
// clang-format on
