// SPDX-License-Identifier: Apache-2.0
// The log buffers of the JIT options that programs hand to module and link calls. Inline, pure.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "abi/cuda_driver.h"

namespace sluice::softgpu {

// Writes `text` into the log buffer that the options ask for and its length into the size option,
// as the driver does. Other options are accepted: they tune a compiler that is not there.
inline void write_jit_log(unsigned count, CUjit_option* options, void** values,
                          CUjit_option buffer_option, CUjit_option size_option,
                          const std::string& text) {
  if (options == nullptr || values == nullptr) return;
  char* buffer = nullptr;
  size_t* size = nullptr;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == buffer_option) buffer = static_cast<char*>(values[i]);
    if (options[i] == size_option) size = reinterpret_cast<size_t*>(&values[i]);
  }
  if (buffer == nullptr || size == nullptr || *size == 0) return;
  const size_t n = std::min(*size - 1, text.size());
  std::memcpy(buffer, text.data(), n);
  buffer[n] = '\0';
  *size = n;
}

}  // namespace sluice::softgpu
