// SPDX-License-Identifier: Apache-2.0
// What rare.cc and video.cc of decode/instructions hand to ops_rare.cc, by Inst::imm and Code::aux.
// Internal to kernels/exec.
#pragma once

#include <cstdint>

namespace sluice::exec::detail {

enum class VideoOp : uint32_t {
  kAdd,
  kSub,
  kAbsDiff,
  kMin,
  kMax,
  kAverage,
  kSet,
  kShl,
  kShr,
};
// Which part of a word: kSelectByte + n, kSelectHalf + n.
inline constexpr uint32_t kSelectAll = 0, kSelectByte = 1, kSelectHalf = 5;
inline constexpr uint32_t kSecondNone = 0, kSecondAdd = 1, kSecondMin = 2, kSecondMax = 3;
inline constexpr uint32_t kMadPlusOne = 1, kMadNegateProduct = 2, kMadNegateC = 4, kMadShift7 = 8,
                          kMadShift15 = 16;
struct VideoForm {
  uint32_t op = 0;  // VideoOp
  uint32_t d_signed = 0, a_signed = 0, b_signed = 0, saturate = 0, second = kSecondNone;
  uint32_t d_select = 0, a_select = 0, b_select = 0;  // SIMD: mask, and a nibble per element
  uint32_t how = 0;       // comparison eq ne lt le gt ge; shifts: 1 wraps; vmad: kMad...
  uint32_t elements = 1;  // 2 or 4: SIMD
};

inline constexpr uint32_t kElementF32 = 0, kElementF16 = 1, kElementBf16 = 2;
struct AtomVectorForm {
  uint32_t op = 0;  // add, min, max
  uint32_t element = kElementF32;
  uint32_t pairs = 0;  // each element is two halves
  uint32_t count = 0;
  uint32_t returns = 0;
};

}  // namespace sluice::exec::detail
