// SPDX-License-Identifier: Apache-2.0
// Conversions from and to floating point; see ops_convert.h for the list. Compiled once per
// instruction set (kernels/exec/program/isa.h).
#include <cfenv>
#include <cstdint>

#include "kernels/exec/block/block.h"
#include "kernels/exec/block/block_state.h"
#include "kernels/exec/block/warp.h"
#include "kernels/exec/program/inst.h"

// Last, and apart: changes the target of everything below.
#include "kernels/exec/program/isa.h"

namespace sluice::exec::detail {
namespace {

#include "kernels/exec/ops/lanes.inc"

#include "kernels/exec/ops/half.inc"

#include "kernels/exec/ops/float.inc"

template <class D>
struct ToFloat {
  template <class S>
  static D f(S a) {
    return static_cast<D>(a);
  }
  static D f(f64 a) { return static_cast<D>(a); }  // keeps a NaN's sign and upper bits
};
template <>
struct ToFloat<f64> {
  template <class S>
  static f64 f(S a) {
    return static_cast<f64>(a);
  }
};
struct FromHalf {
  static f32 f(f16 a) { return canonical(to_f32(a)); }
  static f32 f(bf16 a) { return to_f32(a); }  // only a shift, NaNs too
};
template <class H>
struct ToHalf {
  static H f(f32 a) { return half_of<H>(a); }
};
template <class H, class P>
struct ToHalfPair {  // the first source becomes the upper half
  static P f(f32 a, f32 b) {
    return {static_cast<u32>(half_of<H>(a).bits) << 16 | half_of<H>(b).bits};
  }
};
// Truncating, clamped to D's range. NaN: 0, or the top bit alone where f64 or 64 bits are involved
// (PTX ISA, cvt).
template <class D>
struct FloatToInt {
  template <class S>
  static D f(S v) {
    constexpr bool is_signed = static_cast<D>(-1) < static_cast<D>(0);
    constexpr int bits = sizeof(D) * 8;
    constexpr D high = static_cast<D>(is_signed ? ~0ull >> (65 - bits) : ~0ull >> (64 - bits));
    constexpr D low = is_signed ? static_cast<D>(1ull << (bits - 1)) : D{0};
    constexpr D nan = sizeof(D) == 8 || sizeof(S) == 8 ? static_cast<D>(1ull << (bits - 1)) : D{0};
    // First value too large, exactly representable; everything below converts.
    constexpr S limit = static_cast<S>(is_signed ? 1ull << (bits - 2) : 1ull << (bits - 1)) * S{2};
    constexpr S bottom = is_signed ? -limit : S{0};
    const bool inside = v < limit && v > bottom;
    const D r = static_cast<D>(inside ? v : S{0});
    return v != v ? nan : v >= limit ? high : inside ? r : low;
  }
};
struct ToTf32 {  // to nearest, ties away: the low 13 bits become zero
  static u32 f(const Inst& in, f32 v) {
    const u32 bits = bit_cast_to<u32>(v);
    if ((bits & 0x7fffffffu) >= 0x7f800000u) return bits & ~0x1fffu;
    const u32 round = in.mod & kModRoundMask;
    const u32 add = round == kRz ? 0 : round == kRn ? 0xfff + ((bits >> 13) & 1) : 0x1000;
    return (bits + add) & ~0x1fffu;
  }
};

// cvt in full generality, one lane at a time. Types in inst.imm: destination | source << 4.
enum TypeCode : u32 { kF16 = 8, kBf16 = 9, kF32 = 10, kF64 = 11 };  // 0..7: u8 s8 u16 ... s64
f64 to_integral(f64 v, u32 round) {
  switch (round) {
    case kRz:
      return __builtin_trunc(v);
    case kRm:
      return __builtin_floor(v);
    case kRp:
      return __builtin_ceil(v);
    default:
      return __builtin_nearbyint(v);
  }
}
u64 integer_from(f64 v, bool source_is_f64, u32 type) {
  const u32 bits = 8u << (type >> 1);
  const bool is_signed = (type & 1) != 0;
  if (v != v)
    return bits != 64 && !source_is_f64 ? 0 : is_signed ? ~0ull << (bits - 1) : 1ull << (bits - 1);
  const f64 limit =
      is_signed ? static_cast<f64>(1ull << (bits - 1)) : 2.0 * static_cast<f64>(1ull << (bits - 1));
  if (v >= limit)
    return is_signed ? (1ull << (bits - 1)) - 1 : bits == 64 ? ~0ull : (1ull << bits) - 1;
  if (is_signed) return v < -limit ? ~0ull << (bits - 1) : static_cast<u64>(static_cast<s64>(v));
  return v <= 0 ? 0 : static_cast<u64>(v);
}
f32 narrow_rounded(f64 v, u32 round) {
  const RoundScope scope(round == kRna ? static_cast<u32>(kRn) : round);
  const volatile f64 x = v;
  const volatile f32 r = static_cast<f32>(x);
  return r;
}
// A cvt, taken apart.
struct Conversion {
  u32 to, from, round;
  u16 mod;
  bool ftz, sat;

  explicit Conversion(const Inst& in)
      : to(in.imm & 15),
        from((in.imm >> 4) & 15),
        round(in.mod & kModRoundMask),
        mod(in.mod),
        ftz((in.mod & kModFtz) != 0),
        sat((in.mod & kModSat) != 0) {}
};

bool is_wide(u32 type) { return type == 6 || type == 7 || type == kF64; }

// An integer as a half: to odd in f32 first. Magnitudes above f16's range overflow either way.
u64 half_of_integer(const Conversion& c, u64 value, bool negative) {
  const u64 magnitude = negative ? 0 - value : value;
  const int width = magnitude == 0 ? 0 : 64 - __builtin_clzll(magnitude);
  const int drop = width > 24 ? width - 24 : 0;
  u64 kept = magnitude >> drop;
  if ((kept << drop) != magnitude) kept |= 1;
  f32 v = static_cast<f32>(kept) * static_cast<f32>(1ull << drop);
  if (negative) v = -v;
  if (c.sat) v = saturate(v);
  return c.to == kF16 ? to_f16(v, c.round).bits : to_bf16(v, c.round).bits;
}

// Integer to float: at most 64 bits, rounded once.
u64 float_of_integer(const Conversion& c, u64 raw) {
  const u32 bits = 8u << (c.from >> 1);
  const bool is_signed = (c.from & 1) != 0;
  const u64 value = bits == 64 ? raw : raw & ((1ull << bits) - 1);
  const s64 extended = static_cast<s64>(value << (64 - bits)) >> (64 - bits);
  const RoundScope scope(c.to >= kF32 ? c.round : static_cast<u32>(kRn));
  const volatile u64 positive = value;
  const volatile s64 number = extended;
  if (c.to == kF64) {
    const volatile f64 r = is_signed ? static_cast<f64>(number) : static_cast<f64>(positive);
    return bit_cast_to<u64>(c.sat ? saturate(f64{r}) : f64{r});
  }
  if (c.to == kF32) {
    const volatile f32 r = is_signed ? static_cast<f32>(number) : static_cast<f32>(positive);
    return bit_cast_to<u32>(c.sat ? saturate(f32{r}) : f32{r});
  }
  const bool negative = is_signed && extended < 0;
  return half_of_integer(c, negative ? static_cast<u64>(extended) : value, negative);
}

// What a float's bits stand for.
f64 float_value(const Conversion& c, u64 raw) {
  switch (c.from) {
    case kF16:
      return to_f32(f16{static_cast<u16>(raw)});
    case kBf16:
      return to_f32(bf16{static_cast<u16>(raw)});
    case kF32: {
      // Halves have no use for .ftz: it changes nothing of them.
      const f32 x = bit_cast_to<f32>(static_cast<u32>(raw));
      return static_cast<f64>(c.ftz && c.to != kF16 && c.to != kBf16 ? canonical(flush(x)) : x);
    }
    default:
      return bit_cast_to<f64>(raw);
  }
}

u64 of_float(const Conversion& c, u64 raw) {
  f64 v = float_value(c, raw);
  const bool integral = (c.mod & kModRint) != 0;
  if (integral) v = to_integral(v, c.round);
  if (c.to < 8) return integer_from(v, c.from == kF64, c.to);
  if (c.sat) v = saturate(v);
  const u32 round = integral ? static_cast<u32>(kRn) : c.round;
  if (c.to == kF64) return bit_cast_to<u64>(v);
  if (c.to == kF32) {
    f32 x = narrow_rounded(v, round);
    if (c.from != kF64) x = canonical(x);
    if (c.ftz) x = flush(x);
    return bit_cast_to<u32>(x);
  }
  // From f64 a NaN keeps its sign and upper bits, here, too.
  if (v != v && c.from == kF64)
    return (raw >> 48 & 0x8000) |
           (c.to == kF16 ? 0x7e00 | (raw >> 42 & 0x3ff) : 0x7fc0 | (raw >> 45 & 0x7f));
  f32 x = odd_narrow(v);
  if ((c.mod & kModRelu) != 0 && !(x > 0) && x == x) x = 0;
  return c.to == kF16 ? to_f16(x, round).bits : to_bf16(x, round).bits;
}

Flow convert_any(Warp& w, const Inst& in) {
  const Conversion c(in);
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const int i = __builtin_ctz(m);
    const u64 raw = is_wide(c.from) ? source<u64>(w, in.a)[i] : source<u32>(w, in.a)[i];
    const u64 result = c.from < 8 ? float_of_integer(c, raw) : of_float(c, raw);
    if (is_wide(c.to))
      target<u64>(w, in.d)[i] = result;
    else
      target<u32>(w, in.d)[i] = static_cast<u32>(result);
  }
  return Flow::kNext;
}

}  // namespace

#define SLUICE_EXEC_STRIP(...) __VA_ARGS__
#define SLUICE_EXEC_FILL(name, handler) \
  table[static_cast<uint16_t>(Op::k_##name)] = &SLUICE_EXEC_STRIP handler;
void SLUICE_EXEC_NAME(fill_convert)(Handler* table) { SLUICE_EXEC_CONVERT_OPS(SLUICE_EXEC_FILL) }

}  // namespace sluice::exec::detail
#include "kernels/exec/program/isa_end.h"
