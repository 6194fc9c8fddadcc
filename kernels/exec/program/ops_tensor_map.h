// SPDX-License-Identifier: Apache-2.0
// Copies by tensor maps: X(name, (handler)); see plain_ops.h.
#pragma once

#include <cstdint>

#define SLUICE_EXEC_TENSOR_MAP_OPS(X) \
  X(tensorload, (load_box)) X(tensorstore, (store_box)) X(tensormap, (replace_field))

namespace sluice::exec::detail {

// Inst::imm of tensorload and tensorstore.
struct TensorCopy {
  uint32_t rank = 0;
  bool im2col = false;
  bool narrow_shared = false, narrow_barrier = false;  // address registers of 32 bits
  uint32_t reduction = 0;                              // BulkReduction
  uint32_t space = 0;                                  // load: the destination's (kSpace...)

  int64_t pack() const {
    return static_cast<int64_t>(rank | (im2col ? 8u : 0u) | (narrow_shared ? 16u : 0u) |
                                (narrow_barrier ? 32u : 0u) | reduction << 8 | space << 12);
  }
  static TensorCopy unpack(int64_t imm) {
    const auto v = static_cast<uint32_t>(imm);
    return {v & 7, (v & 8) != 0, (v & 16) != 0, (v & 32) != 0, v >> 8 & 15, v >> 12 & 15};
  }
};

// Inst::imm of tensormap: the field, and the dimension << 4 where it has one.
enum class TensorField : uint8_t {
  kAddress,
  kRank,
  kBox,
  kSize,
  kStride,
  kStep,
  kElement,
  kInterleave,
  kSwizzle,
  kFill,
};

}  // namespace sluice::exec::detail
