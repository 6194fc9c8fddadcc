// SPDX-License-Identifier: Apache-2.0
// Copies of rows and boxes, in the driver's form. A runtime's copy says in one word where its ends
// are; the driver's has a kind of memory for each end. No state.
#pragma once

#include "guest-agent/cudart/driver.h"
#include "guest-agent/cudart/types.h"

namespace sluice::cudart {

// One end of a copy: an address with its layout, or an array.
struct CopyEnd {
  const void* address = nullptr;
  size_t pitch = 0;   // bytes from row to row
  size_t height = 0;  // rows from slice to slice
  cudaArray_const_t array = nullptr;
  cudaPos at = {0, 0, 0};  // x in bytes
};

bool is_copy_kind(int kind);
// Both ends and the extent (width in bytes) in the driver's form. An error: a kind that does not
// exist.
cudaError_t make_box(const CopyEnd& to, const CopyEnd& from, cudaExtent extent, int kind,
                     CUDA_MEMCPY3D* box);
// The same of a program's description; its extent counts elements where an array takes part.
cudaError_t make_box(const cudaMemcpy3DParms& parameters, CUDA_MEMCPY3D* box);
// Back again, for graphs that are asked what they copy.
cudaMemcpy3DParms make_parameters(const CUDA_MEMCPY3D& box);
// Bytes in a row.
CUDA_MEMCPY3D make_row(void* to, const void* from, size_t bytes, int kind);

// Bytes of an element of an array; 0 where the driver does not say.
size_t element_bytes(cudaArray_const_t array);

}  // namespace sluice::cudart
