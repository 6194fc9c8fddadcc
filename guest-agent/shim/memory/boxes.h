// SPDX-License-Identifier: Apache-2.0
// Copies of boxes, as cuMemcpy3D and graphs' copy nodes describe them: slices, each a rectangle
// that copy.h knows. Any thread; state is the process's.
#pragma once

#include "abi/cuda_graph.h"
#include "guest-agent/shim/memory/copy.h"

namespace sluice::guest {

// What run_box would refuse at once, but for its stream and access.
CUresult check_box(const CUDA_MEMCPY3D& box);
// In the stream, and the way, that `how` names.
CUresult run_box(const Entered& entered, const CUDA_MEMCPY3D& box, const Copy& how);
// A rectangle as a box of one slice.
CUDA_MEMCPY3D box_of(const Copy& copy, End dst, End src);
CUDA_MEMCPY3D box_of(const CUDA_MEMCPY2D& rectangle);
// cuMemcpy3D and its kin: in the stream, or into the graph that it captures.
CUresult copy_box(const CUDA_MEMCPY3D* box, CUstream stream, bool wait);

// One end of a box that is memory: its first byte, its pitch and the rows of a slice.
struct BoxEnd {
  uint64_t at = 0, pitch = 0, rows = 0;
  End end = End::kAny;
};
// Checks it, but for what lies there: no product or sum of its sizes overflows.
CUresult box_end(CUmemorytype type, const void* host, CUdeviceptr device, size_t x, size_t y,
                 size_t z, size_t pitch, size_t rows, const CUDA_MEMCPY3D& box, BoxEnd* to);

}  // namespace sluice::guest
