// SPDX-License-Identifier: Apache-2.0
// Copies, whatever their ends are: device memory, pinned memory (the worker reads or writes it
// where it lies), pageable memory (through staging, piece by piece). Any thread; state is the
// process's.
#pragma once

#include <cstdint>

#include "guest-agent/shim/state/state.h"

namespace sluice::guest {

// A rectangle: `height` rows of `width` bytes. One row is a plain copy and has no pitches.
struct Copy {
  uint64_t dst = 0, src = 0;
  uint64_t dst_pitch = 0, src_pitch = 0;
  uint64_t width = 0, height = 1;
  CUstream stream = nullptr;
  bool wait = false;  // the caller is CUDA's synchronous variant
  // A node's: pageable memory is read when the stream has come there, not when the copy is queued.
  bool in_graph = false;
};

// What the caller says about an end. kAny: whatever lies there.
enum class End { kAny, kDevice, kHost };

// Where an end lies; kInvalid: not where the caller says, or not all of it.
enum class Place { kDevice, kPinned, kPageable, kInvalid };
Place place_of(uint64_t address, uint64_t bytes, End claimed);
// Where the worker finds what lies in pinned memory at this address: as an offset in the region.
uint64_t offset_of_pinned(uint64_t address);

// What run_copy would refuse at once, but for its stream.
CUresult check_copy(Copy copy, End dst, End src);
CUresult run_copy(const Entered& entered, Copy copy, End dst, End src);
// Whether a fill of `height` (not 0) rows of `width` (not 0) elements is one: in memory of the
// program, aligned, its rows apart. `pitch` counts with more than one row.
bool valid_fill(CUdeviceptr dst, uint64_t pitch, uint32_t element_bytes, uint64_t width,
                uint64_t height);

}  // namespace sluice::guest
