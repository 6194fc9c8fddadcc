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

}  // namespace sluice::guest
