// SPDX-License-Identifier: Apache-2.0
// Memory: allocations, pools, copies, fills, symbols, attributes of pointers. One row each;
// functions.h says what the columns mean.
#pragma once

// clang-format off
#define SLUICE_CUDART_MEMORY(F, S, D, T, A, P, H) \
  D(cudaDeviceGetDefaultMemPool, kContext, (cudaMemPool_t* mem_pool, int device), (mem_pool, \
    device), cuDeviceGetDefaultMemPool) \
  D(cudaDeviceGetMemPool, kContext, (cudaMemPool_t* mem_pool, int device), (mem_pool, device), \
    cuDeviceGetMemPool) \
  D(cudaDeviceSetMemPool, kContext, (int device, cudaMemPool_t mem_pool), (device, mem_pool), \
    cuDeviceSetMemPool) \
  F(cudaFree, kContext, (void* dev_ptr), (dev_ptr)) \
  S(cudaFreeAsync, ptsz, kContext, (void* dev_ptr, cudaStream_t h_stream), (mode, dev_ptr, \
    h_stream)) \
  F(cudaFreeHost, kContext, (void* ptr), (ptr)) \
  F(cudaGetSymbolAddress, kContext, (void** dev_ptr, const void* symbol), (dev_ptr, symbol)) \
  F(cudaGetSymbolSize, kContext, (size_t* size, const void* symbol), (size, symbol)) \
  F(cudaHostAlloc, kContext, (void** host, size_t size, unsigned int flags), (host, size, \
    flags)) \
  D(cudaHostGetDevicePointer, kContext, (void** device, void* host, unsigned int flags), \
    (device, host, flags), cuMemHostGetDevicePointer_v2) \
  D(cudaHostGetFlags, kContext, (unsigned int* flags, void* host), (flags, host), \
    cuMemHostGetFlags) \
  D(cudaHostRegister, kContext, (void* ptr, size_t size, unsigned int flags), (ptr, size, \
    flags), cuMemHostRegister_v2) \
  D(cudaHostUnregister, kContext, (void* ptr), (ptr), cuMemHostUnregister) \
  D(cudaIpcCloseMemHandle, kContext, (void* dev_ptr), (dev_ptr), cuIpcCloseMemHandle) \
  D(cudaIpcGetEventHandle, kContext, (cudaIpcEventHandle_t* handle, cudaEvent_t event), (handle, \
    event), cuIpcGetEventHandle) \
  D(cudaIpcGetMemHandle, kContext, (cudaIpcMemHandle_t* handle, void* dev_ptr), (handle, \
    dev_ptr), cuIpcGetMemHandle) \
  D(cudaIpcOpenEventHandle, kContext, (cudaEvent_t* event, cudaIpcEventHandle_t handle), (event, \
    handle), cuIpcOpenEventHandle) \
  D(cudaIpcOpenMemHandle, kContext, (void** dev_ptr, cudaIpcMemHandle_t handle, unsigned int \
    flags), (dev_ptr, handle, flags), cuIpcOpenMemHandle_v2) \
  F(cudaMalloc, kContext, (void** dev_ptr, size_t size), (dev_ptr, size)) \
  F(cudaMalloc3D, kContext, (cudaPitchedPtr* pitched_dev_ptr, cudaExtent extent), \
    (pitched_dev_ptr, extent)) \
  T(cudaMallocAsync, ptsz, kContext, (void** dev_ptr, size_t size, cudaStream_t h_stream), \
    (dev_ptr, size, h_stream), cuMemAllocAsync) \
  T(cudaMallocFromPoolAsync, ptsz, kContext, (void** ptr, size_t size, cudaMemPool_t mem_pool, \
    cudaStream_t stream), (ptr, size, mem_pool, stream), cuMemAllocFromPoolAsync) \
  F(cudaMallocHost, kContext, (void** ptr, size_t size), (ptr, size)) \
  F(cudaMallocManaged, kContext, (void** dev_ptr, size_t size, unsigned int flags), (dev_ptr, \
    size, flags)) \
  F(cudaMallocPitch, kContext, (void** dev_ptr, size_t* pitch, size_t width, size_t height), \
    (dev_ptr, pitch, width, height)) \
  T(cudaMemDiscardAndPrefetchBatchAsync, ptsz, kContext, (void** dptrs, size_t* sizes, size_t \
    count, cudaMemLocation* prefetch_locs, size_t* prefetch_loc_idxs, size_t num_prefetch_locs, \
    unsigned long long flags, cudaStream_t stream), (dptrs, sizes, count, prefetch_locs, \
    prefetch_loc_idxs, num_prefetch_locs, flags, stream), cuMemDiscardAndPrefetchBatchAsync) \
  T(cudaMemDiscardBatchAsync, ptsz, kContext, (void** dptrs, size_t* sizes, size_t count, \
    unsigned long long flags, cudaStream_t stream), (dptrs, sizes, count, flags, stream), \
    cuMemDiscardBatchAsync) \
  D(cudaMemGetDefaultMemPool, kContext, (cudaMemPool_t* mem_pool, cudaMemLocation* location, \
    cudaMemAllocationType type), (mem_pool, location, type), cuMemGetDefaultMemPool) \
  D(cudaMemGetInfo, kContext, (size_t* free, size_t* total), (free, total), cuMemGetInfo_v2) \
  D(cudaMemGetMemPool, kContext, (cudaMemPool_t* mem_pool, cudaMemLocation* location, \
    cudaMemAllocationType type), (mem_pool, location, type), cuMemGetMemPool) \
  D(cudaMemPoolCreate, kContext, (cudaMemPool_t* mem_pool, const cudaMemPoolProps* pool_props), \
    (mem_pool, pool_props), cuMemPoolCreate) \
  D(cudaMemPoolDestroy, kContext, (cudaMemPool_t mem_pool), (mem_pool), cuMemPoolDestroy) \
  D(cudaMemPoolExportPointer, kContext, (cudaMemPoolPtrExportData* export_data, void* ptr), \
    (export_data, ptr), cuMemPoolExportPointer) \
  F(cudaMemPoolExportToShareableHandle, kContext, (void* shareable_handle, cudaMemPool_t \
    mem_pool, cudaMemAllocationHandleType handle_type, unsigned int flags), (shareable_handle, \
    mem_pool, handle_type, flags)) \
  D(cudaMemPoolGetAccess, kContext, (cudaMemAccessFlags* flags, cudaMemPool_t mem_pool, \
    cudaMemLocation* location), (flags, mem_pool, location), cuMemPoolGetAccess) \
  D(cudaMemPoolGetAttribute, kContext, (cudaMemPool_t mem_pool, cudaMemPoolAttr attr, void* \
    value), (mem_pool, attr, value), cuMemPoolGetAttribute) \
  F(cudaMemPoolImportFromShareableHandle, kContext, (cudaMemPool_t* mem_pool, void* \
    shareable_handle, cudaMemAllocationHandleType handle_type, unsigned int flags), (mem_pool, \
    shareable_handle, handle_type, flags)) \
  D(cudaMemPoolImportPointer, kContext, (void** ptr, cudaMemPool_t mem_pool, \
    cudaMemPoolPtrExportData* export_data), (ptr, mem_pool, export_data), \
    cuMemPoolImportPointer) \
  D(cudaMemPoolSetAccess, kContext, (cudaMemPool_t mem_pool, const cudaMemAccessDesc* desc_list, \
    size_t count), (mem_pool, desc_list, count), cuMemPoolSetAccess) \
  D(cudaMemPoolSetAttribute, kContext, (cudaMemPool_t mem_pool, cudaMemPoolAttr attr, void* \
    value), (mem_pool, attr, value), cuMemPoolSetAttribute) \
  D(cudaMemPoolTrimTo, kContext, (cudaMemPool_t mem_pool, size_t min_bytes_to_keep), (mem_pool, \
    min_bytes_to_keep), cuMemPoolTrimTo) \
  T(cudaMemPrefetchBatchAsync, ptsz, kContext, (void** dptrs, size_t* sizes, size_t count, \
    cudaMemLocation* prefetch_locs, size_t* prefetch_loc_idxs, size_t num_prefetch_locs, \
    unsigned long long flags, cudaStream_t stream), (dptrs, sizes, count, prefetch_locs, \
    prefetch_loc_idxs, num_prefetch_locs, flags, stream), cuMemPrefetchBatchAsync) \
  D(cudaMemRangeGetAttribute, kContext, (void* data, size_t data_size, cudaMemRangeAttribute \
    attribute, const void* dev_ptr, size_t count), (data, data_size, attribute, dev_ptr, count), \
    cuMemRangeGetAttribute) \
  D(cudaMemRangeGetAttributes, kContext, (void** data, size_t* data_sizes, \
    cudaMemRangeAttribute* attributes, size_t num_attributes, const void* dev_ptr, size_t \
    count), (data, data_sizes, attributes, num_attributes, dev_ptr, count), \
    cuMemRangeGetAttributes) \
  D(cudaMemSetMemPool, kContext, (cudaMemLocation* location, cudaMemAllocationType type, \
    cudaMemPool_t mem_pool), (location, type, mem_pool), cuMemSetMemPool) \
  S(cudaMemcpy, ptds, kContext, (void* dst, const void* src, size_t count, cudaMemcpyKind kind), \
    (mode, dst, src, count, kind)) \
  S(cudaMemcpy2D, ptds, kContext, (void* dst, size_t dpitch, const void* src, size_t spitch, \
    size_t width, size_t height, cudaMemcpyKind kind), (mode, dst, dpitch, src, spitch, width, \
    height, kind)) \
  S(cudaMemcpy2DAsync, ptsz, kContext, (void* dst, size_t dpitch, const void* src, size_t \
    spitch, size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream), (mode, dst, \
    dpitch, src, spitch, width, height, kind, stream)) \
  S(cudaMemcpy3D, ptds, kContext, (const cudaMemcpy3DParms* p), (mode, p)) \
  S(cudaMemcpy3DAsync, ptsz, kContext, (const cudaMemcpy3DParms* p, cudaStream_t stream), (mode, \
    p, stream)) \
  S(cudaMemcpy3DPeer, ptds, kContext, (const cudaMemcpy3DPeerParms* p), (mode, p)) \
  S(cudaMemcpy3DPeerAsync, ptsz, kContext, (const cudaMemcpy3DPeerParms* p, cudaStream_t \
    stream), (mode, p, stream)) \
  S(cudaMemcpyAsync, ptsz, kContext, (void* dst, const void* src, size_t count, cudaMemcpyKind \
    kind, cudaStream_t stream), (mode, dst, src, count, kind, stream)) \
  S(cudaMemcpyFromSymbol, ptds, kContext, (void* dst, const void* symbol, size_t count, size_t \
    offset, cudaMemcpyKind kind), (mode, dst, symbol, count, offset, kind)) \
  S(cudaMemcpyFromSymbolAsync, ptsz, kContext, (void* dst, const void* symbol, size_t count, \
    size_t offset, cudaMemcpyKind kind, cudaStream_t stream), (mode, dst, symbol, count, offset, \
    kind, stream)) \
  F(cudaMemcpyPeer, kContext, (void* dst, int dst_device, const void* src, int src_device, \
    size_t count), (dst, dst_device, src, src_device, count)) \
  F(cudaMemcpyPeerAsync, kContext, (void* dst, int dst_device, const void* src, int src_device, \
    size_t count, cudaStream_t stream), (dst, dst_device, src, src_device, count, stream)) \
  S(cudaMemcpyToSymbol, ptds, kContext, (const void* symbol, const void* src, size_t count, \
    size_t offset, cudaMemcpyKind kind), (mode, symbol, src, count, offset, kind)) \
  S(cudaMemcpyToSymbolAsync, ptsz, kContext, (const void* symbol, const void* src, size_t count, \
    size_t offset, cudaMemcpyKind kind, cudaStream_t stream), (mode, symbol, src, count, offset, \
    kind, stream)) \
  S(cudaMemset, ptds, kContext, (void* dev_ptr, int value, size_t count), (mode, dev_ptr, value, \
    count)) \
  S(cudaMemset2D, ptds, kContext, (void* dev_ptr, size_t pitch, int value, size_t width, size_t \
    height), (mode, dev_ptr, pitch, value, width, height)) \
  S(cudaMemset2DAsync, ptsz, kContext, (void* dev_ptr, size_t pitch, int value, size_t width, \
    size_t height, cudaStream_t stream), (mode, dev_ptr, pitch, value, width, height, stream)) \
  S(cudaMemset3D, ptds, kContext, (cudaPitchedPtr pitched_dev_ptr, int value, cudaExtent \
    extent), (mode, pitched_dev_ptr, value, extent)) \
  S(cudaMemset3DAsync, ptsz, kContext, (cudaPitchedPtr pitched_dev_ptr, int value, cudaExtent \
    extent, cudaStream_t stream), (mode, pitched_dev_ptr, value, extent, stream)) \
  S(cudaMemsetAsync, ptsz, kContext, (void* dev_ptr, int value, size_t count, cudaStream_t \
    stream), (mode, dev_ptr, value, count, stream)) \
  F(cudaPointerGetAttributes, kContext, (cudaPointerAttributes* attributes, const void* ptr), \
    (attributes, ptr))
// clang-format on
