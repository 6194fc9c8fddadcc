// SPDX-License-Identifier: Apache-2.0
// What wgmma.mma_async multiplies, and where matrices lie in shared memory (PTX ISA, "Asynchronous
// Warpgroup Level Matrix Shared Memory Layout"). Internal to kernels/exec; pure.
#pragma once

#include <cstdint>

#include "kernels/exec/program/tensor_shape.h"

namespace sluice::exec::detail {

inline constexpr uint32_t kWarpgroupColumns = 256;  // at most
inline constexpr uint32_t kWarpRows = 16;           // of the 64, by warp of the group

// D of 64 x n; A of 64 x depth() and B of depth() x n.
struct WarpgroupShape {
  uint32_t n = 0;
  Element a = Element::kF16, b = Element::kF16, d = Element::kF32;
  bool saturate = false;
  bool negate_a = false, negate_b = false;
  bool m_major = false, n_major = false;  // imm-trans-a and -b: columns of A (rows of B) contiguous
  bool a_in_registers = false;
  // wgmma.mma_async.sp: half the elements of A are there, as in mma.sp (tensor_shape.h).
  bool sparse = false;
  uint8_t selector = 0;

  uint32_t a_depth() const { return 256 / element_bits(a); }  // elements of A in a row: 32 bytes
  uint32_t depth() const { return sparse ? 2 * a_depth() : a_depth(); }
  uint32_t d_registers() const { return d == Element::kF16 ? n / 4 : n / 2; }

  // To and from Inst::imm.
  int64_t pack() const {
    return static_cast<int64_t>(
        uint64_t{n} | uint64_t{static_cast<uint8_t>(a)} << 16 |
        uint64_t{static_cast<uint8_t>(b)} << 20 | uint64_t{static_cast<uint8_t>(d)} << 24 |
        uint64_t{saturate} << 32 | uint64_t{negate_a} << 33 | uint64_t{negate_b} << 34 |
        uint64_t{m_major} << 35 | uint64_t{n_major} << 36 | uint64_t{a_in_registers} << 37 |
        uint64_t{sparse} << 38 | uint64_t{selector} << 39);
  }
  static WarpgroupShape unpack(int64_t imm) {
    const auto v = static_cast<uint64_t>(imm);
    const auto bit = [v](int k) { return (v >> k & 1) != 0; };
    return {static_cast<uint32_t>(v & 0xffff),
            static_cast<Element>(v >> 16 & 15),
            static_cast<Element>(v >> 20 & 15),
            static_cast<Element>(v >> 24 & 15),
            bit(32),
            bit(33),
            bit(34),
            bit(35),
            bit(36),
            bit(37),
            bit(38),
            static_cast<uint8_t>(v >> 39 & 3)};
  }
};

// A matrix in shared memory.
//
//   63 62  61   52 51  49 48 46 45         32 31 30 29          16 15 14 13         0
//   +-----+-------+------+-----+-------------+-----+--------------+-----+------------+
//   |swizz|   -   | base |  -  | stride / 16 |  -  | leading / 16 |  -  | start / 16 |
//   +-----+-------+------+-----+-------------+-----+--------------+-----+------------+
//
// It is made of chunks of 16 bytes: of a K-major matrix consecutive elements of a row, of an
// MN-major one of a column. Eight chunks across that direction, as wide as the swizzle has chunks,
// are an atom; `leading` and `stride` lead from atom to atom.
struct MatrixDescriptor {
  uint32_t start = 0, leading = 0, stride = 0;  // bytes
  uint32_t base = 0;     // (address >> 7) & 7 of where the swizzle's pattern begins
  uint32_t swizzle = 0;  // log2 of the chunks in its width

  static MatrixDescriptor unpack(uint64_t v) {
    static constexpr uint8_t kSwizzles[] = {0, 3, 2, 1};
    return {static_cast<uint32_t>(v & 0x3fff) << 4, static_cast<uint32_t>(v >> 16 & 0x3fff) << 4,
            static_cast<uint32_t>(v >> 32 & 0x3fff) << 4, static_cast<uint32_t>(v >> 49 & 7),
            kSwizzles[v >> 62]};
  }
  // The address of the chunk that holds elements along the major direction from `chunk` times a
  // chunk's elements on, at place `across` of the other direction.
  uint32_t chunk_address(bool mn_major, uint32_t across, uint32_t chunk) const {
    const uint32_t row = across % 8, atom = across / 8, width = 1u << swizzle;
    uint32_t at = start;
    if (mn_major)
      at += swizzle == 0
                ? chunk * stride + row * 16 + atom * leading
                : chunk % width * 16 + chunk / width * leading + row * width * 16 + atom * stride;
    else
      at += atom * stride + (swizzle == 0
                                 ? row * 16 + chunk * leading
                                 : row * width * 16 + chunk % width * 16 + chunk / width * leading);
    return at ^ ((((at >> 7) - base) & (width - 1)) << 4);
  }
};

}  // namespace sluice::exec::detail
