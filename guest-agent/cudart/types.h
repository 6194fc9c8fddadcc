// SPDX-License-Identifier: Apache-2.0
// The types of the public CUDA runtime API that the table of functions names, in our own
// declarations: same names, layouts and values as CUDA 13.0's on 64-bit Linux;
// tests/cudart/types_test compares them with the toolkit's headers where those are installed.
// Enumerations that a program hands over are integers here: it may hand over any value.
// cudaDeviceProp is in properties.h, errors are in errors.h. Declares only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "guest-agent/cudart/errors.h"

struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphNode_st;
struct CUgraphExec_st;
struct CUuserObject_st;
struct CUfunc_st;
struct CUkern_st;
struct CUlib_st;
struct CUmemPoolHandle_st;
struct CUexternalMemory_st;
struct CUexternalSemaphore_st;
struct CUlogsCallbackEntry_st;

namespace sluice::cudart {

// A runtime's handle is the driver's handle of the same object.
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
using cudaGraph_t = CUgraph_st*;
using cudaGraphNode_t = CUgraphNode_st*;
using cudaGraphExec_t = CUgraphExec_st*;
using cudaUserObject_t = CUuserObject_st*;
using cudaFunction_t = CUfunc_st*;
using cudaKernel_t = CUkern_st*;
using cudaLibrary_t = CUlib_st*;
using cudaMemPool_t = CUmemPoolHandle_st*;
using cudaExternalMemory_t = CUexternalMemory_st*;
using cudaExternalSemaphore_t = CUexternalSemaphore_st*;
using cudaLogsCallbackHandle = CUlogsCallbackEntry_st*;
using cudaGraphConditionalHandle = unsigned long long;
using cudaTextureObject_t = unsigned long long;
using cudaSurfaceObject_t = unsigned long long;
using cudaLogIterator = unsigned int;
struct cudaArray;
struct cudaMipmappedArray;
struct cudaGraphicsResource;
struct cudaAsyncCallbackEntry;
struct cudaAsyncNotificationInfo;
using cudaArray_t = cudaArray*;
using cudaArray_const_t = const cudaArray*;
using cudaMipmappedArray_t = cudaMipmappedArray*;
using cudaMipmappedArray_const_t = const cudaMipmappedArray*;
using cudaGraphicsResource_t = cudaGraphicsResource*;
using cudaAsyncCallbackHandle_t = cudaAsyncCallbackEntry*;

using cudaStreamCallback_t = void (*)(cudaStream_t, cudaError_t, void*);
using cudaHostFn_t = void (*)(void*);
using cudaAsyncCallback = void (*)(cudaAsyncNotificationInfo*, void*, cudaAsyncCallbackHandle_t);
using cudaLogsCallback_t = void (*)(void*, int, char*, size_t);

using cudaAtomicOperation = int;
using cudaChannelFormatKind = int;
using cudaDeviceAttr = int;
using cudaDeviceP2PAttr = int;
using cudaDriverEntryPointQueryResult = int;
using cudaFlushGPUDirectRDMAWritesScope = int;
using cudaFlushGPUDirectRDMAWritesTarget = int;
using cudaFuncAttribute = int;
using cudaFuncCache = int;
using cudaGraphMemAttributeType = int;
using cudaGraphNodeType = int;
using cudaJitOption = int;
using cudaLaunchAttributeID = int;
using cudaLibraryOption = int;
using cudaLimit = int;
using cudaMemAccessFlags = int;
using cudaMemAllocationHandleType = int;
using cudaMemAllocationType = int;
using cudaMemPoolAttr = int;
using cudaMemRangeAttribute = int;
using cudaMemcpyKind = int;
using cudaMemoryAdvise = int;
using cudaSharedMemConfig = int;
using cudaStreamCaptureMode = int;
using cudaStreamCaptureStatus = int;

enum MemcpyKind : int {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};
enum MemoryType : int {
  cudaMemoryTypeUnregistered = 0,
  cudaMemoryTypeHost = 1,
  cudaMemoryTypeDevice = 2,
  cudaMemoryTypeManaged = 3
};
enum ResourceType : int {
  cudaResourceTypeArray = 0,
  cudaResourceTypeMipmappedArray = 1,
  cudaResourceTypeLinear = 2,
  cudaResourceTypePitch2D = 3
};
enum ChannelFormatKind : int {
  cudaChannelFormatKindSigned = 0,
  cudaChannelFormatKindUnsigned = 1,
  cudaChannelFormatKindFloat = 2,
  cudaChannelFormatKindNone = 3,
  cudaChannelFormatKindUnsignedNormalized8X1 = 5,  // the others follow, as in formats.h
  cudaChannelFormatKindSignedNormalized16X4 = 16
};

struct dim3 {
  unsigned x, y, z;
};
struct cudaUUID_t {
  char bytes[16];
};
struct cudaExtent {
  size_t width, height, depth;
};
struct cudaPos {
  size_t x, y, z;
};
struct cudaPitchedPtr {
  void* ptr;
  size_t pitch;
  size_t xsize;
  size_t ysize;
};
struct cudaChannelFormatDesc {
  int x, y, z, w;
  int f;  // ChannelFormatKind
};

struct cudaMemcpy3DParms {
  cudaArray_t srcArray;
  cudaPos srcPos;
  cudaPitchedPtr srcPtr;
  cudaArray_t dstArray;
  cudaPos dstPos;
  cudaPitchedPtr dstPtr;
  cudaExtent extent;
  int kind;
};
struct cudaMemcpy3DPeerParms {
  cudaArray_t srcArray;
  cudaPos srcPos;
  cudaPitchedPtr srcPtr;
  int srcDevice;
  cudaArray_t dstArray;
  cudaPos dstPos;
  cudaPitchedPtr dstPtr;
  int dstDevice;
  cudaExtent extent;
};
struct cudaMemcpyNodeParams {
  int flags;
  int reserved[3];
  cudaMemcpy3DParms copyParams;
};
struct cudaMemsetParams {
  void* dst;
  size_t pitch;
  unsigned value;
  unsigned elementSize;
  size_t width;
  size_t height;
};
using cudaMemsetParamsV2 = cudaMemsetParams;
struct cudaHostNodeParams {
  cudaHostFn_t fn;
  void* userData;
};
struct cudaKernelNodeParams {
  void* func;
  dim3 gridDim;
  dim3 blockDim;
  unsigned sharedMemBytes;
  void** kernelParams;
  void** extra;
};
using cudaKernelNodeParamsV2 = cudaKernelNodeParams;

struct cudaMemLocation {
  int type;
  int id;
};
struct cudaMemAccessDesc {
  cudaMemLocation location;
  int flags;
};
struct cudaMemPoolProps {
  int allocType;
  int handleTypes;
  cudaMemLocation location;
  void* win32SecurityAttributes;
  size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
};
struct cudaMemPoolPtrExportData {
  unsigned char reserved[64];
};
struct cudaMemAllocNodeParams {
  cudaMemPoolProps poolProps;
  const cudaMemAccessDesc* accessDescs;
  size_t accessDescCount;
  size_t bytesize;
  void* dptr;
};
struct cudaPointerAttributes {
  int type;  // MemoryType
  int device;
  void* devicePointer;
  void* hostPointer;
  long reserved[8];
};
// The form of 12: without the words at the end.
struct PointerAttributes12 {
  int type;
  int device;
  void* devicePointer;
  void* hostPointer;
};

struct cudaFuncAttributes {
  size_t sharedSizeBytes;
  size_t constSizeBytes;
  size_t localSizeBytes;
  int maxThreadsPerBlock;
  int numRegs;
  int ptxVersion;
  int binaryVersion;
  int cacheModeCA;
  int maxDynamicSharedSizeBytes;
  int preferredShmemCarveout;
  int clusterDimMustBeSet;
  int requiredClusterWidth;
  int requiredClusterHeight;
  int requiredClusterDepth;
  int clusterSchedulingPolicyPreference;
  int nonPortableClusterSizeAllowed;
  int reserved[16];
};

struct cudaIpcEventHandle_t {
  char reserved[64];
};
struct cudaIpcMemHandle_t {
  char reserved[64];
};

// Contents are the driver's to read.
union cudaLaunchAttributeValue {
  char pad[64];
  int cooperative;
  unsigned cluster[3];
  void* handle;
};
struct cudaLaunchAttribute {
  int id;
  char pad[4];
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

struct cudaGraphEdgeData {
  unsigned char from_port;
  unsigned char to_port;
  unsigned char type;
  unsigned char reserved[5];
};
struct cudaGraphExecUpdateResultInfo {
  int result;
  cudaGraphNode_t errorNode;
  cudaGraphNode_t errorFromNode;
};
struct cudaGraphInstantiateParams {
  unsigned long long flags;
  cudaStream_t uploadStream;
  cudaGraphNode_t errNode_out;
  int result_out;
};
struct cudaConditionalNodeParams {
  cudaGraphConditionalHandle handle;
  int type;
  unsigned size;
  cudaGraph_t* phGraph_out;
};
struct cudaGraphNodeParams {
  int type;
  int reserved0[3];
  union {
    long long reserved1[29];
    cudaKernelNodeParamsV2 kernel;
    cudaMemcpyNodeParams memcpy;
    cudaMemsetParamsV2 memset;
    cudaHostNodeParams host;
    cudaMemAllocNodeParams alloc;
    cudaConditionalNodeParams conditional;
  };
  long long reserved2;
};

struct cudaResourceDesc {
  int resType;
  union {
    struct {
      cudaArray_t array;
    } array;
    struct {
      cudaMipmappedArray_t mipmap;
    } mipmap;
    struct {
      void* devPtr;
      cudaChannelFormatDesc desc;
      size_t sizeInBytes;
    } linear;
    struct {
      void* devPtr;
      cudaChannelFormatDesc desc;
      size_t width;
      size_t height;
      size_t pitchInBytes;
    } pitch2D;
    struct {
      int reserved[32];
    } reserved;
  } res;
  unsigned flags;
};
struct cudaTextureDesc {
  int addressMode[3];
  int filterMode;
  int readMode;
  int sRGB;
  float borderColor[4];
  int normalizedCoords;
  unsigned maxAnisotropy;
  int mipmapFilterMode;
  float mipmapLevelBias;
  float minMipmapLevelClamp;
  float maxMipmapLevelClamp;
  int disableTrilinearOptimization;
  int seamlessCubemap;
};

// CUDA 12's ends with lastLayer.
struct cudaResourceViewDesc {
  int format;
  size_t width;
  size_t height;
  size_t depth;
  unsigned firstMipmapLevel;
  unsigned lastMipmapLevel;
  unsigned firstLayer;
  unsigned lastLayer;
#if SLUICE_CUDART_MAJOR != 12
  unsigned reserved[16];
#endif
};

// Handed on, or refused, as they are.
struct cudaArrayMemoryRequirements;
struct cudaArraySparseProperties;
struct cudaDeviceProp;
struct cudaExternalMemoryBufferDesc;
struct cudaExternalMemoryHandleDesc;
struct cudaExternalMemoryMipmappedArrayDesc;
struct cudaExternalSemaphoreHandleDesc;
struct cudaExternalSemaphoreSignalNodeParams;
struct cudaExternalSemaphoreSignalParams;
struct cudaExternalSemaphoreWaitNodeParams;
struct cudaExternalSemaphoreWaitParams;
struct cudaMemcpy3DBatchOp;
struct cudaMemcpyAttributes;

inline const cudaStream_t kLegacyStream = reinterpret_cast<cudaStream_t>(1);
inline const cudaStream_t kPerThreadStream = reinterpret_cast<cudaStream_t>(2);

}  // namespace sluice::cudart
