// SPDX-License-Identifier: Apache-2.0
// Checks of programs that make driver calls: they print what did not come out right, and go on.
// One thread.
#pragma once

#include <cstdio>

#include "abi/cuda_graph.h"

inline int failures = 0;

#define EXPECT(condition)                                         \
  do {                                                            \
    if (!(condition)) {                                           \
      std::printf("line %d: not so: %s\n", __LINE__, #condition); \
      ++failures;                                                 \
    }                                                             \
  } while (false)
#define ANSWERS(expected, call)                                                           \
  do {                                                                                    \
    const CUresult answer = (call);                                                       \
    if (answer != (expected)) {                                                           \
      std::printf("line %d: %s answers %d\n", __LINE__, #call, static_cast<int>(answer)); \
      ++failures;                                                                         \
    }                                                                                     \
  } while (false)
#define OK(call) ANSWERS(CUDA_SUCCESS, call)

inline constexpr CUresult kInvalid = CUDA_ERROR_INVALID_VALUE;
