// SPDX-License-Identifier: Apache-2.0
// Arrays, and what is remembered of texture and surface objects. Owned by the library's state; the
// objects themselves are descriptors in their context's exec::MemoryMap
// (kernels/exec/memory/texture.h). Threads: any; an Array does not change once it is made.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "abi/cuda_texture.h"

namespace sluice::softgpu {

struct Context;

// Texels in device memory, row by row without gaps. A level of a mipmapped array is one, too.
struct Array {
  std::weak_ptr<Context> context;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  uint64_t base = 0;
  uint64_t texel_bytes = 0;
  uint64_t width = 1, height = 1, depth = 1;  // texels; depth: slices, layers or faces
  bool level = false;                         // its memory is a mipmapped array's

  uint64_t row_bytes() const { return width * texel_bytes; }
  uint64_t slice_bytes() const { return height * row_bytes(); }
  uint64_t bytes() const { return depth * slice_bytes(); }
};

// One allocation, with the levels side by side in it, the largest first.
struct Mipmap {
  std::weak_ptr<Context> context;
  uint64_t base = 0;
  std::vector<std::shared_ptr<Array>> levels;
  std::vector<CUarray> handles;  // of the levels
};

inline bool is_cube(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  return (d.Flags & CUDA_ARRAY3D_CUBEMAP) != 0;
}
inline bool is_layered(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  return (d.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
}

struct TextureObject {
  std::weak_ptr<Context> context;
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC texture{};
  std::optional<CUDA_RESOURCE_VIEW_DESC> view;
  bool surface = false;
};

// Where byte `x` of row `y` of slice `z` of an array of the current context lies; 0: no such array,
// or `width` bytes by `height` rows by `depth` slices from there are not all inside.
uint64_t find_in_array(CUarray handle, size_t x, size_t y, size_t z, size_t width, size_t height,
                       size_t depth, size_t& row_bytes, size_t& slice_bytes);

}  // namespace sluice::softgpu
