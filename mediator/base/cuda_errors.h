// SPDX-License-Identifier: Apache-2.0
// The names and texts of CUDA's errors, for every library that answers cuGetErrorName and
// cuGetErrorString. Pure; any thread; static strings.
#pragma once

#include "abi/cuda_driver.h"

namespace sluice {

// Null: there is no such error.
inline const char* cuda_error_name(CUresult error) {
  switch (static_cast<int>(error)) {
#define SLUICE_CASE(name, value, text) \
  case value:                          \
    return #name;
    SLUICE_CUDA_ERRORS(SLUICE_CASE)
#undef SLUICE_CASE
    default:
      return nullptr;
  }
}

// One line for people; null: there is no such error.
inline const char* cuda_error_text(CUresult error) {
  switch (static_cast<int>(error)) {
#define SLUICE_CASE(name, value, text) \
  case value:                          \
    return text;
    SLUICE_CUDA_ERRORS(SLUICE_CASE)
#undef SLUICE_CASE
    default:
      return nullptr;
  }
}

}  // namespace sluice
