// SPDX-License-Identifier: Apache-2.0
// cudaDeviceProp in the layouts of CUDA 13 and of CUDA 12, of one list of fields. Layouts are facts
// from the toolkits' headers; tests/cudart compares that of 13 where the toolkit is installed.
// Declares only.
#pragma once

#include "guest-agent/cudart/types.h"

// B(type, field, device attribute) in both; B2 and B3 are arrays with an attribute for each
// element. O fields are in 12 only, N fields in 13 only.
// clang-format off
#define SLUICE_CUDART_PROPERTIES(B, B2, B3, O, N) \
  B(size_t, sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK) \
  B(int, regsPerBlock, MAX_REGISTERS_PER_BLOCK) \
  B(int, warpSize, WARP_SIZE) \
  B(size_t, memPitch, MAX_PITCH) \
  B(int, maxThreadsPerBlock, MAX_THREADS_PER_BLOCK) \
  B3(int, maxThreadsDim, MAX_BLOCK_DIM_X, MAX_BLOCK_DIM_Y, MAX_BLOCK_DIM_Z) \
  B3(int, maxGridSize, MAX_GRID_DIM_X, MAX_GRID_DIM_Y, MAX_GRID_DIM_Z) \
  O(int, clockRate, CLOCK_RATE) \
  B(size_t, totalConstMem, TOTAL_CONSTANT_MEMORY) \
  B(int, major, COMPUTE_CAPABILITY_MAJOR) \
  B(int, minor, COMPUTE_CAPABILITY_MINOR) \
  B(size_t, textureAlignment, TEXTURE_ALIGNMENT) \
  B(size_t, texturePitchAlignment, TEXTURE_PITCH_ALIGNMENT) \
  O(int, deviceOverlap, GPU_OVERLAP) \
  B(int, multiProcessorCount, MULTIPROCESSOR_COUNT) \
  O(int, kernelExecTimeoutEnabled, KERNEL_EXEC_TIMEOUT) \
  B(int, integrated, INTEGRATED) \
  B(int, canMapHostMemory, CAN_MAP_HOST_MEMORY) \
  O(int, computeMode, COMPUTE_MODE) \
  B(int, maxTexture1D, MAXIMUM_TEXTURE1D_WIDTH) \
  B(int, maxTexture1DMipmap, MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH) \
  O(int, maxTexture1DLinear, MAXIMUM_TEXTURE1D_LINEAR_WIDTH) \
  B2(int, maxTexture2D, MAXIMUM_TEXTURE2D_WIDTH, MAXIMUM_TEXTURE2D_HEIGHT) \
  B2(int, maxTexture2DMipmap, MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH, \
    MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT) \
  B3(int, maxTexture2DLinear, MAXIMUM_TEXTURE2D_LINEAR_WIDTH, MAXIMUM_TEXTURE2D_LINEAR_HEIGHT, \
    MAXIMUM_TEXTURE2D_LINEAR_PITCH) \
  B2(int, maxTexture2DGather, MAXIMUM_TEXTURE2D_GATHER_WIDTH, MAXIMUM_TEXTURE2D_GATHER_HEIGHT) \
  B3(int, maxTexture3D, MAXIMUM_TEXTURE3D_WIDTH, MAXIMUM_TEXTURE3D_HEIGHT, \
    MAXIMUM_TEXTURE3D_DEPTH) \
  B3(int, maxTexture3DAlt, MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE, \
    MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE, MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE) \
  B(int, maxTextureCubemap, MAXIMUM_TEXTURECUBEMAP_WIDTH) \
  B2(int, maxTexture1DLayered, MAXIMUM_TEXTURE1D_LAYERED_WIDTH, MAXIMUM_TEXTURE1D_LAYERED_LAYERS) \
  B3(int, maxTexture2DLayered, MAXIMUM_TEXTURE2D_LAYERED_WIDTH, \
    MAXIMUM_TEXTURE2D_LAYERED_HEIGHT, MAXIMUM_TEXTURE2D_LAYERED_LAYERS) \
  B2(int, maxTextureCubemapLayered, MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH, \
    MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS) \
  B(int, maxSurface1D, MAXIMUM_SURFACE1D_WIDTH) \
  B2(int, maxSurface2D, MAXIMUM_SURFACE2D_WIDTH, MAXIMUM_SURFACE2D_HEIGHT) \
  B3(int, maxSurface3D, MAXIMUM_SURFACE3D_WIDTH, MAXIMUM_SURFACE3D_HEIGHT, \
    MAXIMUM_SURFACE3D_DEPTH) \
  B2(int, maxSurface1DLayered, MAXIMUM_SURFACE1D_LAYERED_WIDTH, MAXIMUM_SURFACE1D_LAYERED_LAYERS) \
  B3(int, maxSurface2DLayered, MAXIMUM_SURFACE2D_LAYERED_WIDTH, \
    MAXIMUM_SURFACE2D_LAYERED_HEIGHT, MAXIMUM_SURFACE2D_LAYERED_LAYERS) \
  B(int, maxSurfaceCubemap, MAXIMUM_SURFACECUBEMAP_WIDTH) \
  B2(int, maxSurfaceCubemapLayered, MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH, \
    MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS) \
  B(size_t, surfaceAlignment, SURFACE_ALIGNMENT) \
  B(int, concurrentKernels, CONCURRENT_KERNELS) \
  B(int, ECCEnabled, ECC_ENABLED) \
  B(int, pciBusID, PCI_BUS_ID) \
  B(int, pciDeviceID, PCI_DEVICE_ID) \
  B(int, pciDomainID, PCI_DOMAIN_ID) \
  B(int, tccDriver, TCC_DRIVER) \
  B(int, asyncEngineCount, ASYNC_ENGINE_COUNT) \
  B(int, unifiedAddressing, UNIFIED_ADDRESSING) \
  O(int, memoryClockRate, MEMORY_CLOCK_RATE) \
  B(int, memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH) \
  B(int, l2CacheSize, L2_CACHE_SIZE) \
  B(int, persistingL2CacheMaxSize, MAX_PERSISTING_L2_CACHE_SIZE) \
  B(int, maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR) \
  B(int, streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED) \
  B(int, globalL1CacheSupported, GLOBAL_L1_CACHE_SUPPORTED) \
  B(int, localL1CacheSupported, LOCAL_L1_CACHE_SUPPORTED) \
  B(size_t, sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) \
  B(int, regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR) \
  B(int, managedMemory, MANAGED_MEMORY) \
  B(int, isMultiGpuBoard, MULTI_GPU_BOARD) \
  B(int, multiGpuBoardGroupID, MULTI_GPU_BOARD_GROUP_ID) \
  B(int, hostNativeAtomicSupported, HOST_NATIVE_ATOMIC_SUPPORTED) \
  O(int, singleToDoublePrecisionPerfRatio, SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO) \
  B(int, pageableMemoryAccess, PAGEABLE_MEMORY_ACCESS) \
  B(int, concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS) \
  B(int, computePreemptionSupported, COMPUTE_PREEMPTION_SUPPORTED) \
  B(int, canUseHostPointerForRegisteredMem, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) \
  B(int, cooperativeLaunch, COOPERATIVE_LAUNCH) \
  O(int, cooperativeMultiDeviceLaunch, COOPERATIVE_MULTI_DEVICE_LAUNCH) \
  B(size_t, sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) \
  B(int, pageableMemoryAccessUsesHostPageTables, PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES) \
  B(int, directManagedMemAccessFromHost, DIRECT_MANAGED_MEM_ACCESS_FROM_HOST) \
  B(int, maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR) \
  B(int, accessPolicyMaxWindowSize, MAX_ACCESS_POLICY_WINDOW_SIZE) \
  B(size_t, reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK) \
  B(int, hostRegisterSupported, HOST_REGISTER_SUPPORTED) \
  B(int, sparseCudaArraySupported, SPARSE_CUDA_ARRAY_SUPPORTED) \
  B(int, hostRegisterReadOnlySupported, READ_ONLY_HOST_REGISTER_SUPPORTED) \
  B(int, timelineSemaphoreInteropSupported, TIMELINE_SEMAPHORE_INTEROP_SUPPORTED) \
  B(int, memoryPoolsSupported, MEMORY_POOLS_SUPPORTED) \
  B(int, gpuDirectRDMASupported, GPU_DIRECT_RDMA_SUPPORTED) \
  B(unsigned, gpuDirectRDMAFlushWritesOptions, GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS) \
  B(int, gpuDirectRDMAWritesOrdering, GPU_DIRECT_RDMA_WRITES_ORDERING) \
  B(unsigned, memoryPoolSupportedHandleTypes, MEMPOOL_SUPPORTED_HANDLE_TYPES) \
  B(int, deferredMappingCudaArraySupported, DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED) \
  B(int, ipcEventSupported, IPC_EVENT_SUPPORTED) \
  B(int, clusterLaunch, CLUSTER_LAUNCH) \
  B(int, unifiedFunctionPointers, UNIFIED_FUNCTION_POINTERS) \
  N(int, deviceNumaConfig, NUMA_CONFIG) \
  N(int, deviceNumaId, NUMA_ID) \
  N(int, mpsEnabled, MPS_ENABLED) \
  N(int, hostNumaId, HOST_NUMA_ID) \
  N(unsigned, gpuPciDeviceID, GPU_PCI_DEVICE_ID) \
  N(unsigned, gpuPciSubsystemID, GPU_PCI_SUBSYSTEM_ID) \
  N(int, hostNumaMultinodeIpcSupported, HOST_NUMA_MULTINODE_IPC_SUPPORTED)
// clang-format on

namespace sluice::cudart {

#define SLUICE_FIELD(type, field, attribute) type field;
#define SLUICE_FIELD2(type, field, a, b) type field[2];
#define SLUICE_FIELD3(type, field, a, b, c) type field[3];
#define SLUICE_NO_FIELD(type, field, attribute)

struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  char luid[8];
  unsigned luidDeviceNodeMask;
  size_t totalGlobalMem;
  SLUICE_CUDART_PROPERTIES(SLUICE_FIELD, SLUICE_FIELD2, SLUICE_FIELD3, SLUICE_NO_FIELD,
                           SLUICE_FIELD)
  int reserved[56];
};
static_assert(sizeof(cudaDeviceProp) == 1008);

struct DeviceProperties12 {
  char name[256];
  cudaUUID_t uuid;
  char luid[8];
  unsigned luidDeviceNodeMask;
  size_t totalGlobalMem;
  SLUICE_CUDART_PROPERTIES(SLUICE_FIELD, SLUICE_FIELD2, SLUICE_FIELD3, SLUICE_FIELD,
                           SLUICE_NO_FIELD)
  int reserved[63];
};
static_assert(sizeof(DeviceProperties12) == 1032);

#undef SLUICE_FIELD
#undef SLUICE_FIELD2
#undef SLUICE_FIELD3
#undef SLUICE_NO_FIELD

}  // namespace sluice::cudart
