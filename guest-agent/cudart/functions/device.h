// SPDX-License-Identifier: Apache-2.0
// Devices, limits, versions, errors, profilers. One row each; functions.h says what the columns
// mean.
#pragma once

// clang-format off
#define SLUICE_CUDART_DEVICE(F, S, D, T, A, P, H) \
  D(cudaCtxResetPersistingL2Cache, kContext, (void), (), cuCtxResetPersistingL2Cache) \
  D(cudaDestroyExternalMemory, kContext, (cudaExternalMemory_t ext_mem), (ext_mem), \
    cuDestroyExternalMemory) \
  D(cudaDestroyExternalSemaphore, kContext, (cudaExternalSemaphore_t ext_sem), (ext_sem), \
    cuDestroyExternalSemaphore) \
  D(cudaDeviceCanAccessPeer, kDriver, (int* can_access_peer, int device, int peer_device), \
    (can_access_peer, device, peer_device), cuDeviceCanAccessPeer) \
  F(cudaDeviceDisablePeerAccess, kContext, (int peer_device), (peer_device)) \
  F(cudaDeviceEnablePeerAccess, kContext, (int peer_device, unsigned int flags), (peer_device, \
    flags)) \
  D(cudaDeviceFlushGPUDirectRDMAWrites, kContext, (cudaFlushGPUDirectRDMAWritesTarget target, \
    cudaFlushGPUDirectRDMAWritesScope scope), (target, scope), cuFlushGPUDirectRDMAWrites) \
  D(cudaDeviceGetAttribute, kDriver, (int* value, cudaDeviceAttr attr, int device), (value, \
    attr, device), cuDeviceGetAttribute) \
  D(cudaDeviceGetByPCIBusId, kDriver, (int* device, const char* pci_bus_id), (device, \
    pci_bus_id), cuDeviceGetByPCIBusId) \
  D(cudaDeviceGetCacheConfig, kContext, (cudaFuncCache* cache_config), (cache_config), \
    cuCtxGetCacheConfig) \
  D(cudaDeviceGetHostAtomicCapabilities, kContext, (unsigned int* capabilities, const \
    cudaAtomicOperation* operations, unsigned int count, int device), (capabilities, operations, \
    count, device), cuDeviceGetHostAtomicCapabilities) \
  D(cudaDeviceGetLimit, kContext, (size_t* value, cudaLimit limit), (value, limit), \
    cuCtxGetLimit) \
  D(cudaDeviceGetNvSciSyncAttributes, kContext, (void* nv_sci_sync_attr_list, int device, int \
    flags), (nv_sci_sync_attr_list, device, flags), cuDeviceGetNvSciSyncAttributes) \
  D(cudaDeviceGetP2PAtomicCapabilities, kContext, (unsigned int* capabilities, const \
    cudaAtomicOperation* operations, unsigned int count, int src_device, int dst_device), \
    (capabilities, operations, count, src_device, dst_device), cuDeviceGetP2PAtomicCapabilities) \
  D(cudaDeviceGetP2PAttribute, kDriver, (int* value, cudaDeviceP2PAttr attr, int src_device, int \
    dst_device), (value, attr, src_device, dst_device), cuDeviceGetP2PAttribute) \
  F(cudaDeviceGetPCIBusId, kDriver, (char* pci_bus_id, int len, int device), (pci_bus_id, len, \
    device)) \
  D(cudaDeviceGetSharedMemConfig, kContext, (cudaSharedMemConfig* config), (config), \
    cuCtxGetSharedMemConfig) \
  D(cudaDeviceGetStreamPriorityRange, kContext, (int* least_priority, int* greatest_priority), \
    (least_priority, greatest_priority), cuCtxGetStreamPriorityRange) \
  D(cudaDeviceRegisterAsyncNotification, kContext, (int device, cudaAsyncCallback callback_func, \
    void* user_data, cudaAsyncCallbackHandle_t* callback), (device, callback_func, user_data, \
    callback), cuDeviceRegisterAsyncNotification) \
  F(cudaDeviceReset, kDriver, (void), ()) \
  D(cudaDeviceSetCacheConfig, kContext, (cudaFuncCache cache_config), (cache_config), \
    cuCtxSetCacheConfig) \
  D(cudaDeviceSetLimit, kContext, (cudaLimit limit, size_t value), (limit, value), \
    cuCtxSetLimit) \
  D(cudaDeviceSetSharedMemConfig, kContext, (cudaSharedMemConfig config), (config), \
    cuCtxSetSharedMemConfig) \
  D(cudaDeviceSynchronize, kContext, (void), (), cuCtxSynchronize) \
  D(cudaDeviceUnregisterAsyncNotification, kContext, (int device, cudaAsyncCallbackHandle_t \
    callback), (device, callback), cuDeviceUnregisterAsyncNotification) \
  F(cudaDriverGetVersion, kNone, (int* driver_version), (driver_version)) \
  D(cudaExternalMemoryGetMappedBuffer, kContext, (void** dev_ptr, cudaExternalMemory_t ext_mem, \
    const cudaExternalMemoryBufferDesc* buffer_desc), (dev_ptr, ext_mem, buffer_desc), \
    cuExternalMemoryGetMappedBuffer) \
  F(cudaGetDevice, kDriver, (int* device), (device)) \
  F(cudaGetDeviceCount, kNone, (int* count), (count)) \
  F(cudaGetDeviceFlags, kDriver, (unsigned int* flags), (flags)) \
  S(cudaGetDriverEntryPoint, ptsz, kDriver, (const char* symbol, void** func_ptr, unsigned long \
    long flags, cudaDriverEntryPointQueryResult* driver_status), (mode, symbol, func_ptr, flags, \
    driver_status)) \
  S(cudaGetDriverEntryPointByVersion, ptsz, kDriver, (const char* symbol, void** func_ptr, \
    unsigned int cuda_version, unsigned long long flags, cudaDriverEntryPointQueryResult* \
    driver_status), (mode, symbol, func_ptr, cuda_version, flags, driver_status)) \
  H(cudaGetErrorName, const char*, (cudaError_t error)) \
  H(cudaGetErrorString, const char*, (cudaError_t error)) \
  H(cudaGetLastError, cudaError_t, (void)) \
  D(cudaImportExternalMemory, kContext, (cudaExternalMemory_t* ext_mem_out, const \
    cudaExternalMemoryHandleDesc* mem_handle_desc), (ext_mem_out, mem_handle_desc), \
    cuImportExternalMemory) \
  D(cudaImportExternalSemaphore, kContext, (cudaExternalSemaphore_t* ext_sem_out, const \
    cudaExternalSemaphoreHandleDesc* sem_handle_desc), (ext_sem_out, sem_handle_desc), \
    cuImportExternalSemaphore) \
  F(cudaInitDevice, kDriver, (int device, unsigned int device_flags, unsigned int flags), \
    (device, device_flags, flags)) \
  D(cudaLogsCurrent, kContext, (cudaLogIterator* iterator_out, unsigned int flags), \
    (iterator_out, flags), cuLogsCurrent) \
  D(cudaLogsDumpToFile, kContext, (cudaLogIterator* iterator, const char* path_to_file, unsigned \
    int flags), (iterator, path_to_file, flags), cuLogsDumpToFile) \
  D(cudaLogsDumpToMemory, kContext, (cudaLogIterator* iterator, char* buffer, size_t* size, \
    unsigned int flags), (iterator, buffer, size, flags), cuLogsDumpToMemory) \
  D(cudaLogsRegisterCallback, kContext, (cudaLogsCallback_t callback_func, void* user_data, \
    cudaLogsCallbackHandle* callback_out), (callback_func, user_data, callback_out), \
    cuLogsRegisterCallback) \
  D(cudaLogsUnregisterCallback, kContext, (cudaLogsCallbackHandle callback), (callback), \
    cuLogsUnregisterCallback) \
  H(cudaPeekAtLastError, cudaError_t, (void)) \
  D(cudaProfilerStart, kContext, (void), (), cuProfilerStart) \
  D(cudaProfilerStop, kContext, (void), (), cuProfilerStop) \
  F(cudaRuntimeGetVersion, kNone, (int* runtime_version), (runtime_version)) \
  F(cudaSetDevice, kDriver, (int device), (device)) \
  F(cudaSetDeviceFlags, kDriver, (unsigned int flags), (flags)) \
  F(cudaSetValidDevices, kDriver, (int* devices, int len), (devices, len)) \
  T(cudaSignalExternalSemaphoresAsync, ptsz, kContext, (const cudaExternalSemaphore_t* \
    ext_sem_array, const cudaExternalSemaphoreSignalParams* params_array, unsigned int \
    num_ext_sems, cudaStream_t stream), (ext_sem_array, params_array, num_ext_sems, stream), \
    cuSignalExternalSemaphoresAsync) \
  T(cudaWaitExternalSemaphoresAsync, ptsz, kContext, (const cudaExternalSemaphore_t* \
    ext_sem_array, const cudaExternalSemaphoreWaitParams* params_array, unsigned int \
    num_ext_sems, cudaStream_t stream), (ext_sem_array, params_array, num_ext_sems, stream), \
    cuWaitExternalSemaphoresAsync)
// clang-format on
