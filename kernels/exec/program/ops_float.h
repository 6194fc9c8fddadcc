// SPDX-License-Identifier: Apache-2.0
// The floating-point operations: X(name, (handler)); see ops_int.h. Names with _ftz flush f32
// subnormals; names with _rnd honour every rounding, .ftz and .sat of Inst::mod, a lane at a time.
#pragma once

// Rows of a table.
// clang-format off
#define SLUICE_EXEC_F2(X, n, F)                                                      \
  X(n##_f32, (op2<f32, f32, f32, F>)) X(n##_ftz_f32, (op2<f32, f32, f32, Ftz<F>>))   \
  X(n##_f64, (op2<f64, f64, f64, F>))
#define SLUICE_EXEC_H2(X, n, F)                                                      \
  X(n##_f16, (op2<f16, f16, f16, F>)) X(n##_bf16, (op2<bf16, bf16, bf16, F>))        \
  X(n##_f16x2, (op2<f16x2, f16x2, f16x2, F>)) X(n##_bf16x2, (op2<bf16x2, bf16x2, bf16x2, F>))
#define SLUICE_EXEC_F1(X, n, F)                                                      \
  X(n##_f32, (op1<f32, f32, F>)) X(n##_ftz_f32, (op1<f32, f32, Ftz<F>>))             \
  X(n##_f64, (op1<f64, f64, F>))
#define SLUICE_EXEC_H1(X, n, F)                                                      \
  X(n##_f16, (op1<f16, f16, F>)) X(n##_bf16, (op1<bf16, bf16, F>))                   \
  X(n##_f16x2, (op1<f16x2, f16x2, F>)) X(n##_bf16x2, (op1<bf16x2, bf16x2, F>))
#define SLUICE_EXEC_SETP_F(X, c, F)                                                  \
  X(setp_##c##_f32, (compare<f32, F>)) X(setp_##c##_ftz_f32, (compare<f32, Ftz<F>>)) \
  X(setp_##c##_f64, (compare<f64, F>)) X(setp_##c##_f16, (compare<f16, F>))          \
  X(setp_##c##_bf16, (compare<bf16, F>))

#define SLUICE_EXEC_FLOAT_OPS(X) \
  SLUICE_EXEC_F2(X, fadd, FAdd) SLUICE_EXEC_F2(X, fsub, FSub) SLUICE_EXEC_F2(X, fmul, FMul) \
  SLUICE_EXEC_F2(X, fdiv, FDiv) SLUICE_EXEC_F2(X, fmin, FMin) SLUICE_EXEC_F2(X, fmax, FMax) \
  X(ffma_f32, (op3<f32, f32, f32, f32, Fma>)) \
  X(ffma_ftz_f32, (op3<f32, f32, f32, f32, Ftz<Fma>>)) \
  X(ffma_f64, (op3<f64, f64, f64, f64, Fma>)) X(fadd_rnd_f32, (rounded2<f32, FAdd>)) \
  X(fsub_rnd_f32, (rounded2<f32, FSub>)) X(fmul_rnd_f32, (rounded2<f32, FMul>)) \
  X(fdiv_rnd_f32, (rounded2<f32, FDiv>)) X(ffma_rnd_f32, (rounded3<f32>)) \
  X(frcp_rnd_f32, (rounded1<f32, FRcp>)) X(fsqrt_rnd_f32, (rounded1<f32, FSqrt>)) \
  X(fadd_rnd_f64, (rounded2<f64, FAdd>)) X(fsub_rnd_f64, (rounded2<f64, FSub>)) \
  X(fmul_rnd_f64, (rounded2<f64, FMul>)) X(fdiv_rnd_f64, (rounded2<f64, FDiv>)) \
  X(ffma_rnd_f64, (rounded3<f64>)) X(frcp_rnd_f64, (rounded1<f64, FRcp>)) \
  X(fsqrt_rnd_f64, (rounded1<f64, FSqrt>)) X(fminmod_f32, (slow2<f32, f32, f32, FMinMod>)) \
  X(fmaxmod_f32, (slow2<f32, f32, f32, FMaxMod>)) SLUICE_EXEC_F1(X, fabs, FAbs) \
  SLUICE_EXEC_F1(X, fneg, FNeg) SLUICE_EXEC_F1(X, frcp, FRcp) SLUICE_EXEC_F1(X, fsqrt, FSqrt) \
  X(frsqrt_f32, (op1<f32, f32, FRsqrt>)) X(frsqrt_ftz_f32, (op1<f32, f32, Ftz<FRsqrt>>)) \
  X(frsqrt_f64, (op1<f64, f64, FRsqrt>)) X(fsin_f32, (slow1<f32, f32, FSin>)) \
  X(fcos_f32, (slow1<f32, f32, FCos>)) X(fex2_f32, (slow1<f32, f32, FEx2>)) \
  X(flg2_f32, (slow1<f32, f32, FLg2>)) X(ftanh_f32, (slow1<f32, f32, FTanh>)) \
  X(fex2_f16, (half1<f16, HEx2>)) X(fex2_bf16, (half1<bf16, HEx2>)) \
  X(fex2_f16x2, (half1x2<f16, HEx2>)) X(fex2_bf16x2, (half1x2<bf16, HEx2>)) \
  X(ftanh_f16, (half1<f16, HTanh>)) X(ftanh_bf16, (half1<bf16, HTanh>)) \
  X(ftanh_f16x2, (half1x2<f16, HTanh>)) X(ftanh_bf16x2, (half1x2<bf16, HTanh>)) \
  X(copysign_f32, (op2<f32, f32, f32, FCopySign>)) \
  X(copysign_f64, (op2<f64, f64, f64, FCopySign>)) X(testp_f32, (test_property<f32>)) \
  X(testp_f64, (test_property<f64>)) SLUICE_EXEC_H2(X, fadd, HAdd) SLUICE_EXEC_H2(X, fsub, HSub) \
  SLUICE_EXEC_H2(X, fmul, HMul) SLUICE_EXEC_H2(X, fmin, HMin) SLUICE_EXEC_H2(X, fmax, HMax) \
  X(ffma_f16, (op3<f16, f16, f16, f16, HFma>)) X(ffma_bf16, (op3<bf16, bf16, bf16, bf16, HFma>)) \
  X(ffma_f16x2, (op3<f16x2, f16x2, f16x2, f16x2, HFma>)) \
  X(ffma_bf16x2, (op3<bf16x2, bf16x2, bf16x2, bf16x2, HFma>)) X(hsat_f16, (op1<f16, f16, HSat>)) \
  X(hsat_f16x2, (op1<f16x2, f16x2, HSat>)) X(hrelu_f16, (op1<f16, f16, HRelu>)) \
  X(hrelu_f16x2, (op1<f16x2, f16x2, HRelu>)) X(hrelu_bf16, (op1<bf16, bf16, HRelu>)) \
  X(hrelu_bf16x2, (op1<bf16x2, bf16x2, HRelu>)) SLUICE_EXEC_H1(X, fabs, HAbs) \
  SLUICE_EXEC_H1(X, fneg, HNeg) SLUICE_EXEC_SETP_F(X, eq, FEq) SLUICE_EXEC_SETP_F(X, ne, FNe) \
  SLUICE_EXEC_SETP_F(X, lt, FLt) SLUICE_EXEC_SETP_F(X, le, FLe) SLUICE_EXEC_SETP_F(X, gt, FGt) \
  SLUICE_EXEC_SETP_F(X, ge, FGe) SLUICE_EXEC_SETP_F(X, equ, FEqu) \
  SLUICE_EXEC_SETP_F(X, neu, FNeu) SLUICE_EXEC_SETP_F(X, ltu, FLtu) \
  SLUICE_EXEC_SETP_F(X, leu, FLeu) SLUICE_EXEC_SETP_F(X, gtu, FGtu) \
  SLUICE_EXEC_SETP_F(X, geu, FGeu) SLUICE_EXEC_SETP_F(X, num, FNum) \
  SLUICE_EXEC_SETP_F(X, nan, FUnordered)
// clang-format on
