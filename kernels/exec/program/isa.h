// SPDX-License-Identifier: Apache-2.0
// Selects the instruction set of an engine file. Each ops_*.cc is compiled once per level with
// SLUICE_EXEC_ISA set; every #include comes before this one, so that functions of other headers
// keep the default target and no linker can pick a copy of them that this machine cannot run.
#ifndef SLUICE_EXEC_ISA
#error "compile with -DSLUICE_EXEC_ISA=0, 1 or 2"
#endif

#if !defined(__clang__)
#pragma GCC push_options
#endif
#if SLUICE_EXEC_ISA == 2
#define SLUICE_EXEC_NAME(x) x##_avx512
#if defined(__clang__)
#pragma clang attribute push(                                                   \
    __attribute__((target("avx2,fma,bmi,bmi2,popcnt,avx512f,avx512bw,avx512vl," \
                          "avx512dq,avx512cd"))),                               \
    apply_to = function)
#else
#pragma GCC target( \
    "avx2,fma,bmi,bmi2,popcnt,avx512f,avx512bw,avx512vl,avx512dq,avx512cd,prefer-vector-width=512")
#endif
#elif SLUICE_EXEC_ISA == 1
#define SLUICE_EXEC_NAME(x) x##_avx2
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,bmi,bmi2,popcnt"))), \
                             apply_to = function)
#else
#pragma GCC target("avx2,fma,bmi,bmi2,popcnt")
#endif
#else
#define SLUICE_EXEC_NAME(x) x##_base
#endif
