// SPDX-License-Identifier: Apache-2.0
// Texture and surface operations: X(name, (handler)); see plain_ops.h.
#pragma once

#include <cstdint>

#define SLUICE_EXEC_TEXTURE_OPS(X) \
  X(tex, (fetch))                  \
  X(txq, (query)) X(suld, (surface_load)) X(sust, (surface_store)) X(sured, (surface_reduce))

namespace sluice::exec::detail {

// Which mipmap level a fetch is from: the first; one that it names; one by how far its neighbours
// are.
enum class MipLevel : uint8_t { kBase, kLevel, kGradient };

// Inst::imm of all of them. a = handle; aux: x, y, z, layer (kNoOperand: none), then values; of
// tex then the level, or two gradients of three components.
struct TextureAccess {
  uint8_t dimensions = 1;
  bool layered = false;
  bool float_coordinates = false;
  bool gather = false;
  bool cube = false;  // x, y, z are a direction
  MipLevel mip = MipLevel::kBase;
  uint8_t component = 0;      // tld4
  bool float_result = false;  // tex, tld4: .f32; otherwise .u32 or .s32
  uint8_t bytes = 4;          // surfaces: of one element
  uint8_t elements = 1;       // surfaces: of the vector
  uint8_t clamp = 0;          // surfaces: 0 trap, 1 clamp, 2 zero
  uint8_t operation = 0;      // sured: 0 add, 1 min, 2 max, 3 and, 4 or; txq and suq: what
  bool is_signed = false;

  int64_t pack() const {
    return static_cast<int64_t>(
        uint64_t{dimensions} | uint64_t{layered} << 8 | uint64_t{float_coordinates} << 9 |
        uint64_t{gather} << 10 | uint64_t{cube} << 11 | uint64_t{component} << 12 |
        uint64_t{float_result} << 16 | static_cast<uint64_t>(mip) << 17 | uint64_t{bytes} << 24 |
        uint64_t{elements} << 32 | uint64_t{clamp} << 40 | uint64_t{operation} << 48 |
        uint64_t{is_signed} << 56);
  }
  static TextureAccess unpack(int64_t imm) {
    const uint64_t v = static_cast<uint64_t>(imm);
    TextureAccess t;
    t.dimensions = v & 255;
    t.layered = (v >> 8 & 1) != 0;
    t.float_coordinates = (v >> 9 & 1) != 0;
    t.gather = (v >> 10 & 1) != 0;
    t.cube = (v >> 11 & 1) != 0;
    t.mip = static_cast<MipLevel>(v >> 17 & 3);
    t.component = v >> 12 & 15;
    t.float_result = (v >> 16 & 1) != 0;
    t.bytes = v >> 24 & 255;
    t.elements = v >> 32 & 255;
    t.clamp = v >> 40 & 255;
    t.operation = v >> 48 & 255;
    t.is_signed = (v >> 56 & 1) != 0;
    return t;
  }
};

}  // namespace sluice::exec::detail
