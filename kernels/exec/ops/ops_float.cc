// SPDX-License-Identifier: Apache-2.0
// Floating-point handlers; see ops_float.h for the list. Compiled once per instruction set
// (kernels/exec/program/isa.h), without contraction: a product and a sum stay two roundings.
//
// NaN results of f32 are the GPU's canonical 0x7fffffff, of halves 0x7fff. Approximate instructions
// are computed with the host's library functions, whose errors are below the PTX manual's bounds.
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

// f64 passes NaN operands on: which one of several is the hardware's choice, measured on an H200
// (tests/conformance).
inline f64 quiet(f64 v) { return bit_cast_to<f64>(bit_cast_to<u64>(v) | 0x0008000000000000ull); }
inline f64 pass_nan(f64 r, f64 first, f64 second) {
  return first != first ? quiet(first) : second != second ? quiet(second) : r;
}
inline f32 pass_nan(f32 r, f32, f32) { return canonical(r); }
struct FAdd {
  template <class T>
  static T f(T a, T b) {
    return pass_nan(a + b, b, a);
  }
};
struct FSub {
  template <class T>
  static T f(T a, T b) {
    return pass_nan(a - b, b, a);
  }
};
struct FMul {
  template <class T>
  static T f(T a, T b) {
    return pass_nan(a * b, b, a);
  }
};
struct FDiv {
  template <class T>
  static T f(T a, T b) {
    return pass_nan(a / b, a, b);
  }
};
struct Fma {
  static f32 f(f32 a, f32 b, f32 c) { return canonical(__builtin_fmaf(a, b, c)); }
  static f64 f(f64 a, f64 b, f64 c) {
    const f64 r = pass_nan(__builtin_fma(a, b, c), c, a);
    return b != b ? quiet(b) : r;
  }
};
struct FRcp {
  template <class T>
  static T f(T a) {
    return canonical(T{1} / a);
  }
};
struct FSqrt {
  static f32 f(f32 a) { return canonical(__builtin_sqrtf(a)); }
  static f64 f(f64 a) { return __builtin_sqrt(a); }
};
struct FRsqrt {
  static f32 f(f32 a) {
    // One rounding only: 1/sqrt in f64, which is far inside the bound.
    return canonical(static_cast<f32>(1.0 / __builtin_sqrt(static_cast<f64>(a))));
  }
  static f64 f(f64 a) { return 1.0 / __builtin_sqrt(a); }
};
// A NaN loses against a number; +0 is larger than -0.
struct FMin {
  template <class T>
  static T f(T a, T b) {
    const T tie = bit_cast_to<T>(bits_of(a) | bits_of(b));
    const T less = a < b ? a : b;
    const T r = a == b ? (a == T{0} ? tie : a) : less;
    return canonical(a != a ? b : b != b ? a : r);
  }
};
struct FMax {
  template <class T>
  static T f(T a, T b) {
    const T tie = bit_cast_to<T>(bits_of(a) & bits_of(b));
    const T more = a > b ? a : b;
    const T r = a == b ? (a == T{0} ? tie : a) : more;
    return canonical(a != a ? b : b != b ? a : r);
  }
};
template <class F>
inline f32 min_max_mod(const Inst& in, f32 a, f32 b) {
  if ((in.mod & kModFtz) != 0) {
    a = flush(a);
    b = flush(b);
  }
  if ((in.mod & kModNan) != 0 && (a != a || b != b)) return bit_cast_to<f32>(0x7fffffffu);
  if ((in.mod & kModXorSign) != 0) {
    const u32 sign = (bits_of(a) ^ bits_of(b)) & kSignBit<f32>;
    const f32 r = F::f(__builtin_fabsf(a), __builtin_fabsf(b));
    return r != r ? r : bit_cast_to<f32>(bits_of(r) | sign);
  }
  return F::f(a, b);
}
struct FMinMod {
  static f32 f(const Inst& in, f32 a, f32 b) { return min_max_mod<FMin>(in, a, b); }
};
struct FMaxMod {
  static f32 f(const Inst& in, f32 a, f32 b) { return min_max_mod<FMax>(in, a, b); }
};
// NaNs: canonical in f32, left as they are (sign included) in f64, as the hardware does it.
struct FAbs {
  static f32 f(f32 a) { return canonical(bit_cast_to<f32>(bits_of(a) & ~kSignBit<f32>)); }
  static f64 f(f64 a) { return a != a ? a : bit_cast_to<f64>(bits_of(a) & ~kSignBit<f64>); }
};
struct FNeg {
  static f32 f(f32 a) { return canonical(bit_cast_to<f32>(bits_of(a) ^ kSignBit<f32>)); }
  static f64 f(f64 a) { return a != a ? a : bit_cast_to<f64>(bits_of(a) ^ kSignBit<f64>); }
};
struct FCopySign {  // copysign d, a, b: the sign of a on b
  template <class T>
  static T f(T a, T b) {
    return bit_cast_to<T>((bits_of(a) & kSignBit<T>) | (bits_of(b) & ~kSignBit<T>));
  }
};

template <class T>
inline T finish(const Inst& in, T r) {
  r = canonical(r);
  if ((in.mod & kModFtz) != 0) r = flush(r);
  if ((in.mod & kModSat) != 0) r = saturate(r);
  return r;
}
template <class T>
inline T begin(const Inst& in, T v) {
  return (in.mod & kModFtz) != 0 ? flush(v) : v;
}
template <class T, class F>
Flow rounded1(Warp& w, const Inst& in) {
  const T* a = source<T>(w, in.a);
  T* d = target<T>(w, in.d);
  const RoundScope scope(in.mod & kModRoundMask);
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const int i = __builtin_ctz(m);
    const volatile T x = begin(in, a[i]);
    const volatile T r = F::f(T{x});
    d[i] = finish(in, T{r});
  }
  return Flow::kNext;
}
template <class T, class F>
Flow rounded2(Warp& w, const Inst& in) {
  const T* a = source<T>(w, in.a);
  const T* b = source<T>(w, in.b);
  T* d = target<T>(w, in.d);
  const RoundScope scope(in.mod & kModRoundMask);
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const int i = __builtin_ctz(m);
    const volatile T x = begin(in, a[i]), y = begin(in, b[i]);
    const volatile T r = F::f(T{x}, T{y});
    d[i] = finish(in, T{r});
  }
  return Flow::kNext;
}
template <class T>
Flow rounded3(Warp& w, const Inst& in) {
  const T* a = source<T>(w, in.a);
  const T* b = source<T>(w, in.b);
  const T* c = source<T>(w, in.c);
  T* d = target<T>(w, in.d);
  const RoundScope scope(in.mod & kModRoundMask);
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const int i = __builtin_ctz(m);
    const volatile T x = begin(in, a[i]), y = begin(in, b[i]), z = begin(in, c[i]);
    const volatile T r = Fma::f(T{x}, T{y}, T{z});
    d[i] = finish(in, T{r});
  }
  return Flow::kNext;
}

template <class F>
inline f32 approximate(const Inst& in, f32 a) {
  return finish(in, F::f(begin(in, a)));
}
struct Sin {
  static f32 f(f32 a) { return __builtin_sinf(a); }
};
struct Cos {
  static f32 f(f32 a) { return __builtin_cosf(a); }
};
struct Ex2 {
  static f32 f(f32 a) { return __builtin_exp2f(a); }
};
struct Lg2 {
  static f32 f(f32 a) { return __builtin_log2f(a); }
};
struct Tanh {
  static f32 f(f32 a) { return __builtin_tanhf(a); }
};
struct FSin {
  static f32 f(const Inst& in, f32 a) { return approximate<Sin>(in, a); }
};
struct FCos {
  static f32 f(const Inst& in, f32 a) { return approximate<Cos>(in, a); }
};
struct FEx2 {
  static f32 f(const Inst& in, f32 a) { return approximate<Ex2>(in, a); }
};
struct FLg2 {
  static f32 f(const Inst& in, f32 a) { return approximate<Lg2>(in, a); }
};
struct FTanh {
  static f32 f(const Inst& in, f32 a) { return approximate<Tanh>(in, a); }
};

template <class T>
Flow test_property(Warp& w, const Inst& in) {
  using U = typename BitsOf<T>::type;
  const T* a = source<T>(w, in.a);
  const U infinity =
      sizeof(T) == 4 ? static_cast<U>(0x7f800000u) : static_cast<U>(0x7ff0000000000000ull);
  const U smallest =
      sizeof(T) == 4 ? static_cast<U>(0x00800000u) : static_cast<U>(0x0010000000000000ull);
  u32 mask = 0;
  for (int i = 0; i < 32; ++i) {
    const U v = static_cast<U>(bits_of(a[i]) & ~kSignBit<T>);
    bool yes;
    switch (in.imm) {
      case 0:
        yes = v < infinity;
        break;  // finite
      case 1:
        yes = v == infinity;
        break;  // infinite
      case 2:
        yes = v <= infinity;
        break;  // number
      case 3:
        yes = v > infinity;
        break;  // notanumber
      case 4:
        yes = v == 0 || (v >= smallest && v < infinity);
        break;  // normal; zero counts
      default:
        yes = v != 0 && v < smallest;
        break;  // subnormal
    }
    mask |= static_cast<u32>(yes) << i;
  }
  w.set_pred(in.d, mask);
  return Flow::kNext;
}

// Halves: scalar functions lifted to pairs.
#define SLUICE_EXEC_HALF2(name, expression)                                                \
  struct name {                                                                            \
    template <class H>                                                                     \
    static H one(H a, H b) {                                                               \
      return expression;                                                                   \
    }                                                                                      \
    static f16 f(f16 a, f16 b) { return one(a, b); }                                       \
    static bf16 f(bf16 a, bf16 b) { return one(a, b); }                                    \
    static f16x2 f(f16x2 a, f16x2 b) { return {both<f16>(a.bits, b.bits)}; }               \
    static bf16x2 f(bf16x2 a, bf16x2 b) { return {both<bf16>(a.bits, b.bits)}; }           \
    template <class H>                                                                     \
    static u32 both(u32 a, u32 b) {                                                        \
      const u32 lo = one(H{static_cast<u16>(a)}, H{static_cast<u16>(b)}).bits;             \
      const u32 hi = one(H{static_cast<u16>(a >> 16)}, H{static_cast<u16>(b >> 16)}).bits; \
      return hi << 16 | lo;                                                                \
    }                                                                                      \
  };
SLUICE_EXEC_HALF2(HAdd, half_add(a, b))
SLUICE_EXEC_HALF2(HSub, half_sub(a, b))
SLUICE_EXEC_HALF2(HMul, half_mul(a, b))
SLUICE_EXEC_HALF2(HMin, half_of<H>(FMin::f(to_f32(a), to_f32(b))))
SLUICE_EXEC_HALF2(HMax, half_of<H>(FMax::f(to_f32(a), to_f32(b))))
struct HFma {
  static f16 f(f16 a, f16 b, f16 c) { return half_fma(a, b, c); }
  static bf16 f(bf16 a, bf16 b, bf16 c) { return half_fma(a, b, c); }
  template <class H>
  static u32 both(u32 a, u32 b, u32 c) {
    const u32 lo =
        half_fma(H{static_cast<u16>(a)}, H{static_cast<u16>(b)}, H{static_cast<u16>(c)}).bits;
    const u32 hi = half_fma(H{static_cast<u16>(a >> 16)}, H{static_cast<u16>(b >> 16)},
                            H{static_cast<u16>(c >> 16)})
                       .bits;
    return hi << 16 | lo;
  }
  static f16x2 f(f16x2 a, f16x2 b, f16x2 c) { return {both<f16>(a.bits, b.bits, c.bits)}; }
  static bf16x2 f(bf16x2 a, bf16x2 b, bf16x2 c) { return {both<bf16>(a.bits, b.bits, c.bits)}; }
};
template <class F>
inline u32 lift(u32 v) {
  return static_cast<u32>(F::one(static_cast<u16>(v >> 16))) << 16 | F::one(static_cast<u16>(v));
}
struct HSat {
  static u16 one(u16 v) { return half_of<f16>(saturate(to_f32(f16{v}))).bits; }
  static f16 f(f16 a) { return {one(a.bits)}; }
  static f16x2 f(f16x2 a) { return {lift<HSat>(a.bits)}; }
};
struct HRelu {  // negative becomes +0, NaN canonical; the same bits in both formats except the NaNs
  template <class H>
  static H one(H a) {
    const f32 v = to_f32(a);
    return v != v ? H{0x7fff} : v > 0 ? a : H{0};
  }
  template <class H>
  static u32 both(u32 v) {
    return static_cast<u32>(one(H{static_cast<u16>(v >> 16)}).bits) << 16 |
           one(H{static_cast<u16>(v)}).bits;
  }
  static f16 f(f16 a) { return one(a); }
  static bf16 f(bf16 a) { return one(a); }
  static f16x2 f(f16x2 a) { return {both<f16>(a.bits)}; }
  static bf16x2 f(bf16x2 a) { return {both<bf16>(a.bits)}; }
};
template <class H>
inline constexpr u32 kHalfInfinity = 0x7c00;
template <>
inline constexpr u32 kHalfInfinity<bf16> = 0x7f80;
// `sign`: what a number's sign bit is exclusive-or'ed with; NaNs become canonical.
template <class H>
inline u16 half_sign(u16 a, u16 cleared, u16 flipped) {
  const u16 magnitude = a & 0x7fff;
  return magnitude > kHalfInfinity<H> ? u16{0x7fff} : static_cast<u16>((a & ~cleared) ^ flipped);
}
template <u16 kCleared, u16 kFlipped>
struct HSign {
  static f16 f(f16 a) { return {half_sign<f16>(a.bits, kCleared, kFlipped)}; }
  static bf16 f(bf16 a) { return {half_sign<bf16>(a.bits, kCleared, kFlipped)}; }
  template <class H>
  static u32 both(u32 a) {
    return static_cast<u32>(half_sign<H>(static_cast<u16>(a >> 16), kCleared, kFlipped)) << 16 |
           half_sign<H>(static_cast<u16>(a), kCleared, kFlipped);
  }
  static f16x2 f(f16x2 a) { return {both<f16>(a.bits)}; }
  static bf16x2 f(bf16x2 a) { return {both<bf16>(a.bits)}; }
};
using HAbs = HSign<0x8000, 0>;
using HNeg = HSign<0, 0x8000>;
struct HEx2 {
  static f32 f(f32 a) { return Ex2::f(a); }
};
struct HTanh {
  static f32 f(f32 a) { return Tanh::f(a); }
};
template <class H, class F>
Flow half1(Warp& w, const Inst& in) {
  const u32* a = source<u32>(w, in.a);
  u32* d = target<u32>(w, in.d);
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const int i = __builtin_ctz(m);
    d[i] = half_of<H>(F::f(to_f32(H{static_cast<u16>(a[i])}))).bits;
  }
  return Flow::kNext;
}
template <class H, class F>
Flow half1x2(Warp& w, const Inst& in) {
  const u32* a = source<u32>(w, in.a);
  u32* d = target<u32>(w, in.d);
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const int i = __builtin_ctz(m);
    const u32 lo = half_of<H>(F::f(to_f32(H{static_cast<u16>(a[i])}))).bits;
    const u32 hi = half_of<H>(F::f(to_f32(H{static_cast<u16>(a[i] >> 16)}))).bits;
    d[i] = hi << 16 | lo;
  }
  return Flow::kNext;
}

template <class T>
inline T compared(T v) {
  return v;
}
inline f32 compared(f16 v) { return to_f32(v); }
inline f32 compared(bf16 v) { return to_f32(v); }
#define SLUICE_EXEC_FCOMPARE(name, expression)            \
  struct name {                                           \
    template <class T>                                    \
    static bool f(T left, T right) {                      \
      const auto a = compared(left), b = compared(right); \
      return expression;                                  \
    }                                                     \
  };
SLUICE_EXEC_FCOMPARE(FEq, a == b)
SLUICE_EXEC_FCOMPARE(FNe, a<b || a> b)
SLUICE_EXEC_FCOMPARE(FLt, a < b)
SLUICE_EXEC_FCOMPARE(FLe, a <= b)
SLUICE_EXEC_FCOMPARE(FGt, a > b)
SLUICE_EXEC_FCOMPARE(FGe, a >= b)
SLUICE_EXEC_FCOMPARE(FEqu, !(a < b || a > b))
SLUICE_EXEC_FCOMPARE(FNeu, a != b)
SLUICE_EXEC_FCOMPARE(FLtu, !(a >= b))
SLUICE_EXEC_FCOMPARE(FLeu, !(a > b))
SLUICE_EXEC_FCOMPARE(FGtu, !(a <= b))
SLUICE_EXEC_FCOMPARE(FGeu, !(a < b))
SLUICE_EXEC_FCOMPARE(FNum, a == a && b == b)
SLUICE_EXEC_FCOMPARE(FUnordered, a != a || b != b)

}  // namespace

#define SLUICE_EXEC_STRIP(...) __VA_ARGS__
#define SLUICE_EXEC_FILL(name, handler) \
  table[static_cast<uint16_t>(Op::k_##name)] = &SLUICE_EXEC_STRIP handler;
void SLUICE_EXEC_NAME(fill_float)(Handler* table) { SLUICE_EXEC_FLOAT_OPS(SLUICE_EXEC_FILL) }

}  // namespace sluice::exec::detail
#include "kernels/exec/program/isa_end.h"
