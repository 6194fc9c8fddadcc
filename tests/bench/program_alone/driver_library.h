// SPDX-License-Identifier: Apache-2.0
// DriverLibrary: a CUDA driver library with its own symbols, so that one process can load two of
// them side by side and compare them. It has device 0's primary context, one module and one stream.
//
// One thread calls. What fails throws std::runtime_error with the library's label. Nothing is
// unloaded, because drivers have threads of their own: the end of the process frees it.
#pragma once

#include <dlfcn.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "abi/cuda_driver.h"

namespace sluice::bench {

inline double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

// Microseconds, by measurement and by library.
using Samples = std::map<std::string, std::map<std::string, std::vector<double>>>;

class DriverLibrary {
 public:
  // `ptx` has a kernel `empty` without parameters.
  DriverLibrary(std::string label_of_it, const std::string& path, const char* ptx)
      : label(std::move(label_of_it)), library_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) throw std::runtime_error(dlerror());
    load(error_name_, "cuGetErrorName");
    load(launch_, "cuLaunchKernel");
    load(synchronize_, "cuStreamSynchronize");
    load(mem_info_, "cuMemGetInfo_v2");
    CUdevice on = 0;
    char name[256] = {};
    CUcontext context = nullptr;
    check(load<decltype(&::cuInit)>("cuInit")(0), "cuInit");
    check(load<decltype(&::cuDeviceGet)>("cuDeviceGet")(&on, 0), "cuDeviceGet");
    check(load<decltype(&::cuDeviceGetName)>("cuDeviceGetName")(name, sizeof(name) - 1, on),
          "cuDeviceGetName");
    device = name;
    check(load<decltype(&::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, on),
          "cuDevicePrimaryCtxRetain");
    check(load<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(context), "cuCtxSetCurrent");
    check(load<decltype(&::cuModuleLoadData)>("cuModuleLoadData")(&module_, ptx),
          "cuModuleLoadData");
    empty_ = function("empty");
    check(load<decltype(&::cuStreamCreate)>("cuStreamCreate")(&stream_, CU_STREAM_NON_BLOCKING),
          "cuStreamCreate");
  }

  void launch() {
    check(launch_(empty_, 1, 1, 1, 32, 1, 1, 0, stream_, nullptr, nullptr), "cuLaunchKernel");
  }
  void wait() { check(synchronize_(stream_), "cuStreamSynchronize"); }
  void mem_info() {
    std::size_t free = 0, total = 0;
    check(mem_info_(&free, &total), "cuMemGetInfo");
  }

  const std::string label;
  std::string device;

 protected:
  template <class Function>
  Function load(const char* symbol) {
    const auto function = reinterpret_cast<Function>(dlsym(library_, symbol));
    if (function == nullptr)
      throw std::runtime_error(label + ": no " + symbol + " in this library");
    return function;
  }
  template <class Function>
  void load(Function& to, const char* symbol) {
    to = load<Function>(symbol);
  }
  CUfunction function(const char* name) {
    CUfunction function = nullptr;
    check(load<decltype(&::cuModuleGetFunction)>("cuModuleGetFunction")(&function, module_, name),
          "cuModuleGetFunction");
    return function;
  }
  void check(CUresult result, const char* call) const {
    if (result == CUDA_SUCCESS) [[likely]]
      return;
    const char* name = nullptr;
    (void)error_name_(result, &name);
    throw std::runtime_error(label + ": " + call + ": " +
                             (name != nullptr ? name : "unknown error"));
  }

  CUmodule module_ = nullptr;
  CUstream stream_ = nullptr;
  decltype(&::cuLaunchKernel) launch_;

 private:
  void* library_;
  decltype(&::cuGetErrorName) error_name_;
  decltype(&::cuStreamSynchronize) synchronize_;
  decltype(&::cuMemGetInfo_v2) mem_info_;
  CUfunction empty_ = nullptr;
};

}  // namespace sluice::bench
