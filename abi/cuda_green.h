/* SPDX-License-Identifier: Apache-2.0 */
/* Green contexts: the part of the CUDA driver API that confines streams to some of a GPU's SMs, in
 * our own declarations: same names, values, layouts and symbols as CUDA 13.0's on 64-bit Linux
 * (NVIDIA, CUDA Driver API, "Green Contexts"; since CUDA 12.4, streams of their own since 12.5).
 * Where the toolkit is installed, cuda_driver_asserts.cc compares all of it.
 *
 * The way there: what SMs there are (cuDeviceGetDevResource), groups of them
 * (cuDevSmResourceSplitByCount), a descriptor of some groups of one split
 * (cuDevResourceGenerateDesc), a green context of that (cuGreenCtxCreate), a stream of that
 * (cuGreenCtxStreamCreate). What is launched into the stream runs on those SMs only; functions,
 * memory and events are those of the device's primary context.
 *
 * Users: sluice-worker (through mediator/gpu/driver_api.h, which does without on older drivers),
 * and the software GPU and the guest's libcuda.so.1, which define these functions. Declares only. C
 * and C++.
 */
#ifndef SLUICE_ABI_CUDA_GREEN_H
#define SLUICE_ABI_CUDA_GREEN_H

#include "abi/cuda_driver.h"

typedef struct CUgreenCtx_st* CUgreenCtx;               /* for one thread at a time */
typedef struct CUdevResourceDesc_st* CUdevResourceDesc; /* nothing frees one */

typedef enum { CU_GREEN_CTX_DEFAULT_STREAM = 0x1 /* required */ } CUgreenCtxCreate_flags;
/* Groups as small as the hardware has them, without regard to which SMs share a processing cluster;
 * or groups that hold the largest thread-block clusters that can be had. */
typedef enum {
  CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING = 0x1,
  CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE = 0x2
} CUdevSmResourceSplit_flags;
typedef enum { CU_DEV_RESOURCE_TYPE_INVALID = 0, CU_DEV_RESOURCE_TYPE_SM = 1 } CUdevResourceType;

/* How many SMs a resource has, how many the smallest part of it has, and a number that each part's
 * is a multiple of. Written by the driver only. */
typedef struct CUdevSmResource_st {
  unsigned int smCount;
  unsigned int minSmPartitionSize;
  unsigned int smCoscheduledAlignment;
} CUdevSmResource;

/* A value that programs keep and copy. `internal` is the driver's: which SMs, of what. */
typedef struct CUdevResource_st {
  int type; /* CUdevResourceType */
  unsigned char internal[92];
  union {
    CUdevSmResource sm;
    unsigned char oversize[48];
  };
} CUdevResource;

/* clang-format off */
/* One row each as in cuda_driver_functions.h: X(symbol, name, since, (parameters)). */
#define SLUICE_CUDA_GREEN_FUNCTIONS(X) \
  X(cuDeviceGetDevResource, cuDeviceGetDevResource, 12040, (CUdevice device, CUdevResource* resource, \
    CUdevResourceType type)) \
  X(cuCtxGetDevResource, cuCtxGetDevResource, 12040, (CUcontext context, CUdevResource* resource, CUdevResourceType \
    type)) \
  X(cuGreenCtxGetDevResource, cuGreenCtxGetDevResource, 12040, (CUgreenCtx context, CUdevResource* resource, \
    CUdevResourceType type)) \
  X(cuDevSmResourceSplitByCount, cuDevSmResourceSplitByCount, 12040, (CUdevResource* result, unsigned int* groups, \
    const CUdevResource* input, CUdevResource* remaining, unsigned int flags, unsigned int min_count)) \
  X(cuDevResourceGenerateDesc, cuDevResourceGenerateDesc, 12040, (CUdevResourceDesc* desc, CUdevResource* resources, \
    unsigned int count)) \
  X(cuGreenCtxCreate, cuGreenCtxCreate, 12040, (CUgreenCtx* context, CUdevResourceDesc desc, CUdevice dev, unsigned \
    int flags)) \
  X(cuGreenCtxDestroy, cuGreenCtxDestroy, 12040, (CUgreenCtx context)) \
  X(cuCtxFromGreenCtx, cuCtxFromGreenCtx, 12040, (CUcontext* pctx, CUgreenCtx context)) \
  X(cuGreenCtxStreamCreate, cuGreenCtxStreamCreate, 12050, (CUstream* stream, CUgreenCtx context, unsigned int flags, \
    int priority)) \
  X(cuStreamGetGreenCtx, cuStreamGetGreenCtx, 12040, (CUstream stream, CUgreenCtx* context)) \
  X(cuGreenCtxRecordEvent, cuGreenCtxRecordEvent, 12040, (CUgreenCtx context, CUevent event)) \
  X(cuGreenCtxWaitEvent, cuGreenCtxWaitEvent, 12040, (CUgreenCtx context, CUevent event))
/* clang-format on */

/* Exported wherever they are defined, as those of cuda_driver.h. */
#if defined(__cplusplus) && !defined(SLUICE_CUDA_DRIVER_COMPARE)
extern "C" {
#endif
#define SLUICE_DECLARE(symbol, name, since, parameters) \
  __attribute__((visibility("default"))) CUresult symbol parameters;
SLUICE_CUDA_GREEN_FUNCTIONS(SLUICE_DECLARE)
#undef SLUICE_DECLARE
#if defined(__cplusplus) && !defined(SLUICE_CUDA_DRIVER_COMPARE)
}
#endif

#endif /* SLUICE_ABI_CUDA_GREEN_H */
