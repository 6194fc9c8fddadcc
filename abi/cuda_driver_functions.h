/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of the public CUDA driver API that Sluice declares, loads and offers: one row each.
 *
 *   X(symbol, name, since, (parameters))
 *
 * `symbol` is what a driver library exports, `name` what a program writes (cuda_driver.h maps one
 * to the other), `since` the first CUDA version (major * 1000 + minor * 10) whose cuGetProcAddress
 * hands out this symbol for this name. All return CUresult. Facts from the CUDA Toolkit 13.0;
 * where the toolkit is installed, cuda_driver_asserts.cc compares every row with it.
 * An X that wants the name must stringise it directly: as a token it is a macro.
 */
#ifndef SLUICE_ABI_CUDA_DRIVER_FUNCTIONS_H
#define SLUICE_ABI_CUDA_DRIVER_FUNCTIONS_H

/* clang-format off */
#define SLUICE_CUDA_DRIVER_FUNCTIONS(X) \
  /* start, versions, symbol look-up, errors */ \
  X(cuInit, cuInit, 2000, (unsigned int flags)) \
  X(cuDriverGetVersion, cuDriverGetVersion, 2020, (int* driver_version)) \
  X(cuGetProcAddress_v2, cuGetProcAddress, 12000, (const char* symbol, void** pfn, int \
      cuda_version, cuuint64_t flags, CUdriverProcAddressQueryResult* symbol_status)) \
  X(cuGetExportTable, cuGetExportTable, 3000, (const void** pp_export_table, const CUuuid* \
      export_table_id)) \
  X(cuGetErrorName, cuGetErrorName, 6000, (CUresult error, const char** str)) \
  X(cuGetErrorString, cuGetErrorString, 6000, (CUresult error, const char** str)) \
  /* devices */ \
  X(cuDeviceGet, cuDeviceGet, 2000, (CUdevice* device, int ordinal)) \
  X(cuDeviceGetCount, cuDeviceGetCount, 2000, (int* count)) \
  X(cuDeviceGetName, cuDeviceGetName, 2000, (char* name, int len, CUdevice dev)) \
  X(cuDeviceGetUuid_v2, cuDeviceGetUuid, 11040, (CUuuid* uuid, CUdevice dev)) \
  X(cuDeviceGetLuid, cuDeviceGetLuid, 10000, (char* luid, unsigned int* device_node_mask, \
      CUdevice dev)) \
  X(cuDeviceTotalMem_v2, cuDeviceTotalMem, 3020, (size_t* bytes, CUdevice dev)) \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000, (int* pi, CUdevice_attribute attrib, \
      CUdevice dev)) \
  X(cuDeviceGetProperties, cuDeviceGetProperties, 2000, (CUdevprop* prop, CUdevice dev)) \
  X(cuDeviceComputeCapability, cuDeviceComputeCapability, 2000, (int* major, int* minor, \
      CUdevice dev)) \
  X(cuDeviceGetExecAffinitySupport, cuDeviceGetExecAffinitySupport, 11040, (int* pi, \
      CUexecAffinityType type, CUdevice dev)) \
  X(cuDeviceGetByPCIBusId, cuDeviceGetByPCIBusId, 4010, (CUdevice* dev, const char* pci_bus_id)) \
  X(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010, (char* pci_bus_id, int len, CUdevice dev)) \
  X(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000, (int* can_access_peer, CUdevice dev, \
      CUdevice peer_dev)) \
  /* the device's primary context */ \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, (CUcontext* pctx, CUdevice dev)) \
  X(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000, (CUdevice dev)) \
  X(cuDevicePrimaryCtxSetFlags_v2, cuDevicePrimaryCtxSetFlags, 11000, (CUdevice dev, unsigned \
      int flags)) \
  X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000, (CUdevice dev, unsigned int* \
      flags, int* active)) \
  X(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, (CUdevice dev)) \
  /* contexts */ \
  X(cuCtxCreate_v2, cuCtxCreate, 3020, (CUcontext* pctx, unsigned int flags, CUdevice dev)) \
  X(cuCtxCreate_v3, cuCtxCreate, 11040, (CUcontext* pctx, struct CUexecAffinityParam_st* params_array, \
      int num_params, unsigned int flags, CUdevice dev)) \
  X(cuCtxCreate_v4, cuCtxCreate, 12050, (CUcontext* pctx, CUctxCreateParams* ctx_create_params, \
      unsigned int flags, CUdevice dev)) \
  X(cuCtxDestroy_v2, cuCtxDestroy, 4000, (CUcontext ctx)) \
  X(cuCtxPushCurrent_v2, cuCtxPushCurrent, 4000, (CUcontext ctx)) \
  X(cuCtxPopCurrent_v2, cuCtxPopCurrent, 4000, (CUcontext* pctx)) \
  X(cuCtxSetCurrent, cuCtxSetCurrent, 4000, (CUcontext ctx)) \
  X(cuCtxGetCurrent, cuCtxGetCurrent, 4000, (CUcontext* pctx)) \
  X(cuCtxGetDevice, cuCtxGetDevice, 2000, (CUdevice* device)) \
  X(cuCtxGetFlags, cuCtxGetFlags, 7000, (unsigned int* flags)) \
  X(cuCtxSetFlags, cuCtxSetFlags, 12010, (unsigned int flags)) \
  X(cuCtxGetId, cuCtxGetId, 12000, (CUcontext ctx, unsigned long long* ctx_id)) \
  X(cuCtxSynchronize, cuCtxSynchronize, 2000, (void)) \
  X(cuCtxSetLimit, cuCtxSetLimit, 3010, (CUlimit limit, size_t value)) \
  X(cuCtxGetLimit, cuCtxGetLimit, 3010, (size_t* pvalue, CUlimit limit)) \
  X(cuCtxGetCacheConfig, cuCtxGetCacheConfig, 3020, (CUfunc_cache* pconfig)) \
  X(cuCtxSetCacheConfig, cuCtxSetCacheConfig, 3020, (CUfunc_cache config)) \
  X(cuCtxGetApiVersion, cuCtxGetApiVersion, 3020, (CUcontext ctx, unsigned int* version)) \
  X(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, 5050, (int* least_priority, int* \
      greatest_priority)) \
  X(cuCtxResetPersistingL2Cache, cuCtxResetPersistingL2Cache, 11000, (void)) \
  X(cuCtxGetSharedMemConfig, cuCtxGetSharedMemConfig, 4020, (CUsharedconfig* config)) \
  X(cuCtxSetSharedMemConfig, cuCtxSetSharedMemConfig, 4020, (CUsharedconfig config)) \
  /* modules */ \
  X(cuModuleLoad, cuModuleLoad, 2000, (CUmodule* module, const char* fname)) \
  X(cuModuleLoadData, cuModuleLoadData, 2000, (CUmodule* module, const void* image)) \
  X(cuModuleLoadDataEx, cuModuleLoadDataEx, 2010, (CUmodule* module, const void* image, unsigned \
      int num_options, CUjit_option* options, void** option_values)) \
  X(cuModuleLoadFatBinary, cuModuleLoadFatBinary, 2000, (CUmodule* module, const void* \
      fat_cubin)) \
  X(cuModuleUnload, cuModuleUnload, 2000, (CUmodule hmod)) \
  X(cuModuleGetLoadingMode, cuModuleGetLoadingMode, 11070, (CUmoduleLoadingMode* mode)) \
  X(cuModuleGetFunction, cuModuleGetFunction, 2000, (CUfunction* hfunc, CUmodule hmod, const \
      char* name)) \
  X(cuModuleGetFunctionCount, cuModuleGetFunctionCount, 12040, (unsigned int* count, CUmodule \
      mod)) \
  X(cuModuleEnumerateFunctions, cuModuleEnumerateFunctions, 12040, (CUfunction* functions, \
      unsigned int num_functions, CUmodule mod)) \
  X(cuModuleGetGlobal_v2, cuModuleGetGlobal, 3020, (CUdeviceptr* dptr, size_t* bytes, CUmodule \
      hmod, const char* name)) \
  /* linking at run time */ \
  X(cuLinkCreate_v2, cuLinkCreate, 6050, (unsigned int num_options, CUjit_option* options, \
      void** option_values, CUlinkState* state_out)) \
  X(cuLinkAddData_v2, cuLinkAddData, 6050, (CUlinkState state, CUjitInputType type, void* data, \
      size_t size, const char* name, unsigned int num_options, CUjit_option* options, void** \
      option_values)) \
  X(cuLinkAddFile_v2, cuLinkAddFile, 6050, (CUlinkState state, CUjitInputType type, const char* \
      path, unsigned int num_options, CUjit_option* options, void** option_values)) \
  X(cuLinkComplete, cuLinkComplete, 5050, (CUlinkState state, void** cubin_out, size_t* \
      size_out)) \
  X(cuLinkDestroy, cuLinkDestroy, 5050, (CUlinkState state)) \
  /* libraries and kernels (modules that belong to no context) */ \
  X(cuLibraryLoadData, cuLibraryLoadData, 12000, (CUlibrary* library, const void* code, \
      CUjit_option* jit_options, void** jit_options_values, unsigned int num_jit_options, \
      CUlibraryOption* library_options, void** library_option_values, unsigned int \
      num_library_options)) \
  X(cuLibraryLoadFromFile, cuLibraryLoadFromFile, 12000, (CUlibrary* library, const char* \
      file_name, CUjit_option* jit_options, void** jit_options_values, unsigned int \
      num_jit_options, CUlibraryOption* library_options, void** library_option_values, unsigned \
      int num_library_options)) \
  X(cuLibraryUnload, cuLibraryUnload, 12000, (CUlibrary library)) \
  X(cuLibraryGetKernel, cuLibraryGetKernel, 12000, (CUkernel* kernel, CUlibrary library, const \
      char* name)) \
  X(cuLibraryGetKernelCount, cuLibraryGetKernelCount, 12040, (unsigned int* count, CUlibrary \
      lib)) \
  X(cuLibraryEnumerateKernels, cuLibraryEnumerateKernels, 12040, (CUkernel* kernels, unsigned \
      int num_kernels, CUlibrary lib)) \
  X(cuLibraryGetModule, cuLibraryGetModule, 12000, (CUmodule* mod, CUlibrary library)) \
  X(cuLibraryGetGlobal, cuLibraryGetGlobal, 12000, (CUdeviceptr* dptr, size_t* bytes, CUlibrary \
      library, const char* name)) \
  X(cuKernelGetFunction, cuKernelGetFunction, 12000, (CUfunction* func, CUkernel kernel)) \
  X(cuKernelGetLibrary, cuKernelGetLibrary, 12050, (CUlibrary* lib, CUkernel kernel)) \
  X(cuKernelGetAttribute, cuKernelGetAttribute, 12000, (int* pi, CUfunction_attribute attrib, \
      CUkernel kernel, CUdevice dev)) \
  X(cuKernelSetAttribute, cuKernelSetAttribute, 12000, (CUfunction_attribute attrib, int val, \
      CUkernel kernel, CUdevice dev)) \
  X(cuKernelSetCacheConfig, cuKernelSetCacheConfig, 12000, (CUkernel kernel, CUfunc_cache \
      config, CUdevice dev)) \
  X(cuKernelGetName, cuKernelGetName, 12030, (const char** name, CUkernel hfunc)) \
  X(cuKernelGetParamInfo, cuKernelGetParamInfo, 12040, (CUkernel kernel, size_t param_index, \
      size_t* param_offset, size_t* param_size)) \
  /* functions */ \
  X(cuFuncGetAttribute, cuFuncGetAttribute, 2020, (int* pi, CUfunction_attribute attrib, \
      CUfunction hfunc)) \
  X(cuFuncSetAttribute, cuFuncSetAttribute, 9000, (CUfunction hfunc, CUfunction_attribute \
      attrib, int value)) \
  X(cuFuncSetCacheConfig, cuFuncSetCacheConfig, 3000, (CUfunction hfunc, CUfunc_cache config)) \
  X(cuFuncSetSharedMemConfig, cuFuncSetSharedMemConfig, 4020, (CUfunction hfunc, CUsharedconfig \
      config)) \
  X(cuFuncGetModule, cuFuncGetModule, 11000, (CUmodule* hmod, CUfunction hfunc)) \
  X(cuFuncGetName, cuFuncGetName, 12030, (const char** name, CUfunction hfunc)) \
  X(cuFuncGetParamInfo, cuFuncGetParamInfo, 12040, (CUfunction func, size_t param_index, size_t* \
      param_offset, size_t* param_size)) \
  X(cuFuncIsLoaded, cuFuncIsLoaded, 12040, (CUfunctionLoadingState* state, CUfunction function)) \
  X(cuFuncLoad, cuFuncLoad, 12040, (CUfunction function)) \
  /* launches */ \
  X(cuLaunchKernel, cuLaunchKernel, 4000, (CUfunction f, unsigned int grid_dim_x, unsigned int \
      grid_dim_y, unsigned int grid_dim_z, unsigned int block_dim_x, unsigned int block_dim_y, \
      unsigned int block_dim_z, unsigned int shared_mem_bytes, CUstream stream, void** \
      kernel_params, void** extra)) \
  X(cuLaunchKernelEx, cuLaunchKernelEx, 11060, (const CUlaunchConfig* config, CUfunction f, \
      void** kernel_params, void** extra)) \
  X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000, (CUfunction f, unsigned int \
      grid_dim_x, unsigned int grid_dim_y, unsigned int grid_dim_z, unsigned int block_dim_x, \
      unsigned int block_dim_y, unsigned int block_dim_z, unsigned int shared_mem_bytes, \
      CUstream stream, void** kernel_params)) \
  X(cuLaunchHostFunc, cuLaunchHostFunc, 10000, (CUstream stream, CUhostFn fn, void* user_data)) \
  /* memory */ \
  X(cuMemGetInfo_v2, cuMemGetInfo, 3020, (size_t* free, size_t* total)) \
  X(cuMemAlloc_v2, cuMemAlloc, 3020, (CUdeviceptr* dptr, size_t bytesize)) \
  X(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, (CUdeviceptr* dptr, size_t* pitch, size_t \
      width_in_bytes, size_t height, unsigned int element_size_bytes)) \
  X(cuMemFree_v2, cuMemFree, 3020, (CUdeviceptr dptr)) \
  X(cuMemGetAddressRange_v2, cuMemGetAddressRange, 3020, (CUdeviceptr* pbase, size_t* psize, \
      CUdeviceptr dptr)) \
  X(cuMemAllocAsync, cuMemAllocAsync, 11020, (CUdeviceptr* dptr, size_t bytesize, CUstream \
      stream)) \
  X(cuMemFreeAsync, cuMemFreeAsync, 11020, (CUdeviceptr dptr, CUstream stream)) \
  X(cuMemAllocManaged, cuMemAllocManaged, 6000, (CUdeviceptr* dptr, size_t bytesize, unsigned \
      int flags)) \
  /* virtual memory management: addresses, physical memory, mappings */ \
  X(cuMemAddressReserve, cuMemAddressReserve, 10020, (CUdeviceptr* ptr, size_t size, size_t \
      alignment, CUdeviceptr addr, unsigned long long flags)) \
  X(cuMemAddressFree, cuMemAddressFree, 10020, (CUdeviceptr ptr, size_t size)) \
  X(cuMemCreate, cuMemCreate, 10020, (CUmemGenericAllocationHandle* handle, size_t size, const \
      CUmemAllocationProp* prop, unsigned long long flags)) \
  X(cuMemRelease, cuMemRelease, 10020, (CUmemGenericAllocationHandle handle)) \
  X(cuMemMap, cuMemMap, 10020, (CUdeviceptr ptr, size_t size, size_t offset, \
      CUmemGenericAllocationHandle handle, unsigned long long flags)) \
  X(cuMemUnmap, cuMemUnmap, 10020, (CUdeviceptr ptr, size_t size)) \
  X(cuMemSetAccess, cuMemSetAccess, 10020, (CUdeviceptr ptr, size_t size, const CUmemAccessDesc* \
      desc, size_t count)) \
  X(cuMemGetAccess, cuMemGetAccess, 10020, (unsigned long long* flags, const CUmemLocation* \
      location, CUdeviceptr ptr)) \
  X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020, (size_t* granularity, \
      const CUmemAllocationProp* prop, CUmemAllocationGranularity_flags option)) \
  X(cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle, 10020, \
      (CUmemAllocationProp* prop, CUmemGenericAllocationHandle handle)) \
  X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, \
      (CUmemGenericAllocationHandle* handle, void* addr)) \
  X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, (void* shareable_handle, \
      CUmemGenericAllocationHandle handle, CUmemAllocationHandleType handle_type, unsigned long \
      long flags)) \
  X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, \
      (CUmemGenericAllocationHandle* handle, void* os_handle, CUmemAllocationHandleType \
      sh_handle_type)) \
  /* host memory that the GPU addresses */ \
  X(cuMemAllocHost_v2, cuMemAllocHost, 3020, (void** pp, size_t bytesize)) \
  X(cuMemFreeHost, cuMemFreeHost, 2000, (void* p)) \
  X(cuMemHostAlloc, cuMemHostAlloc, 2020, (void** pp, size_t bytesize, unsigned int flags)) \
  X(cuMemHostGetDevicePointer_v2, cuMemHostGetDevicePointer, 3020, (CUdeviceptr* pdptr, void* p, \
      unsigned int flags)) \
  X(cuMemHostGetFlags, cuMemHostGetFlags, 2030, (unsigned int* flags, void* p)) \
  X(cuMemHostRegister_v2, cuMemHostRegister, 6050, (void* p, size_t bytesize, unsigned int \
      flags)) \
  X(cuMemHostUnregister, cuMemHostUnregister, 4000, (void* p)) \
  /* copies */ \
  X(cuMemcpy, cuMemcpy, 4000, (CUdeviceptr dst, CUdeviceptr src, size_t byte_count)) \
  X(cuMemcpyHtoD_v2, cuMemcpyHtoD, 3020, (CUdeviceptr dst_device, const void* src_host, size_t \
      byte_count)) \
  X(cuMemcpyDtoH_v2, cuMemcpyDtoH, 3020, (void* dst_host, CUdeviceptr src_device, size_t \
      byte_count)) \
  X(cuMemcpyDtoD_v2, cuMemcpyDtoD, 3020, (CUdeviceptr dst_device, CUdeviceptr src_device, size_t \
      byte_count)) \
  X(cuMemcpy2D_v2, cuMemcpy2D, 3020, (const CUDA_MEMCPY2D* copy)) \
  X(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned, 3020, (const CUDA_MEMCPY2D* copy)) \
  X(cuMemcpyAsync, cuMemcpyAsync, 4000, (CUdeviceptr dst, CUdeviceptr src, size_t byte_count, \
      CUstream stream)) \
  X(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync, 3020, (CUdeviceptr dst_device, const void* \
      src_host, size_t byte_count, CUstream stream)) \
  X(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync, 3020, (void* dst_host, CUdeviceptr src_device, \
      size_t byte_count, CUstream stream)) \
  X(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync, 3020, (CUdeviceptr dst_device, CUdeviceptr \
      src_device, size_t byte_count, CUstream stream)) \
  X(cuMemcpy2DAsync_v2, cuMemcpy2DAsync, 3020, (const CUDA_MEMCPY2D* copy, CUstream stream)) \
  /* fills */ \
  X(cuMemsetD8_v2, cuMemsetD8, 3020, (CUdeviceptr dst_device, unsigned char uc, size_t n)) \
  X(cuMemsetD16_v2, cuMemsetD16, 3020, (CUdeviceptr dst_device, unsigned short us, size_t n)) \
  X(cuMemsetD32_v2, cuMemsetD32, 3020, (CUdeviceptr dst_device, unsigned int ui, size_t n)) \
  X(cuMemsetD2D8_v2, cuMemsetD2D8, 3020, (CUdeviceptr dst_device, size_t dst_pitch, unsigned \
      char uc, size_t width, size_t height)) \
  X(cuMemsetD2D16_v2, cuMemsetD2D16, 3020, (CUdeviceptr dst_device, size_t dst_pitch, unsigned \
      short us, size_t width, size_t height)) \
  X(cuMemsetD2D32_v2, cuMemsetD2D32, 3020, (CUdeviceptr dst_device, size_t dst_pitch, unsigned \
      int ui, size_t width, size_t height)) \
  X(cuMemsetD8Async, cuMemsetD8Async, 3020, (CUdeviceptr dst_device, unsigned char uc, size_t n, \
      CUstream stream)) \
  X(cuMemsetD16Async, cuMemsetD16Async, 3020, (CUdeviceptr dst_device, unsigned short us, size_t \
      n, CUstream stream)) \
  X(cuMemsetD32Async, cuMemsetD32Async, 3020, (CUdeviceptr dst_device, unsigned int ui, size_t \
      n, CUstream stream)) \
  X(cuMemsetD2D8Async, cuMemsetD2D8Async, 3020, (CUdeviceptr dst_device, size_t dst_pitch, \
      unsigned char uc, size_t width, size_t height, CUstream stream)) \
  X(cuMemsetD2D16Async, cuMemsetD2D16Async, 3020, (CUdeviceptr dst_device, size_t dst_pitch, \
      unsigned short us, size_t width, size_t height, CUstream stream)) \
  X(cuMemsetD2D32Async, cuMemsetD2D32Async, 3020, (CUdeviceptr dst_device, size_t dst_pitch, \
      unsigned int ui, size_t width, size_t height, CUstream stream)) \
  /* what a pointer points to */ \
  X(cuPointerGetAttribute, cuPointerGetAttribute, 4000, (void* data, CUpointer_attribute \
      attribute, CUdeviceptr ptr)) \
  X(cuPointerGetAttributes, cuPointerGetAttributes, 7000, (unsigned int num_attributes, \
      CUpointer_attribute* attributes, void** data, CUdeviceptr ptr)) \
  X(cuPointerSetAttribute, cuPointerSetAttribute, 6000, (const void* value, CUpointer_attribute \
      attribute, CUdeviceptr ptr)) \
  /* streams */ \
  X(cuStreamCreate, cuStreamCreate, 2000, (CUstream* stream, unsigned int flags)) \
  X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050, (CUstream* stream, unsigned \
      int flags, int priority)) \
  X(cuStreamDestroy_v2, cuStreamDestroy, 4000, (CUstream stream)) \
  X(cuStreamGetPriority, cuStreamGetPriority, 5050, (CUstream stream, int* priority)) \
  X(cuStreamGetDevice, cuStreamGetDevice, 12080, (CUstream stream, CUdevice* device)) \
  X(cuStreamGetFlags, cuStreamGetFlags, 5050, (CUstream stream, unsigned int* flags)) \
  X(cuStreamGetId, cuStreamGetId, 12000, (CUstream stream, unsigned long long* stream_id)) \
  X(cuStreamGetCtx, cuStreamGetCtx, 9020, (CUstream stream, CUcontext* pctx)) \
  X(cuStreamWaitEvent, cuStreamWaitEvent, 3020, (CUstream stream, CUevent event, unsigned int \
      flags)) \
  X(cuStreamAddCallback, cuStreamAddCallback, 5000, (CUstream stream, CUstreamCallback callback, \
      void* user_data, unsigned int flags)) \
  X(cuStreamIsCapturing, cuStreamIsCapturing, 10000, (CUstream stream, CUstreamCaptureStatus* \
      capture_status)) \
  X(cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo, 12030, (CUstream stream, \
      CUstreamCaptureStatus* capture_status_out, cuuint64_t* id_out, CUgraph* graph_out, const \
      CUgraphNode** dependencies_out, const CUgraphEdgeData** edge_data_out, size_t* \
      num_dependencies_out)) \
  X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010, \
      (CUstreamCaptureMode* mode)) \
  X(cuStreamAttachMemAsync, cuStreamAttachMemAsync, 6000, (CUstream stream, CUdeviceptr dptr, \
      size_t length, unsigned int flags)) \
  X(cuStreamQuery, cuStreamQuery, 2000, (CUstream stream)) \
  X(cuStreamSynchronize, cuStreamSynchronize, 2000, (CUstream stream)) \
  X(cuStreamWriteValue32_v2, cuStreamWriteValue32, 11070, (CUstream stream, CUdeviceptr addr, \
      cuuint32_t value, unsigned int flags)) \
  X(cuStreamWaitValue32_v2, cuStreamWaitValue32, 11070, (CUstream stream, CUdeviceptr addr, \
      cuuint32_t value, unsigned int flags)) \
  X(cuStreamWriteValue64_v2, cuStreamWriteValue64, 11070, (CUstream stream, CUdeviceptr addr, \
      cuuint64_t value, unsigned int flags)) \
  X(cuStreamWaitValue64_v2, cuStreamWaitValue64, 11070, (CUstream stream, CUdeviceptr addr, \
      cuuint64_t value, unsigned int flags)) \
  /* events */ \
  X(cuEventCreate, cuEventCreate, 2000, (CUevent* event, unsigned int flags)) \
  X(cuEventRecord, cuEventRecord, 2000, (CUevent event, CUstream stream)) \
  X(cuEventRecordWithFlags, cuEventRecordWithFlags, 11010, (CUevent event, CUstream stream, \
      unsigned int flags)) \
  X(cuEventQuery, cuEventQuery, 2000, (CUevent event)) \
  X(cuEventSynchronize, cuEventSynchronize, 2000, (CUevent event)) \
  X(cuEventDestroy_v2, cuEventDestroy, 4000, (CUevent event)) \
  X(cuEventElapsedTime_v2, cuEventElapsedTime, 12080, (float* milliseconds, CUevent start, \
      CUevent end)) \
  /* between programs */ \
  X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, (CUipcMemHandle* handle, CUdeviceptr dptr)) \
  X(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000, (CUdeviceptr* dptr, CUipcMemHandle handle, \
      unsigned int flags)) \
  X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, (CUdeviceptr dptr)) \
  X(cuIpcGetEventHandle, cuIpcGetEventHandle, 4010, (CUipcEventHandle* handle, CUevent event)) \
  X(cuIpcOpenEventHandle, cuIpcOpenEventHandle, 4010, (CUevent* event, CUipcEventHandle handle)) \
  /* occupancy */ \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor, \
      6050, (int* num_blocks, CUfunction func, int block_size, size_t dynamic_smem_size)) \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, \
      cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000, (int* num_blocks, CUfunction \
      func, int block_size, size_t dynamic_smem_size, unsigned int flags)) \
  X(cuOccupancyMaxPotentialBlockSize, cuOccupancyMaxPotentialBlockSize, 6050, (int* \
      min_grid_size, int* block_size, CUfunction func, CUoccupancyB2DSize \
      block_size_to_dynamic_smem_size, size_t dynamic_smem_size, int block_size_limit)) \
  X(cuOccupancyMaxPotentialBlockSizeWithFlags, cuOccupancyMaxPotentialBlockSizeWithFlags, 7000, \
      (int* min_grid_size, int* block_size, CUfunction func, CUoccupancyB2DSize \
      block_size_to_dynamic_smem_size, size_t dynamic_smem_size, int block_size_limit, unsigned \
      int flags)) \
  X(cuOccupancyAvailableDynamicSMemPerBlock, cuOccupancyAvailableDynamicSMemPerBlock, 10020, \
      (size_t* dynamic_smem_size, CUfunction func, int num_blocks, int block_size)) \
  X(cuOccupancyMaxActiveClusters, cuOccupancyMaxActiveClusters, 11070, (int* num_clusters, CUfunction \
      func, const CUlaunchConfig* config)) \
  X(cuOccupancyMaxPotentialClusterSize, cuOccupancyMaxPotentialClusterSize, 11070, (int* \
      cluster_size, CUfunction func, const CUlaunchConfig* config)) \
  /* tensor maps */ \
  X(cuTensorMapEncodeTiled, cuTensorMapEncodeTiled, 12000, (CUtensorMap* tensor_map, \
      CUtensorMapDataType type, cuuint32_t rank, void* address, const cuuint64_t* dimensions, const \
      cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t* element_strides, \
      CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, \
      CUtensorMapFloatOOBfill fill)) \
  X(cuTensorMapEncodeIm2col, cuTensorMapEncodeIm2col, 12000, (CUtensorMap* tensor_map, \
      CUtensorMapDataType type, cuuint32_t rank, void* address, const cuuint64_t* dimensions, const \
      cuuint64_t* strides, const int* lower_corner, const int* upper_corner, cuuint32_t channels, \
      cuuint32_t pixels, const cuuint32_t* element_strides, CUtensorMapInterleave interleave, \
      CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)) \
  X(cuTensorMapEncodeIm2colWide, cuTensorMapEncodeIm2colWide, 12080, (CUtensorMap* tensor_map, \
      CUtensorMapDataType type, cuuint32_t rank, void* address, const cuuint64_t* dimensions, const \
      cuuint64_t* strides, int lower_corner_width, int upper_corner_width, cuuint32_t channels, \
      cuuint32_t pixels, const cuuint32_t* element_strides, CUtensorMapInterleave interleave, \
      CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, \
      CUtensorMapFloatOOBfill fill)) \
  X(cuTensorMapReplaceAddress, cuTensorMapReplaceAddress, 12000, (CUtensorMap* tensor_map, \
      void* address)) \
  /* profilers */ \
  X(cuProfilerStart, cuProfilerStart, 4000, (void)) \
  X(cuProfilerStop, cuProfilerStop, 4000, (void))

/* Symbols of older versions whose signature is that of a newer one, so that a library can export
 * them as aliases: Y(old symbol as a string, newer symbol, name as a string, since). Programs built
 * with older headers ask for them. */
#define SLUICE_CUDA_DRIVER_ALIASES(Y) \
  Y("cuEventElapsedTime", cuEventElapsedTime_v2, "cuEventElapsedTime", 2000) \
  Y("cuDeviceGetUuid", cuDeviceGetUuid_v2, "cuDeviceGetUuid", 9020) \
  Y("cuDevicePrimaryCtxRelease", cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 7000) \
  Y("cuDevicePrimaryCtxReset", cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 7000) \
  Y("cuDevicePrimaryCtxSetFlags", cuDevicePrimaryCtxSetFlags_v2, "cuDevicePrimaryCtxSetFlags", 7000) \
  Y("cuStreamWriteValue32", cuStreamWriteValue32_v2, "cuStreamWriteValue32", 8000) \
  Y("cuStreamWaitValue32", cuStreamWaitValue32_v2, "cuStreamWaitValue32", 8000) \
  Y("cuStreamWriteValue64", cuStreamWriteValue64_v2, "cuStreamWriteValue64", 9000) \
  Y("cuStreamWaitValue64", cuStreamWaitValue64_v2, "cuStreamWaitValue64", 9000) \
  Y("cuMemHostRegister", cuMemHostRegister_v2, "cuMemHostRegister", 4000) \
  Y("cuIpcOpenMemHandle", cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 4010) \
  Y("cuLinkCreate", cuLinkCreate_v2, "cuLinkCreate", 5050) \
  Y("cuLinkAddData", cuLinkAddData_v2, "cuLinkAddData", 5050) \
  Y("cuLinkAddFile", cuLinkAddFile_v2, "cuLinkAddFile", 5050) \
  Y("cuCtxCreate", cuCtxCreate_v2, "cuCtxCreate", 2000) \
  Y("cuCtxDestroy", cuCtxDestroy_v2, "cuCtxDestroy", 2000) \
  Y("cuCtxPopCurrent", cuCtxPopCurrent_v2, "cuCtxPopCurrent", 2000) \
  Y("cuCtxPushCurrent", cuCtxPushCurrent_v2, "cuCtxPushCurrent", 2000) \
  Y("cuStreamDestroy", cuStreamDestroy_v2, "cuStreamDestroy", 2000) \
  Y("cuEventDestroy", cuEventDestroy_v2, "cuEventDestroy", 2000)
/* clang-format on */

#endif /* SLUICE_ABI_CUDA_DRIVER_FUNCTIONS_H */
