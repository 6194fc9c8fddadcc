// SPDX-License-Identifier: Apache-2.0
/* What libsluice-softcuda.so offers beyond the CUDA driver API; found by dlsym in
 * DriverApi::library. Users: sluice-worker, tests. Any thread. A null context means the calling
 * thread's current one. */
#pragma once

#include <stdint.h>

#include "abi/cuda_driver.h"

extern "C" {

/* The channel-group id under which the context appears in the GPU's status registers
 * (abi/registers.h); the same file's layout: mediator/softgpu/shared/gpu_file.h. */
__attribute__((visibility("default"))) CUresult sluice_softgpu_tsgid(CUcontext context,
                                                                     unsigned int* tsgid);

/* Memory that several processes have; files are what others hand them, closed here.
 * share: the pages of the current context's allocation that begins at `base` lie in `file` from now
 * on, which is as long as they are. open: all of a file as memory of the current context, until
 * close. Kernels of both see the same bytes; nobody but the owner of the allocation is charged. */
__attribute__((visibility("default"))) CUresult sluice_softgpu_share(CUdeviceptr base, int file);
__attribute__((visibility("default"))) CUresult sluice_softgpu_open(CUdeviceptr* base, int file);
__attribute__((visibility("default"))) CUresult sluice_softgpu_close(CUdeviceptr base);

/* Writes why the context failed, one line for people ("" if it has not): the fault, kernel, PTX
 * line, block and thread. Returns the sticky error. */
__attribute__((visibility("default"))) CUresult sluice_softgpu_fault(CUcontext context, char* text,
                                                                     size_t bytes);
}
