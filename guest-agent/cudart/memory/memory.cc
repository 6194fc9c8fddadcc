// SPDX-License-Identifier: Apache-2.0
// Memory: allocations, host memory, pools, symbols, fills, attributes of pointers.
#include "guest-agent/cudart/binaries.h"
#include "guest-agent/cudart/calls.h"

namespace sluice::cudart {
namespace {

CUdeviceptr* as_output(void** p) { return reinterpret_cast<CUdeviceptr*>(p); }

// A row of `width` bytes each; the driver aligns rows for what kernels read at once, the size of
// which is not known.
cudaError_t allocate_pitched(void** address, size_t* pitch, size_t width, size_t height) {
  constexpr unsigned kElementBytes = 4;
  *address = nullptr;
  *pitch = 0;
  if (width == 0 || height == 0) return cudaSuccess;
  return to_runtime(
      driver().cuMemAllocPitch_v2(as_output(address), pitch, width, height, kElementBytes));
}

// A fill without "Async" in its name ends before it returns where the program sees the memory, too
// (CUDA Runtime API, "API synchronization behavior").
cudaError_t end_fill(CUresult queued, const void* address, cudaStream_t stream) {
  if (queued != CUDA_SUCCESS) return to_runtime(queued);
  unsigned type = 0, managed = 0;
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  CU_POINTER_ATTRIBUTE_IS_MANAGED};
  void* data[] = {&type, &managed};
  const CUresult r = driver().cuPointerGetAttributes(2, wanted, data, device_address(address));
  const bool seen = r == CUDA_SUCCESS && (type == CU_MEMORYTYPE_HOST || managed != 0);
  return seen ? to_runtime(driver().cuStreamSynchronize(stream)) : cudaSuccess;
}

}  // namespace

namespace impl {

cudaError_t cudaMalloc(void** address, size_t bytes) {
  if (address == nullptr) return cudaErrorInvalidValue;
  *address = nullptr;
  return bytes == 0 ? cudaSuccess : to_runtime(driver().cuMemAlloc_v2(as_output(address), bytes));
}
cudaError_t cudaFree(void* address) {
  return address == nullptr ? cudaSuccess
                            : to_runtime(driver().cuMemFree_v2(device_address(address)));
}
cudaError_t cudaFreeAsync(DefaultStream mode, void* address, cudaStream_t stream) {
  return to_runtime(driver().cuMemFreeAsync(device_address(address), stream_for(mode, stream)));
}
cudaError_t cudaMallocPitch(void** address, size_t* pitch, size_t width, size_t height) {
  if (address == nullptr || pitch == nullptr) return cudaErrorInvalidValue;
  return allocate_pitched(address, pitch, width, height);
}
cudaError_t cudaMalloc3D(cudaPitchedPtr* pitched, cudaExtent extent) {
  if (pitched == nullptr) return cudaErrorInvalidValue;
  *pitched = {nullptr, 0, extent.width, extent.height};
  size_t rows = 0;
  if (__builtin_mul_overflow(extent.height, extent.depth, &rows)) return cudaErrorMemoryAllocation;
  return allocate_pitched(&pitched->ptr, &pitched->pitch, extent.width, rows);
}
cudaError_t cudaMallocManaged(void** address, size_t bytes, unsigned flags) {
  if (address == nullptr) return cudaErrorInvalidValue;
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  return to_runtime(driver().cuMemAllocManaged(as_output(address), bytes, flags));
}

cudaError_t cudaMallocHost(void** address, size_t bytes) {
  return cudaHostAlloc(address, bytes, 0);
}
cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned flags) {
  if (address == nullptr) return cudaErrorInvalidValue;
  if (bytes == 0) {
    *address = nullptr;
    return cudaSuccess;
  }
  return to_runtime(driver().cuMemHostAlloc(address, bytes, flags));
}
cudaError_t cudaFreeHost(void* address) {
  return address == nullptr ? cudaSuccess : to_runtime(driver().cuMemFreeHost(address));
}

cudaError_t cudaMemPoolExportToShareableHandle(void* handle, cudaMemPool_t pool,
                                               cudaMemAllocationHandleType type, unsigned flags) {
  return to_runtime(call_driver<void*, cudaMemPool_t, int, unsigned long long>(
      "cuMemPoolExportToShareableHandle", handle, pool, type, flags));
}
cudaError_t cudaMemPoolImportFromShareableHandle(cudaMemPool_t* pool, void* handle,
                                                 cudaMemAllocationHandleType type, unsigned flags) {
  return to_runtime(call_driver<cudaMemPool_t*, void*, int, unsigned long long>(
      "cuMemPoolImportFromShareableHandle", pool, handle, type, flags));
}

cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  if (address == nullptr) return cudaErrorInvalidValue;
  size_t size = 0;
  return address_of(symbol, as_output(address), &size);
}
cudaError_t cudaGetSymbolSize(size_t* size, const void* symbol) {
  if (size == nullptr) return cudaErrorInvalidValue;
  CUdeviceptr address = 0;
  return address_of(symbol, &address, size);
}

cudaError_t cudaMemset(DefaultStream mode, void* address, int value, size_t bytes) {
  if (bytes == 0) return cudaSuccess;
  const auto byte = static_cast<unsigned char>(value);
  if (mode == DefaultStream::kPerThread) {
    return end_fill(
        driver().cuMemsetD8Async(device_address(address), byte, bytes, kPerThreadStream), address,
        kPerThreadStream);
  }
  return to_runtime(driver().cuMemsetD8_v2(device_address(address), byte, bytes));
}
cudaError_t cudaMemsetAsync(DefaultStream mode, void* address, int value, size_t bytes,
                            cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  return to_runtime(driver().cuMemsetD8Async(
      device_address(address), static_cast<unsigned char>(value), bytes, stream_for(mode, stream)));
}

cudaError_t cudaMemset2D(DefaultStream mode, void* address, size_t pitch, int value, size_t width,
                         size_t height) {
  if (width == 0 || height == 0) return cudaSuccess;
  const auto byte = static_cast<unsigned char>(value);
  if (mode == DefaultStream::kPerThread) {
    return end_fill(driver().cuMemsetD2D8Async(device_address(address), pitch, byte, width, height,
                                               kPerThreadStream),
                    address, kPerThreadStream);
  }
  return to_runtime(driver().cuMemsetD2D8_v2(device_address(address), pitch, byte, width, height));
}
cudaError_t cudaMemset2DAsync(DefaultStream mode, void* address, size_t pitch, int value,
                              size_t width, size_t height, cudaStream_t stream) {
  if (width == 0 || height == 0) return cudaSuccess;
  return to_runtime(driver().cuMemsetD2D8Async(device_address(address), pitch,
                                               static_cast<unsigned char>(value), width, height,
                                               stream_for(mode, stream)));
}

cudaError_t cudaMemset3D(DefaultStream mode, cudaPitchedPtr p, int value, cudaExtent extent) {
  const cudaError_t error = cudaMemset3DAsync(mode, p, value, extent, nullptr);
  return error != cudaSuccess ? error : end_fill(CUDA_SUCCESS, p.ptr, stream_for(mode, nullptr));
}
// Slice by slice, or at once where nothing stands between the slices.
cudaError_t cudaMemset3DAsync(DefaultStream mode, cudaPitchedPtr p, int value, cudaExtent extent,
                              cudaStream_t stream) {
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return cudaSuccess;
  if (p.pitch < extent.width || extent.height > p.ysize) return cudaErrorInvalidValue;
  char* slice = static_cast<char*>(p.ptr);
  if (extent.height == p.ysize) {
    return cudaMemset2DAsync(mode, slice, p.pitch, value, extent.width,
                             extent.height * extent.depth, stream);
  }
  for (size_t z = 0; z < extent.depth; ++z, slice += p.pitch * p.ysize) {
    const cudaError_t error =
        cudaMemset2DAsync(mode, slice, p.pitch, value, extent.width, extent.height, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

// An address that the driver does not know is ordinary host memory, and that is no error.
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* pointer) {
  if (out == nullptr) return cudaErrorInvalidValue;
  unsigned type = 0, managed = 0;
  int ordinal = 0;
  CUdeviceptr on_device = 0;
  void* on_host = nullptr;
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                  CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                  CU_POINTER_ATTRIBUTE_HOST_POINTER};
  void* data[] = {&type, &managed, &ordinal, &on_device, &on_host};
  const CUresult r = driver().cuPointerGetAttributes(5, wanted, data, device_address(pointer));
  if (r != CUDA_SUCCESS && r != CUDA_ERROR_INVALID_VALUE) return to_runtime(r);
  PointerAttributes12 answer = {};
  if (r == CUDA_ERROR_INVALID_VALUE || type == 0) {
    answer = {cudaMemoryTypeUnregistered, -2, nullptr, const_cast<void*>(pointer)};
  } else {
    answer.type = managed != 0                 ? cudaMemoryTypeManaged
                  : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost
                                               : cudaMemoryTypeDevice;
    answer.device = ordinal;
    answer.devicePointer = reinterpret_cast<void*>(on_device);
    answer.hostPointer = on_host;
  }
  *reinterpret_cast<PointerAttributes12*>(out) = answer;  // as much as both versions have
  return cudaSuccess;
}

}  // namespace impl
}  // namespace sluice::cudart
