/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays, texture and surface objects, and boxes to copy: the part of the CUDA driver API about
 * them, in our own declarations: same names, values, layouts and symbols as CUDA 13.0's on 64-bit
 * Linux (NVIDIA, CUDA Driver API, "Memory Management", "Texture Object Management"). Where the
 * toolkit is installed, cuda_driver_asserts.cc compares all of it.
 *
 * Users: the guest's libcuda.so.1 and the software GPU, which define the functions; sluice-worker,
 * by mediator/gpu/driver_api.h. Not here: sparse arrays, texture references, external memory.
 * Declares only. C and C++.
 */
#ifndef SLUICE_ABI_CUDA_TEXTURE_H
#define SLUICE_ABI_CUDA_TEXTURE_H

#include "abi/cuda_driver.h"

typedef struct CUmipmappedArray_st* CUmipmappedArray;
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
  CU_AD_FORMAT_FLOAT = 0x20,
  /* Integers that are always read as numbers of [0, 1] or [-1, 1]; XN: of N channels. */
  CU_AD_FORMAT_UNORM_INT8X1 = 0xc0,
  CU_AD_FORMAT_UNORM_INT8X2 = 0xc1,
  CU_AD_FORMAT_UNORM_INT8X4 = 0xc2,
  CU_AD_FORMAT_UNORM_INT16X1 = 0xc3,
  CU_AD_FORMAT_UNORM_INT16X2 = 0xc4,
  CU_AD_FORMAT_UNORM_INT16X4 = 0xc5,
  CU_AD_FORMAT_SNORM_INT8X1 = 0xc6,
  CU_AD_FORMAT_SNORM_INT8X2 = 0xc7,
  CU_AD_FORMAT_SNORM_INT8X4 = 0xc8,
  CU_AD_FORMAT_SNORM_INT16X1 = 0xc9,
  CU_AD_FORMAT_SNORM_INT16X2 = 0xca,
  CU_AD_FORMAT_SNORM_INT16X4 = 0xcb
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
#define CUDA_ARRAY3D_CUBEMAP 0x04 /* six faces as slices; with LAYERED: six for each layer */
#define CUDA_ARRAY3D_TEXTURE_GATHER 0x08
#define CU_TRSF_READ_AS_INTEGER 0x01
#define CU_TRSF_NORMALIZED_COORDINATES 0x02
#define CU_TRSF_SRGB 0x10
#define CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION 0x20
#define CU_TRSF_SEAMLESS_CUBEMAP 0x40

typedef struct CUDA_ARRAY_DESCRIPTOR_st {
  size_t Width;
  size_t Height; /* 0: one dimension */
  CUarray_format Format;
  unsigned int NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct CUDA_ARRAY3D_DESCRIPTOR_st {
  size_t Width;
  size_t Height;
  size_t Depth; /* layers, with CUDA_ARRAY3D_LAYERED */
  CUarray_format Format;
  unsigned int NumChannels;
  unsigned int Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

typedef struct CUDA_RESOURCE_DESC_st {
  CUresourcetype resType;
  union {
    struct {
      CUarray hArray;
    } array;
    struct {
      CUmipmappedArray hMipmappedArray;
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

/* Texels of a view, in the order of the array's channels. UNSIGNED_BC1 and what follows: blocks of
 * 4 by 4 compressed texels in 64 or 128 bits. */
typedef enum CUresourceViewFormat_enum {
  CU_RES_VIEW_FORMAT_NONE = 0x00, /* the array's own */
  CU_RES_VIEW_FORMAT_UINT_1X8 = 0x01,
  CU_RES_VIEW_FORMAT_UINT_2X8 = 0x02,
  CU_RES_VIEW_FORMAT_UINT_4X8 = 0x03,
  CU_RES_VIEW_FORMAT_SINT_1X8 = 0x04,
  CU_RES_VIEW_FORMAT_SINT_2X8 = 0x05,
  CU_RES_VIEW_FORMAT_SINT_4X8 = 0x06,
  CU_RES_VIEW_FORMAT_UINT_1X16 = 0x07,
  CU_RES_VIEW_FORMAT_UINT_2X16 = 0x08,
  CU_RES_VIEW_FORMAT_UINT_4X16 = 0x09,
  CU_RES_VIEW_FORMAT_SINT_1X16 = 0x0a,
  CU_RES_VIEW_FORMAT_SINT_2X16 = 0x0b,
  CU_RES_VIEW_FORMAT_SINT_4X16 = 0x0c,
  CU_RES_VIEW_FORMAT_UINT_1X32 = 0x0d,
  CU_RES_VIEW_FORMAT_UINT_2X32 = 0x0e,
  CU_RES_VIEW_FORMAT_UINT_4X32 = 0x0f,
  CU_RES_VIEW_FORMAT_SINT_1X32 = 0x10,
  CU_RES_VIEW_FORMAT_SINT_2X32 = 0x11,
  CU_RES_VIEW_FORMAT_SINT_4X32 = 0x12,
  CU_RES_VIEW_FORMAT_FLOAT_1X16 = 0x13,
  CU_RES_VIEW_FORMAT_FLOAT_2X16 = 0x14,
  CU_RES_VIEW_FORMAT_FLOAT_4X16 = 0x15,
  CU_RES_VIEW_FORMAT_FLOAT_1X32 = 0x16,
  CU_RES_VIEW_FORMAT_FLOAT_2X32 = 0x17,
  CU_RES_VIEW_FORMAT_FLOAT_4X32 = 0x18,
  CU_RES_VIEW_FORMAT_UNSIGNED_BC1 = 0x19,
  CU_RES_VIEW_FORMAT_UNSIGNED_BC7 = 0x22
} CUresourceViewFormat;

/* Another look at an array's texels: a format of the same size, some of its levels and layers. */
typedef struct CUDA_RESOURCE_VIEW_DESC_st {
  CUresourceViewFormat format;
  size_t width, height, depth; /* of its first level, in texels of the view */
  unsigned int firstMipmapLevel, lastMipmapLevel;
  unsigned int firstLayer, lastLayer;
  unsigned int reserved[16];
} CUDA_RESOURCE_VIEW_DESC;

/* What only sparse arrays, and arrays without memory, would fill. */
typedef struct CUDA_ARRAY_MEMORY_REQUIREMENTS_st {
  size_t size, alignment;
  unsigned int reserved[4];
} CUDA_ARRAY_MEMORY_REQUIREMENTS;
typedef struct CUDA_ARRAY_SPARSE_PROPERTIES_st {
  struct {
    unsigned int width, height, depth;
  } tileExtent;
  unsigned int miptailFirstLevel;
  unsigned long long miptailSize;
  unsigned int flags;
  unsigned int reserved[4];
} CUDA_ARRAY_SPARSE_PROPERTIES;

/* A box to copy: `Depth` slices of `Height` rows of `WidthInBytes`; pitches are
 * bytes, heights are rows. An array's layout is the driver's. */
typedef struct CUDA_MEMCPY3D_st {
  size_t srcXInBytes;
  size_t srcY;
  size_t srcZ;
  size_t srcLOD;
  CUmemorytype srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  void* reserved0;
  size_t srcPitch;
  size_t srcHeight;
  size_t dstXInBytes;
  size_t dstY;
  size_t dstZ;
  size_t dstLOD;
  CUmemorytype dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  void* reserved1;
  size_t dstPitch;
  size_t dstHeight;
  size_t WidthInBytes;
  size_t Height;
  size_t Depth;
} CUDA_MEMCPY3D;

/* clang-format off */
/* One row each as in cuda_driver_functions.h: X(symbol, name, since, (parameters)). */
#define SLUICE_CUDA_TEXTURE_FUNCTIONS(X) \
  X(cuArrayCreate_v2, cuArrayCreate, 3020, (CUarray* array, const CUDA_ARRAY_DESCRIPTOR* \
    descriptor)) \
  X(cuArray3DCreate_v2, cuArray3DCreate, 3020, (CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* \
    descriptor)) \
  X(cuArrayGetDescriptor_v2, cuArrayGetDescriptor, 3020, (CUDA_ARRAY_DESCRIPTOR* descriptor, \
    CUarray array)) \
  X(cuArray3DGetDescriptor_v2, cuArray3DGetDescriptor, 3020, (CUDA_ARRAY3D_DESCRIPTOR* descriptor, \
    CUarray array)) \
  X(cuArrayDestroy, cuArrayDestroy, 2000, (CUarray array)) \
  X(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, (CUmipmappedArray* array, \
    const CUDA_ARRAY3D_DESCRIPTOR* descriptor, unsigned int levels)) \
  X(cuMipmappedArrayGetLevel, cuMipmappedArrayGetLevel, 5000, (CUarray* level_array, \
    CUmipmappedArray array, unsigned int level)) \
  X(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, (CUmipmappedArray array)) \
  X(cuMemcpy3D_v2, cuMemcpy3D, 3020, (const CUDA_MEMCPY3D* copy)) \
  X(cuMemcpy3DAsync_v2, cuMemcpy3DAsync, 3020, (const CUDA_MEMCPY3D* copy, CUstream stream)) \
  X(cuMemcpyHtoA_v2, cuMemcpyHtoA, 3020, (CUarray to, size_t offset, const void* from, \
    size_t bytes)) \
  X(cuMemcpyAtoH_v2, cuMemcpyAtoH, 3020, (void* to, CUarray from, size_t offset, size_t bytes)) \
  X(cuMemcpyDtoA_v2, cuMemcpyDtoA, 3020, (CUarray to, size_t offset, CUdeviceptr from, \
    size_t bytes)) \
  X(cuMemcpyAtoD_v2, cuMemcpyAtoD, 3020, (CUdeviceptr to, CUarray from, size_t offset, \
    size_t bytes)) \
  X(cuMemcpyAtoA_v2, cuMemcpyAtoA, 3020, (CUarray to, size_t to_offset, CUarray from, \
    size_t from_offset, size_t bytes)) \
  X(cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync, 3020, (CUarray to, size_t offset, const void* from, \
    size_t bytes, CUstream stream)) \
  X(cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync, 3020, (void* to, CUarray from, size_t offset, \
    size_t bytes, CUstream stream)) \
  X(cuTexObjectCreate, cuTexObjectCreate, 5000, (CUtexObject* object, const CUDA_RESOURCE_DESC* \
    resource, const CUDA_TEXTURE_DESC* texture, const CUDA_RESOURCE_VIEW_DESC* view)) \
  X(cuTexObjectDestroy, cuTexObjectDestroy, 5000, (CUtexObject object)) \
  X(cuTexObjectGetResourceDesc, cuTexObjectGetResourceDesc, 5000, (CUDA_RESOURCE_DESC* resource, \
    CUtexObject object)) \
  X(cuTexObjectGetTextureDesc, cuTexObjectGetTextureDesc, 5000, (CUDA_TEXTURE_DESC* texture, \
    CUtexObject object)) \
  X(cuTexObjectGetResourceViewDesc, cuTexObjectGetResourceViewDesc, 5000, \
    (CUDA_RESOURCE_VIEW_DESC* view, CUtexObject object)) \
  X(cuSurfObjectCreate, cuSurfObjectCreate, 5000, (CUsurfObject* object, const CUDA_RESOURCE_DESC* \
    resource)) \
  X(cuSurfObjectDestroy, cuSurfObjectDestroy, 5000, (CUsurfObject object)) \
  X(cuSurfObjectGetResourceDesc, cuSurfObjectGetResourceDesc, 5000, (CUDA_RESOURCE_DESC* resource, \
    CUsurfObject object))
/* clang-format on */

/* Exported wherever they are defined, as those of cuda_driver.h. */
#if defined(__cplusplus) && !defined(SLUICE_CUDA_DRIVER_COMPARE)
extern "C" {
#endif
#define SLUICE_DECLARE(symbol, name, since, parameters) \
  __attribute__((visibility("default"))) CUresult symbol parameters;
SLUICE_CUDA_TEXTURE_FUNCTIONS(SLUICE_DECLARE)
#undef SLUICE_DECLARE
#if defined(__cplusplus) && !defined(SLUICE_CUDA_DRIVER_COMPARE)
}
#endif
#ifndef SLUICE_CUDA_DRIVER_COMPARE
#define cuArrayCreate cuArrayCreate_v2
#define cuArray3DCreate cuArray3DCreate_v2
#define cuArrayGetDescriptor cuArrayGetDescriptor_v2
#define cuArray3DGetDescriptor cuArray3DGetDescriptor_v2
#define cuMemcpy3D cuMemcpy3D_v2
#define cuMemcpy3DAsync cuMemcpy3DAsync_v2
#define cuMemcpyHtoA cuMemcpyHtoA_v2
#define cuMemcpyAtoH cuMemcpyAtoH_v2
#define cuMemcpyDtoA cuMemcpyDtoA_v2
#define cuMemcpyAtoD cuMemcpyAtoD_v2
#define cuMemcpyAtoA cuMemcpyAtoA_v2
#define cuMemcpyHtoAAsync cuMemcpyHtoAAsync_v2
#define cuMemcpyAtoHAsync cuMemcpyAtoHAsync_v2
#endif

#endif /* SLUICE_ABI_CUDA_TEXTURE_H */
