// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA driver API about arrays, textures and surfaces that the software GPU offers
// beyond abi/cuda_driver.h: same names, values, layouts and symbols as CUDA 13.0's on 64-bit Linux.
// Only a program that uses the library directly reaches these functions (also by
// cuGetProcAddress); the channel between guest and worker does not carry them yet.
//
// Declares only. Users: api_array.cc and api_texture.cc (define them), tests/conformance (calls).
// Not here: mipmapped arrays, sparse arrays, cube maps, external memory.
#pragma once

#include "abi/cuda_driver.h"

extern "C" {

typedef unsigned long long CUtexObject;
typedef unsigned long long CUsurfObject;

typedef enum CUarray_format_enum {
  CU_AD_FORMAT_UNSIGNED_INT8 = 0x01,
  CU_AD_FORMAT_UNSIGNED_INT16 = 0x02,
  CU_AD_FORMAT_UNSIGNED_INT32 = 0x03,
  CU_AD_FORMAT_SIGNED_INT8 = 0x08,
  CU_AD_FORMAT_SIGNED_INT16 = 0x09,
  CU_AD_FORMAT_SIGNED_INT32 = 0x0a,
  CU_AD_FORMAT_HALF = 0x10,
  CU_AD_FORMAT_FLOAT = 0x20
} CUarray_format;
typedef enum CUaddress_mode_enum {
  CU_TR_ADDRESS_MODE_WRAP = 0,
  CU_TR_ADDRESS_MODE_CLAMP = 1,
  CU_TR_ADDRESS_MODE_MIRROR = 2,
  CU_TR_ADDRESS_MODE_BORDER = 3
} CUaddress_mode;
typedef enum CUfilter_mode_enum {
  CU_TR_FILTER_MODE_POINT = 0,
  CU_TR_FILTER_MODE_LINEAR = 1
} CUfilter_mode;
typedef enum CUresourcetype_enum {
  CU_RESOURCE_TYPE_ARRAY = 0,
  CU_RESOURCE_TYPE_MIPMAPPED_ARRAY = 1,
  CU_RESOURCE_TYPE_LINEAR = 2,
  CU_RESOURCE_TYPE_PITCH2D = 3
} CUresourcetype;

#define CUDA_ARRAY3D_LAYERED 0x01
#define CUDA_ARRAY3D_SURFACE_LDST 0x02
#define CUDA_ARRAY3D_TEXTURE_GATHER 0x08
#define CU_TRSF_READ_AS_INTEGER 0x01
#define CU_TRSF_NORMALIZED_COORDINATES 0x02
#define CU_TRSF_SRGB 0x10
#define CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION 0x20

typedef struct CUDA_ARRAY_DESCRIPTOR_st {
  size_t Width;
  size_t Height;  // 0: one dimension
  CUarray_format Format;
  unsigned int NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct CUDA_ARRAY3D_DESCRIPTOR_st {
  size_t Width;
  size_t Height;
  size_t Depth;  // layers, with CUDA_ARRAY3D_LAYERED
  CUarray_format Format;
  unsigned int NumChannels;
  unsigned int Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

typedef struct CUDA_MEMCPY3D_st {
  size_t srcXInBytes, srcY, srcZ, srcLOD;
  CUmemorytype srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  void* reserved0;
  size_t srcPitch, srcHeight;
  size_t dstXInBytes, dstY, dstZ, dstLOD;
  CUmemorytype dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  void* reserved1;
  size_t dstPitch, dstHeight;
  size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

typedef struct CUDA_RESOURCE_DESC_st {
  CUresourcetype resType;
  union {
    struct {
      CUarray hArray;
    } array;
    struct {
      void* hMipmappedArray;
    } mipmap;
    struct {
      CUdeviceptr devPtr;
      CUarray_format format;
      unsigned int numChannels;
      size_t sizeInBytes;
    } linear;
    struct {
      CUdeviceptr devPtr;
      CUarray_format format;
      unsigned int numChannels;
      size_t width, height, pitchInBytes;
    } pitch2D;
    struct {
      int reserved[32];
    } reserved;
  } res;
  unsigned int flags;
} CUDA_RESOURCE_DESC;

typedef struct CUDA_TEXTURE_DESC_st {
  CUaddress_mode addressMode[3];
  CUfilter_mode filterMode;
  unsigned int flags;
  unsigned int maxAnisotropy;
  CUfilter_mode mipmapFilterMode;
  float mipmapLevelBias, minMipmapLevelClamp, maxMipmapLevelClamp;
  float borderColor[4];
  int reserved[12];
} CUDA_TEXTURE_DESC;

// Its contents are not looked at: a null view is the only one that is taken.
struct CUDA_RESOURCE_VIEW_DESC_st;

#pragma GCC visibility push(default)
CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* descriptor);
CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor);
CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* descriptor, CUarray array);
CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* descriptor, CUarray array);
CUresult cuArrayDestroy(CUarray array);
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy);
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream);
CUresult cuMemcpyHtoA_v2(CUarray to, size_t offset, const void* from, size_t bytes);
CUresult cuMemcpyAtoH_v2(void* to, CUarray from, size_t offset, size_t bytes);
CUresult cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t bytes);

CUresult cuTexObjectCreate(CUtexObject* object, const CUDA_RESOURCE_DESC* resource,
                           const CUDA_TEXTURE_DESC* texture,
                           const struct CUDA_RESOURCE_VIEW_DESC_st* view);
CUresult cuTexObjectDestroy(CUtexObject object);
CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* resource, CUtexObject object);
CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* texture, CUtexObject object);
CUresult cuSurfObjectCreate(CUsurfObject* object, const CUDA_RESOURCE_DESC* resource);
CUresult cuSurfObjectDestroy(CUsurfObject object);
CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* resource, CUsurfObject object);
#pragma GCC visibility pop

}  // extern "C"

// X(exported symbol, name as programs ask for it, version since when).
#define SLUICE_TEXTURE_FUNCTIONS(X)                               \
  X(cuArrayCreate_v2, cuArrayCreate, 3020)                        \
  X(cuArray3DCreate_v2, cuArray3DCreate, 3020)                    \
  X(cuArrayGetDescriptor_v2, cuArrayGetDescriptor, 3020)          \
  X(cuArray3DGetDescriptor_v2, cuArray3DGetDescriptor, 3020)      \
  X(cuArrayDestroy, cuArrayDestroy, 2000)                         \
  X(cuMemcpy3D_v2, cuMemcpy3D, 3020)                              \
  X(cuMemcpy3DAsync_v2, cuMemcpy3DAsync, 3020)                    \
  X(cuMemcpyHtoA_v2, cuMemcpyHtoA, 3020)                          \
  X(cuMemcpyAtoH_v2, cuMemcpyAtoH, 3020)                          \
  X(cuMemcpyDtoA_v2, cuMemcpyDtoA, 3020)                          \
  X(cuMemcpyAtoD_v2, cuMemcpyAtoD, 3020)                          \
  X(cuTexObjectCreate, cuTexObjectCreate, 5000)                   \
  X(cuTexObjectDestroy, cuTexObjectDestroy, 5000)                 \
  X(cuTexObjectGetResourceDesc, cuTexObjectGetResourceDesc, 5000) \
  X(cuTexObjectGetTextureDesc, cuTexObjectGetTextureDesc, 5000)   \
  X(cuSurfObjectCreate, cuSurfObjectCreate, 5000)                 \
  X(cuSurfObjectDestroy, cuSurfObjectDestroy, 5000)               \
  X(cuSurfObjectGetResourceDesc, cuSurfObjectGetResourceDesc, 5000)
