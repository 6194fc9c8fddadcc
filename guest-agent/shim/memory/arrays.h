// SPDX-License-Identifier: Apache-2.0
// Arrays, texture and surface objects as the guest keeps them, and boxes with an array at an end.
// An array's handle is the worker's; its description stays here. A texture object's name is the
// driver's, because kernels get it; what it was made of stays here. Any thread. Errors are CUDA's.
#pragma once

#include "abi/cuda_texture.h"
#include "guest-agent/shim/memory/copy.h"

namespace sluice::guest {

inline bool has_array(const CUDA_MEMCPY3D& box) {
  return box.srcMemoryType == CU_MEMORYTYPE_ARRAY || box.dstMemoryType == CU_MEMORYTYPE_ARRAY;
}

// As check_box() and run_box() (boxes.h), for boxes with an array. Extents are not 0.
CUresult check_array_box(const CUDA_MEMCPY3D& box);
CUresult run_array_box(const Entered& entered, const CUDA_MEMCPY3D& box, const Copy& how);

}  // namespace sluice::guest
