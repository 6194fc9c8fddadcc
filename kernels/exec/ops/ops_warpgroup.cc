// SPDX-License-Identifier: Apache-2.0
// wgmma.mma_async; see ops_tensor.h for the list. Compiled once per instruction set
// (kernels/exec/program/isa.h).
//
// Each warp of the group computes its own 16 rows of D, at once, when it issues the instruction:
// nothing of them depends on the other warps, and a program that waits as it must cannot tell.
//
// Sums are those of tensor.inc, one for all of K. fp8 has 13 bits below the largest exponent in
// place of 25, and as many in the sum, as published measurements of Hopper have it. A sparse A has
// its metadata where that of mma.sp is, in each warp for its rows. None of this was compared with a
// GPU here.
#include <cstdint>
#include <cstring>

#include "kernels/exec/block/block.h"
#include "kernels/exec/block/block_state.h"
#include "kernels/exec/block/warp.h"
#include "kernels/exec/ops/lane_memory.h"
#include "kernels/exec/program/inst.h"
#include "kernels/exec/program/warpgroup.h"

// Last, and apart: changes the target of everything below.
#include "kernels/exec/program/isa.h"

namespace sluice::exec::detail {
namespace {

#include "kernels/exec/ops/lanes.inc"

#include "kernels/exec/ops/half.inc"

#include "kernels/exec/ops/tensor.inc"

constexpr u32 kChunkBytes = 16;
constexpr u32 kKeepFp8 = ~((1u << (kFraction - 13)) - 1), kKeepFp8Sum = ~((1u << (23 - 13)) - 1);

// Calls f(across, along, bits) with each element of a part of a matrix in shared memory: `count`
// places across from `first` on (rows of A, columns of B), all of K along. False: the fault is set.
template <class F>
bool each_element(Warp& w, const MatrixDescriptor& matrix, bool mn_major, u32 bits, u32 first,
                  u32 count, u32 depth, F f) {
  const u32 lane = static_cast<u32>(__builtin_ctz(w.exec));
  const u32 per = kChunkBytes * 8 / bits;
  // Of an MN-major matrix chunks go across: the first may begin before `first`.
  const u32 rows = mn_major ? depth : count;
  const u32 chunks = mn_major ? (count + per - 1) / per : depth / per;
  for (u32 row = 0; row < rows; ++row) {
    for (u32 c = 0; c < chunks; ++c) {
      const u32 at = mn_major ? matrix.chunk_address(true, row, first / per + c)
                              : matrix.chunk_address(false, first + row, c);
      const u64 host =
          resolve_lane_access(w, {kSpaceShared, kChunkBytes, kChunkBytes, false}, at, lane);
      if (host == 0) return false;
      u8 bytes[kChunkBytes];
      std::memcpy(bytes, reinterpret_cast<const void*>(host), kChunkBytes);
      for (u32 k = 0; k < per; ++k) {
        const u32 bit = k * bits;
        u32 value = 0;
        std::memcpy(&value, bytes + bit / 8, bits >= 8 ? bits / 8 : 1);
        if (bits < 8) value = value >> bit % 8 & ((1u << bits) - 1);
        if (mn_major)
          f(c * per + k, row, value);
        else
          f(row, c * per + k, value);
      }
    }
  }
  return true;
}

struct Operands {
  const u32* d;  // registers, in Code::aux
  const u32* a;
  MatrixDescriptor a_matrix, b_matrix;
  const Columns* columns;  // of a sparse A; otherwise null
};

// Calls use(row, k, bits) with the warp's elements of A.
template <class F>
bool each_of_a(Warp& w, const WarpgroupShape& s, const Operands& from, F use) {
  const u32 bits = element_bits(s.a);
  const auto f = [&](u32 row, u32 k, u32 value) {
    use(row, from.columns != nullptr ? from.columns->of[row][k] : k, value);
  };
  if (!s.a_in_registers)
    return each_element(w, from.a_matrix, s.m_major, bits, w.index % 4 * kWarpRows, kWarpRows,
                        s.a_depth(), f);
  const u32 per = 32 / bits;
  for (u32 lane = 0; lane < 32; ++lane) {
    for (u32 reg = 0; reg < 4; ++reg) {
      const u32 word = lane_u32(w, from.a[reg], lane);
      const u32 row = (lane >> 2) + 8 * (reg & 1);
      for (u32 part = 0; part < per; ++part) {
        const u32 value = bits == 32 ? word : word >> (part * bits) & ((1u << bits) - 1);
        f(row, (lane & 3) * per + part + 4 * per * (reg >> 1), value);
      }
    }
  }
  return true;
}

// The place of an element of D's fragment.
struct Place {
  u32 row, column;
};
Place place_of(u32 lane, u32 slot) {
  return {(lane >> 2) + 8 * (slot >> 1 & 1), 8 * (slot >> 2) + (lane & 3) * 2 + (slot & 1)};
}

// Reads D's registers as f32 (or s32) into sums; zeros where the instruction does not add to D.
void read_sums(Warp& w, const WarpgroupShape& s, const u32* d, u32 adds, u32* sums) {
  for (u32 lane = 0; lane < 32; ++lane) {
    for (u32 slot = 0; slot < s.n / 2; ++slot) {
      const Place at = place_of(lane, slot);
      u32 value = 0;
      if ((adds >> lane & 1) != 0) {
        if (s.d == Element::kF16) {
          const u32 word = lane_u32(w, d[slot / 2], lane);
          value = bit_cast_to<u32>(to_f32(f16{static_cast<u16>(word >> (slot & 1) * 16)}));
        } else {
          value = lane_u32(w, d[slot], lane);
        }
      }
      sums[at.row * kWarpgroupColumns + at.column] = value;
    }
  }
}
void write_sums(Warp& w, const WarpgroupShape& s, const u32* d, bool sums_of_halves,
                const u32* sums) {
  const auto half = [&](u32 lane, u32 slot) {
    const Place at = place_of(lane, slot);
    const u32 bits = to_f16(bit_cast_to<f32>(sums[at.row * kWarpgroupColumns + at.column])).bits;
    return bits == 0x8000 && sums_of_halves ? 0u : bits;
  };
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const u32 lane = static_cast<u32>(__builtin_ctz(m));
    if (s.d == Element::kF16) {
      for (u32 reg = 0; reg < s.n / 4; ++reg)
        set_lane_u32(w, d[reg], lane, half(lane, 2 * reg) | half(lane, 2 * reg + 1) << 16);
      continue;
    }
    for (u32 slot = 0; slot < s.n / 2; ++slot) {
      const Place at = place_of(lane, slot);
      set_lane_u32(w, d[slot], lane, sums[at.row * kWarpgroupColumns + at.column]);
    }
  }
}

bool sum_floats(Warp& w, const WarpgroupShape& s, const Operands& from, u32* sums) {
  static thread_local Floats f;
  const bool fp8 = s.a == Element::kE4m3 || s.a == Element::kE5m2;
  const bool halves = s.d == Element::kF16 && !fp8;
  std::memset(f.special_row, 0, sizeof f.special_row);
  if (!each_of_a(w, s, from, [&](u32 row, u32 k, u32 bits) {
        const Number n = decode(s.a, bits);
        f.a[row][k] = s.negate_a ? -n.significand : n.significand;
        f.a_exponent[row][k] = n.exponent;
        f.a_kind[row][k] = n.kind;
        if (n.kind != kFinite) f.special_row[row] = true;
      }))
    return false;
  u32 depth[kMaxDepth];
  for (u32 k = 0; k < s.depth(); ++k) depth[k] = k;
  for (u32 first = 0; first < s.n; first += kMaxColumns) {
    const u32 columns = s.n - first < kMaxColumns ? s.n - first : kMaxColumns;
    std::memset(f.special_column, 0, sizeof f.special_column);
    if (!each_element(w, from.b_matrix, s.n_major, element_bits(s.b), first, columns, s.depth(),
                      [&](u32 column, u32 k, u32 bits) {
                        const Number n = decode(s.b, bits);
                        f.b[k][column] = s.negate_b ? -n.significand : n.significand;
                        f.b_exponent[k][column] = n.exponent;
                        f.b_kind[k][column] = n.kind;
                        if (n.kind != kFinite) f.special_column[column] = true;
                      }))
      return false;
    for (u32 row = 0; row < kWarpRows; ++row) {
      u32* d = sums + row * kWarpgroupColumns + first;
      multiply_step(f, row, from.columns != nullptr ? from.columns->of[row] : depth, s.a_depth(),
                    columns, halves, fp8 ? kKeepFp8 : kKeepAll, d);
      for (u32 j = 0; j < columns && fp8; ++j)
        if ((d[j] & kInfinityF32) != kInfinityF32) d[j] &= kKeepFp8Sum;
    }
  }
  return true;
}

bool sum_integers(Warp& w, const WarpgroupShape& s, const Operands& from, u32* sums) {
  static thread_local s16 a[kWarpRows][kMaxBits], b[kMaxBits][kMaxColumns];
  const auto value = [](Element e, u32 bits) {
    return e == Element::kS8 ? static_cast<s16>(static_cast<s8>(bits)) : static_cast<s16>(bits);
  };
  if (s.sparse) std::memset(a, 0, sizeof a);
  if (!each_of_a(w, s, from, [&](u32 row, u32 k, u32 bits) { a[row][k] = value(s.a, bits); }))
    return false;
  for (u32 first = 0; first < s.n; first += kMaxColumns) {
    const u32 columns = s.n - first < kMaxColumns ? s.n - first : kMaxColumns;
    if (!each_element(w, from.b_matrix, false, element_bits(s.b), first, columns, s.depth(),
                      [&](u32 column, u32 k, u32 bits) { b[k][column] = value(s.b, bits); }))
      return false;
    for (u32 row = 0; row < kWarpRows; ++row) {
      s32 sum[kMaxColumns] = {};
      for (u32 k = 0; k < s.depth(); ++k)
        for (u32 j = 0; j < columns; ++j) sum[j] += a[row][k] * b[k][j];
      for (u32 j = 0; j < columns; ++j) {
        u32& d = sums[row * kWarpgroupColumns + first + j];
        s64 r = static_cast<s64>(static_cast<s32>(d)) + sum[j];
        if (s.saturate) r = r > 0x7fffffff ? 0x7fffffff : r < -0x7fffffff - 1 ? -0x7fffffff - 1 : r;
        d = static_cast<u32>(r);
      }
    }
  }
  return true;
}

// a, b = descriptors (a: none where A is in registers), c = predicate: add to D. aux: the member
// mask (all lanes), D's registers, those of D as a source, A's, of a sparse A its metadata.
Flow multiply_warpgroup(Warp& w, const Inst& in) {
  if (w.exec != w.live) return Flow::kControl;
  static thread_local u32 sums[kWarpRows * kWarpgroupColumns];
  const WarpgroupShape s = WarpgroupShape::unpack(in.imm);
  const u32* aux = w.block->aux + in.aux + 1;
  const u32 lane = static_cast<u32>(__builtin_ctz(w.exec));
  Operands from{aux, aux + 2 * s.d_registers(), {}, {}, nullptr};
  static thread_local Columns columns;
  if (s.sparse) {
    const MatrixShape of_warp{.m = kWarpRows,
                              .k = static_cast<u16>(s.depth()),
                              .a = s.a,
                              .sparse = true,
                              .selector = s.selector};
    find_columns(w, of_warp, from.a[s.a_in_registers ? 4 : 0], columns);
    from.columns = &columns;
  }
  if (!s.a_in_registers) from.a_matrix = MatrixDescriptor::unpack(lane_u64(w, in.a, lane));
  from.b_matrix = MatrixDescriptor::unpack(lane_u64(w, in.b, lane));
  read_sums(w, s, from.d, w.pred(in.c), sums);
  const bool done =
      s.d == Element::kS32 ? sum_integers(w, s, from, sums) : sum_floats(w, s, from, sums);
  if (!done) return Flow::kFault;
  write_sums(w, s, from.d, s.a == Element::kF16, sums);
  return Flow::kNext;
}

}  // namespace

#define SLUICE_EXEC_STRIP(...) __VA_ARGS__
#define SLUICE_EXEC_FILL(name, handler) \
  table[static_cast<uint16_t>(Op::k_##name)] = &SLUICE_EXEC_STRIP handler;
void SLUICE_EXEC_NAME(fill_warpgroup)(Handler* table) {
  SLUICE_EXEC_WARPGROUP_OPS(SLUICE_EXEC_FILL)
}

}  // namespace sluice::exec::detail
#include "kernels/exec/program/isa_end.h"
