// SPDX-License-Identifier: Apache-2.0
// Devices: count, choice, properties, flags, peers; versions; entry points of the driver.
#include <cstring>

#include "guest-agent/cudart/calls.h"
#include "guest-agent/cudart/properties.h"
#include "guest-agent/cudart/version.h"

namespace sluice::cudart {
namespace {

constexpr unsigned kKnownFlags = 0xFF;  // cudaDeviceMask
constexpr unsigned kScheduleMask = 0x07;

bool is_device(int device) { return device >= 0 && device < device_count(); }

// Fields that a layout does not have are left out of it.
template <class Properties>
cudaError_t fill_properties(Properties* p, int device) {
  if (p == nullptr) return cudaErrorInvalidValue;
  if (!is_device(device)) return cudaErrorInvalidDevice;
  std::memset(static_cast<void*>(p), 0, sizeof *p);
  const auto get = [&](CUdevice_attribute attribute) {
    int value = 0;  // and remains that where a driver does not know the attribute
    driver().cuDeviceGetAttribute(&value, attribute, device);
    return value;
  };
  if (const CUresult r = driver().cuDeviceGetName(p->name, sizeof p->name, device);
      r != CUDA_SUCCESS) {
    return to_runtime(r);
  }
  driver().cuDeviceGetUuid_v2(reinterpret_cast<CUuuid*>(&p->uuid), device);
  driver().cuDeviceTotalMem_v2(&p->totalGlobalMem, device);
#define SLUICE_FILL(type, field, attribute)                             \
  if constexpr (requires { p->field; }) {                               \
    p->field = static_cast<type>(get(CU_DEVICE_ATTRIBUTE_##attribute)); \
  }
#define SLUICE_FILL2(type, field, a, b)       \
  p->field[0] = get(CU_DEVICE_ATTRIBUTE_##a); \
  p->field[1] = get(CU_DEVICE_ATTRIBUTE_##b);
#define SLUICE_FILL3(type, field, a, b, c) \
  SLUICE_FILL2(type, field, a, b) p->field[2] = get(CU_DEVICE_ATTRIBUTE_##c);
  SLUICE_CUDART_PROPERTIES(SLUICE_FILL, SLUICE_FILL2, SLUICE_FILL3, SLUICE_FILL, SLUICE_FILL)
#undef SLUICE_FILL
#undef SLUICE_FILL2
#undef SLUICE_FILL3
  return cudaSuccess;
}

// The device that has most of what is asked for: enough of it first, the newer one then.
template <class Properties>
cudaError_t choose_device(int* device, const Properties* wanted) {
  if (device == nullptr || wanted == nullptr) return cudaErrorInvalidValue;
  int best = 0, best_score = -1;
  for (int i = 0; i < device_count(); ++i) {
    Properties p;
    if (const cudaError_t error = fill_properties(&p, i); error != cudaSuccess) return error;
    const int score = (p.totalGlobalMem >= wanted->totalGlobalMem ? 1 : 0) +
                      (p.multiProcessorCount >= wanted->multiProcessorCount ? 1 : 0) +
                      (p.major * 10 + p.minor >= wanted->major * 10 + wanted->minor ? 2 : 0);
    if (score > best_score) {
      best = i;
      best_score = score;
    }
  }
  *device = best;
  return cudaSuccess;
}

}  // namespace

namespace impl {

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return cudaErrorInvalidValue;
  *version = kRuntimeVersion;
  return cudaSuccess;
}
// Without a driver the version is 0, and that is no error.
cudaError_t cudaDriverGetVersion(int* version) {
  if (version == nullptr) return cudaErrorInvalidValue;
  *version = 0;
  const Driver* d = load_driver();
  return d == nullptr ? cudaSuccess : to_runtime(d->cuDriverGetVersion(version));
}

// Also in a child that was forked after its parent had begun: the parent knew.
cudaError_t cudaGetDeviceCount(int* count) {
  if (count == nullptr) return cudaErrorInvalidValue;
  if (!is_forked())
    if (const cudaError_t error = ensure_driver(); error != cudaSuccess) return error;
  *count = device_count();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  if (device == nullptr) return cudaErrorInvalidValue;
  *device = current_device();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return use_device(device); }

// The first of the list that exists is used until cudaSetDevice says otherwise.
cudaError_t cudaSetValidDevices(int* devices, int count) {
  if (count < 0 || (count > 0 && devices == nullptr)) return cudaErrorInvalidValue;
  for (int i = 0; i < count; ++i) {
    if (!is_device(devices[i])) return cudaErrorInvalidDevice;
  }
  thread().device = count > 0 ? devices[0] : 0;
  return cudaSuccess;
}

cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
  constexpr unsigned kFlagsAreValid = 1;
  if (!is_device(device)) return cudaErrorInvalidDevice;
  if ((flags & ~kFlagsAreValid) != 0 || (device_flags & ~kKnownFlags) != 0)
    return cudaErrorInvalidValue;
  const int before = thread().device;
  if ((flags & kFlagsAreValid) != 0) {
    thread().device = device;
    const cudaError_t error = set_device_flags(device_flags);
    thread().device = before;
    if (error != cudaSuccess) return error;
  }
  CUcontext current = nullptr;
  driver().cuCtxGetCurrent(&current);
  const cudaError_t error = use_device(device);
  thread().device = before;
  driver().cuCtxSetCurrent(current);
  return error;
}

cudaError_t cudaSetDeviceFlags(unsigned flags) {
  const unsigned schedule = flags & kScheduleMask;
  if ((flags & ~kKnownFlags) != 0 || (schedule & (schedule - 1)) != 0) return cudaErrorInvalidValue;
  return set_device_flags(flags);
}
cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  if (flags == nullptr) return cudaErrorInvalidValue;
  int active = 0;
  const CUresult r = driver().cuDevicePrimaryCtxGetState(current_device(), flags, &active);
  *flags |= CU_CTX_MAP_HOST;  // as the runtime has always answered
  return to_runtime(r);
}

cudaError_t cudaDeviceReset() { return reset_device(current_device()); }

#if SLUICE_CUDART_MAJOR == 12
// Programs of CUDA 11 know fewer fields; those of 12 ask for the second version.
cudaError_t cudaGetDeviceProperties(void* properties, int device) {
  if (properties == nullptr) return cudaErrorInvalidValue;
  DeviceProperties12 all;
  const cudaError_t error = fill_properties(&all, device);
  if (error == cudaSuccess) {
    std::memcpy(properties, &all, offsetof(DeviceProperties12, hostRegisterSupported));
  }
  return error;
}
cudaError_t cudaGetDeviceProperties_v2(void* properties, int device) {
  return fill_properties(static_cast<DeviceProperties12*>(properties), device);
}
cudaError_t cudaChooseDevice(int* device, const void* wanted) {
  return choose_device(device, static_cast<const DeviceProperties12*>(wanted));
}
cudaError_t cudaThreadExit() { return cudaDeviceReset(); }
#else
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return fill_properties(properties, device);
}
cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp* wanted) {
  return choose_device(device, wanted);
}
#endif

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (id == nullptr || length <= 0) return cudaErrorInvalidValue;
  if (!is_device(device)) return cudaErrorInvalidDevice;
  return to_runtime(driver().cuDeviceGetPCIBusId(id, length, device));
}

cudaError_t cudaDeviceGetTexture1DLinearMaxWidth(size_t* width, const cudaChannelFormatDesc* format,
                                                 int device) {
  if (width == nullptr || format == nullptr) return cudaErrorInvalidValue;
  if (!is_device(device)) return cudaErrorInvalidDevice;
  int texels = 0;
  const CUresult r = driver().cuDeviceGetAttribute(
      &texels, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, device);
  *width = static_cast<size_t>(texels);
  return to_runtime(r);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  if (!is_device(peer)) return cudaErrorInvalidDevice;
  if (peer == current_device()) return cudaErrorPeerAccessUnsupported;
  if (flags != 0) return cudaErrorInvalidValue;
  CUcontext context = nullptr;
  if (const CUresult r = driver().cuDevicePrimaryCtxRetain(&context, peer); r != CUDA_SUCCESS)
    return to_runtime(r);
  return to_runtime(call_driver<CUcontext, unsigned>("cuCtxEnablePeerAccess", context, 0u));
}
cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  if (!is_device(peer)) return cudaErrorInvalidDevice;
  CUcontext context = primary_context(peer);
  if (context == nullptr || peer == current_device()) return cudaErrorPeerAccessNotEnabled;
  return to_runtime(call_driver<CUcontext>("cuCtxDisablePeerAccess", context));
}

cudaError_t cudaGetDriverEntryPoint(DefaultStream mode, const char* symbol, void** function,
                                    unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* status) {
  return cudaGetDriverEntryPointByVersion(mode, symbol, function, kRuntimeVersion, flags, status);
}
// A symbol that the driver lacks is no error where the caller takes the status.
cudaError_t cudaGetDriverEntryPointByVersion(DefaultStream mode, const char* symbol,
                                             void** function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* status) {
  if (symbol == nullptr || function == nullptr || *symbol == '\0') return cudaErrorInvalidValue;
  if (flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) return cudaErrorInvalidValue;
  if (flags == 0 && mode == DefaultStream::kPerThread)
    flags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  *function = nullptr;
  const CUresult r =
      driver().cuGetProcAddress_v2(symbol, function, static_cast<int>(version), flags, &found);
  if (status != nullptr) *status = static_cast<int>(found);
  if (r == CUDA_ERROR_NOT_FOUND) return status != nullptr ? cudaSuccess : cudaErrorSymbolNotFound;
  return to_runtime(r);
}

}  // namespace impl
}  // namespace sluice::cudart
