// SPDX-License-Identifier: Apache-2.0
// What a matrix instruction multiplies: shape, element formats, and where the elements lie in the
// registers. Internal to kernels/exec; pure.
//
// Fragments of mma follow the PTX manual ("Matrix fragments for mma"): lane = 4 * group + place; a
// register of A holds consecutive columns of row group (+ 8 for odd registers), one of B
// consecutive rows of column group. Fragments of wmma are the implementation's own: here the lanes
// hold consecutive elements of the matrix, row by row, as often as the registers have room for.
#pragma once

#include <cstdint>

namespace sluice::exec::detail {

enum class Element : uint8_t {
  kF16,
  kBf16,
  kTf32,
  kF64,
  kE4m3,
  kE5m2,
  kU8,
  kS8,
  kU4,
  kS4,
  kB1,
  kF32,  // C and D only, as kS32
  kS32,
};
constexpr uint32_t element_bits(Element e) {
  switch (e) {
    case Element::kF16:
    case Element::kBf16:
      return 16;
    case Element::kF64:
      return 64;
    case Element::kE4m3:
    case Element::kE5m2:
    case Element::kU8:
    case Element::kS8:
      return 8;
    case Element::kU4:
    case Element::kS4:
      return 4;
    case Element::kB1:
      return 1;
    default:
      return 32;
  }
}

enum class Role : uint8_t { kA, kB, kC };

struct MatrixShape {
  uint8_t m = 0, n = 0;
  uint16_t k = 0;
  Element a = Element::kF16, b = Element::kF16, c = Element::kF32, d = Element::kF32;
  bool saturate = false;
  bool bit_and = false;  // b1: and instead of xor
  bool wmma = false;
  // mma.sp: of A half the elements are there, and metadata says which. `selector`: which threads of
  // four have it.
  bool sparse = false;
  uint8_t selector = 0;
  // Only mma.m8n8k4 of f16 has other layouts than row and col.
  bool a_column = false, b_row = false;

  // mma.m8n8k4 of f16: four products, one for each quad pair (lanes 4q to 4q + 3 and those 16
  // above). Here they are one: below one another in A and C, side by side along K.
  bool of_quads() const { return m == 8 && n == 8 && k == 4 && a == Element::kF16 && !wmma; }
  static constexpr uint32_t kQuads = 4;

  // Of how many threads of each four the metadata is read: one for so many columns of A.
  uint32_t metadata_threads() const {
    const uint32_t bits = element_bits(a);
    return k / (bits == 32 ? 8u : bits == 4 ? 32u : 16u);
  }

  // To and from Inst::imm.
  int64_t pack() const {
    return static_cast<int64_t>(
        uint64_t{m} | uint64_t{n} << 8 | uint64_t{k} << 16 |
        uint64_t{static_cast<uint8_t>(a)} << 32 | uint64_t{static_cast<uint8_t>(b)} << 36 |
        uint64_t{static_cast<uint8_t>(c)} << 40 | uint64_t{static_cast<uint8_t>(d)} << 44 |
        uint64_t{saturate} << 48 | uint64_t{bit_and} << 49 | uint64_t{wmma} << 50 |
        uint64_t{sparse} << 51 | uint64_t{selector} << 52 | uint64_t{a_column} << 54 |
        uint64_t{b_row} << 55);
  }
  static MatrixShape unpack(int64_t imm) {
    const uint64_t v = static_cast<uint64_t>(imm);
    MatrixShape s;
    s.m = static_cast<uint8_t>(v);
    s.n = static_cast<uint8_t>(v >> 8);
    s.k = static_cast<uint16_t>(v >> 16);
    s.a = static_cast<Element>(v >> 32 & 15);
    s.b = static_cast<Element>(v >> 36 & 15);
    s.c = static_cast<Element>(v >> 40 & 15);
    s.d = static_cast<Element>(v >> 44 & 15);
    s.saturate = (v >> 48 & 1) != 0;
    s.bit_and = (v >> 49 & 1) != 0;
    s.wmma = (v >> 50 & 1) != 0;
    s.sparse = (v >> 51 & 1) != 0;
    s.selector = static_cast<uint8_t>(v >> 52 & 3);
    s.a_column = (v >> 54 & 1) != 0;
    s.b_row = (v >> 55 & 1) != 0;
    return s;
  }
};

struct Fragment {
  uint32_t rows = 0, columns = 0;
  uint32_t registers = 0;     // per lane
  uint32_t per_register = 1;  // elements
  uint32_t slots() const { return registers * per_register; }
};

// The fragment of a matrix. `element`: of that matrix (C and D may differ).
inline Fragment fragment_of(const MatrixShape& s, Role role, Element element) {
  Fragment f;
  f.rows = role == Role::kB ? s.k : s.m;
  f.columns = role != Role::kA ? s.n : s.sparse ? s.k / 2u : s.k;
  const uint32_t bits = element_bits(element);
  f.per_register = bits >= 32 ? 1 : 32 / bits;
  if (s.of_quads()) {
    f.rows = role == Role::kB ? s.kQuads * s.k : s.kQuads * s.m;
    f.columns = role == Role::kA ? s.kQuads * s.k : s.n;
    f.registers = role == Role::kC ? 8 / f.per_register : 2;
    return f;
  }
  f.registers = f.rows * f.columns / 32 / f.per_register;
  // wmma's f16 operands have eight registers whatever the shape (PTX ISA, wmma fragments).
  if (s.wmma && element == Element::kF16 && role != Role::kC) f.registers = 8;
  return f;
}

struct Spot {
  uint32_t row, column;
};

// Where an element lies in mma.m8n8k4 of f16 (PTX manual, "Matrix fragments for mma.m8n8k4 with
// f16").
inline Spot spot_of_quads(const MatrixShape& s, const Fragment& f, Role role, uint32_t lane,
                          uint32_t slot) {
  const uint32_t quad = lane % 16 / 4, place = lane % 4, upper = lane / 16 * 4;
  if (role == Role::kA)
    return {quad * 8 + upper + (s.a_column ? slot : place), quad * 4 + (s.a_column ? place : slot)};
  if (role == Role::kB)
    return {quad * 4 + (s.b_row ? place : slot), upper + (s.b_row ? slot : place)};
  if (f.per_register == 2) return {quad * 8 + upper + place, slot};
  return {quad * 8 + upper + (place & 1) + (slot & 2), (slot & 4) + (place & 2) + (slot & 1)};
}

// Where element `slot` (register * per_register + part) of a lane lies in the matrix.
inline Spot spot_of(const MatrixShape& s, const Fragment& f, Role role, uint32_t lane,
                    uint32_t slot) {
  if (s.of_quads()) return spot_of_quads(s, f, role, lane, slot);
  if (s.wmma) {
    const uint32_t mine = f.rows * f.columns / 32;
    const uint32_t at = lane * mine + slot % mine;
    // Less than a byte: B is column-major, and a register is 32 bits of memory.
    if (role == Role::kB && element_bits(s.a) < 8) return {at % f.rows, at / f.rows};
    return {at / f.columns, at % f.columns};
  }
  const uint32_t group = lane >> 2, place = lane & 3;
  const uint32_t reg = slot / f.per_register, part = slot % f.per_register;
  const uint32_t run = place * f.per_register + part;
  if (role == Role::kA) {
    if (f.rows == 8) return {group, run + 4 * f.per_register * reg};
    return {group + 8 * (reg & 1), run + 4 * f.per_register * (reg >> 1)};
  }
  if (role == Role::kB) return {run + 4 * f.per_register * reg, group};
  if (f.per_register == 2) return {group + 8 * reg, run};
  return {group + 8 * (reg >> 1), place * 2 + (reg & 1)};
}

}  // namespace sluice::exec::detail
