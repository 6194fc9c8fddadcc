// SPDX-License-Identifier: Apache-2.0
// Half arithmetic with .ftz, .NaN, .xorsign.abs; conversions to and from f16, bf16, tf32 and fp8
// with every rounding and saturation; cvt.pack; pairs of 16-bit integers. See ops_narrow.h for the
// list.
#include "kernels/exec/program/ops_narrow.h"

#include <cstdint>

#include "kernels/exec/block/block.h"
#include "kernels/exec/block/block_state.h"
#include "kernels/exec/block/warp.h"
#include "kernels/exec/ops/lane_memory.h"
#include "kernels/exec/program/inst.h"
#include "kernels/exec/program/plain_ops.h"

namespace sluice::exec::detail {
namespace {

#include "kernels/exec/ops/lanes.inc"

#include "kernels/exec/ops/half.inc"

constexpr u16 kNanHalf = 0x7fff, kSignHalf = 0x8000;

template <class H>
constexpr u16 exponent_of(H) {
  return 0x7c00;
}
template <>
constexpr u16 exponent_of<bf16>(bf16) {
  return 0x7f80;
}
template <class H>
u16 flushed(u16 v) {
  return (v & exponent_of(H{})) == 0 ? static_cast<u16>(v & kSignHalf) : v;
}
template <class H>
bool is_nan(u16 v) {
  return (v & 0x7fff) > exponent_of(H{});
}

template <class H>
u16 half_min_max(bool smaller, u32 mod, u16 a, u16 b) {
  if ((mod & kModNan) != 0 && (is_nan<H>(a) || is_nan<H>(b))) return kNanHalf;
  u16 sign = 0;
  if ((mod & kModXorSign) != 0) {
    sign = (a ^ b) & kSignHalf;
    a &= 0x7fff;
    b &= 0x7fff;
  }
  if (is_nan<H>(a) && is_nan<H>(b)) return kNanHalf;
  const f32 x = to_f32(H{a}), y = to_f32(H{b});
  const bool first =
      is_nan<H>(b) ||
      (!is_nan<H>(a) && (x == y ? ((a & kSignHalf) != 0) == smaller : (x < y) == smaller));
  return (first ? a : b) | sign;
}

template <class H>
u16 half_result(HalfOperation op, u32 mod, u16 a, u16 b, u16 c) {
  const bool ftz = (mod & kModFtz) != 0;
  if (ftz) {
    a = flushed<H>(a);
    b = flushed<H>(b);
    c = flushed<H>(c);
  }
  u16 r;
  switch (op) {
    case HalfOperation::kAdd:
      r = half_add(H{a}, H{b}).bits;
      break;
    case HalfOperation::kSub:
      r = half_sub(H{a}, H{b}).bits;
      break;
    case HalfOperation::kMul:
      r = half_mul(H{a}, H{b}).bits;
      break;
    case HalfOperation::kFma:
      r = half_fma(H{a}, H{b}, H{c}).bits;
      break;
    case HalfOperation::kMin:
    case HalfOperation::kMax:
      r = half_min_max<H>(op == HalfOperation::kMin, mod, a, b);
      break;
    case HalfOperation::kNeg:
      r = is_nan<H>(a) ? kNanHalf : static_cast<u16>(a ^ kSignHalf);
      break;
    case HalfOperation::kAbs:
      r = is_nan<H>(a) ? kNanHalf : static_cast<u16>(a & ~kSignHalf);
      break;
    default:
      r = a;
      break;
  }
  if (ftz) r = flushed<H>(r);
  if ((mod & kModSat) != 0) {
    const f32 v = to_f32(H{r});
    r = half_of<H>(v > 0 ? (v < 1 ? v : 1.0f) : 0.0f).bits;
  }
  if ((mod & kModRelu) != 0) r = is_nan<H>(r) ? kNanHalf : (r & kSignHalf) != 0 ? u16{0} : r;
  return r;
}

u32 operand_word(const Warp& w, u32 operand, u32 lane) {
  return operand == kNoOperand ? 0 : lane_u32(w, operand, lane);
}

Flow half_operation(Warp& w, const Inst& in) {
  const auto op = static_cast<HalfOperation>(in.imm & 15);
  const bool wide = (in.imm & kHalfPair) != 0, brain = (in.imm & kHalfBf16) != 0;
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const u32 lane = static_cast<u32>(__builtin_ctz(m));
    const u32 a = operand_word(w, in.a, lane), b = operand_word(w, in.b, lane),
              c = operand_word(w, in.c, lane);
    u32 result = 0;
    for (u32 shift = 0; shift < (wide ? 32u : 16u); shift += 16) {
      const u16 x = static_cast<u16>(a >> shift), y = static_cast<u16>(b >> shift),
                z = static_cast<u16>(c >> shift);
      const u32 half =
          brain ? half_result<bf16>(op, in.mod, x, y, z) : half_result<f16>(op, in.mod, x, y, z);
      result |= half << shift;
    }
    set_lane_u32(w, in.d, lane, result);
  }
  return Flow::kNext;
}

struct Layout {
  int exponent, mantissa;
  bool infinity;
  u32 nan;
};
constexpr Layout layout_of(NarrowFormat f) {
  switch (f) {
    case NarrowFormat::kF16:
      return {5, 10, true, 0x7fff};
    case NarrowFormat::kBf16:
      return {8, 7, true, 0x7fff};
    case NarrowFormat::kTf32:
      return {8, 10, true, 0x3ffff};
    case NarrowFormat::kE4m3:
      return {4, 3, false, 0x7f};
    default:
      return {5, 2, true, 0x7f};
  }
}

// f32 to a narrower format, rounded once.
u32 encode(NarrowFormat to, u32 bits, u32 round, bool relu, bool finite) {
  const Layout l = layout_of(to);
  const u32 magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    // What an H200 does to NaNs there; elsewhere they become canonical.
    if (to == NarrowFormat::kTf32 && round == kRna && finite) return (bits >> 13) - 1;
    return l.nan;
  }
  if (relu && (bits >> 31) != 0) return 0;
  const u32 sign = (bits >> 31) << (l.exponent + l.mantissa);
  const u32 top = ((1u << l.exponent) - 1) << l.mantissa;  // infinity, or e4m3's last binade
  const u32 largest = l.infinity ? top - 1 : top + (1u << l.mantissa) - 2;
  if (magnitude == 0x7f800000u) return sign | (finite || !l.infinity ? largest : top);
  const int field = static_cast<int>(magnitude >> 23);
  const u32 significand = (magnitude & 0x7fffffu) | (field != 0 ? 0x800000u : 0);
  const int exponent = field != 0 ? field - 127 : -126;
  const int least = 2 - (1 << (l.exponent - 1));
  const int drop = 23 - l.mantissa + (exponent < least ? least - exponent : 0);
  u32 kept = 0;
  if (drop < 26) {
    kept = significand >> drop;
    const u32 rest = significand & ((1u << drop) - 1), half = 1u << (drop - 1);
    if (round == kRn && (rest > half || (rest == half && (kept & 1) != 0))) ++kept;
    if (round == kRna && rest >= half) ++kept;
  }
  const u32 value =
      exponent < least ? kept : (static_cast<u32>(exponent - least) << l.mantissa) + kept;
  if (value <= largest) return sign | value;
  return sign | (finite || round == kRz || !l.infinity ? largest : top);
}

u32 decode_fp8(NarrowFormat from, u32 bits) {  // to f16
  if (from == NarrowFormat::kE5m2) return (bits & 0x7f) > 0x7c ? kNanHalf : bits << 8;
  if ((bits & 0x7f) == 0x7f) return kNanHalf;
  // Seven bits of exponent and mantissa, moved to f16's place, are 2^-8 of the value.
  const f32 v = to_f32(f16{static_cast<u16>((bits & 0x7f) << 7)}) * 256.0f;
  return half_of<f16>(v).bits | (bits & 0x80) << 8;
}

Flow convert_narrow(Warp& w, const Inst& in) {
  const auto to = static_cast<NarrowFormat>(in.imm & 15),
             from = static_cast<NarrowFormat>(in.imm >> 4 & 15);
  const bool wide = (in.imm & kNarrowPair) != 0;
  const u32 round = in.mod & kModRoundMask;
  const bool relu = (in.mod & kModRelu) != 0, finite = (in.mod & kModSat) != 0;
  const bool fp8 = to == NarrowFormat::kE4m3 || to == NarrowFormat::kE5m2;
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const u32 lane = static_cast<u32>(__builtin_ctz(m));
    const u32 a = lane_u32(w, in.a, lane);
    u32 high = 0, low = 0;
    if (from == NarrowFormat::kE4m3 || from == NarrowFormat::kE5m2) {
      high = decode_fp8(from, a >> 8 & 0xff);
      low = decode_fp8(from, a & 0xff);
      if (relu) {
        high = (high & kSignHalf) != 0 ? 0 : high;
        low = (low & kSignHalf) != 0 ? 0 : low;
      }
    } else if (from == NarrowFormat::kF16) {
      high =
          encode(to, bit_cast_to<u32>(to_f32(f16{static_cast<u16>(a >> 16)})), round, relu, finite);
      low = encode(to, bit_cast_to<u32>(to_f32(f16{static_cast<u16>(a)})), round, relu, finite);
    } else if (wide) {
      high = encode(to, a, round, relu, finite);
      low = encode(to, lane_u32(w, in.b, lane), round, relu, finite);
    } else {
      low = encode(to, a, round, relu, finite);
      if (to == NarrowFormat::kTf32) low <<= 13;
    }
    set_lane_u32(w, in.d, lane, high << (fp8 ? 8 : 16) | low);
  }
  return Flow::kNext;
}

// imm = bits | signed << 8; c: what is shifted up to make room, or none.
Flow convert_pack(Warp& w, const Inst& in) {
  const int bits = in.imm & 0xff;
  const bool is_signed = (in.imm & 256) != 0;
  const s64 high = is_signed ? (s64{1} << (bits - 1)) - 1 : (s64{1} << bits) - 1;
  const s64 low = is_signed ? -(s64{1} << (bits - 1)) : 0;
  const u32 mask = static_cast<u32>((u64{1} << bits) - 1);
  const auto clamped = [&](u32 word) {
    const s64 v = static_cast<s32>(word);
    return static_cast<u32>(v > high ? high : v < low ? low : v) & mask;
  };
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const u32 lane = static_cast<u32>(__builtin_ctz(m));
    const u64 above = operand_word(w, in.c, lane);
    const u32 pair = clamped(lane_u32(w, in.a, lane)) << bits | clamped(lane_u32(w, in.b, lane));
    set_lane_u32(w, in.d, lane, static_cast<u32>(above << (2 * bits)) | pair);
  }
  return Flow::kNext;
}

Flow pair_operation(Warp& w, const Inst& in) {
  const auto op = static_cast<PairOperation>(in.imm);
  const bool relu = (in.mod & kModRelu) != 0;
  const auto one = [op](u32 a, u32 b) -> u32 {
    const s32 x = static_cast<s16>(a), y = static_cast<s16>(b);
    switch (op) {
      case PairOperation::kAdd:
        return a + b;
      case PairOperation::kMinU:
        return a < b ? a : b;
      case PairOperation::kMaxU:
        return a > b ? a : b;
      case PairOperation::kMinS:
        return x < y ? a : b;
      default:
        return x > y ? a : b;
    }
  };
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const u32 lane = static_cast<u32>(__builtin_ctz(m));
    const u32 a = lane_u32(w, in.a, lane), b = lane_u32(w, in.b, lane);
    u32 r;
    if (op == PairOperation::kMinS32 || op == PairOperation::kMaxS32) {
      const bool first =
          (static_cast<s32>(a) < static_cast<s32>(b)) == (op == PairOperation::kMinS32);
      r = first ? a : b;
      if (relu && (r >> 31) != 0) r = 0;
    } else {
      u32 low = one(a & 0xffff, b & 0xffff) & 0xffff, high = one(a >> 16, b >> 16) & 0xffff;
      if (relu) {
        low = (low & kSignHalf) != 0 ? 0 : low;
        high = (high & kSignHalf) != 0 ? 0 : high;
      }
      r = high << 16 | low;
    }
    set_lane_u32(w, in.d, lane, r);
  }
  return Flow::kNext;
}

}  // namespace

void fill_narrow(Handler* table) { SLUICE_EXEC_NARROW_OPS(SLUICE_EXEC_FILL_PLAIN) }

}  // namespace sluice::exec::detail
