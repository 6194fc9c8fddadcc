// SPDX-License-Identifier: Apache-2.0
// Matrix handlers; see ops_tensor.h for the list. Compiled once per instruction set
// (kernels/exec/program/isa.h).
//
// How floating-point sums are rounded is in tensor.inc. wmma's tf32 adds 4 products at a time. f64
// is a chain of fused multiply-adds in the order of k. fp8 on this chip: f16 products, 16 at a time
// (columns k with k mod 4 < 2, then the others) beginning at zero, and one f32 addition of C at the
// end. Of mma.sp of fp8 the same is assumed of the elements that are there, of fp8 with f16 sums
// that they are rounded once more, and of mma.m8n8k4 of f16 one addition as of larger shapes (none
// of these was compared with a GPU).
#include <cstdint>
#include <cstring>

#include "kernels/exec/block/block.h"
#include "kernels/exec/block/block_state.h"
#include "kernels/exec/block/warp.h"
#include "kernels/exec/ops/lane_memory.h"
#include "kernels/exec/program/inst.h"
#include "kernels/exec/program/tensor_shape.h"

// Last, and apart: changes the target of everything below.
#include "kernels/exec/program/isa.h"

namespace sluice::exec::detail {
namespace {

#include "kernels/exec/ops/lanes.inc"

#include "kernels/exec/ops/half.inc"

#include "kernels/exec/ops/tensor.inc"

struct Registers {
  const u32* aux;
  u32 d, a, b, c, metadata;  // where the lists begin in aux
};

// The element in `slot` of a lane's fragment, as it lies there.
u32 element_at(const Warp& w, const u32* registers, u32 bits, u32 lane, u32 slot) {
  if (bits >= 32) return lane_u32(w, registers[slot], lane);
  const u32 per = 32 / bits;
  const u32 word = lane_u32(w, registers[slot / per], lane);
  return word >> (slot % per * bits) & ((1u << bits) - 1);
}

using Sums = u32[kMaxRows][kMaxColumns];

// A, B and C out of the lanes' registers.
void load_floats(const Warp& w, const MatrixShape& s, const Registers& regs, const Columns& sparse,
                 Floats& f, Sums& c) {
  std::memset(f.special_row, 0, sizeof f.special_row);
  std::memset(f.special_column, 0, sizeof f.special_column);
  const Fragment fa = fragment_of(s, Role::kA, s.a), fb = fragment_of(s, Role::kB, s.b);
  const Fragment fc = fragment_of(s, Role::kC, s.c);
  for (u32 lane = 0; lane < 32; ++lane) {
    for (u32 slot = 0; slot < fa.slots(); ++slot) {
      const Spot at = spot_of(s, fa, Role::kA, lane, slot);
      const Number n = decode(s.a, element_at(w, regs.aux + regs.a, element_bits(s.a), lane, slot));
      const u32 column = s.sparse ? sparse.of[at.row][at.column] : at.column;
      f.a[at.row][column] = n.significand;
      f.a_exponent[at.row][column] = n.exponent;
      f.a_kind[at.row][column] = n.kind;
      if (n.kind != kFinite) f.special_row[at.row] = true;
    }
    for (u32 slot = 0; slot < fb.slots(); ++slot) {
      const Spot at = spot_of(s, fb, Role::kB, lane, slot);
      const Number n = decode(s.b, element_at(w, regs.aux + regs.b, element_bits(s.b), lane, slot));
      f.b[at.row][at.column] = n.significand;
      f.b_exponent[at.row][at.column] = n.exponent;
      f.b_kind[at.row][at.column] = n.kind;
      if (n.kind != kFinite) f.special_column[at.column] = true;
    }
    for (u32 slot = 0; slot < fc.slots(); ++slot) {
      const Spot at = spot_of(s, fc, Role::kC, lane, slot);
      const u32 v = element_at(w, regs.aux + regs.c, element_bits(s.c), lane, slot);
      c[at.row][at.column] =
          s.c == Element::kF16 ? bit_cast_to<u32>(to_f32(f16{static_cast<u16>(v)})) : v;
    }
  }
}

// D out of the sums, into the lanes' registers.
void store_floats(Warp& w, const MatrixShape& s, const Registers& regs, bool halves,
                  const Sums& sums) {
  const Fragment fd = fragment_of(s, Role::kC, s.d);
  for (u32 lane = 0; lane < 32; ++lane) {
    for (u32 reg = 0; reg < fd.registers; ++reg) {
      u32 word = 0;
      for (u32 part = 0; part < fd.per_register; ++part) {
        const Spot at = spot_of(s, fd, Role::kC, lane, reg * fd.per_register + part);
        const u32 v = sums[at.row][at.column];
        const u32 half = to_f16(bit_cast_to<f32>(v)).bits;
        word |= s.d != Element::kF16 ? v : half == 0x8000 && halves ? 0 : half << (16 * part);
      }
      if ((w.exec >> lane & 1) != 0) set_lane_u32(w, regs.aux[regs.d + reg], lane, word);
    }
  }
}

void multiply_floats(Warp& w, const MatrixShape& s, const Registers& regs) {
  static thread_local Floats f;
  static thread_local Columns sparse;
  if (s.sparse) find_columns(w, s, regs.aux[regs.metadata], sparse);
  alignas(64) Sums c;
  load_floats(w, s, regs, sparse, f, c);
  const bool fp8 = s.a == Element::kE4m3 || s.a == Element::kE5m2;
  const bool halves = s.c == Element::kF16 && s.d == Element::kF16 && !fp8;
  if (s.of_quads()) {
    for (u32 row = 0; row < s.kQuads * s.m; ++row) {
      const u32 first = row / s.m * s.k, its_depth[] = {first, first + 1, first + 2, first + 3};
      multiply_step(f, row, its_depth, s.k, s.n, halves, kKeepAll, c[row]);
    }
    return store_floats(w, s, regs, halves, c);
  }
  u32 depth[kMaxDepth];
  const u32 products = s.sparse ? sparse.count : s.k;
  const bool two_steps = fp8 && s.k > 16;
  for (u32 k = 0; k < products; ++k)
    depth[k] = two_steps ? k / 16 * 2 + k % 16 / 2 * 4 + (k & 1) : k;
  for (u32 row = 0; row < s.m; ++row) {
    u32* d = c[row];
    u32 chosen[kMaxDepth];
    for (u32 k = 0; k < products; ++k) chosen[k] = s.sparse ? sparse.of[row][depth[k]] : depth[k];
    if (s.sparse && !fp8) {
      multiply_step(f, row, sparse.of[row], sparse.count, s.n, halves, kKeepAll, d);
      continue;
    }
    if (!fp8) {
      const u32 step = s.wmma && s.a == Element::kTf32 ? 4 : s.k;
      for (u32 k = 0; k < s.k; k += step)
        multiply_step(f, row, depth + k, step, s.n, halves, kKeepAll, d);
      continue;
    }
    alignas(64) u32 sum[kMaxColumns] = {};
    for (u32 k = 0; k < products; k += 16)
      multiply_step(f, row, chosen + k, 16, s.n, false, kKeepAll, sum);
    for (u32 j = 0; j < s.n; ++j) {
      const f32 r = bit_cast_to<f32>(sum[j]) + bit_cast_to<f32>(d[j]);
      d[j] = r != r ? kNanF32 : bit_cast_to<u32>(r);
    }
  }
  store_floats(w, s, regs, halves, c);
}

s16 integer_of(Element e, u32 bits) {
  return e == Element::kS8   ? static_cast<s16>(static_cast<s8>(bits))
         : e == Element::kS4 ? static_cast<s16>(static_cast<s16>(bits << 12) >> 12)
                             : static_cast<s16>(bits);
}

void multiply_integers(Warp& w, const MatrixShape& s, const Registers& regs) {
  static thread_local s16 a[kMaxRows][kMaxBits], b[kMaxBits][kMaxColumns];
  static thread_local Columns sparse;
  if (s.sparse) {
    find_columns(w, s, regs.aux[regs.metadata], sparse);
    std::memset(a, 0, sizeof a);
  }
  s32 c[kMaxRows][kMaxColumns];
  const Fragment fa = fragment_of(s, Role::kA, s.a), fb = fragment_of(s, Role::kB, s.b);
  const Fragment fc = fragment_of(s, Role::kC, s.c);
  for (u32 lane = 0; lane < 32; ++lane) {
    for (u32 slot = 0; slot < fa.slots(); ++slot) {
      const Spot at = spot_of(s, fa, Role::kA, lane, slot);
      a[at.row][s.sparse ? sparse.of[at.row][at.column] : at.column] =
          integer_of(s.a, element_at(w, regs.aux + regs.a, element_bits(s.a), lane, slot));
    }
    for (u32 slot = 0; slot < fb.slots(); ++slot) {
      const Spot at = spot_of(s, fb, Role::kB, lane, slot);
      b[at.row][at.column] =
          integer_of(s.b, element_at(w, regs.aux + regs.b, element_bits(s.b), lane, slot));
    }
    for (u32 slot = 0; slot < fc.slots(); ++slot) {
      const Spot at = spot_of(s, fc, Role::kC, lane, slot);
      c[at.row][at.column] = static_cast<s32>(lane_u32(w, regs.aux[regs.c + slot], lane));
    }
  }
  const bool exclusive = s.a == Element::kB1 && !s.bit_and;
  for (u32 row = 0; row < s.m; ++row) {
    s32 sum[kMaxColumns] = {};  // at most 256 * 255 * 255: no overflow
    for (u32 k = 0; k < s.k; ++k) {
      const s32 x = a[row][k];
      if (exclusive) {
        for (u32 j = 0; j < s.n; ++j) sum[j] += x ^ b[k][j];
      } else {
        for (u32 j = 0; j < s.n; ++j) sum[j] += x * b[k][j];
      }
    }
    for (u32 j = 0; j < s.n; ++j) {
      s64 r = static_cast<s64>(c[row][j]) + sum[j];
      if (s.saturate) r = r > 0x7fffffff ? 0x7fffffff : r < -0x7fffffff - 1 ? -0x7fffffff - 1 : r;
      c[row][j] = static_cast<s32>(static_cast<u32>(r));
    }
  }
  for (u32 lane = 0; lane < 32; ++lane) {
    if ((w.exec >> lane & 1) == 0) continue;
    for (u32 slot = 0; slot < fc.slots(); ++slot) {
      const Spot at = spot_of(s, fc, Role::kC, lane, slot);
      set_lane_u32(w, regs.aux[regs.d + slot], lane, static_cast<u32>(c[at.row][at.column]));
    }
  }
}

// NaN operands pass as in fma.f64 (ops_float.cc).
f64 fused(f64 a, f64 b, f64 c) {
  const f64 nan = b != b ? b : c != c ? c : a;
  return nan != nan ? bit_cast_to<f64>(bit_cast_to<u64>(nan) | 0x0008000000000000ull)
                    : __builtin_fma(a, b, c);
}

void multiply_doubles(Warp& w, const MatrixShape& s, const Registers& regs) {
  f64 a[16][16], b[16][8], c[16][8];
  const Fragment fa = fragment_of(s, Role::kA, s.a), fb = fragment_of(s, Role::kB, s.b);
  const Fragment fc = fragment_of(s, Role::kC, s.c);
  const auto read = [&](u32 reg, u32 lane) { return bit_cast_to<f64>(lane_u64(w, reg, lane)); };
  for (u32 lane = 0; lane < 32; ++lane) {
    for (u32 slot = 0; slot < fa.slots(); ++slot) {
      const Spot at = spot_of(s, fa, Role::kA, lane, slot);
      a[at.row][at.column] = read(regs.aux[regs.a + slot], lane);
    }
    for (u32 slot = 0; slot < fb.slots(); ++slot) {
      const Spot at = spot_of(s, fb, Role::kB, lane, slot);
      b[at.row][at.column] = read(regs.aux[regs.b + slot], lane);
    }
    for (u32 slot = 0; slot < fc.slots(); ++slot) {
      const Spot at = spot_of(s, fc, Role::kC, lane, slot);
      c[at.row][at.column] = read(regs.aux[regs.c + slot], lane);
    }
  }
  for (u32 row = 0; row < s.m; ++row)
    for (u32 j = 0; j < s.n; ++j)
      for (u32 k = 0; k < s.k; ++k) c[row][j] = fused(a[row][k], b[k][j], c[row][j]);
  for (u32 lane = 0; lane < 32; ++lane) {
    if ((w.exec >> lane & 1) == 0) continue;
    for (u32 slot = 0; slot < fc.slots(); ++slot) {
      const Spot at = spot_of(s, fc, Role::kC, lane, slot);
      set_lane_u64(w, regs.aux[regs.d + slot], lane, bit_cast_to<u64>(c[at.row][at.column]));
    }
  }
}

Flow multiply(Warp& w, const Inst& in) {
  if (w.exec != w.live) return Flow::kControl;
  const MatrixShape s = MatrixShape::unpack(in.imm);
  Registers regs{w.block->aux + in.aux, 1, 0, 0, 0, 0};
  regs.a = regs.d + fragment_of(s, Role::kC, s.d).registers;
  regs.b = regs.a + fragment_of(s, Role::kA, s.a).registers;
  regs.c = regs.b + fragment_of(s, Role::kB, s.b).registers;
  regs.metadata = regs.c + fragment_of(s, Role::kC, s.c).registers;
  if (s.a == Element::kF64)
    multiply_doubles(w, s, regs);
  else if (s.d == Element::kS32)
    multiply_integers(w, s, regs);
  else
    multiply_floats(w, s, regs);
  return Flow::kNext;
}

}  // namespace

#define SLUICE_EXEC_STRIP(...) __VA_ARGS__
#define SLUICE_EXEC_FILL(name, handler) \
  table[static_cast<uint16_t>(Op::k_##name)] = &SLUICE_EXEC_STRIP handler;
void SLUICE_EXEC_NAME(fill_tensor)(Handler* table) { SLUICE_EXEC_TENSOR_OPS(SLUICE_EXEC_FILL) }

}  // namespace sluice::exec::detail
#include "kernels/exec/program/isa_end.h"
