// SPDX-License-Identifier: Apache-2.0
// What every program of this folder uses to check its own results: it says each thing that is wrong
// and main() returns whether nothing was. For host code; any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

inline std::atomic<int> failures{0};

#define CHECK(condition)                                                  \
  do {                                                                    \
    if (!(condition)) {                                                   \
      std::printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                         \
    }                                                                     \
  } while (0)

// The call answers `expected`.
#define ANSWERS(expected, call)                                                     \
  do {                                                                              \
    const cudaError_t answer_ = (call);                                             \
    if (answer_ != (expected)) {                                                    \
      std::printf("%s:%d: %s answers %s (%d), not %s\n", __FILE__, __LINE__, #call, \
                  cudaGetErrorName(answer_), static_cast<int>(answer_), #expected); \
      ++failures;                                                                   \
    }                                                                               \
  } while (0)
#define OK(call) ANSWERS(cudaSuccess, call)

inline int result() {
  if (failures == 0) std::printf("right\n");
  return failures == 0 ? 0 : 1;
}
