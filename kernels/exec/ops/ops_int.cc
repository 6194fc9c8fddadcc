// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic; see ops_int.h for the list. Compiled once per instruction set
// (kernels/exec/program/isa.h).
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

#include "kernels/exec/ops/integers.inc"

Flow nop(Warp&, const Inst&) { return Flow::kNext; }

// Arithmetic in u32 at least: u16 would be promoted to a signed int that can overflow.
template <class T>
inline T mul_low(T a, T b) {
  if constexpr (sizeof(T) == 8)
    return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b));
  else
    return static_cast<T>(static_cast<u32>(a) * static_cast<u32>(b));
}
template <class T>
inline T mul_high(T a, T b) {
  return static_cast<T>((static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b)) >> kBits<T>);
}
struct Add {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct Sub {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(a - b);
  }
};
struct MulLo {
  template <class T>
  static T f(T a, T b) {
    return mul_low(a, b);
  }
};
struct MulHi {
  template <class T>
  static T f(T a, T b) {
    return mul_high(a, b);
  }
};
struct Min {
  template <class T>
  static T f(T a, T b) {
    return a < b ? a : b;
  }
};
struct Max {
  template <class T>
  static T f(T a, T b) {
    return a > b ? a : b;
  }
};
// Division by zero: the hardware gives all ones and the dividend (PTX: unspecified). The most
// negative number by -1 wraps; on the host both would trap.
struct Div {
  template <class T>
  static T f(T a, T b) {
    if (b == 0) return static_cast<T>(~T{0});
    if (kIsSigned<T> && b == static_cast<T>(-1))
      return static_cast<T>(Unsigned<T>{0} - static_cast<Unsigned<T>>(a));
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T>
  static T f(T a, T b) {
    if (b == 0) return a;
    if (kIsSigned<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
template <class D>
struct MulWide {
  template <class T>
  static D f(T a, T b) {
    return static_cast<D>(a) * static_cast<D>(b);
  }
};
template <class D>
struct MadWide {
  using U = Unsigned<D>;
  template <class T>
  static D f(T a, T b, D c) {
    return static_cast<D>(static_cast<U>(static_cast<D>(a) * static_cast<D>(b)) +
                          static_cast<U>(c));
  }
};
struct MadLo {
  template <class T>
  static T f(T a, T b, T c) {
    return static_cast<T>(mul_low(a, b) + c);
  }
};
struct MadHi {
  template <class T>
  static T f(T a, T b, T c) {
    return static_cast<T>(static_cast<Unsigned<T>>(mul_high(a, b)) + static_cast<Unsigned<T>>(c));
  }
};
struct Sad {
  template <class T>
  static T f(T a, T b, T c) {
    using U = Unsigned<T>;
    const U diff = a < b ? static_cast<U>(static_cast<U>(b) - static_cast<U>(a))
                         : static_cast<U>(static_cast<U>(a) - static_cast<U>(b));
    return static_cast<T>(static_cast<U>(static_cast<U>(c) + diff));
  }
};
inline s32 clamp_s32(s64 v) {
  return v > 0x7fffffffll ? 0x7fffffff : v < -0x80000000ll ? -0x7fffffff - 1 : static_cast<s32>(v);
}
struct AddSat {
  static s32 f(s32 a, s32 b) { return clamp_s32(s64{a} + b); }
};
struct SubSat {
  static s32 f(s32 a, s32 b) { return clamp_s32(s64{a} - b); }
};
struct MadHiSat {
  static s32 f(s32 a, s32 b, s32 c) { return clamp_s32(((s64{a} * b) >> 32) + c); }
};
template <class T, int kShift>
struct Mul24 {
  static T f(T a, T b) {
    Wide<T> x, y;
    if constexpr (kIsSigned<T>) {
      x = static_cast<s32>(static_cast<u32>(a) << 8) >> 8;
      y = static_cast<s32>(static_cast<u32>(b) << 8) >> 8;
    } else {
      x = a & 0xffffff;
      y = b & 0xffffff;
    }
    return static_cast<T>((x * y) >> kShift);
  }
  static T f(T a, T b, T c) {
    return static_cast<T>(static_cast<u32>(f(a, b)) + static_cast<u32>(c));
  }
};
struct AbsInt {
  template <class T>
  static T f(T a) {
    return a < 0 ? static_cast<T>(Unsigned<T>{0} - static_cast<Unsigned<T>>(a)) : a;
  }
};
struct NegInt {
  template <class T>
  static T f(T a) {
    return static_cast<T>(Unsigned<T>{0} - static_cast<Unsigned<T>>(a));
  }
};
// add/addc/sub/subc with .cc: one carry bit per lane in Warp::cc. A subtraction is the sum of `a`,
// the complement of `b` and 1, so it carries where it does not borrow; compilers let addc count
// that.
template <class T, bool kSubtract>
Flow add_carry(Warp& w, const Inst& in) {
  const T* a = source<T>(w, in.a);
  const T* b = source<T>(w, in.b);
  T* d = target<T>(w, in.d);
  u32 out = 0;
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const int i = __builtin_ctz(m);
    const T carry = (in.mod & kModUseCc) != 0 ? static_cast<T>((w.cc >> i) & 1) : T{kSubtract};
    T r;
    const T added = kSubtract ? static_cast<T>(~b[i]) : b[i];
    const bool c1 = __builtin_add_overflow(a[i], added, &r);
    const bool c2 = __builtin_add_overflow(r, carry, &r);
    d[i] = r;
    out |= static_cast<u32>(c1 || c2) << i;
  }
  if ((in.mod & kModSetCc) != 0) w.cc = (w.cc & ~w.exec) | out;
  return Flow::kNext;
}
template <class T, bool kHigh>
Flow mad_carry(Warp& w, const Inst& in) {
  using U = Unsigned<T>;
  const T* a = source<T>(w, in.a);
  const T* b = source<T>(w, in.b);
  const U* c = source<U>(w, in.c);
  U* d = target<U>(w, in.d);
  u32 out = 0;
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const int i = __builtin_ctz(m);
    const U carry = (in.mod & kModUseCc) != 0 ? static_cast<U>((w.cc >> i) & 1) : U{0};
    const U product =
        kHigh ? static_cast<U>(mul_high(a[i], b[i])) : static_cast<U>(mul_low(a[i], b[i]));
    U r;
    const bool c1 = __builtin_add_overflow(product, c[i], &r);
    const bool c2 = __builtin_add_overflow(r, carry, &r);
    d[i] = r;
    out |= static_cast<u32>(c1 || c2) << i;
  }
  if ((in.mod & kModSetCc) != 0) w.cc = (w.cc & ~w.exec) | out;
  return Flow::kNext;
}
inline s32 byte_of(u32 v, u32 k, bool is_signed) {
  const u32 byte = (v >> (8 * k)) & 0xff;
  return is_signed ? static_cast<s8>(byte) : static_cast<s32>(byte);
}
// inst.imm: bit 0 = a is signed, bit 1 = b is signed, bit 2 = high half of b (dp2a).
struct Dp4a {
  static u32 f(const Inst& in, u32 a, u32 b, u32 c) {
    for (u32 k = 0; k < 4; ++k)
      c += static_cast<u32>(byte_of(a, k, in.imm & 1) * byte_of(b, k, in.imm & 2));
    return c;
  }
};
struct Dp2a {
  static u32 f(const Inst& in, u32 a, u32 b, u32 c) {
    const u32 first = (in.imm & 4) != 0 ? 2 : 0;
    for (u32 k = 0; k < 2; ++k) {
      const u32 half = (a >> (16 * k)) & 0xffff;
      const s64 x = (in.imm & 1) != 0 ? s64{static_cast<s16>(half)} : s64{half};
      c += static_cast<u32>(x * byte_of(b, first + k, in.imm & 2));
    }
    return c;
  }
};

}  // namespace

#define SLUICE_EXEC_STRIP(...) __VA_ARGS__
#define SLUICE_EXEC_FILL(name, handler) \
  table[static_cast<uint16_t>(Op::k_##name)] = &SLUICE_EXEC_STRIP handler;
void SLUICE_EXEC_NAME(fill_int)(Handler* table) { SLUICE_EXEC_INT_OPS(SLUICE_EXEC_FILL) }

}  // namespace sluice::exec::detail
#include "kernels/exec/program/isa_end.h"
