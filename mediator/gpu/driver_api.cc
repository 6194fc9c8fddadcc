// SPDX-License-Identifier: Apache-2.0
#include "mediator/gpu/driver_api.h"

#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <string_view>
#include <utility>
#include <vector>

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

std::string program_directory() {
  char path[PATH_MAX];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
  if (n <= 0) return "";
  const std::string_view whole(path, static_cast<size_t>(n));
  return std::string(whole.substr(0, whole.rfind('/')));
}

// Loads the driver and asks it for devices; the error says which step failed.
Result<Gpu> start(GpuKind kind, const std::string& path) {
  Result<DriverApi> api = load_driver(path);
  if (!api) return std::move(api).error();
  if (const CUresult r = api->cuInit(0); r != CUDA_SUCCESS) {
    return Error{r, path + ": cuInit: " + describe(r)};
  }
  int count = 0;
  if (const CUresult r = api->cuDeviceGetCount(&count); r != CUDA_SUCCESS) {
    return Error{r, path + ": cuDeviceGetCount: " + describe(r)};
  }
  if (count < 1) return Error{CUDA_ERROR_NO_DEVICE, path + ": no device"};
  return Gpu{kind, *std::move(api), count, ""};
}

Result<Gpu> start_soft(const std::string& name) {
  std::vector<std::string> places;
  if (name.find('/') == std::string::npos) {
    const std::string directory = program_directory();
    places = {directory + "/../lib/sluice/" + name, directory + "/../softgpu/" + name};
  }
  for (const std::string& place : places) {
    if (::access(place.c_str(), R_OK) == 0) return start(GpuKind::kSoft, place);
  }
  return start(GpuKind::kSoft, name);
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

Result<Gpu> find_gpu(const GpuConfig& config) {
  std::string why_not;
  if (config.want != GpuConfig::Want::kSoft) {
    Result<Gpu> gpu = start(GpuKind::kNvidia, config.nvidia_library);
    if (gpu) {
      gpu->why = "NVIDIA's driver has " + std::to_string(gpu->device_count) + " device(s)";
      return gpu;
    }
    if (config.want == GpuConfig::Want::kNvidia) return gpu;
    why_not = gpu.error().message;
  }
  Result<Gpu> gpu = start_soft(config.soft_library);
  if (!gpu) {
    return why_not.empty()
               ? std::move(gpu)
               : Result<Gpu>(Error{gpu.error().code,
                                   gpu.error().message + " (and no NVIDIA GPU: " + why_not + ")"});
  }
  gpu->why = why_not.empty() ? "asked for by the configuration" : "no NVIDIA GPU: " + why_not;
  return gpu;
}

}  // namespace sluice::gpu
