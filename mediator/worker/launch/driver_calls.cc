// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/launch/driver_calls.h"

#include <atomic>
#include <cstddef>

#include "mediator/base/check.h"

namespace sluice::worker {

namespace {
// No context has this address: makes the next make_current() ask the driver.
CUcontext const kUnknown = reinterpret_cast<CUcontext>(~uintptr_t{0});
thread_local CUcontext t_current = nullptr;
// Contexts that went, or may have. The driver gives a device's primary context the same handle each
// time, and to a thread that had the former one current it is still that one, destroyed: so what a
// thread knows counts only as long as none has gone.
std::atomic<uint64_t> g_gone{0};
thread_local uint64_t t_gone = 0;

bool is_plain(const CUDA_MEMCPY2D& c) { return c.Height == 1; }

// A launch's parameters one by one, so that the driver puts each where the compiled kernel reads
// it. In one buffer they would have to lie as the driver's own buffer does, which is not as PTX
// lays them out: where one is aligned to more than 16 bytes (a tensor map: 64) the first need not
// be at 0. Points into the work.
class ParamPointers {
 public:
  explicit ParamPointers(LaunchWork& w) {
    SLUICE_CHECK(w.request.function->params.size() <= SLUICE_MAX_PARAMS &&
                 w.request.params.size() == w.request.function->param_bytes);
    for (const ParamPlace& place : w.request.function->params)
      add(const_cast<std::byte*>(w.request.params.data()) + place.offset);
  }
  void add(void* at) { pointers_[count_++] = at; }
  void** get() { return count_ == 0 ? nullptr : pointers_; }

 private:
  void* pointers_[SLUICE_MAX_PARAMS + 1];  // a clone's block too
  size_t count_ = 0;
};
}  // namespace

CUresult make_current(const gpu::DriverApi& api, CUcontext context) {
  const uint64_t gone = g_gone.load();
  if (t_current == context && t_gone == gone) return CUDA_SUCCESS;
  CUresult r = api.cuCtxSetCurrent(context);
  t_gone = gone;
  t_current = r == CUDA_SUCCESS ? context : kUnknown;
  return r;
}
void forget_current() { g_gone.fetch_add(1); }

CUresult launch_clone(const gpu::DriverApi& api, CUstream to, LaunchWork& w,
                      const sluice_preempt_params& p, uint32_t blocks) {
  sluice_preempt_params block = p;
  const uint32_t grid[3] = {blocks, 1, 1};
  // The variant may have been given to another shape meanwhile; the launch's own numbers stand.
  const bool slots = w.request.function->slot_dynamic && !w.plan.one_task;
  return launch_kernel(api, to, w, &block, grid,
                       w.request.dynamic_shared + (slots ? SLUICE_PREEMPT_DYNAMIC_BYTES : 0));
}

CUresult launch_kernel(const gpu::DriverApi& api, CUstream to, LaunchWork& w, void* block,
                       const uint32_t grid[3], uint32_t dynamic_shared) {
  ParamPointers params(w);
  params.add(block);
  return api.cuLaunchKernel(w.plan.clone, grid[0], grid[1], grid[2], w.request.block[0],
                            w.request.block[1], w.request.block[2], dynamic_shared, to,
                            params.get(), nullptr);
}

CUresult launch_original(const gpu::DriverApi& api, CUstream to, LaunchWork& w) {
  ParamPointers params(w);
  if (w.request.flags == 0) {
    return api.cuLaunchKernel(w.request.function->original, w.request.grid[0], w.request.grid[1],
                              w.request.grid[2], w.request.block[0], w.request.block[1],
                              w.request.block[2], w.request.dynamic_shared, to, params.get(),
                              nullptr);
  }
  CUlaunchAttribute attributes[2] = {};
  CUlaunchConfig config{};
  config.gridDimX = w.request.grid[0];
  config.gridDimY = w.request.grid[1];
  config.gridDimZ = w.request.grid[2];
  config.blockDimX = w.request.block[0];
  config.blockDimY = w.request.block[1];
  config.blockDimZ = w.request.block[2];
  config.sharedMemBytes = w.request.dynamic_shared;
  config.hStream = to;
  config.attrs = attributes;
  const auto add = [&](CUlaunchAttributeID id) -> CUlaunchAttributeValue& {
    CUlaunchAttribute& a = attributes[config.numAttrs++];
    a.id = id;
    return a.value;
  };
  if (w.request.flags & SLUICE_LAUNCHED_COOPERATIVE)
    add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = 1;
  if (SLUICE_LAUNCHED_CLUSTER_DIM(w.request.flags, 0) != 0) {
    add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim = {
        SLUICE_LAUNCHED_CLUSTER_DIM(w.request.flags, 0),
        SLUICE_LAUNCHED_CLUSTER_DIM(w.request.flags, 1),
        SLUICE_LAUNCHED_CLUSTER_DIM(w.request.flags, 2)};
  }
  return api.cuLaunchKernelEx(&config, w.request.function->original, params.get(), nullptr);
}

CUresult copy(const gpu::DriverApi& api, CUstream to, const CUDA_MEMCPY2D& c) {
  if (!is_plain(c)) return api.cuMemcpy2DAsync(&c, to);
  if (c.srcMemoryType == CU_MEMORYTYPE_HOST)
    return api.cuMemcpyHtoDAsync(c.dstDevice, c.srcHost, c.WidthInBytes, to);
  if (c.dstMemoryType == CU_MEMORYTYPE_HOST)
    return api.cuMemcpyDtoHAsync(c.dstHost, c.srcDevice, c.WidthInBytes, to);
  return api.cuMemcpyDtoDAsync(c.dstDevice, c.srcDevice, c.WidthInBytes, to);
}

CUresult fill(const gpu::DriverApi& api, CUstream to, const sluice_memset& m) {
  const auto u8 = static_cast<unsigned char>(m.value);
  const auto u16 = static_cast<unsigned short>(m.value);
  if (m.height == 1) {
    switch (m.element_bytes) {
      case 1:
        return api.cuMemsetD8Async(m.dst, u8, m.width, to);
      case 2:
        return api.cuMemsetD16Async(m.dst, u16, m.width, to);
      default:
        return api.cuMemsetD32Async(m.dst, m.value, m.width, to);
    }
  }
  switch (m.element_bytes) {
    case 1:
      return api.cuMemsetD2D8Async(m.dst, m.pitch, u8, m.width, m.height, to);
    case 2:
      return api.cuMemsetD2D16Async(m.dst, m.pitch, u16, m.width, m.height, to);
    default:
      return api.cuMemsetD2D32Async(m.dst, m.pitch, m.value, m.width, m.height, to);
  }
}

CUresult CopyWork::issue(const gpu::DriverApi& api, CUstream to) const {
  return worker::copy(api, to, copy);
}
CUresult BoxWork::issue(const gpu::DriverApi& api, CUstream to) const {
  return api.cuMemcpy3DAsync_v2(&copy, to);
}
CUresult MemsetWork::issue(const gpu::DriverApi& api, CUstream to) const {
  return fill(api, to, args);
}
CUresult ValueWork::issue(const gpu::DriverApi& api, CUstream to) const {
  const auto word = static_cast<cuuint32_t>(value);
  if (is_wait)
    return value_bytes == 8 ? api.cuStreamWaitValue64(to, address, value, flags)
                            : api.cuStreamWaitValue32(to, address, word, flags);
  return value_bytes == 8 ? api.cuStreamWriteValue64(to, address, value, flags)
                          : api.cuStreamWriteValue32(to, address, word, flags);
}

}  // namespace sluice::worker
