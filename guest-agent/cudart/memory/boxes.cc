// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/cudart/memory/boxes.h"

#include "guest-agent/cudart/memory/formats.h"

namespace sluice::cudart {
namespace {

CUmemorytype source_type(int kind) {
  switch (kind) {
    case cudaMemcpyHostToHost:
    case cudaMemcpyHostToDevice:
      return CU_MEMORYTYPE_HOST;
    case cudaMemcpyDeviceToHost:
    case cudaMemcpyDeviceToDevice:
      return CU_MEMORYTYPE_DEVICE;
    default:
      return CU_MEMORYTYPE_UNIFIED;
  }
}
CUmemorytype target_type(int kind) {
  switch (kind) {
    case cudaMemcpyHostToHost:
    case cudaMemcpyDeviceToHost:
      return CU_MEMORYTYPE_HOST;
    case cudaMemcpyHostToDevice:
    case cudaMemcpyDeviceToDevice:
      return CU_MEMORYTYPE_DEVICE;
    default:
      return CU_MEMORYTYPE_UNIFIED;
  }
}
CUarray driver_array(cudaArray_const_t array) {
  return reinterpret_cast<CUarray>(const_cast<cudaArray*>(array));
}

}  // namespace

bool is_copy_kind(int kind) { return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault; }

cudaError_t make_box(const CopyEnd& to, const CopyEnd& from, cudaExtent extent, int kind,
                     CUDA_MEMCPY3D* box) {
  if (!is_copy_kind(kind)) return cudaErrorInvalidMemcpyDirection;
  *box = {};
  box->srcXInBytes = from.at.x;
  box->srcY = from.at.y;
  box->srcZ = from.at.z;
  box->srcMemoryType = from.array != nullptr ? CU_MEMORYTYPE_ARRAY : source_type(kind);
  box->srcPitch = from.pitch;
  box->srcHeight = from.height;
  if (from.array != nullptr) {
    box->srcArray = driver_array(from.array);
  } else if (box->srcMemoryType == CU_MEMORYTYPE_HOST) {
    box->srcHost = from.address;
  } else {
    box->srcDevice = device_address(from.address);
  }
  box->dstXInBytes = to.at.x;
  box->dstY = to.at.y;
  box->dstZ = to.at.z;
  box->dstMemoryType = to.array != nullptr ? CU_MEMORYTYPE_ARRAY : target_type(kind);
  box->dstPitch = to.pitch;
  box->dstHeight = to.height;
  if (to.array != nullptr) {
    box->dstArray = driver_array(to.array);
  } else if (box->dstMemoryType == CU_MEMORYTYPE_HOST) {
    box->dstHost = const_cast<void*>(to.address);
  } else {
    box->dstDevice = device_address(to.address);
  }
  box->WidthInBytes = extent.width;
  box->Height = extent.height;
  box->Depth = extent.depth;
  return cudaSuccess;
}

cudaError_t make_box(const cudaMemcpy3DParms& p, CUDA_MEMCPY3D* box) {
  if ((p.srcArray != nullptr) == (p.srcPtr.ptr != nullptr)) return cudaErrorInvalidValue;
  if ((p.dstArray != nullptr) == (p.dstPtr.ptr != nullptr)) return cudaErrorInvalidValue;
  size_t element = 1;
  if (p.srcArray != nullptr) element = element_bytes(p.srcArray);
  if (p.dstArray != nullptr) element = element_bytes(p.dstArray);
  if (element == 0) return cudaErrorNotSupported;
  CopyEnd from{p.srcPtr.ptr, p.srcPtr.pitch, p.srcPtr.ysize, p.srcArray, p.srcPos};
  CopyEnd to{p.dstPtr.ptr, p.dstPtr.pitch, p.dstPtr.ysize, p.dstArray, p.dstPos};
  if (p.srcArray != nullptr) from.at.x *= element;
  if (p.dstArray != nullptr) to.at.x *= element;
  const size_t width = p.extent.width * element;
  const auto too_narrow = [&](const CopyEnd& end) {
    return end.array == nullptr && end.pitch != 0 && end.pitch < width;
  };
  // Between memory and an array an H100's runtime says so in other words.
  if (too_narrow(from) || too_narrow(to))
    return p.srcArray == nullptr && p.dstArray == nullptr ? cudaErrorInvalidPitchValue
                                                          : cudaErrorInvalidValue;
  return make_box(to, from, {width, p.extent.height, p.extent.depth}, p.kind, box);
}

cudaMemcpy3DParms make_parameters(const CUDA_MEMCPY3D& box) {
  const auto host = [](CUmemorytype type) { return type == CU_MEMORYTYPE_HOST; };
  const auto unified = [](CUmemorytype type) { return type == CU_MEMORYTYPE_UNIFIED; };
  cudaMemcpy3DParms p = {};
  size_t element = 1;
  if (box.srcMemoryType == CU_MEMORYTYPE_ARRAY) {
    p.srcArray = reinterpret_cast<cudaArray_t>(box.srcArray);
    element = element_bytes(p.srcArray);
  } else {
    p.srcPtr = {host(box.srcMemoryType) ? const_cast<void*>(box.srcHost)
                                        : reinterpret_cast<void*>(box.srcDevice),
                box.srcPitch, box.WidthInBytes, box.srcHeight};
  }
  if (box.dstMemoryType == CU_MEMORYTYPE_ARRAY) {
    p.dstArray = reinterpret_cast<cudaArray_t>(box.dstArray);
    element = element_bytes(p.dstArray);
  } else {
    p.dstPtr = {host(box.dstMemoryType) ? box.dstHost : reinterpret_cast<void*>(box.dstDevice),
                box.dstPitch, box.WidthInBytes, box.dstHeight};
  }
  if (element == 0) element = 1;
  p.srcPos = {p.srcArray != nullptr ? box.srcXInBytes / element : box.srcXInBytes, box.srcY,
              box.srcZ};
  p.dstPos = {p.dstArray != nullptr ? box.dstXInBytes / element : box.dstXInBytes, box.dstY,
              box.dstZ};
  p.extent = {box.WidthInBytes / element, box.Height, box.Depth};
  p.kind = unified(box.srcMemoryType) || unified(box.dstMemoryType) ? cudaMemcpyDefault
           : host(box.srcMemoryType)
               ? (host(box.dstMemoryType) ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice)
           : host(box.dstMemoryType) ? cudaMemcpyDeviceToHost
                                     : cudaMemcpyDeviceToDevice;
  return p;
}

CUDA_MEMCPY3D make_row(void* to, const void* from, size_t bytes, int kind) {
  CUDA_MEMCPY3D box;
  make_box(CopyEnd{to}, CopyEnd{from}, {bytes, 1, 1}, kind, &box);
  return box;
}

size_t element_bytes(cudaArray_const_t array) {
  ArrayDescription d;
  if (describe_array(array, &d) != CUDA_SUCCESS) return 0;
  return bytes_of_format(d.format) * d.channels;
}

}  // namespace sluice::cudart
