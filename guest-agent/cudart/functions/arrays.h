// SPDX-License-Identifier: Apache-2.0
// Arrays, textures, surfaces. One row each; functions.h says what the columns mean.
#pragma once

// clang-format off
#define SLUICE_CUDART_ARRAYS(F, S, D, T, A, P, H) \
  F(cudaArrayGetInfo, kContext, (cudaChannelFormatDesc* desc, cudaExtent* extent, unsigned int* \
    flags, cudaArray_t array), (desc, extent, flags, array)) \
  D(cudaArrayGetMemoryRequirements, kContext, (cudaArrayMemoryRequirements* memory_requirements, \
    cudaArray_t array, int device), (memory_requirements, array, device), \
    cuArrayGetMemoryRequirements) \
  D(cudaArrayGetPlane, kContext, (cudaArray_t* plane_array, cudaArray_t h_array, unsigned int \
    plane_idx), (plane_array, h_array, plane_idx), cuArrayGetPlane) \
  D(cudaArrayGetSparseProperties, kContext, (cudaArraySparseProperties* sparse_properties, \
    cudaArray_t array), (sparse_properties, array), cuArrayGetSparseProperties) \
  H(cudaCreateChannelDesc, cudaChannelFormatDesc, (int x, int y, int z, int w, \
    cudaChannelFormatKind f)) \
  F(cudaCreateSurfaceObject, kContext, (cudaSurfaceObject_t* surf_object, const \
    cudaResourceDesc* res_desc), (surf_object, res_desc)) \
  F(cudaCreateTextureObject, kContext, (cudaTextureObject_t* tex_object, const cudaResourceDesc* \
    res_desc, const cudaTextureDesc* tex_desc, const cudaResourceViewDesc* res_view_desc), \
    (tex_object, res_desc, tex_desc, res_view_desc)) \
  D(cudaDestroySurfaceObject, kContext, (cudaSurfaceObject_t surf_object), (surf_object), \
    cuSurfObjectDestroy) \
  D(cudaDestroyTextureObject, kContext, (cudaTextureObject_t tex_object), (tex_object), \
    cuTexObjectDestroy) \
  F(cudaDeviceGetTexture1DLinearMaxWidth, kContext, (size_t* max_width_in_elements, const \
    cudaChannelFormatDesc* fmt_desc, int device), (max_width_in_elements, fmt_desc, device)) \
  A(cudaExternalMemoryGetMappedMipmappedArray, (cudaMipmappedArray_t* mipmap, \
    cudaExternalMemory_t ext_mem, const cudaExternalMemoryMipmappedArrayDesc* mipmap_desc)) \
  F(cudaFreeArray, kContext, (cudaArray_t array), (array)) \
  F(cudaFreeMipmappedArray, kContext, (cudaMipmappedArray_t mipmapped_array), (mipmapped_array)) \
  F(cudaGetChannelDesc, kContext, (cudaChannelFormatDesc* desc, cudaArray_const_t array), (desc, \
    array)) \
  D(cudaGetMipmappedArrayLevel, kContext, (cudaArray_t* level_array, cudaMipmappedArray_const_t \
    mipmapped_array, unsigned int level), (level_array, mipmapped_array, level), \
    cuMipmappedArrayGetLevel) \
  F(cudaGetSurfaceObjectResourceDesc, kContext, (cudaResourceDesc* res_desc, cudaSurfaceObject_t \
    surf_object), (res_desc, surf_object)) \
  F(cudaGetTextureObjectResourceDesc, kContext, (cudaResourceDesc* res_desc, cudaTextureObject_t \
    tex_object), (res_desc, tex_object)) \
  F(cudaGetTextureObjectResourceViewDesc, kContext, (cudaResourceViewDesc* res_view_desc, \
    cudaTextureObject_t tex_object), (res_view_desc, tex_object)) \
  F(cudaGetTextureObjectTextureDesc, kContext, (cudaTextureDesc* tex_desc, cudaTextureObject_t \
    tex_object), (tex_desc, tex_object)) \
  D(cudaGraphicsResourceGetMappedMipmappedArray, kContext, (cudaMipmappedArray_t* \
    mipmapped_array, cudaGraphicsResource_t resource), (mipmapped_array, resource), \
    cuGraphicsResourceGetMappedMipmappedArray) \
  D(cudaGraphicsSubResourceGetMappedArray, kContext, (cudaArray_t* array, cudaGraphicsResource_t \
    resource, unsigned int array_index, unsigned int mip_level), (array, resource, array_index, \
    mip_level), cuGraphicsSubResourceGetMappedArray) \
  F(cudaMalloc3DArray, kContext, (cudaArray_t* array, const cudaChannelFormatDesc* desc, \
    cudaExtent extent, unsigned int flags), (array, desc, extent, flags)) \
  F(cudaMallocArray, kContext, (cudaArray_t* array, const cudaChannelFormatDesc* desc, size_t \
    width, size_t height, unsigned int flags), (array, desc, width, height, flags)) \
  F(cudaMallocMipmappedArray, kContext, (cudaMipmappedArray_t* mipmapped_array, const \
    cudaChannelFormatDesc* desc, cudaExtent extent, unsigned int num_levels, unsigned int \
    flags), (mipmapped_array, desc, extent, num_levels, flags)) \
  S(cudaMemcpy2DArrayToArray, ptds, kContext, (cudaArray_t dst, size_t w_offset_dst, size_t \
    h_offset_dst, cudaArray_const_t src, size_t w_offset_src, size_t h_offset_src, size_t width, \
    size_t height, cudaMemcpyKind kind), (mode, dst, w_offset_dst, h_offset_dst, src, \
    w_offset_src, h_offset_src, width, height, kind)) \
  S(cudaMemcpy2DFromArray, ptds, kContext, (void* dst, size_t dpitch, cudaArray_const_t src, \
    size_t w_offset, size_t h_offset, size_t width, size_t height, cudaMemcpyKind kind), (mode, \
    dst, dpitch, src, w_offset, h_offset, width, height, kind)) \
  S(cudaMemcpy2DFromArrayAsync, ptsz, kContext, (void* dst, size_t dpitch, cudaArray_const_t \
    src, size_t w_offset, size_t h_offset, size_t width, size_t height, cudaMemcpyKind kind, \
    cudaStream_t stream), (mode, dst, dpitch, src, w_offset, h_offset, width, height, kind, \
    stream)) \
  S(cudaMemcpy2DToArray, ptds, kContext, (cudaArray_t dst, size_t w_offset, size_t h_offset, \
    const void* src, size_t spitch, size_t width, size_t height, cudaMemcpyKind kind), (mode, \
    dst, w_offset, h_offset, src, spitch, width, height, kind)) \
  S(cudaMemcpy2DToArrayAsync, ptsz, kContext, (cudaArray_t dst, size_t w_offset, size_t \
    h_offset, const void* src, size_t spitch, size_t width, size_t height, cudaMemcpyKind kind, \
    cudaStream_t stream), (mode, dst, w_offset, h_offset, src, spitch, width, height, kind, \
    stream)) \
  S(cudaMemcpyArrayToArray, ptds, kContext, (cudaArray_t dst, size_t w_offset_dst, size_t \
    h_offset_dst, cudaArray_const_t src, size_t w_offset_src, size_t h_offset_src, size_t count, \
    cudaMemcpyKind kind), (mode, dst, w_offset_dst, h_offset_dst, src, w_offset_src, \
    h_offset_src, count, kind)) \
  S(cudaMemcpyFromArray, ptds, kContext, (void* dst, cudaArray_const_t src, size_t w_offset, \
    size_t h_offset, size_t count, cudaMemcpyKind kind), (mode, dst, src, w_offset, h_offset, \
    count, kind)) \
  S(cudaMemcpyFromArrayAsync, ptsz, kContext, (void* dst, cudaArray_const_t src, size_t \
    w_offset, size_t h_offset, size_t count, cudaMemcpyKind kind, cudaStream_t stream), (mode, \
    dst, src, w_offset, h_offset, count, kind, stream)) \
  S(cudaMemcpyToArray, ptds, kContext, (cudaArray_t dst, size_t w_offset, size_t h_offset, const \
    void* src, size_t count, cudaMemcpyKind kind), (mode, dst, w_offset, h_offset, src, count, \
    kind)) \
  S(cudaMemcpyToArrayAsync, ptsz, kContext, (cudaArray_t dst, size_t w_offset, size_t h_offset, \
    const void* src, size_t count, cudaMemcpyKind kind, cudaStream_t stream), (mode, dst, \
    w_offset, h_offset, src, count, kind, stream)) \
  D(cudaMipmappedArrayGetMemoryRequirements, kContext, (cudaArrayMemoryRequirements* \
    memory_requirements, cudaMipmappedArray_t mipmap, int device), (memory_requirements, mipmap, \
    device), cuMipmappedArrayGetMemoryRequirements) \
  D(cudaMipmappedArrayGetSparseProperties, kContext, (cudaArraySparseProperties* \
    sparse_properties, cudaMipmappedArray_t mipmap), (sparse_properties, mipmap), \
    cuMipmappedArrayGetSparseProperties)
// clang-format on
