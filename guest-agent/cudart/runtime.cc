// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/cudart/runtime.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

#include "guest-agent/cudart/binaries.h"

namespace sluice::cudart {
namespace {

struct Device {
  CUcontext context = nullptr;
  std::atomic<bool> ready{false};  // retained, and not reset since
  unsigned flags = 0;
};

enum class Phase : int { kFresh, kReady, kFailed, kForked, kExiting };

struct Process {
  std::mutex mutex;
  std::atomic<Phase> phase{Phase::kFresh};
  cudaError_t failure = cudaSuccess;
  int devices = 0;
  std::unique_ptr<Device[]> device;
};
Process& process() {
  static Process* const p = new Process;
  return *p;
}

// The driver's objects are destroyed after this, those of the program that were made before CUDA
// even later.
void at_exit() { process().phase = Phase::kExiting; }
void in_child() {
  if (process().phase == Phase::kReady) process().phase = Phase::kForked;
}

cudaError_t initialise(Process& p) {
  const Driver* d = load_driver();
  if (d == nullptr || !d->cuInit) return cudaErrorInsufficientDriver;
  if (const CUresult r = d->cuInit(0); r != CUDA_SUCCESS) return to_runtime(r);
  int version = 0;
  if (d->cuDriverGetVersion(&version) != CUDA_SUCCESS || version < 12000)
    return cudaErrorInsufficientDriver;
  if (const CUresult r = d->cuDeviceGetCount(&p.devices); r != CUDA_SUCCESS) return to_runtime(r);
  if (p.devices <= 0) return cudaErrorNoDevice;
  p.device = std::make_unique<Device[]>(static_cast<size_t>(p.devices));
  pthread_atfork(nullptr, nullptr, in_child);
  std::atexit(at_exit);
  return cudaSuccess;
}

// The thread's current context becomes the primary one of `device`.
cudaError_t activate(int device) {
  Process& p = process();
  Device& d = p.device[device];
  {
    std::lock_guard lock(p.mutex);
    if (!d.ready) {
      if (d.flags != 0) driver().cuDevicePrimaryCtxSetFlags_v2(device, d.flags);
      const CUresult r = driver().cuDevicePrimaryCtxRetain(&d.context, device);
      if (r != CUDA_SUCCESS) return to_runtime(r);
      d.ready = true;
    }
  }
  return to_runtime(driver().cuCtxSetCurrent(d.context));
}

// Whether a context is a primary one that was reset behind the thread's back.
bool is_stale(CUcontext context) {
  Process& p = process();
  for (int i = 0; i < p.devices; ++i) {
    if (p.device[i].context == context) return !p.device[i].ready;
  }
  return false;
}

void* library() {
  static void* const handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return handle;
}

}  // namespace

void* driver_symbol(const char* name) {
  return library() != nullptr ? dlsym(library(), name) : nullptr;
}

const Driver* load_driver() {
  static const Driver* const loaded = []() -> const Driver* {
    if (library() == nullptr) return nullptr;
    auto* d = new Driver;
#define SLUICE_FIND(symbol, name, since, parameters) \
  d->symbol.function = reinterpret_cast<decltype(d->symbol.function)>(driver_symbol(#symbol));
    SLUICE_CUDA_DRIVER_FUNCTIONS(SLUICE_FIND)
    SLUICE_CUDA_GRAPH_FUNCTIONS(SLUICE_FIND)
#undef SLUICE_FIND
    return d;
  }();
  return loaded;
}
const Driver& driver() {
  static const Driver nothing;
  const Driver* loaded = load_driver();
  return loaded != nullptr ? *loaded : nothing;
}

Thread& thread() {
  thread_local Thread t;
  return t;
}

cudaError_t ensure_driver() {
  Process& p = process();
  switch (p.phase.load(std::memory_order_acquire)) {
    case Phase::kReady:
      return cudaSuccess;
    case Phase::kForked:
      return cudaErrorInitializationError;
    case Phase::kExiting:
      return cudaErrorCudartUnloading;
    case Phase::kFailed:
      return p.failure;
    case Phase::kFresh:
      break;
  }
  std::lock_guard lock(p.mutex);
  if (p.phase == Phase::kFresh) {
    p.failure = initialise(p);
    p.phase = p.failure == cudaSuccess ? Phase::kReady : Phase::kFailed;
  }
  return p.failure;
}

bool is_forked() { return process().phase.load(std::memory_order_acquire) == Phase::kForked; }

cudaError_t ensure_context() {
  if (const cudaError_t error = ensure_driver(); error != cudaSuccess) return error;
  CUcontext current = nullptr;
  if (const CUresult r = driver().cuCtxGetCurrent(&current); r != CUDA_SUCCESS)
    return to_runtime(r);
  if (current != nullptr && !is_stale(current)) return cudaSuccess;
  return activate(thread().device);
}

cudaError_t use_device(int device) {
  if (device < 0 || device >= process().devices) return cudaErrorInvalidDevice;
  thread().device = device;
  return activate(device);
}

int current_device() {
  CUcontext current = nullptr;
  CUdevice device = 0;
  if (driver().cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != nullptr &&
      !is_stale(current) && driver().cuCtxGetDevice(&device) == CUDA_SUCCESS) {
    return device;
  }
  return thread().device;
}

int device_count() { return process().devices; }

CUcontext primary_context(int device) {
  Process& p = process();
  return device >= 0 && device < p.devices && p.device[device].ready ? p.device[device].context
                                                                     : nullptr;
}

// Releases what the runtime retained, then resets what others may still hold: afterwards a retain
// makes the context anew with every driver.
cudaError_t reset_device(int device) {
  Process& p = process();
  Device& d = p.device[device];
  if (d.ready) unload_binaries();
  std::lock_guard lock(p.mutex);
  if (d.ready.exchange(false)) driver().cuDevicePrimaryCtxRelease_v2(device);
  const CUresult r = driver().cuDevicePrimaryCtxReset_v2(device);
  return r == CUDA_ERROR_INVALID_CONTEXT ? cudaSuccess : to_runtime(r);
}

cudaError_t set_device_flags(unsigned flags) {
  // Memory of the host can always be mapped; an H100's driver does not take the flag for it.
  flags &= ~unsigned{CU_CTX_MAP_HOST};
  Process& p = process();
  std::lock_guard lock(p.mutex);
  p.device[thread().device].flags = flags;
  return to_runtime(driver().cuDevicePrimaryCtxSetFlags_v2(thread().device, flags));
}

cudaError_t record(cudaError_t error) { return thread().last_error = error; }

cudaError_t take_last_error() { return std::exchange(thread().last_error, cudaSuccess); }

cudaError_t to_runtime(CUresult result) {
  switch (static_cast<int>(result)) {
    case CUDA_ERROR_CONTEXT_ALREADY_CURRENT:
      return cudaErrorUnknown;
    case CUDA_ERROR_KEY_ROTATION:
      return cudaErrorUnknown;
    default:
      return static_cast<cudaError_t>(result);
  }
}

}  // namespace sluice::cudart
