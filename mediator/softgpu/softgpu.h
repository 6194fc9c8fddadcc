/* What libsluice-softcuda.so offers beyond the CUDA driver API; found by dlsym in
 * DriverApi::library. Users: sluice-worker, tests. Any thread. A null context means the calling
 * thread's current one. */
#pragma once

#include "abi/cuda_driver.h"

extern "C" {

/* The channel-group id under which the context appears in the GPU's status registers
 * (abi/registers.h); the same file's layout: mediator/softgpu/gpu_file.h. */
__attribute__((visibility("default"))) CUresult sluice_softgpu_tsgid(CUcontext context,
                                                                     unsigned int* tsgid);

/* Writes why the context failed, one line for people ("" if it has not): the fault, kernel, PTX
 * line, block and thread. Returns the sticky error. */
__attribute__((visibility("default"))) CUresult sluice_softgpu_fault(CUcontext context, char* text,
                                                                     size_t bytes);
}
