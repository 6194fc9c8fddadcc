/* SPDX-License-Identifier: Apache-2.0 */
/* The rest of the public CUDA driver API, beside abi/cuda_driver_functions.h and
 * cuda_graph_functions.h, for the guest's libcuda.so.1: a program that is linked with a function
 * starts only where that is exported. Facts from the CUDA Toolkit 13.0; where the toolkit is
 * installed, cuda_driver_asserts.cc compares every row that has parameters with it.
 */
#ifndef SLUICE_ABI_CUDA_OTHER_FUNCTIONS_H
#define SLUICE_ABI_CUDA_OTHER_FUNCTIONS_H

/* clang-format off */
/* What the guest's library has by itself: X(symbol, name, since, (parameters)), as in cuda_driver_functions.h. */
#define SLUICE_CUDA_GUEST_FUNCTIONS(X) \
  X(cuMemcpyPeer, cuMemcpyPeer, 4000, (CUdeviceptr dst_device, CUcontext dst_context, CUdeviceptr src_device, \
    CUcontext src_context, size_t byte_count)) \
  X(cuMemcpyPeerAsync, cuMemcpyPeerAsync, 4000, (CUdeviceptr dst_device, CUcontext dst_context, CUdeviceptr \
    src_device, CUcontext src_context, size_t byte_count, CUstream stream)) \
  X(cuMemcpy3DPeer, cuMemcpy3DPeer, 4000, (const CUDA_MEMCPY3D_PEER* copy)) \
  X(cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync, 4000, (const CUDA_MEMCPY3D_PEER* copy, CUstream stream)) \
  X(cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync, 13000, (CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, \
    size_t count, CUmemcpyAttributes* attrs, size_t* attr_indices, size_t attr_count, CUstream stream)) \
  X(cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync, 13000, (size_t count, CUDA_MEMCPY3D_BATCH_OP* ops, \
    unsigned long long flags, CUstream stream)) \
  X(cuMemPoolCreate, cuMemPoolCreate, 11020, (CUmemoryPool* pool, const CUmemPoolProps* props)) \
  X(cuMemPoolDestroy, cuMemPoolDestroy, 11020, (CUmemoryPool pool)) \
  X(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, (CUmemoryPool pool, size_t bytes_to_keep)) \
  X(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, (CUmemoryPool pool, CUmemPool_attribute attr, \
    void* value)) \
  X(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020, (CUmemoryPool pool, CUmemPool_attribute attr, \
    void* value)) \
  X(cuMemPoolSetAccess, cuMemPoolSetAccess, 11020, (CUmemoryPool pool, const CUmemAccessDesc* map, \
    size_t count)) \
  X(cuMemPoolGetAccess, cuMemPoolGetAccess, 11020, (CUmemAccess_flags* flags, CUmemoryPool pool, \
    CUmemLocation* location)) \
  X(cuMemPoolExportToShareableHandle, cuMemPoolExportToShareableHandle, 11020, (void* handle_out, \
    CUmemoryPool pool, CUmemAllocationHandleType handle_type, unsigned long long flags)) \
  X(cuMemPoolImportFromShareableHandle, cuMemPoolImportFromShareableHandle, 11020, (CUmemoryPool* pool, \
    void* handle, CUmemAllocationHandleType handle_type, unsigned long long flags)) \
  X(cuMemPoolExportPointer, cuMemPoolExportPointer, 11020, (CUmemPoolPtrExportData* data, CUdeviceptr ptr)) \
  X(cuMemPoolImportPointer, cuMemPoolImportPointer, 11020, (CUdeviceptr* ptr, CUmemoryPool pool, \
    CUmemPoolPtrExportData* data)) \
  X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, (CUdeviceptr* dptr, size_t bytesize, \
    CUmemoryPool pool, CUstream stream)) \
  X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020, (CUmemoryPool* pool, CUdevice device)) \
  X(cuDeviceGetMemPool, cuDeviceGetMemPool, 11020, (CUmemoryPool* pool, CUdevice device)) \
  X(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020, (CUdevice device, CUmemoryPool pool)) \
  X(cuMemGetDefaultMemPool, cuMemGetDefaultMemPool, 13000, (CUmemoryPool* pool, CUmemLocation* location, \
    CUmemAllocationType type)) \
  X(cuMemGetMemPool, cuMemGetMemPool, 13000, (CUmemoryPool* pool, CUmemLocation* location, \
    CUmemAllocationType type)) \
  X(cuMemSetMemPool, cuMemSetMemPool, 13000, (CUmemLocation* location, CUmemAllocationType type, \
    CUmemoryPool pool)) \
  X(cuMemAdvise_v2, cuMemAdvise, 12020, (CUdeviceptr address, size_t count, CUmem_advise advice, \
    CUmemLocation location)) \
  X(cuMemPrefetchAsync_v2, cuMemPrefetchAsync, 12020, (CUdeviceptr address, size_t count, \
    CUmemLocation location, unsigned int flags, CUstream stream)) \
  X(cuMemRangeGetAttribute, cuMemRangeGetAttribute, 8000, (void* data, size_t data_size, \
    CUmem_range_attribute attribute, CUdeviceptr address, size_t count)) \
  X(cuMemRangeGetAttributes, cuMemRangeGetAttributes, 8000, (void** data, size_t* data_sizes, \
    CUmem_range_attribute* attributes, size_t attribute_count, CUdeviceptr address, size_t count)) \
  X(cuLibraryGetManaged, cuLibraryGetManaged, 12000, (CUdeviceptr* dptr, size_t* bytes, CUlibrary library, \
    const char* name)) \
  X(cuStreamSetAttribute, cuStreamSetAttribute, 11000, (CUstream stream, CUstreamAttrID attr, const \
    CUstreamAttrValue* value)) \
  X(cuStreamGetAttribute, cuStreamGetAttribute, 11000, (CUstream stream, CUstreamAttrID attr, \
    CUstreamAttrValue* value)) \
  X(cuStreamCopyAttributes, cuStreamCopyAttributes, 11000, (CUstream dst, CUstream src)) \
  X(cuStreamBatchMemOp_v2, cuStreamBatchMemOp, 11070, (CUstream stream, unsigned int count, \
    CUstreamBatchMemOpParams* params, unsigned int flags)) \
  X(cuStreamGetCtx_v2, cuStreamGetCtx, 12050, (CUstream stream, CUcontext* ctx, CUgreenCtx* green)) \
  X(cuGreenCtxGetId, cuGreenCtxGetId, 12090, (CUgreenCtx green, unsigned long long* id)) \
  X(cuCtxRecordEvent, cuCtxRecordEvent, 12050, (CUcontext ctx, CUevent event)) \
  X(cuCtxWaitEvent, cuCtxWaitEvent, 12050, (CUcontext ctx, CUevent event)) \
  X(cuCtxAttach, cuCtxAttach, 2000, (CUcontext* ctx, unsigned int flags)) \
  X(cuCtxDetach, cuCtxDetach, 2000, (CUcontext ctx)) \
  X(cuCtxGetExecAffinity, cuCtxGetExecAffinity, 11040, (CUexecAffinityParam* affinity, CUexecAffinityType type)) \
  X(cuDeviceGetTexture1DLinearMaxWidth, cuDeviceGetTexture1DLinearMaxWidth, 11010, (size_t* max_width, \
    CUarray_format format, unsigned int channels, CUdevice device)) \
  X(cuLibraryGetUnifiedFunction, cuLibraryGetUnifiedFunction, 12000, (void** function, CUlibrary library, \
    const char* symbol)) \
  X(cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync, 13000, (CUdeviceptr* addresses, size_t* sizes, size_t count, \
    CUmemLocation* places, size_t* place_indices, size_t place_count, unsigned long long flags, CUstream stream)) \
  X(cuMemDiscardBatchAsync, cuMemDiscardBatchAsync, 13000, (CUdeviceptr* addresses, size_t* sizes, size_t count, \
    unsigned long long flags, CUstream stream)) \
  X(cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync, 13000, (CUdeviceptr* addresses, \
    size_t* sizes, size_t count, CUmemLocation* places, size_t* place_indices, size_t place_count, \
    unsigned long long flags, CUstream stream)) \
  X(cuFuncSetBlockShape, cuFuncSetBlockShape, 2000, (CUfunction function, int x, int y, int z)) \
  X(cuFuncSetSharedSize, cuFuncSetSharedSize, 2000, (CUfunction function, unsigned int bytes)) \
  X(cuParamSetSize, cuParamSetSize, 2000, (CUfunction function, unsigned int bytes)) \
  X(cuParamSeti, cuParamSeti, 2000, (CUfunction function, int offset, unsigned int value)) \
  X(cuParamSetf, cuParamSetf, 2000, (CUfunction function, int offset, float value)) \
  X(cuParamSetv, cuParamSetv, 2000, (CUfunction function, int offset, void* from, unsigned int bytes)) \
  X(cuLaunch, cuLaunch, 2000, (CUfunction function)) \
  X(cuLaunchGrid, cuLaunchGrid, 2000, (CUfunction function, int width, int height)) \
  X(cuLaunchGridAsync, cuLaunchGridAsync, 2000, (CUfunction function, int width, int height, CUstream stream)) \
  X(cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernelMultiDevice, 9000, (CUDA_LAUNCH_PARAMS* launches, \
    unsigned int devices, unsigned int flags)) \
  X(cuArrayGetMemoryRequirements, cuArrayGetMemoryRequirements, 11060, (CUDA_ARRAY_MEMORY_REQUIREMENTS* \
    requirements, CUarray array, CUdevice device)) \
  X(cuMipmappedArrayGetMemoryRequirements, cuMipmappedArrayGetMemoryRequirements, 11060, \
    (CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements, CUmipmappedArray array, CUdevice device)) \
  X(cuArrayGetSparseProperties, cuArrayGetSparseProperties, 11010, (CUDA_ARRAY_SPARSE_PROPERTIES* properties, \
    CUarray array)) \
  X(cuMipmappedArrayGetSparseProperties, cuMipmappedArrayGetSparseProperties, 11010, \
    (CUDA_ARRAY_SPARSE_PROPERTIES* properties, CUmipmappedArray array)) \
  X(cuArrayGetPlane, cuArrayGetPlane, 11020, (CUarray* plane, CUarray array, unsigned int index)) \
  X(cuCtxSynchronize_v2, cuCtxSynchronize, 13000, (CUcontext ctx)) \
  X(cuCtxGetDevice_v2, cuCtxGetDevice, 13000, (CUdevice* device, CUcontext ctx)) \
  X(cuDeviceGetP2PAttribute, cuDeviceGetP2PAttribute, 8000, (int* value, CUdevice_P2PAttribute attribute, \
    CUdevice src, CUdevice dst)) \
  X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000, (CUcontext peer, unsigned int flags)) \
  X(cuCtxDisablePeerAccess, cuCtxDisablePeerAccess, 4000, (CUcontext peer)) \
  X(cuModuleGetTexRef, cuModuleGetTexRef, 2000, (CUtexref* reference, CUmodule module, const char* name)) \
  X(cuModuleGetSurfRef, cuModuleGetSurfRef, 3000, (CUsurfref* reference, CUmodule module, const char* name)) \
  X(cuParamSetTexRef, cuParamSetTexRef, 2000, (CUfunction function, int unit, CUtexref reference)) \
  X(cuTexRefCreate, cuTexRefCreate, 2000, (CUtexref* reference)) \
  X(cuTexRefDestroy, cuTexRefDestroy, 2000, (CUtexref reference)) \
  X(cuTexRefSetArray, cuTexRefSetArray, 2000, (CUtexref reference, CUarray array, unsigned int flags)) \
  X(cuTexRefSetMipmappedArray, cuTexRefSetMipmappedArray, 5000, (CUtexref reference, CUmipmappedArray array, \
    unsigned int flags)) \
  X(cuTexRefSetAddress_v2, cuTexRefSetAddress, 3020, (size_t* offset, CUtexref reference, CUdeviceptr address, \
    size_t bytes)) \
  X(cuTexRefSetAddress2D_v3, cuTexRefSetAddress2D, 4010, (CUtexref reference, const CUDA_ARRAY_DESCRIPTOR* \
    description, CUdeviceptr address, size_t pitch)) \
  X(cuTexRefSetFormat, cuTexRefSetFormat, 2000, (CUtexref reference, CUarray_format format, int channels)) \
  X(cuTexRefSetAddressMode, cuTexRefSetAddressMode, 2000, (CUtexref reference, int dimension, CUaddress_mode \
    mode)) \
  X(cuTexRefSetFilterMode, cuTexRefSetFilterMode, 2000, (CUtexref reference, CUfilter_mode mode)) \
  X(cuTexRefSetMipmapFilterMode, cuTexRefSetMipmapFilterMode, 5000, (CUtexref reference, CUfilter_mode mode)) \
  X(cuTexRefSetMipmapLevelBias, cuTexRefSetMipmapLevelBias, 5000, (CUtexref reference, float bias)) \
  X(cuTexRefSetMipmapLevelClamp, cuTexRefSetMipmapLevelClamp, 5000, (CUtexref reference, float least, float most)) \
  X(cuTexRefSetMaxAnisotropy, cuTexRefSetMaxAnisotropy, 5000, (CUtexref reference, unsigned int most)) \
  X(cuTexRefSetBorderColor, cuTexRefSetBorderColor, 8000, (CUtexref reference, float* color)) \
  X(cuTexRefSetFlags, cuTexRefSetFlags, 2000, (CUtexref reference, unsigned int flags)) \
  X(cuTexRefGetAddress_v2, cuTexRefGetAddress, 3020, (CUdeviceptr* address, CUtexref reference)) \
  X(cuTexRefGetArray, cuTexRefGetArray, 2000, (CUarray* array, CUtexref reference)) \
  X(cuTexRefGetMipmappedArray, cuTexRefGetMipmappedArray, 5000, (CUmipmappedArray* array, CUtexref reference)) \
  X(cuTexRefGetAddressMode, cuTexRefGetAddressMode, 2000, (CUaddress_mode* mode, CUtexref reference, int \
    dimension)) \
  X(cuTexRefGetFilterMode, cuTexRefGetFilterMode, 2000, (CUfilter_mode* mode, CUtexref reference)) \
  X(cuTexRefGetFormat, cuTexRefGetFormat, 2000, (CUarray_format* format, int* channels, CUtexref reference)) \
  X(cuTexRefGetMipmapFilterMode, cuTexRefGetMipmapFilterMode, 5000, (CUfilter_mode* mode, CUtexref reference)) \
  X(cuTexRefGetMipmapLevelBias, cuTexRefGetMipmapLevelBias, 5000, (float* bias, CUtexref reference)) \
  X(cuTexRefGetMipmapLevelClamp, cuTexRefGetMipmapLevelClamp, 5000, (float* least, float* most, CUtexref \
    reference)) \
  X(cuTexRefGetMaxAnisotropy, cuTexRefGetMaxAnisotropy, 5000, (int* most, CUtexref reference)) \
  X(cuTexRefGetBorderColor, cuTexRefGetBorderColor, 8000, (float* color, CUtexref reference)) \
  X(cuTexRefGetFlags, cuTexRefGetFlags, 2000, (unsigned int* flags, CUtexref reference)) \
  X(cuSurfRefSetArray, cuSurfRefSetArray, 3000, (CUsurfref reference, CUarray array, unsigned int flags)) \
  X(cuSurfRefGetArray, cuSurfRefGetArray, 3000, (CUarray* array, CUsurfref reference))

/* Symbols of what nobody here does: X(symbol). They answer CUDA_ERROR_NOT_SUPPORTED whatever they are given, and
 * cuGetProcAddress does not find them, so that programs which ask take another way. */
#define SLUICE_CUDA_ABSENT_FUNCTIONS(X) \
  X(cuCheckpointProcessCheckpoint) X(cuCheckpointProcessGetRestoreThreadId) X(cuCheckpointProcessGetState) \
  X(cuCheckpointProcessLock) X(cuCheckpointProcessRestore) X(cuCheckpointProcessUnlock) \
  X(cuCoredumpGetAttribute) X(cuCoredumpGetAttributeGlobal) X(cuCoredumpSetAttribute) \
  X(cuCoredumpSetAttributeGlobal) X(cuDestroyExternalMemory) X(cuDestroyExternalSemaphore) \
  X(cuDeviceGetHostAtomicCapabilities) X(cuDeviceGetNvSciSyncAttributes) X(cuDeviceGetP2PAtomicCapabilities) \
  X(cuDeviceRegisterAsyncNotification) X(cuDeviceUnregisterAsyncNotification) X(cuExternalMemoryGetMappedBuffer) \
  X(cuExternalMemoryGetMappedMipmappedArray) X(cuFlushGPUDirectRDMAWrites) X(cuGraphicsMapResources) \
  X(cuGraphicsMapResources_ptsz) X(cuGraphicsResourceGetMappedMipmappedArray) \
  X(cuGraphicsResourceGetMappedPointer_v2) X(cuGraphicsResourceSetMapFlags_v2) \
  X(cuGraphicsSubResourceGetMappedArray) X(cuGraphicsUnmapResources) X(cuGraphicsUnmapResources_ptsz) \
  X(cuGraphicsUnregisterResource) X(cuImportExternalMemory) X(cuImportExternalSemaphore) X(cuLogsCurrent) \
  X(cuLogsDumpToFile) X(cuLogsDumpToMemory) X(cuLogsRegisterCallback) X(cuLogsUnregisterCallback) \
  X(cuMemBatchDecompressAsync) X(cuMemBatchDecompressAsync_ptsz) X(cuMemGetHandleForAddressRange) \
  X(cuMemMapArrayAsync) X(cuMemMapArrayAsync_ptsz) X(cuMulticastAddDevice) X(cuMulticastBindAddr) \
  X(cuMulticastBindMem) X(cuMulticastCreate) X(cuMulticastGetGranularity) X(cuMulticastUnbind) \
  X(cuProfilerInitialize) X(cuSignalExternalSemaphoresAsync) X(cuSignalExternalSemaphoresAsync_ptsz) \
  X(cuWaitExternalSemaphoresAsync) X(cuWaitExternalSemaphoresAsync_ptsz)

/* The same of older versions, which CUDA 13.0's header does not declare any more. */
#define SLUICE_CUDA_ABSENT_OLD_FUNCTIONS(X) \
  X(cuGraphicsResourceGetMappedPointer) X(cuGraphicsResourceSetMapFlags) \
  X(cuTexRefSetAddress2D_v2)

/* The same of the headers for OpenGL, EGL and VDPAU. FFmpeg uses no CUDA where one of these is missing. */
#define SLUICE_CUDA_ABSENT_GRAPHICS_FUNCTIONS(X) \
  X(cuEGLStreamConsumerAcquireFrame) X(cuEGLStreamConsumerConnect) X(cuEGLStreamConsumerConnectWithFlags) \
  X(cuEGLStreamConsumerDisconnect) X(cuEGLStreamConsumerReleaseFrame) X(cuEGLStreamProducerConnect) \
  X(cuEGLStreamProducerDisconnect) X(cuEGLStreamProducerPresentFrame) X(cuEGLStreamProducerReturnFrame) \
  X(cuEventCreateFromEGLSync) X(cuGLGetDevices_v2) X(cuGraphicsEGLRegisterImage) X(cuGraphicsGLRegisterBuffer) \
  X(cuGraphicsGLRegisterImage) X(cuGraphicsResourceGetMappedEglFrame) X(cuGraphicsVDPAURegisterOutputSurface) \
  X(cuGraphicsVDPAURegisterVideoSurface) X(cuVDPAUCtxCreate_v2) X(cuVDPAUGetDevice)

/* Symbols whose addresses and sizes have 32 bits, as before CUDA 3.2: X(symbol as a string, for cuda_driver.h turns
 * the name into another). Nobody calls them, but programs that load all functions by name want to find them. */
#define SLUICE_CUDA_32_BIT_FUNCTIONS(X) \
  X("cuArray3DCreate") X("cuArray3DGetDescriptor") X("cuArrayCreate") X("cuArrayGetDescriptor") \
  X("cuDeviceTotalMem") X("cuMemAlloc") X("cuMemAllocHost") X("cuMemAllocPitch") X("cuMemFree") \
  X("cuMemGetAddressRange") X("cuMemGetInfo") X("cuMemHostGetDevicePointer") X("cuMemcpy2D") \
  X("cuMemcpy2DAsync") X("cuMemcpy2DUnaligned") X("cuMemcpy3D") X("cuMemcpy3DAsync") \
  X("cuMemcpyAtoA") X("cuMemcpyAtoD") X("cuMemcpyAtoH") X("cuMemcpyAtoHAsync") X("cuMemcpyDtoA") \
  X("cuMemcpyDtoD") X("cuMemcpyDtoDAsync") X("cuMemcpyDtoH") X("cuMemcpyDtoHAsync") \
  X("cuMemcpyHtoA") X("cuMemcpyHtoAAsync") X("cuMemcpyHtoD") X("cuMemcpyHtoDAsync") \
  X("cuMemsetD16") X("cuMemsetD2D16") X("cuMemsetD2D32") X("cuMemsetD2D8") X("cuMemsetD32") \
  X("cuMemsetD8") X("cuModuleGetGlobal") X("cuTexRefGetAddress") X("cuTexRefSetAddress") \
  X("cuTexRefSetAddress2D")

/* Forms for programs that are compiled with a default stream per thread: Y(symbol as a string,
 * function). In them a null stream is the calling thread's own. */
#define SLUICE_CUDA_PER_THREAD_FUNCTIONS(Y) \
  Y("cuMemcpyAtoA_v2_ptds", cuMemcpyAtoA_v2) \
  Y("cuMemcpyAtoD_v2_ptds", cuMemcpyAtoD_v2) \
  Y("cuMemcpyAtoHAsync_v2_ptsz", cuMemcpyAtoHAsync_v2) \
  Y("cuMemcpyAtoH_v2_ptds", cuMemcpyAtoH_v2) \
  Y("cuMemcpyDtoA_v2_ptds", cuMemcpyDtoA_v2) \
  Y("cuMemcpyHtoAAsync_v2_ptsz", cuMemcpyHtoAAsync_v2) \
  Y("cuMemcpyHtoA_v2_ptds", cuMemcpyHtoA_v2) \
  Y("cuMemcpy3DPeerAsync_ptsz", cuMemcpy3DPeerAsync) \
  Y("cuMemcpy3DPeer_ptds", cuMemcpy3DPeer) \
  Y("cuMemcpyBatchAsync_v2_ptsz", cuMemcpyBatchAsync_v2) \
  Y("cuMemcpyBatchAsync_ptsz", sluice_memcpy_batch_v1) \
  Y("cuMemcpy3DBatchAsync_ptsz", sluice_memcpy_3d_batch_v1) \
  Y("cuStreamGetCtx_v2_ptsz", cuStreamGetCtx_v2) \
  Y("cuMemPrefetchBatchAsync_ptsz", cuMemPrefetchBatchAsync) \
  Y("cuMemDiscardBatchAsync_ptsz", cuMemDiscardBatchAsync) \
  Y("cuMemDiscardAndPrefetchBatchAsync_ptsz", cuMemDiscardAndPrefetchBatchAsync) \
  Y("cuMemcpy3DBatchAsync_v2_ptsz", cuMemcpy3DBatchAsync_v2) \
  Y("cuMemAllocFromPoolAsync_ptsz", cuMemAllocFromPoolAsync) \
  Y("cuMemPrefetchAsync_v2_ptsz", cuMemPrefetchAsync_v2) \
  Y("cuStreamSetAttribute_ptsz", cuStreamSetAttribute) \
  Y("cuStreamGetAttribute_ptsz", cuStreamGetAttribute) \
  Y("cuStreamCopyAttributes_ptsz", cuStreamCopyAttributes) \
  Y("cuStreamBatchMemOp_v2_ptsz", cuStreamBatchMemOp_v2) \
  Y("cuEventRecordWithFlags_ptsz", cuEventRecordWithFlags) Y("cuEventRecord_ptsz", cuEventRecord) \
  Y("cuGetProcAddress_v2_ptsz", cuGetProcAddress_v2) \
  Y("cuGraphInstantiateWithParams_ptsz", cuGraphInstantiateWithParams) Y("cuGraphLaunch_ptsz", cuGraphLaunch) \
  Y("cuGraphUpload_ptsz", cuGraphUpload) Y("cuLaunchCooperativeKernel_ptsz", cuLaunchCooperativeKernel) \
  Y("cuLaunchHostFunc_ptsz", cuLaunchHostFunc) Y("cuLaunchKernelEx_ptsz", cuLaunchKernelEx) \
  Y("cuLaunchKernel_ptsz", cuLaunchKernel) Y("cuMemAllocAsync_ptsz", cuMemAllocAsync) \
  Y("cuMemFreeAsync_ptsz", cuMemFreeAsync) Y("cuMemcpy2DAsync_v2_ptsz", cuMemcpy2DAsync_v2) \
  Y("cuMemcpy2DUnaligned_v2_ptds", cuMemcpy2DUnaligned_v2) Y("cuMemcpy2D_v2_ptds", cuMemcpy2D_v2) \
  Y("cuMemcpy3DAsync_v2_ptsz", cuMemcpy3DAsync_v2) Y("cuMemcpy3D_v2_ptds", cuMemcpy3D_v2) \
  Y("cuMemcpyAsync_ptsz", cuMemcpyAsync) Y("cuMemcpyDtoDAsync_v2_ptsz", cuMemcpyDtoDAsync_v2) \
  Y("cuMemcpyDtoD_v2_ptds", cuMemcpyDtoD_v2) Y("cuMemcpyDtoHAsync_v2_ptsz", cuMemcpyDtoHAsync_v2) \
  Y("cuMemcpyDtoH_v2_ptds", cuMemcpyDtoH_v2) Y("cuMemcpyHtoDAsync_v2_ptsz", cuMemcpyHtoDAsync_v2) \
  Y("cuMemcpyHtoD_v2_ptds", cuMemcpyHtoD_v2) Y("cuMemcpyPeerAsync_ptsz", cuMemcpyPeerAsync) \
  Y("cuMemcpyPeer_ptds", cuMemcpyPeer) Y("cuMemcpy_ptds", cuMemcpy) Y("cuMemsetD16Async_ptsz", cuMemsetD16Async) \
  Y("cuMemsetD16_v2_ptds", cuMemsetD16_v2) Y("cuMemsetD2D16Async_ptsz", cuMemsetD2D16Async) \
  Y("cuMemsetD2D16_v2_ptds", cuMemsetD2D16_v2) Y("cuMemsetD2D32Async_ptsz", cuMemsetD2D32Async) \
  Y("cuMemsetD2D32_v2_ptds", cuMemsetD2D32_v2) Y("cuMemsetD2D8Async_ptsz", cuMemsetD2D8Async) \
  Y("cuMemsetD2D8_v2_ptds", cuMemsetD2D8_v2) Y("cuMemsetD32Async_ptsz", cuMemsetD32Async) \
  Y("cuMemsetD32_v2_ptds", cuMemsetD32_v2) Y("cuMemsetD8Async_ptsz", cuMemsetD8Async) \
  Y("cuMemsetD8_v2_ptds", cuMemsetD8_v2) Y("cuStreamAddCallback_ptsz", cuStreamAddCallback) \
  Y("cuStreamAttachMemAsync_ptsz", cuStreamAttachMemAsync) \
  Y("cuStreamBeginCaptureToGraph_ptsz", cuStreamBeginCaptureToGraph) \
  Y("cuStreamBeginCapture_v2_ptsz", cuStreamBeginCapture_v2) Y("cuStreamEndCapture_ptsz", cuStreamEndCapture) \
  Y("cuStreamGetCaptureInfo_v3_ptsz", cuStreamGetCaptureInfo_v3) Y("cuStreamGetCtx_ptsz", cuStreamGetCtx) \
  Y("cuStreamGetDevice_ptsz", cuStreamGetDevice) Y("cuStreamGetFlags_ptsz", cuStreamGetFlags) \
  Y("cuStreamGetId_ptsz", cuStreamGetId) Y("cuStreamGetPriority_ptsz", cuStreamGetPriority) \
  Y("cuStreamIsCapturing_ptsz", cuStreamIsCapturing) Y("cuStreamQuery_ptsz", cuStreamQuery) \
  Y("cuStreamSynchronize_ptsz", cuStreamSynchronize) \
  Y("cuStreamUpdateCaptureDependencies_v2_ptsz", cuStreamUpdateCaptureDependencies_v2) \
  Y("cuStreamWaitEvent_ptsz", cuStreamWaitEvent) Y("cuStreamWaitValue32_v2_ptsz", cuStreamWaitValue32_v2) \
  Y("cuStreamWaitValue64_v2_ptsz", cuStreamWaitValue64_v2) Y("cuStreamWriteValue32_v2_ptsz", cuStreamWriteValue32_v2) \
  Y("cuStreamWriteValue64_v2_ptsz", cuStreamWriteValue64_v2) \
  Y("cuStreamBeginCapture_ptsz", sluice_begin_capture_v1) \
  Y("cuStreamGetCaptureInfo_ptsz", sluice_capture_info_v1) \
  Y("cuStreamGetCaptureInfo_v2_ptsz", sluice_capture_info_v2) \
  Y("cuStreamUpdateCaptureDependencies_ptsz", sluice_capture_dependencies_v1) \
  Y("cuMemPrefetchAsync_ptsz", sluice_mem_prefetch_v1) Y("cuStreamBatchMemOp_ptsz", sluice_batch_mem_op_v1)
/* clang-format on */

#endif /* SLUICE_ABI_CUDA_OTHER_FUNCTIONS_H */
