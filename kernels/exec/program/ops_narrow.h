// SPDX-License-Identifier: Apache-2.0
// Narrow formats with their rarer modifiers: X(name, (handler)); see plain_ops.h.
#pragma once

#include <cstdint>

#define SLUICE_EXEC_NARROW_OPS(X) \
  X(halfany, (half_operation))    \
  X(cvtnarrow, (convert_narrow)) X(cvtpack, (convert_pack)) X(pair16, (pair_operation))

namespace sluice::exec::detail {

// halfany: imm = operation | kHalfBf16 | kHalfPair; mod: ftz, sat, relu, NaN, xorsign.
enum class HalfOperation : uint8_t { kAdd, kSub, kMul, kFma, kMin, kMax, kNeg, kAbs, kFlush };
inline constexpr int64_t kHalfBf16 = 16, kHalfPair = 32;

// cvtnarrow: imm = destination | source << 4 | kNarrowPair; mod: rounding, relu, sat (.satfinite).
// A pair of f32 comes in a (upper half of the result) and b, any other pair in a.
enum class NarrowFormat : uint8_t { kF16, kBf16, kTf32, kE4m3, kE5m2, kF32 };
inline constexpr int64_t kNarrowPair = 256;

// pair16: imm = operation; b32 for the relu of one 32-bit number.
enum class PairOperation : uint8_t { kAdd, kMinU, kMaxU, kMinS, kMaxS, kMinS32, kMaxS32 };

}  // namespace sluice::exec::detail
