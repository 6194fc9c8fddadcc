// SPDX-License-Identifier: Apache-2.0
#include "tests/support/random/random_half.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace sluice::random_kernels {
namespace {

using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s64 = int64_t;
__extension__ using s128 = __int128;
__extension__ using u128 = unsigned __int128;

// Of a finite value, in units of 2^-24.
s64 half_units(u16 h) {
  const s64 mantissa = h & 0x3ff;
  const int exponent = (h >> 10) & 31;
  const s64 magnitude = exponent == 0 ? mantissa : (mantissa | 0x400) << (exponent - 1);
  return (h & 0x8000) != 0 ? -magnitude : magnitude;
}
bool half_inf(u16 h) { return (h & 0x7fff) == 0x7c00; }
// value * 2^-48, to nearest even. `zero_sign`: the sign where value is 0.
u16 half_from(s128 value, bool zero_sign) {
  if (value == 0) return zero_sign ? 0x8000 : 0;
  const u16 sign = value < 0 ? 0x8000 : 0;
  const u128 magnitude = static_cast<u128>(value < 0 ? -value : value);
  int top = 127;
  while ((magnitude >> top) == 0) --top;
  // The last bit kept has the weight 2^(top - 10 - 48), but at least 2^-24.
  const int drop = std::max(top - 10, 24);
  u128 kept = magnitude >> drop;
  const u128 rest = magnitude & ((u128{1} << drop) - 1), half = u128{1} << (drop - 1);
  if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  if (kept == 0) return sign;
  // kept * 2^(drop - 48): as the integer in units of 2^-24.
  if (drop - 24 > 40) return static_cast<u16>(sign | 0x7c00);
  const u128 units = kept << (drop - 24);
  if (units >= (u128{1} << 40)) return static_cast<u16>(sign | 0x7c00);  // 65536 and above
  const u64 whole = static_cast<u64>(units);
  if (whole < 0x400) return static_cast<u16>(sign | whole);
  int bit = 63;
  while ((whole >> bit) == 0) --bit;
  return static_cast<u16>(sign | ((bit - 9) << 10) | ((whole >> (bit - 10)) & 0x3ff));
}

}  // namespace

bool half_nan(u16 h) { return (h & 0x7fff) > 0x7c00; }
u16 half_fma(u16 a, u16 b, u16 c, bool add) {
  if (half_nan(a) || half_nan(b) || (add && half_nan(c))) return 0x7fff;
  const bool product_sign = ((a ^ b) & 0x8000) != 0;
  if (half_inf(a) || half_inf(b)) {
    if ((a & 0x7fff) == 0 || (b & 0x7fff) == 0) return 0x7fff;
    if (add && half_inf(c) && ((c & 0x8000) != 0) != product_sign) return 0x7fff;
    return product_sign ? 0xfc00 : 0x7c00;
  }
  if (add && half_inf(c)) return c;
  s128 value = s128{half_units(a)} * half_units(b);
  bool zero_sign = product_sign;
  if (add) {
    value += s128{half_units(c)} << 24;
    zero_sign = product_sign && (c & 0x8000) != 0;
  }
  return half_from(value, zero_sign);
}
u16 half_add(u16 a, u16 b) {
  constexpr u16 kOne = 0x3c00;
  return half_fma(a, kOne, b, true);
}
u16 half_negate(u16 a) { return a ^ 0x8000; }
u16 half_of_float(float v) {
  if (std::isnan(v)) return 0x7fff;
  const u16 sign = std::signbit(v) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(v));
  if (magnitude >= 65536) return sign | 0x7c00;
  if (magnitude < 0x1p-40) return sign;
  // Exact: a multiple of 2^-63 and below 2^16; its bits below 2^-48 only matter as "more".
  const double scaled = std::ldexp(magnitude, 48);
  s128 value = static_cast<s128>(scaled);
  if (static_cast<double>(value) != scaled) value |= 1;
  return half_from(sign != 0 ? -value : value, sign != 0);
}
float float_of_half(u16 h) {
  if (half_nan(h)) return std::numeric_limits<float>::quiet_NaN();
  const float sign = (h & 0x8000) != 0 ? -1.f : 1.f;
  if (half_inf(h)) return sign * std::numeric_limits<float>::infinity();
  return std::copysign(std::ldexp(static_cast<float>(std::llabs(half_units(h))), -24), sign);
}
u64 half_pair(u64 a, u64 b, u64 c, u16 (*f)(u16, u16, u16)) {
  const auto low = [](u64 v) { return static_cast<u16>(v); };
  return u64{f(low(a >> 16), low(b >> 16), low(c >> 16))} << 16 | f(low(a), low(b), low(c));
}
u64 bf16_of_float(float v) {
  if (std::isnan(v)) return 0x7fff;
  const u32 bits = std::bit_cast<u32>(v);
  return static_cast<u16>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace sluice::random_kernels
