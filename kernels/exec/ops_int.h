// The integer, logic, move and selection operations: X(name, (handler)). The names are what decode
// composes from an instruction's words and type. Internal to kernels/exec.
#pragma once

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
#define SLUICE_EXEC_SETP_I(X, c, F)                                                \
  X(setp_##c##_u16, (compare<u16, F>)) X(setp_##c##_s16, (compare<s16, F>))        \
  X(setp_##c##_u32, (compare<u32, F>)) X(setp_##c##_s32, (compare<s32, F>))        \
  X(setp_##c##_u64, (compare<u64, F>)) X(setp_##c##_s64, (compare<s64, F>))
#define SLUICE_EXEC_CVT_I(X, s)                                                    \
  X(cvt_u8_##s, (op1<u8, s, Convert<u8>>)) X(cvt_s8_##s, (op1<s8, s, Convert<s8>>)) \
  X(cvt_u16_##s, (op1<u16, s, Convert<u16>>)) X(cvt_s16_##s, (op1<s16, s, Convert<s16>>)) \
  X(cvt_u32_##s, (op1<u32, s, Convert<u32>>)) X(cvt_s32_##s, (op1<s32, s, Convert<s32>>)) \
  X(cvt_u64_##s, (op1<u64, s, Convert<u64>>)) X(cvt_s64_##s, (op1<s64, s, Convert<s64>>))

#define SLUICE_EXEC_INT_OPS(X)                                                     \
  X(nop, (nop))                                                                    \
  SLUICE_EXEC_B(X, add, Add) SLUICE_EXEC_B(X, sub, Sub) SLUICE_EXEC_B(X, mullo, MulLo) \
  SLUICE_EXEC_B(X, and, And) SLUICE_EXEC_B(X, or, Or) SLUICE_EXEC_B(X, xor, Xor)   \
  SLUICE_EXEC_US(X, mulhi, MulHi) SLUICE_EXEC_US(X, min, Min) SLUICE_EXEC_US(X, max, Max) \
  SLUICE_EXEC_US(X, div, Div) SLUICE_EXEC_US(X, rem, Rem)                          \
  X(mulwide_u16, (op2<u32, u16, u16, MulWide<u32>>))                               \
  X(mulwide_s16, (op2<s32, s16, s16, MulWide<s32>>))                               \
  X(mulwide_u32, (op2<u64, u32, u32, MulWide<u64>>))                               \
  X(mulwide_s32, (op2<s64, s32, s32, MulWide<s64>>))                               \
  X(madwide_u16, (op3<u32, u16, u16, u32, MadWide<u32>>))                          \
  X(madwide_s16, (op3<s32, s16, s16, s32, MadWide<s32>>))                          \
  X(madwide_u32, (op3<u64, u32, u32, u64, MadWide<u64>>))                          \
  X(madwide_s32, (op3<s64, s32, s32, s64, MadWide<s64>>))                          \
  X(madlo_b16, (op3<u16, u16, u16, u16, MadLo>))                                   \
  X(madlo_b32, (op3<u32, u32, u32, u32, MadLo>))                                   \
  X(madlo_b64, (op3<u64, u64, u64, u64, MadLo>))                                   \
  SLUICE_EXEC_US3(X, madhi, MadHi) SLUICE_EXEC_US3(X, sad, Sad)                    \
  X(addsat_s32, (op2<s32, s32, s32, AddSat>)) X(subsat_s32, (op2<s32, s32, s32, SubSat>)) \
  X(madhisat_s32, (op3<s32, s32, s32, s32, MadHiSat>))                             \
  X(mul24lo_u32, (op2<u32, u32, u32, Mul24<u32, 0>>))                              \
  X(mul24lo_s32, (op2<s32, s32, s32, Mul24<s32, 0>>))                              \
  X(mul24hi_u32, (op2<u32, u32, u32, Mul24<u32, 16>>))                             \
  X(mul24hi_s32, (op2<s32, s32, s32, Mul24<s32, 16>>))                             \
  X(mad24lo_u32, (op3<u32, u32, u32, u32, Mul24<u32, 0>>))                         \
  X(mad24lo_s32, (op3<s32, s32, s32, s32, Mul24<s32, 0>>))                         \
  X(mad24hi_u32, (op3<u32, u32, u32, u32, Mul24<u32, 16>>))                        \
  X(mad24hi_s32, (op3<s32, s32, s32, s32, Mul24<s32, 16>>))                        \
  X(abs_s16, (op1<s16, s16, AbsInt>)) X(abs_s32, (op1<s32, s32, AbsInt>))          \
  X(abs_s64, (op1<s64, s64, AbsInt>)) X(neg_s16, (op1<s16, s16, NegInt>))          \
  X(neg_s32, (op1<s32, s32, NegInt>)) X(neg_s64, (op1<s64, s64, NegInt>))          \
  X(not_b16, (op1<u16, u16, Not>)) X(not_b32, (op1<u32, u32, Not>))                \
  X(not_b64, (op1<u64, u64, Not>)) X(cnot_b16, (op1<u16, u16, Cnot>))              \
  X(cnot_b32, (op1<u32, u32, Cnot>)) X(cnot_b64, (op1<u64, u64, Cnot>))            \
  X(shl_b16, (op2<u16, u16, u32, Shl>)) X(shl_b32, (op2<u32, u32, u32, Shl>))      \
  X(shl_b64, (op2<u64, u64, u32, Shl>)) X(shr_u16, (op2<u16, u16, u32, Shr>))      \
  X(shr_u32, (op2<u32, u32, u32, Shr>)) X(shr_u64, (op2<u64, u64, u32, Shr>))      \
  X(shr_s16, (op2<s16, s16, u32, Shr>)) X(shr_s32, (op2<s32, s32, u32, Shr>))      \
  X(shr_s64, (op2<s64, s64, u32, Shr>))                                            \
  X(shf_l_wrap_b32, (op3<u32, u32, u32, u32, ShfLWrap>))                           \
  X(shf_r_wrap_b32, (op3<u32, u32, u32, u32, ShfRWrap>))                           \
  X(shf_l_clamp_b32, (op3<u32, u32, u32, u32, ShfLClamp>))                         \
  X(shf_r_clamp_b32, (op3<u32, u32, u32, u32, ShfRClamp>))                         \
  X(prmt_b32, (op3<u32, u32, u32, u32, Prmt>))                                     \
  X(prmtmode_b32, (slow3<u32, u32, u32, u32, PrmtMode>))                           \
  X(bfe_u32, (op3<u32, u32, u32, u32, Bfe>)) X(bfe_s32, (op3<s32, s32, u32, u32, Bfe>)) \
  X(bfe_u64, (op3<u64, u64, u32, u32, Bfe>)) X(bfe_s64, (op3<s64, s64, u32, u32, Bfe>)) \
  X(bfi_b32, (bfi<u32>)) X(bfi_b64, (bfi<u64>))                                    \
  X(popc_b32, (op1<u32, u32, Popc>)) X(popc_b64, (op1<u32, u64, Popc>))            \
  X(clz_b32, (op1<u32, u32, Clz>)) X(clz_b64, (op1<u32, u64, Clz>))                \
  X(brev_b32, (op1<u32, u32, Brev>)) X(brev_b64, (op1<u64, u64, Brev>))            \
  X(bfind_u32, (slow1<u32, u32, Bfind>)) X(bfind_s32, (slow1<u32, s32, Bfind>))    \
  X(bfind_u64, (slow1<u32, u64, Bfind>)) X(bfind_s64, (slow1<u32, s64, Bfind>))    \
  X(bmskwrap_b32, (op2<u32, u32, u32, BmskWrap>))                                  \
  X(bmskclamp_b32, (op2<u32, u32, u32, BmskClamp>))                                \
  X(szextwrap_u32, (op2<u32, u32, u32, SzextWrap>))                                \
  X(szextwrap_s32, (op2<s32, s32, u32, SzextWrap>))                                \
  X(szextclamp_u32, (op2<u32, u32, u32, SzextClamp>))                              \
  X(szextclamp_s32, (op2<s32, s32, u32, SzextClamp>))                              \
  X(fns_b32, (slow3<u32, u32, u32, s32, Fns>))                                     \
  X(lop3_b32, (lop3))                                                              \
  X(addcc_b32, (add_carry<u32, false>)) X(addcc_b64, (add_carry<u64, false>))      \
  X(subcc_b32, (add_carry<u32, true>)) X(subcc_b64, (add_carry<u64, true>))        \
  X(madlocc_b32, (mad_carry<u32, false>)) X(madlocc_b64, (mad_carry<u64, false>))  \
  X(madhicc_u32, (mad_carry<u32, true>)) X(madhicc_u64, (mad_carry<u64, true>))    \
  X(madhicc_s32, (mad_carry<s32, true>)) X(madhicc_s64, (mad_carry<s64, true>))    \
  X(dp4a, (slow3<u32, u32, u32, u32, Dp4a>)) X(dp2a, (slow3<u32, u32, u32, u32, Dp2a>)) \
  SLUICE_EXEC_SETP_I(X, eq, Eq) SLUICE_EXEC_SETP_I(X, ne, Ne)                      \
  SLUICE_EXEC_SETP_I(X, lt, Lt) SLUICE_EXEC_SETP_I(X, le, Le)                      \
  SLUICE_EXEC_SETP_I(X, gt, Gt) SLUICE_EXEC_SETP_I(X, ge, Ge)                      \
  X(and_pred, (pred_and)) X(or_pred, (pred_or)) X(xor_pred, (pred_xor))            \
  X(not_pred, (pred_not)) X(mov_pred, (pred_mov))                                  \
  X(mov_b32, (op1<u32, u32, Same>)) X(mov_b64, (op1<u64, u64, Same>))              \
  X(selp_b32, (select<u32>)) X(selp_b64, (select<u64>))                            \
  X(slct_b32_s32, (op3<u32, u32, u32, s32, Slct>))                                 \
  X(slct_b64_s32, (op3<u64, u64, u64, s32, Slct>))                                 \
  X(slct_b32_f32, (op3<u32, u32, u32, f32, Slct>))                                 \
  X(slct_b64_f32, (op3<u64, u64, u64, f32, Slct>))                                 \
  X(special, (special))                                                            \
  X(pack2_b64, (op2<u64, u32, u32, Pack64>)) X(pack2_b32, (op2<u32, u32, u32, Pack32>)) \
  X(pack4_b64, (pack4<u64, 16>)) X(pack4_b32, (pack4<u32, 8>))                     \
  X(part_b32_b64, (part<u32, u64>)) X(part_b16_b64, (part<u16, u64>))              \
  X(part_b16_b32, (part<u16, u32>)) X(part_b8_b32, (part<u8, u32>))                \
  SLUICE_EXEC_CVT_I(X, u8) SLUICE_EXEC_CVT_I(X, s8) SLUICE_EXEC_CVT_I(X, u16)      \
  SLUICE_EXEC_CVT_I(X, s16) SLUICE_EXEC_CVT_I(X, u32) SLUICE_EXEC_CVT_I(X, s32)    \
  SLUICE_EXEC_CVT_I(X, u64) SLUICE_EXEC_CVT_I(X, s64)                              \
  X(cvtsat_int, (convert_saturating))                                              \
  X(addressof, (op1<u64, u64, Same>)) X(isspacep, (is_space))
