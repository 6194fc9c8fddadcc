// SPDX-License-Identifier: Apache-2.0
// Matrices between memory and registers: ldmatrix, stmatrix, movmatrix, wmma.load and wmma.store;
// see ops_tensor.h for the list.
#include <cstdint>
#include <cstring>

#include "kernels/exec/block/block.h"
#include "kernels/exec/block/block_state.h"
#include "kernels/exec/block/warp.h"
#include "kernels/exec/ops/lane_memory.h"
#include "kernels/exec/program/inst.h"
#include "kernels/exec/program/plain_ops.h"
#include "kernels/exec/program/tensor_shape.h"

namespace sluice::exec::detail {
namespace {

// Where row `lane` of the matrices lies, whose address is that lane's; 0: the fault is set.
uint64_t matrix_row(Warp& w, const Inst& in, const uint32_t* aux, uint32_t lane, bool write) {
  const uint64_t at = lane_address(w, in.a, (in.mod & kModAddress32) != 0, lane) +
                      static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(aux[1])));
  return resolve_lane_access(w, {uint32_t{in.mod} & kSpaceMask, 16, 16, write}, at, lane);
}

// ldmatrix, stmatrix: imm = matrices, plus 8 if transposed; a = address, whose offset is aux[1].
// Row r of matrix m is 16 bytes at lane 8m + r's address.
Flow load_matrices(Warp& w, const Inst& in) {
  if (w.exec != w.live) return Flow::kControl;
  const uint32_t matrices = in.imm & 7;
  const bool transposed = (in.imm & 8) != 0;
  const uint32_t* aux = w.block->aux + in.aux;
  uint16_t tile[4][8][8] = {};
  for (uint32_t m = 0; m < matrices; ++m) {
    for (uint32_t r = 0; r < 8; ++r) {
      const uint32_t lane = 8 * m + r;
      if ((w.live >> lane & 1) == 0) continue;
      const uint64_t host = matrix_row(w, in, aux, lane, false);
      if (host == 0) return Flow::kFault;
      std::memcpy(tile[m][r], reinterpret_cast<const void*>(host), 16);
    }
  }
  for (uint32_t k = w.exec; k != 0; k &= k - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(k));
    const uint32_t row = lane >> 2, column = (lane & 3) * 2;
    for (uint32_t m = 0; m < matrices; ++m) {
      const uint32_t low = transposed ? tile[m][column][row] : tile[m][row][column];
      const uint32_t high = transposed ? tile[m][column + 1][row] : tile[m][row][column + 1];
      set_lane_u32(w, aux[2 + m], lane, high << 16 | low);
    }
  }
  return Flow::kNext;
}
Flow store_matrices(Warp& w, const Inst& in) {
  if (w.exec != w.live) return Flow::kControl;
  const uint32_t matrices = in.imm & 7;
  const bool transposed = (in.imm & 8) != 0;
  const uint32_t* aux = w.block->aux + in.aux;
  uint16_t tile[4][8][8];
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t row = lane >> 2, column = (lane & 3) * 2;
    for (uint32_t m = 0; m < matrices; ++m) {
      const uint32_t word = lane_u32(w, aux[2 + m], lane);
      (transposed ? tile[m][column][row] : tile[m][row][column]) = static_cast<uint16_t>(word);
      (transposed ? tile[m][column + 1][row] : tile[m][row][column + 1]) =
          static_cast<uint16_t>(word >> 16);
    }
  }
  for (uint32_t m = 0; m < matrices; ++m) {
    for (uint32_t r = 0; r < 8; ++r) {
      const uint32_t lane = 8 * m + r;
      if ((w.live >> lane & 1) == 0) continue;
      const uint64_t host = matrix_row(w, in, aux, lane, true);
      if (host == 0) return Flow::kFault;
      std::memcpy(reinterpret_cast<void*>(host), tile[m][r], 16);
    }
  }
  return Flow::kNext;
}
Flow transpose_matrix(Warp& w, const Inst& in) {
  if (w.exec != w.live) return Flow::kControl;
  uint16_t tile[8][8];
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t word = lane_u32(w, in.b, lane);
    tile[lane >> 2][(lane & 3) * 2] = static_cast<uint16_t>(word);
    tile[lane >> 2][(lane & 3) * 2 + 1] = static_cast<uint16_t>(word >> 16);
  }
  const uint32_t* aux = w.block->aux + in.aux;
  for (uint32_t k = w.exec; k != 0; k &= k - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(k));
    const uint32_t row = lane >> 2, column = (lane & 3) * 2;
    set_lane_u32(w, aux[1], lane, uint32_t{tile[column + 1][row]} << 16 | tile[column][row]);
  }
  return Flow::kNext;
}

// wmma.load and .store: imm as mma's, with the matrix's element in MatrixShape::a. a = address, b =
// stride in elements, aux[1] = offset, aux[2] = role, plus 4 if column-major.
struct FragmentAccess {
  MatrixShape shape;
  Fragment fragment;
  Role role;
  bool columns;
  uint32_t bytes;  // of what is accessed at once: an element, or a register of less than bytes
};
FragmentAccess fragment_access(const Inst& in, const uint32_t* aux) {
  FragmentAccess x;
  x.shape = MatrixShape::unpack(in.imm);
  x.role = static_cast<Role>(aux[2] & 3);
  x.columns = (aux[2] & 4) != 0;
  x.fragment = fragment_of(x.shape, x.role, x.shape.a);
  const uint32_t bits = element_bits(x.shape.a);
  x.bytes = bits < 8 ? 4 : bits / 8;
  return x;
}
uint64_t element_address(const Warp& w, const Inst& in, const uint32_t* aux,
                         const FragmentAccess& x, uint32_t lane, uint32_t slot) {
  const Spot at = spot_of(x.shape, x.fragment, x.role, lane, slot);
  const uint64_t stride = in.b == kNoOperand ? (x.columns ? x.fragment.rows : x.fragment.columns)
                                             : static_cast<uint64_t>(static_cast<int64_t>(
                                                   static_cast<int32_t>(lane_u32(w, in.b, lane))));
  const uint64_t index = x.columns ? at.column * stride + at.row : at.row * stride + at.column;
  return lane_address(w, in.a, (in.mod & kModAddress32) != 0, lane) +
         static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(aux[1]))) +
         index * element_bits(x.shape.a) / 8;
}
Flow load_fragment(Warp& w, const Inst& in) {
  if (w.exec != w.live) return Flow::kControl;
  const uint32_t* aux = w.block->aux + in.aux;
  const FragmentAccess x = fragment_access(in, aux);
  const LaneAccess access{uint32_t{in.mod} & kSpaceMask, x.bytes, x.bytes, false};
  for (uint32_t m = w.exec; m != 0; m &= m - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(m));
    uint64_t words[16] = {};
    const uint32_t step = element_bits(x.shape.a) < 8 ? x.fragment.per_register : 1;
    for (uint32_t slot = 0; slot < x.fragment.slots(); slot += step) {
      const uint64_t host =
          resolve_lane_access(w, access, element_address(w, in, aux, x, lane, slot), lane);
      if (host == 0) return Flow::kFault;
      uint64_t v = 0;
      std::memcpy(&v, reinterpret_cast<const void*>(host), x.bytes);
      words[slot / x.fragment.per_register] |= v << (slot % x.fragment.per_register * x.bytes * 8);
    }
    // The address registers may be among the results.
    for (uint32_t reg = 0; reg < x.fragment.registers; ++reg) {
      if (x.bytes == 8)
        set_lane_u64(w, aux[3 + reg], lane, words[reg]);
      else
        set_lane_u32(w, aux[3 + reg], lane, static_cast<uint32_t>(words[reg]));
    }
  }
  return Flow::kNext;
}
Flow store_fragment(Warp& w, const Inst& in) {
  if (w.exec != w.live) return Flow::kControl;
  const uint32_t* aux = w.block->aux + in.aux;
  const FragmentAccess x = fragment_access(in, aux);
  const LaneAccess access{uint32_t{in.mod} & kSpaceMask, x.bytes, x.bytes, true};
  for (uint32_t m = w.exec; m != 0; m &= m - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(m));
    for (uint32_t slot = 0; slot < x.fragment.slots(); ++slot) {
      const uint64_t host =
          resolve_lane_access(w, access, element_address(w, in, aux, x, lane, slot), lane);
      if (host == 0) return Flow::kFault;
      const uint32_t per = x.fragment.per_register;
      const uint64_t v = x.bytes == 8
                             ? lane_u64(w, aux[3 + slot], lane)
                             : lane_u32(w, aux[3 + slot / per], lane) >> (slot % per * x.bytes * 8);
      std::memcpy(reinterpret_cast<void*>(host), &v, x.bytes);
    }
  }
  return Flow::kNext;
}

}  // namespace

void fill_matrix_move(Handler* table) { SLUICE_EXEC_MATRIX_MOVE_OPS(SLUICE_EXEC_FILL_PLAIN) }

}  // namespace sluice::exec::detail
