// SPDX-License-Identifier: Apache-2.0
// Textures and surfaces as kernels see them: descriptors behind 64-bit handles. The software GPU's
// context owns the table (by way of its MemoryMap) and the memory that descriptors name; kernels
// give handles, which are only looked up, never followed.
//
// Threads: TextureTable's members may be called from any thread; a found descriptor lives as long
// as the caller's pointer. Does not: allocate or copy texels.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

namespace sluice::exec {

enum class TexelFormat : uint8_t { kU8, kU16, kU32, kS8, kS16, kS32, kF16, kF32 };
constexpr uint32_t bytes_of(TexelFormat f) {
  switch (f) {
    case TexelFormat::kU8:
    case TexelFormat::kS8:
      return 1;
    case TexelFormat::kU16:
    case TexelFormat::kS16:
    case TexelFormat::kF16:
      return 2;
    default:
      return 4;
  }
}
enum class AddressMode : uint8_t { kWrap, kClamp, kMirror, kBorder };

// The texels of one mipmap level.
struct TextureLevel {
  uint64_t base = 0;                          // host address of the first texel
  uint64_t row_bytes = 0;                     // from row to row
  uint64_t slice_bytes = 0;                   // from slice (or layer) to slice
  uint32_t width = 1, height = 1, depth = 1;  // texels; depth: layers, if layered
};

// Of a texture without mipmaps, or of their first level, and what all levels have in common.
struct TextureDescriptor : TextureLevel {
  std::vector<TextureLevel> smaller;  // further levels, behind the first one in memory
  TexelFormat format = TexelFormat::kF32;
  uint8_t channels = 1;
  bool surface = false;        // for suld, sust and sured; otherwise for tex, tld4 and txq
  bool linear_memory = false;  // one row in plain memory: no address modes, zero outside
  bool layered = false;        // cube maps, too: six faces of each layer
  bool cube = false;
  bool seamless = false;    // of a cube map: filters go on from face to face
  bool srgb = false;        // 8-bit colours are made linear
  bool mip_filter = false;  // linear between levels
  float mip_bias = 0, mip_min = 0, mip_max = 0;
  bool normalised = false;  // coordinates count 0 to 1
  bool filter = false;      // linear
  bool as_integer = false;  // integer texels are not made numbers between 0 (-1) and 1
  std::array<AddressMode, 3> address = {AddressMode::kClamp, AddressMode::kClamp,
                                        AddressMode::kClamp};
  std::array<float, 4> border = {};

  uint32_t texel_bytes() const { return bytes_of(format) * channels; }
  const TextureLevel& level(uint32_t k) const { return k == 0 ? *this : smaller[k - 1]; }
  // From the first level's base to the last one's end.
  uint64_t bytes() const {
    const TextureLevel& last = smaller.empty() ? *this : smaller.back();
    return last.base - base + (last.depth - 1) * last.slice_bytes +
           (last.height - 1) * last.row_bytes + uint64_t{last.width} * texel_bytes();
  }
};

class TextureTable {
 public:
  // A handle that is never given twice.
  uint64_t add(const TextureDescriptor& descriptor);
  bool remove(uint64_t handle);
  std::shared_ptr<const TextureDescriptor> find(uint64_t handle) const;

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<const TextureDescriptor>> descriptors_;
  uint64_t next_ = 1;
};

}  // namespace sluice::exec
