// SPDX-License-Identifier: Apache-2.0
#include "mediator/gpu/driver_api.h"

#include <dlfcn.h>

#include <string_view>

#include "mediator/base/cuda_errors.h"

namespace sluice::gpu {
namespace {

// What a driver lacks fails as it would there, instead of ending the worker through a null pointer.
template <class Function>
struct Unsupported;
template <class... A>
struct Unsupported<CUresult (*)(A...)> {
  static CUresult call(A...) { return CUDA_ERROR_NOT_SUPPORTED; }
};

// Functions every driver since CUDA 12.4 has and without which a worker cannot do its work. The
// rest of the table is allowed to be missing.
constexpr std::string_view kRequired[] = {"cuInit",
                                          "cuDriverGetVersion",
                                          "cuDeviceGet",
                                          "cuDeviceGetCount",
                                          "cuDeviceGetAttribute",
                                          "cuDevicePrimaryCtxRetain",
                                          "cuDevicePrimaryCtxRelease_v2",
                                          "cuCtxSetCurrent",
                                          "cuCtxSynchronize",
                                          "cuModuleLoadDataEx",
                                          "cuModuleGetFunction",
                                          "cuModuleUnload",
                                          "cuFuncGetParamInfo",
                                          "cuLaunchKernel",
                                          "cuMemAlloc_v2",
                                          "cuMemFree_v2",
                                          "cuMemHostRegister_v2",
                                          "cuMemHostGetDevicePointer_v2",
                                          "cuMemcpyHtoDAsync_v2",
                                          "cuMemcpyDtoHAsync_v2",
                                          "cuMemcpyDtoDAsync_v2",
                                          "cuMemsetD8Async",
                                          "cuStreamCreate",
                                          "cuStreamDestroy_v2",
                                          "cuStreamQuery",
                                          "cuStreamSynchronize",
                                          "cuStreamWaitEvent",
                                          "cuEventCreate",
                                          "cuEventRecord",
                                          "cuEventQuery",
                                          "cuEventDestroy_v2"};

bool is_required(std::string_view symbol) {
  for (std::string_view required : kRequired) {
    if (required == symbol) return true;
  }
  return false;
}

template <class Function>
void bind(DriverApi& api, const char* symbol, Function& slot, std::string& missing_required) {
  slot = reinterpret_cast<Function>(::dlsym(api.library, symbol));
  if (slot != nullptr) return;
  slot = &Unsupported<Function>::call;
  ++api.missing;
  if (is_required(symbol))
    missing_required += (missing_required.empty() ? "" : ", ") + std::string(symbol);
}

}  // namespace

Result<DriverApi> load_driver(const std::string& path) {
  DriverApi api;
  api.path = path;
  // Local: a worker must be able to hold this library without its cu* symbols taking the place of
  // anybody else's.
  api.library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (api.library == nullptr) return Error{0, ::dlerror()};
  if (::dlsym(api.library, "sluice_guest_shim") != nullptr) {
    return Error{0, path + " is the guest's library of Sluice, not a driver"};
  }
  std::string missing_required;
#define SLUICE_BIND(symbol, name, since, parameters) \
  bind(api, #symbol, api.symbol, missing_required);
  SLUICE_CUDA_DRIVER_FUNCTIONS(SLUICE_BIND)
  const unsigned missing_before_green = api.missing;
  SLUICE_CUDA_GREEN_FUNCTIONS(SLUICE_BIND)
  api.green_contexts = api.missing == missing_before_green;
  SLUICE_CUDA_TEXTURE_FUNCTIONS(SLUICE_BIND)
#undef SLUICE_BIND
  if (!missing_required.empty()) return Error{0, path + " lacks " + missing_required};
  return api;
}

std::string describe(CUresult result) {
  const std::string number = std::to_string(static_cast<int>(result));
  const char* name = cuda_error_name(result);
  if (name == nullptr) return "CUresult " + number;
  return std::string(name) + " (" + number + "): " + cuda_error_text(result);
}

}  // namespace sluice::gpu
