// SPDX-License-Identifier: Apache-2.0
// Division of a 32-bit number by a constant with one multiplication, as rewritten kernels turn a
// ticket into block coordinates (abi/preempt.h: magic_x, magic_y and their shifts):
//   t = mulhi(magic, n); q = (t + ((n - t) >> shift1)) >> shift2
// T. Granlund, P. Montgomery, "Division by Invariant Integers using Multiplication", PLDI 1994,
// figure 4.1. Right for every 32-bit n. Pure; any thread. For whoever launches such a kernel.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "mediator/base/check.h"

namespace sluice {

struct MagicDivisor {
  uint32_t magic;
  uint8_t shift1, shift2;
};

inline MagicDivisor magic_divisor(uint32_t divisor) {
  SLUICE_CHECK(divisor != 0);
  const unsigned l = divisor == 1 ? 0 : 32 - std::countl_zero(divisor - 1);  // ceil(log2 divisor)
  const uint64_t excess = (uint64_t{1} << l) - divisor;                      // 2^l - d, < 2^31
  MagicDivisor m;
  m.magic = static_cast<uint32_t>((excess << 32) / divisor + 1);
  m.shift1 = static_cast<uint8_t>(std::min(l, 1u));
  m.shift2 = static_cast<uint8_t>(l == 0 ? 0 : l - 1);
  return m;
}
// The same division as the kernels do it.
constexpr uint32_t divide(uint32_t n, const MagicDivisor& m) {
  const uint32_t t = static_cast<uint32_t>((uint64_t{m.magic} * n) >> 32);
  return (t + ((n - t) >> m.shift1)) >> m.shift2;
}

}  // namespace sluice
