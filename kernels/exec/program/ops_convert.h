// SPDX-License-Identifier: Apache-2.0
// Conversions from and to floating point: X(name, (handler)); see ops_int.h. cvt_any takes whatever
// has no handler of its own.
#pragma once

// clang-format off
#define SLUICE_EXEC_CVT_FI(X, s) \
  X(cvt_rzi_s32_##s, (op1<s32, s, FloatToInt<s32>>)) \
  X(cvt_rzi_u32_##s, (op1<u32, s, FloatToInt<u32>>)) \
  X(cvt_rzi_s64_##s, (op1<s64, s, FloatToInt<s64>>)) \
  X(cvt_rzi_u64_##s, (op1<u64, s, FloatToInt<u64>>))

#define SLUICE_EXEC_CONVERT_OPS(X) \
  X(cvt_rn_f32_s32, (op1<f32, s32, ToFloat<f32>>)) \
  X(cvt_rn_f32_u32, (op1<f32, u32, ToFloat<f32>>)) \
  X(cvt_rn_f32_s64, (op1<f32, s64, ToFloat<f32>>)) \
  X(cvt_rn_f32_u64, (op1<f32, u64, ToFloat<f32>>)) \
  X(cvt_rn_f64_s32, (op1<f64, s32, ToFloat<f64>>)) \
  X(cvt_rn_f64_u32, (op1<f64, u32, ToFloat<f64>>)) \
  X(cvt_rn_f64_s64, (op1<f64, s64, ToFloat<f64>>)) \
  X(cvt_rn_f64_u64, (op1<f64, u64, ToFloat<f64>>)) \
  SLUICE_EXEC_CVT_FI(X, f32) \
  SLUICE_EXEC_CVT_FI(X, f64) \
  X(cvt_f64_f32, (op1<f64, f32, ToFloat<f64>>)) \
  X(cvt_rn_f32_f64, (op1<f32, f64, ToFloat<f32>>)) \
  X(cvt_f32_f16, (op1<f32, f16, FromHalf>)) \
  X(cvt_f32_bf16, (op1<f32, bf16, FromHalf>)) \
  X(cvt_rn_f16_f32, (op1<f16, f32, ToHalf<f16>>)) \
  X(cvt_rn_bf16_f32, (op1<bf16, f32, ToHalf<bf16>>)) \
  X(cvt_rn_f16x2_f32, (op2<f16x2, f32, f32, ToHalfPair<f16, f16x2>>)) \
  X(cvt_rn_bf16x2_f32, (op2<bf16x2, f32, f32, ToHalfPair<bf16, bf16x2>>)) \
  X(cvt_tf32_f32, (slow1<u32, f32, ToTf32>)) \
  X(cvt_any, (convert_any))
// clang-format on
