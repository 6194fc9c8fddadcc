/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA graphs: the part of the driver API that the guest's libcuda.so.1 offers of them, in our own
 * words (NVIDIA, CUDA Driver API, "Graph Management"). Apart from abi/cuda_driver.h, because no
 * graph crosses the channel: the guest builds, captures and replays them
 * (guest-agent/graphs/graph.h), the worker and its driver see plain calls. Functions stand in
 * cuda_graph_functions.h. C and C++.
 */
#ifndef SLUICE_ABI_CUDA_GRAPH_H
#define SLUICE_ABI_CUDA_GRAPH_H

#include "abi/cuda_driver.h"
#include "abi/cuda_graph_functions.h"
#include "abi/cuda_green.h"
#include "abi/cuda_memory.h"
#include "abi/cuda_other_functions.h"
#include "abi/cuda_texture.h"

typedef struct CUgraphExec_st* CUgraphExec;
typedef struct CUuserObject_st* CUuserObject;
typedef cuuint64_t CUgraphConditionalHandle;

/* Texture and surface references: names in a module to which memory is bound. */
typedef struct CUtexref_st* CUtexref;
typedef struct CUsurfref_st* CUsurfref;
#define CU_TRSA_OVERRIDE_FORMAT 0x01
#define CU_PARAM_TR_DEFAULT -1

/* X(name, value) */
#define SLUICE_CUDA_GRAPH_NODE_TYPES(X)     \
  X(CU_GRAPH_NODE_TYPE_KERNEL, 0)           \
  X(CU_GRAPH_NODE_TYPE_MEMCPY, 1)           \
  X(CU_GRAPH_NODE_TYPE_MEMSET, 2)           \
  X(CU_GRAPH_NODE_TYPE_HOST, 3)             \
  X(CU_GRAPH_NODE_TYPE_GRAPH, 4)            \
  X(CU_GRAPH_NODE_TYPE_EMPTY, 5)            \
  X(CU_GRAPH_NODE_TYPE_WAIT_EVENT, 6)       \
  X(CU_GRAPH_NODE_TYPE_EVENT_RECORD, 7)     \
  X(CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, 8) \
  X(CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, 9)   \
  X(CU_GRAPH_NODE_TYPE_MEM_ALLOC, 10)       \
  X(CU_GRAPH_NODE_TYPE_MEM_FREE, 11)        \
  X(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, 12)    \
  X(CU_GRAPH_NODE_TYPE_CONDITIONAL, 13)
#define SLUICE_CUDA_GRAPH_UPDATE_RESULTS(X)                    \
  X(CU_GRAPH_EXEC_UPDATE_SUCCESS, 0)                           \
  X(CU_GRAPH_EXEC_UPDATE_ERROR, 1)                             \
  X(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, 2)            \
  X(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, 3)           \
  X(CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED, 4)            \
  X(CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, 5)          \
  X(CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, 6)               \
  X(CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE, 7) \
  X(CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED, 8)
#define SLUICE_CUDA_GRAPH_CONDITIONAL_TYPES(X) \
  X(CU_GRAPH_COND_TYPE_IF, 0)                  \
  X(CU_GRAPH_COND_TYPE_WHILE, 1)               \
  X(CU_GRAPH_COND_TYPE_SWITCH, 2)
#define SLUICE_CUDA_GRAPH_INSTANTIATE_RESULTS(X)            \
  X(CUDA_GRAPH_INSTANTIATE_SUCCESS, 0)                      \
  X(CUDA_GRAPH_INSTANTIATE_ERROR, 1)                        \
  X(CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE, 2)            \
  X(CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED, 3) \
  X(CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED, 4)
/* Plain constants; the toolkit has them in enumerations that no declaration here names. */
#define SLUICE_CUDA_GRAPH_CONSTANTS(X)                  \
  X(CU_GRAPH_DEPENDENCY_TYPE_DEFAULT, 0)                \
  X(CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC, 1)           \
  X(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH, 1) \
  X(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD, 2)              \
  X(CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH, 4)       \
  X(CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY, 8)   \
  X(CU_STREAM_ADD_CAPTURE_DEPENDENCIES, 0)              \
  X(CU_STREAM_SET_CAPTURE_DEPENDENCIES, 1)              \
  X(CU_GRAPH_COND_ASSIGN_DEFAULT, 1)                    \
  X(CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, 1)               \
  X(CU_GRAPH_USER_OBJECT_MOVE, 1)

#define SLUICE_ENUMERATOR(name, value) name = value,
typedef enum CUgraphNodeType_enum {
  SLUICE_CUDA_GRAPH_NODE_TYPES(SLUICE_ENUMERATOR)
} CUgraphNodeType;
typedef enum CUgraphExecUpdateResult_enum {
  SLUICE_CUDA_GRAPH_UPDATE_RESULTS(SLUICE_ENUMERATOR)
} CUgraphExecUpdateResult;
typedef enum CUgraphInstantiateResult_enum {
  SLUICE_CUDA_GRAPH_INSTANTIATE_RESULTS(SLUICE_ENUMERATOR)
} CUgraphInstantiateResult;
typedef enum CUgraphConditionalNodeType_enum {
  SLUICE_CUDA_GRAPH_CONDITIONAL_TYPES(SLUICE_ENUMERATOR)
} CUgraphConditionalNodeType;
typedef enum CUgraphMem_attribute_enum {
  CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT = 0,
  CU_GRAPH_MEM_ATTR_USED_MEM_HIGH = 1,
  CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT = 2,
  CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH = 3
} CUgraphMem_attribute;
typedef enum CUgraphChildGraphNodeOwnership_enum {
  CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE = 0,
  CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE = 1
} CUgraphChildGraphNodeOwnership;
typedef enum CUstreamBatchMemOpType_enum {
  CU_STREAM_MEM_OP_WAIT_VALUE_32 = 1,
  CU_STREAM_MEM_OP_WRITE_VALUE_32 = 2,
  CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES = 3,
  CU_STREAM_MEM_OP_WAIT_VALUE_64 = 4,
  CU_STREAM_MEM_OP_WRITE_VALUE_64 = 5,
  CU_STREAM_MEM_OP_BARRIER = 6
} CUstreamBatchMemOpType;
enum { SLUICE_CUDA_GRAPH_CONSTANTS(SLUICE_ENUMERATOR) };
#undef SLUICE_ENUMERATOR

typedef struct CUDA_KERNEL_NODE_PARAMS_st {
  CUfunction func;
  unsigned int gridDimX;
  unsigned int gridDimY;
  unsigned int gridDimZ;
  unsigned int blockDimX;
  unsigned int blockDimY;
  unsigned int blockDimZ;
  unsigned int sharedMemBytes;
  void** kernelParams;
  void** extra;
} CUDA_KERNEL_NODE_PARAMS_v1;
/* `kern` counts where `func` is null; `ctx` null: the current one. */
typedef struct CUDA_KERNEL_NODE_PARAMS_v2_st {
  CUfunction func;
  unsigned int gridDimX;
  unsigned int gridDimY;
  unsigned int gridDimZ;
  unsigned int blockDimX;
  unsigned int blockDimY;
  unsigned int blockDimZ;
  unsigned int sharedMemBytes;
  void** kernelParams;
  void** extra;
  CUkernel kern;
  CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;

typedef struct CUDA_MEMCPY_NODE_PARAMS_st {
  int flags;
  int reserved;
  CUcontext copyCtx;
  CUDA_MEMCPY3D copyParams;
} CUDA_MEMCPY_NODE_PARAMS;

/* `width` counts elements of `elementSize` (1, 2, 4) bytes; `pitch` is bytes and counts with more
 * than one row. */
typedef struct CUDA_MEMSET_NODE_PARAMS_st {
  CUdeviceptr dst;
  size_t pitch;
  unsigned int value;
  unsigned int elementSize;
  size_t width;
  size_t height;
} CUDA_MEMSET_NODE_PARAMS;
typedef struct CUDA_MEMSET_NODE_PARAMS_v2_st {
  CUdeviceptr dst;
  size_t pitch;
  unsigned int value;
  unsigned int elementSize;
  size_t width;
  size_t height;
  CUcontext ctx;
} CUDA_MEMSET_NODE_PARAMS_v2;

typedef struct CUDA_HOST_NODE_PARAMS_st {
  CUhostFn fn;
  void* userData;
} CUDA_HOST_NODE_PARAMS;
typedef struct CUDA_CHILD_GRAPH_NODE_PARAMS_st {
  CUgraph graph;
  CUgraphChildGraphNodeOwnership ownership;
} CUDA_CHILD_GRAPH_NODE_PARAMS;
typedef struct CUDA_EVENT_NODE_PARAMS_st {
  CUevent event;
} CUDA_EVENT_NODE_PARAMS; /* the toolkit has one for records and one for waits */

/* allocType 1 is device memory ("pinned"), handleTypes 0 is none. */
typedef struct CUmemPoolProps_st {
  int allocType;
  int handleTypes;
  CUmemLocation location;
  void* win32SecurityAttributes;
  size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
} CUmemPoolProps;
typedef struct CUDA_MEM_ALLOC_NODE_PARAMS_v1_st {
  CUmemPoolProps poolProps;
  const CUmemAccessDesc* accessDescs;
  size_t accessDescCount;
  size_t bytesize;
  CUdeviceptr dptr; /* the answer */
} CUDA_MEM_ALLOC_NODE_PARAMS;
typedef struct CUDA_MEM_FREE_NODE_PARAMS_st {
  CUdeviceptr dptr;
} CUDA_MEM_FREE_NODE_PARAMS;

typedef union CUstreamBatchMemOpParams_union {
  CUstreamBatchMemOpType operation;
  struct CUstreamMemOpValueParams_st {
    CUstreamBatchMemOpType operation;
    CUdeviceptr address;
    union {
      cuuint32_t value;
      cuuint64_t value64;
    };
    unsigned int flags;
    CUdeviceptr alias;
  } waitValue, writeValue;
  cuuint64_t pad[6];
} CUstreamBatchMemOpParams;
typedef struct CUDA_BATCH_MEM_OP_NODE_PARAMS_v1_st {
  CUcontext ctx;
  unsigned int count;
  CUstreamBatchMemOpParams* paramArray;
  unsigned int flags;
} CUDA_BATCH_MEM_OP_NODE_PARAMS;

/* phGraph_out is the driver's to set: `size` graphs, which belong to the node. */
typedef struct CUDA_CONDITIONAL_NODE_PARAMS {
  CUgraphConditionalHandle handle;
  CUgraphConditionalNodeType type;
  unsigned int size;
  CUgraph* phGraph_out;
  CUcontext ctx;
} CUDA_CONDITIONAL_NODE_PARAMS;

/* Not offered: their pointers are never followed. */
typedef struct CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_st CUDA_EXT_SEM_SIGNAL_NODE_PARAMS;
typedef struct CUDA_EXT_SEM_WAIT_NODE_PARAMS_st CUDA_EXT_SEM_WAIT_NODE_PARAMS;

/* Any node's parameters, by its type. */
typedef struct CUgraphNodeParams_st {
  CUgraphNodeType type;
  int reserved0[3];
  union {
    long long reserved1[29];
    CUDA_KERNEL_NODE_PARAMS kernel;
    CUDA_MEMCPY_NODE_PARAMS memcpy;
    CUDA_MEMSET_NODE_PARAMS_v2 memset;
    CUDA_HOST_NODE_PARAMS host;
    CUDA_CHILD_GRAPH_NODE_PARAMS graph;
    CUDA_EVENT_NODE_PARAMS eventWait;
    CUDA_EVENT_NODE_PARAMS eventRecord;
    CUDA_MEM_ALLOC_NODE_PARAMS alloc;
    CUDA_MEM_FREE_NODE_PARAMS free;
    CUDA_BATCH_MEM_OP_NODE_PARAMS memOp;
    CUDA_CONDITIONAL_NODE_PARAMS conditional;
  };
  long long reserved2;
} CUgraphNodeParams;

typedef struct CUDA_GRAPH_INSTANTIATE_PARAMS_st {
  cuuint64_t flags;
  CUstream hUploadStream;
  CUgraphNode hErrNode_out;
  CUgraphInstantiateResult result_out;
} CUDA_GRAPH_INSTANTIATE_PARAMS;
typedef struct CUgraphExecUpdateResultInfo_st {
  CUgraphExecUpdateResult result;
  CUgraphNode errorNode;
  CUgraphNode errorFromNode;
} CUgraphExecUpdateResultInfo;

/* A kernel node's attributes are a launch's. */
typedef CUlaunchAttributeID CUkernelNodeAttrID;
typedef CUlaunchAttributeValue CUkernelNodeAttrValue;

/* One of the launches of cuLaunchCooperativeKernelMultiDevice. */
typedef struct CUDA_LAUNCH_PARAMS_st {
  CUfunction function;
  unsigned int gridDimX, gridDimY, gridDimZ;
  unsigned int blockDimX, blockDimY, blockDimZ;
  unsigned int sharedMemBytes;
  CUstream hStream;
  void** kernelParams;
} CUDA_LAUNCH_PARAMS;

#if defined(__cplusplus) && !defined(SLUICE_CUDA_DRIVER_COMPARE)
extern "C" {
#endif
#define SLUICE_DECLARE(symbol, name, since, parameters) \
  __attribute__((visibility("default"))) CUresult symbol parameters;
SLUICE_CUDA_GRAPH_FUNCTIONS(SLUICE_DECLARE)
SLUICE_CUDA_GUEST_FUNCTIONS(SLUICE_DECLARE)
#undef SLUICE_DECLARE
#define SLUICE_DECLARE(function, symbol, name, since, parameters) \
  __attribute__((visibility("default"))) CUresult function parameters __asm__(symbol);
SLUICE_CUDA_GRAPH_OLD_FUNCTIONS(SLUICE_DECLARE)
#undef SLUICE_DECLARE
#if defined(__cplusplus) && !defined(SLUICE_CUDA_DRIVER_COMPARE)
}
#endif
#ifndef SLUICE_CUDA_DRIVER_COMPARE
#define cuStreamBeginCapture cuStreamBeginCapture_v2
#define cuStreamUpdateCaptureDependencies cuStreamUpdateCaptureDependencies_v2
#define cuGraphAddKernelNode cuGraphAddKernelNode_v2
#define cuGraphKernelNodeGetParams cuGraphKernelNodeGetParams_v2
#define cuGraphKernelNodeSetParams cuGraphKernelNodeSetParams_v2
#define cuGraphExecKernelNodeSetParams cuGraphExecKernelNodeSetParams_v2
#define cuGraphGetEdges cuGraphGetEdges_v2
#define cuGraphNodeGetDependencies cuGraphNodeGetDependencies_v2
#define cuGraphNodeGetDependentNodes cuGraphNodeGetDependentNodes_v2
#define cuGraphAddDependencies cuGraphAddDependencies_v2
#define cuGraphRemoveDependencies cuGraphRemoveDependencies_v2
#define cuGraphInstantiate cuGraphInstantiateWithFlags
#define cuGraphExecUpdate cuGraphExecUpdate_v2
#define cuGraphAddNode cuGraphAddNode_v2
#define cuMemAdvise cuMemAdvise_v2
#define cuMemPrefetchAsync cuMemPrefetchAsync_v2
#define cuStreamBatchMemOp cuStreamBatchMemOp_v2
#define cuTexRefSetAddress cuTexRefSetAddress_v2
#define cuTexRefSetAddress2D cuTexRefSetAddress2D_v3
#define cuTexRefGetAddress cuTexRefGetAddress_v2
#endif

#endif /* SLUICE_ABI_CUDA_GRAPH_H */
