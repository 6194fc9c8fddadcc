// SPDX-License-Identifier: Apache-2.0
// The driver that this runtime calls: the public functions of libcuda.so.1, whichever that is
// (Sluice's, the software GPU's, NVIDIA's), found by name when the program first needs one. Nothing
// else of it is used: no private tables. A function that the driver lacks answers
// CUDA_ERROR_NOT_SUPPORTED. Any thread.
#pragma once

#include "abi/cuda_driver.h"
#include "abi/cuda_graph.h"

namespace sluice::cudart {

// The address of a function of the driver; null where it has none, or where there is no driver.
void* driver_symbol(const char* name);

// A function of the driver's: called like it.
template <class F>
struct DriverFunction;
template <class... Args>
struct DriverFunction<CUresult(Args...)> {
  CUresult (*function)(Args...) = nullptr;
  CUresult operator()(Args... args) const {
    return function != nullptr ? function(args...) : CUDA_ERROR_NOT_SUPPORTED;
  }
  explicit operator bool() const { return function != nullptr; }
};

// What the bodies of functions.h call by name. Whatever is forwarded is not here.
struct Driver {
#define SLUICE_MEMBER(symbol, name, since, parameters) DriverFunction<CUresult parameters> symbol;
  SLUICE_CUDA_DRIVER_FUNCTIONS(SLUICE_MEMBER)
  SLUICE_CUDA_GRAPH_FUNCTIONS(SLUICE_MEMBER)
#undef SLUICE_MEMBER
};

// Loads the library at the first call. Null: there is none that could be loaded.
const Driver* load_driver();
// For what runs behind ensure_driver().
const Driver& driver();

// Calls a function of the driver that the declarations of abi/ lack: `Args` are its parameters as
// they are passed.
template <class... Args>
CUresult call_driver(const char* symbol, Args... args) {
  void* function = driver_symbol(symbol);
  if (function == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return reinterpret_cast<CUresult (*)(Args...)>(function)(args...);
}

}  // namespace sluice::cudart
