// SPDX-License-Identifier: Apache-2.0
// A libcuda that has our mark and does not start: by SLUICE_TEST_DRIVER it dies, hangs or refuses.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "abi/cuda_driver.h"

extern "C" {
__attribute__((visibility("default"))) int sluice_guest_shim = 1;

__attribute__((visibility("default"))) CUresult cuInit(unsigned) {
  const char* how = std::getenv("SLUICE_TEST_DRIVER");
  if (how != nullptr && std::strcmp(how, "dies") == 0) std::abort();
  while (how != nullptr && std::strcmp(how, "hangs") == 0) ::pause();
  return CUDA_ERROR_NO_DEVICE;
}

__attribute__((visibility("default"))) CUresult cuGetErrorName(CUresult, const char** name) {
  *name = "CUDA_ERROR_\"NO\"\tDEVICE";
  return CUDA_SUCCESS;
}
}
