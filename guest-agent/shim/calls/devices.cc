// SPDX-License-Identifier: Apache-2.0
// Start, versions, devices, error texts.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "abi/array_formats.h"
#include "abi/cuda_graph.h"
#include "guest-agent/shim/state/api.h"
#include "mediator/base/cuda_errors.h"

using namespace sluice::guest;

CUresult cuInit(unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = WorkerLink::open([] { return state().pointers.pinned(); });
      r != CUDA_SUCCESS)
    return r;
  const Entered e = enter();
  if (!e) return e.status;
  return SLUICE_CALL(cuInit, *e.link, 0, flags);
}

CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = SLUICE_CUDA_VERSION;
  const Entered e = enter();
  if (!e) return CUDA_SUCCESS;  // allowed before cuInit: then it is what we declare
  int host = 0;
  const CUresult r = SLUICE_CALL(cuDriverGetVersion, *e.link, 0, &host);
  if (r == CUDA_SUCCESS) *version = std::min(host, SLUICE_CUDA_VERSION);
  return r;
}

CUresult cuDeviceGetCount(int* count) {
  const Entered e = enter();
  if (!e) return e.status;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SLUICE_CALL(cuDeviceGetCount, *e.link, 0, count);
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  const Entered e = enter();
  if (!e) return e.status;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SLUICE_CALL(cuDeviceGet, *e.link, 0, device, ordinal);
}

CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  const Entered e = enter();
  if (!e) return e.status;
  if (name == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  const int asked = std::min(len, 256);
  const CUresult r = SLUICE_CALL(cuDeviceGetName, *e.link, 0, name, asked, dev);
  if (r == CUDA_SUCCESS) name[asked - 1] = '\0';
  return r;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  const Entered e = enter();
  if (!e) return e.status;
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SLUICE_CALL(cuDeviceGetUuid_v2, *e.link, 0, uuid, dev);
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  const Entered e = enter();
  if (!e) return e.status;
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SLUICE_CALL(cuDeviceTotalMem_v2, *e.link, 0, bytes, dev);
}

CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  const Entered e = enter();
  if (!e) return e.status;
  return device_attribute(*e.link, dev, attrib, pi);
}

CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  const Entered e = enter();
  if (!e) return e.status;
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SLUICE_CALL(cuDeviceGetProperties, *e.link, 0, prop, dev);
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  const Entered e = enter();
  if (!e) return e.status;
  const CUresult r =
      device_attribute(*e.link, dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, major);
  if (r != CUDA_SUCCESS) return r;
  return device_attribute(*e.link, dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, minor);
}

CUresult cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType type, CUdevice dev) {
  const Entered e = enter();
  if (!e) return e.status;
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pi = 0;  // contexts with an affinity are not offered
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* max_width, CUarray_format format,
                                            unsigned int channels, CUdevice dev) {
  const Entered e = enter();
  if (!e) return e.status;
  if (max_width == nullptr || sluice::texel_bytes(format, channels) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  int texels = 0;
  const CUresult r =
      device_attribute(*e.link, dev, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, &texels);
  if (r == CUDA_SUCCESS) *max_width = static_cast<size_t>(texels);
  return r;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* pci_bus_id) {
  const Entered e = enter();
  if (!e) return e.status;
  if (dev == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SLUICE_CALL(cuDeviceGetByPCIBusId, *e.link, 0, dev, pci_bus_id);
}

CUresult cuDeviceGetPCIBusId(char* pci_bus_id, int len, CUdevice dev) {
  const Entered e = enter();
  if (!e) return e.status;
  if (pci_bus_id == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  return SLUICE_CALL(cuDeviceGetPCIBusId, *e.link, 0, pci_bus_id, std::min(len, 64), dev);
}

CUresult cuGetErrorName(CUresult error, const char** str) {
  if (str == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *str = sluice::cuda_error_name(error);
  return *str == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** str) {
  if (str == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *str = sluice::cuda_error_text(error);
  return *str == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

namespace {

// Whether code of NVRTC's library calls, which asks for private tables and compiles without them.
bool is_in_nvrtc(const void* code) {
  Dl_info in{};
  if (::dladdr(code, &in) == 0 || in.dli_fname == nullptr) return false;
  const std::string_view path = in.dli_fname;
  return path.substr(path.rfind('/') + 1).starts_with("libnvrtc");
}

}  // namespace

// Private tables of NVIDIA's own libraries: never offered: they are not public. Who fails without
// them gets the remedy at once, because it may end without a word of its own.
CUresult cuGetExportTable(const void** table, const CUuuid*) {
  if (table != nullptr) *table = nullptr;
  if (is_in_nvrtc(__builtin_return_address(0))) {
    log_line("cuGetExportTable is refused to NVRTC, which goes on without");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return static_cast<CUresult>(not_supported(
      "cuGetExportTable",
      "NVIDIA's own libraries (libcudart, cuBLAS, cuDNN and others) need private tables of its "
      "driver; build programs with -cudart shared (NVCC_APPEND_FLAGS=\"-cudart shared\"); one that "
      "brings its own libcudart.so runs by `sluice-run PROGRAM`"));
}

CUresult cuProfilerStart() { return enter_context().status; }
CUresult cuProfilerStop() { return enter_context().status; }

// ---- peers: a vGPU shows one device, which has none ----

namespace {

CUresult check_devices(CUdevice one, CUdevice other) {
  int count = 0;
  if (const CUresult r = cuDeviceGetCount(&count); r != CUDA_SUCCESS) return r;
  const auto is_device = [count](CUdevice device) { return device >= 0 && device < count; };
  return is_device(one) && is_device(other) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

CUresult cuDeviceCanAccessPeer(int* can_access_peer, CUdevice dev, CUdevice peer_dev) {
  const Entered e = enter();
  if (!e) return e.status;
  if (can_access_peer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = check_devices(dev, peer_dev); r != CUDA_SUCCESS) return r;
  *can_access_peer = 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice src,
                                 CUdevice dst) {
  const Entered e = enter();
  if (!e) return e.status;
  if (value == nullptr || attribute < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
      attribute > CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = check_devices(src, dst); r != CUDA_SUCCESS) return r;
  if (src == dst) return CUDA_ERROR_INVALID_DEVICE;
  *value = 0;
  return CUDA_SUCCESS;
}

namespace {

CUresult check_peer(CUcontext peer) {
  const Entered e = enter_context();
  if (!e) return e.status;
  const bool other = wire(peer) != e.context && state().context(wire(peer)).has_value();
  return other ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  const CUresult r = check_peer(peer);
  if (r != CUDA_SUCCESS) return r;
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  const CUresult r = check_peer(peer);
  return r != CUDA_SUCCESS ? r : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
