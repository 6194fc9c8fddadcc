// SPDX-License-Identifier: Apache-2.0
// Launches as they were before CUDA 4: a function is given its block, its shared memory and its
// parameters one by one, and is then launched by a grid alone. And one cooperative launch for
// several devices, of which there is one.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "abi/cuda_graph.h"
#include "guest-agent/shim/calls/in_function.h"

using namespace sluice::guest;

namespace {

// More than a kernel's parameters can be.
constexpr size_t kMostParameterBytes = 1u << 15;

struct OldLaunch {
  std::array<unsigned, 3> block{1, 1, 1};
  unsigned shared_bytes = 0;
  std::vector<std::byte> parameters;
};
struct OldLaunches {
  std::mutex mutex;
  std::map<uint64_t, OldLaunch> all;  // by the function's handle, which is never used again
};
OldLaunches& old_launches() {
  static auto* it = new OldLaunches;
  return *it;
}

template <class Change>
CUresult change(CUfunction function, bool valid, Change&& how) {
  const InFunction f(function);
  if (!f) return f.status;
  if (!valid) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(old_launches().mutex);
  how(old_launches().all[f.info->handle]);
  return CUDA_SUCCESS;
}

CUresult set_parameter(CUfunction function, int offset, const void* from, size_t bytes) {
  const bool valid = offset >= 0 && from != nullptr && bytes <= kMostParameterBytes &&
                     static_cast<size_t>(offset) <= kMostParameterBytes - bytes;
  return change(function, valid, [&](OldLaunch& launch) {
    const size_t end = static_cast<size_t>(offset) + bytes;
    if (launch.parameters.size() < end) launch.parameters.resize(end);
    std::memcpy(launch.parameters.data() + offset, from, bytes);
  });
}

CUresult launch_old(CUfunction function, int width, int height, CUstream stream) {
  const InFunction f(function);
  if (!f) return f.status;
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  OldLaunch launch;
  {
    std::lock_guard lock(old_launches().mutex);
    launch = old_launches().all[f.info->handle];
  }
  size_t bytes = launch.parameters.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, launch.parameters.data(),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  return cuLaunchKernel(function, static_cast<unsigned>(width), static_cast<unsigned>(height), 1,
                        launch.block[0], launch.block[1], launch.block[2], launch.shared_bytes,
                        stream, nullptr, bytes == 0 ? nullptr : extra);
}

}  // namespace

CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z) {
  return change(function, x > 0 && y > 0 && z > 0, [&](OldLaunch& launch) {
    launch.block = {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
  });
}
CUresult cuFuncSetSharedSize(CUfunction function, unsigned int bytes) {
  return change(function, true, [&](OldLaunch& launch) { launch.shared_bytes = bytes; });
}
CUresult cuParamSetSize(CUfunction function, unsigned int bytes) {
  return change(function, bytes <= kMostParameterBytes,
                [&](OldLaunch& launch) { launch.parameters.resize(bytes); });
}
CUresult cuParamSeti(CUfunction function, int offset, unsigned int value) {
  return set_parameter(function, offset, &value, sizeof value);
}
CUresult cuParamSetf(CUfunction function, int offset, float value) {
  return set_parameter(function, offset, &value, sizeof value);
}
CUresult cuParamSetv(CUfunction function, int offset, void* from, unsigned int bytes) {
  return set_parameter(function, offset, from, bytes);
}
CUresult cuLaunch(CUfunction function) { return launch_old(function, 1, 1, nullptr); }
CUresult cuLaunchGrid(CUfunction function, int width, int height) {
  return launch_old(function, width, height, nullptr);
}
CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
  return launch_old(function, width, height, stream);
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launches, unsigned int devices,
                                              unsigned int flags) {
  const Entered e = enter_context();
  if (!e) return e.status;
  // One launch for each device, none of them in a default stream.
  if (launches == nullptr || devices != 1 || flags > 3 || wire(launches->hStream) <= 2)
    return CUDA_ERROR_INVALID_VALUE;
  const CUDA_LAUNCH_PARAMS& l = *launches;
  return cuLaunchCooperativeKernel(l.function, l.gridDimX, l.gridDimY, l.gridDimZ, l.blockDimX,
                                   l.blockDimY, l.blockDimZ, l.sharedMemBytes, l.hStream,
                                   l.kernelParams);
}
