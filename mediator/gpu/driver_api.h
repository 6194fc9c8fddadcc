// SPDX-License-Identifier: Apache-2.0
// DriverApi: the CUDA driver as one table of functions, loaded from NVIDIA's libcuda.so.1 or from
// the software GPU (libsluice-softcuda.so), so that its user cannot tell which one it
// has.
//
// Owned by sluice-worker (and tests, benchmarks), one per process, filled once before any thread
// uses it and read-only afterwards; the functions are as thread-safe as the driver behind them. It
// does not interpret calls or results, and it never unloads a driver: drivers have threads.
#pragma once

#include <string>

#include "abi/cuda_driver.h"
#include "abi/cuda_green.h"
#include "abi/cuda_texture.h"
#include "mediator/base/result.h"

namespace sluice::gpu {

// Every function of abi/cuda_driver_functions.h, cuda_green.h and cuda_texture.h under its exported
// name. Since cuda_driver.h maps the plain names to those, `api.cuMemAlloc(...)` means
// `api.cuMemAlloc_v2(...)`, as in any program. No pointer is null after load_driver: what an older
// driver lacks returns CUDA_ERROR_NOT_SUPPORTED.
struct DriverApi {
#define SLUICE_DRIVER_MEMBER(symbol, name, since, parameters) decltype(&::symbol) symbol = nullptr;
  SLUICE_CUDA_DRIVER_FUNCTIONS(SLUICE_DRIVER_MEMBER)
  SLUICE_CUDA_GREEN_FUNCTIONS(SLUICE_DRIVER_MEMBER)
  SLUICE_CUDA_TEXTURE_FUNCTIONS(SLUICE_DRIVER_MEMBER)
#undef SLUICE_DRIVER_MEMBER

  void* library = nullptr;  // dlopen's handle, for symbols beyond the API
  std::string path;         // as given to dlopen
  unsigned missing = 0;     // functions that this library lacks
  // Whether it has all of cuda_green.h. A device may still refuse: cuDeviceGetDevResource says.
  bool green_contexts = false;
};

// Loads `path` (as for dlopen: a name is searched, a path is taken). Errors say what is missing:
// the library, or a function without which no program of Sluice can run. Runs the library's
// constructors, calls nothing. Refuses the guest's libcuda.so.1: it would call back into us.
Result<DriverApi> load_driver(const std::string& path);

// "CUDA_ERROR_OUT_OF_MEMORY (2): not enough device memory", for logs and errors; any number.
std::string describe(CUresult result);

}  // namespace sluice::gpu
