// Integer, logic, move and selection handlers; see ops_int.h for the list. Compiled once per
// instruction set (kernels/exec/isa.h).
#include <cstdint>

#include "kernels/exec/block.h"
#include "kernels/exec/block_state.h"
#include "kernels/exec/inst.h"
#include "kernels/exec/warp.h"
// Last: changes the target of everything below.
#include "kernels/exec/isa.h"

namespace sluice::exec::detail {
namespace {

#include "kernels/exec/lanes.inc"

template <class T> struct UnsignedOf;
template <> struct UnsignedOf<u16> { using type = u16; };
template <> struct UnsignedOf<s16> { using type = u16; };
template <> struct UnsignedOf<u32> { using type = u32; };
template <> struct UnsignedOf<s32> { using type = u32; };
template <> struct UnsignedOf<u64> { using type = u64; };
template <> struct UnsignedOf<s64> { using type = u64; };
template <class T> using Unsigned = typename UnsignedOf<T>::type;
template <class T> inline constexpr bool kIsSigned = static_cast<T>(-1) < static_cast<T>(0);
template <class T> inline constexpr u32 kBits = sizeof(T) * 8;

template <class T> struct WideOf;
template <> struct WideOf<u16> { using type = u32; };
template <> struct WideOf<s16> { using type = s32; };
template <> struct WideOf<u32> { using type = u64; };
template <> struct WideOf<s32> { using type = s64; };
__extension__ typedef unsigned __int128 u128;
__extension__ typedef __int128 s128;
template <> struct WideOf<u64> { using type = u128; };
template <> struct WideOf<s64> { using type = s128; };
template <class T> using Wide = typename WideOf<T>::type;

Flow nop(Warp&, const Inst&) { return Flow::kNext; }

// Arithmetic in u32 at least: u16 would be promoted to a signed int that can overflow.
template <class T> inline T mul_low(T a, T b) {
  if constexpr (sizeof(T) == 8) return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b));
  else return static_cast<T>(static_cast<u32>(a) * static_cast<u32>(b));
}
template <class T> inline T mul_high(T a, T b) {
  return static_cast<T>((static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b)) >> kBits<T>);
}
struct Add { template <class T> static T f(T a, T b) { return static_cast<T>(a + b); } };
struct Sub { template <class T> static T f(T a, T b) { return static_cast<T>(a - b); } };
struct MulLo { template <class T> static T f(T a, T b) { return mul_low(a, b); } };
struct And { template <class T> static T f(T a, T b) { return static_cast<T>(a & b); } };
struct Or { template <class T> static T f(T a, T b) { return static_cast<T>(a | b); } };
struct Xor { template <class T> static T f(T a, T b) { return static_cast<T>(a ^ b); } };
struct MulHi { template <class T> static T f(T a, T b) { return mul_high(a, b); } };
struct Min { template <class T> static T f(T a, T b) { return a < b ? a : b; } };
struct Max { template <class T> static T f(T a, T b) { return a > b ? a : b; } };
// Division by zero: the hardware gives all ones and the dividend (PTX: unspecified). The most
// negative number by -1 wraps; on the host both would trap.
struct Div {
  template <class T> static T f(T a, T b) {
    if (b == 0) return static_cast<T>(~T{0});
    if (kIsSigned<T> && b == static_cast<T>(-1))
      return static_cast<T>(Unsigned<T>{0} - static_cast<Unsigned<T>>(a));
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T> static T f(T a, T b) {
    if (b == 0) return a;
    if (kIsSigned<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
template <class D> struct MulWide {
  template <class T> static D f(T a, T b) { return static_cast<D>(a) * static_cast<D>(b); }
};
template <class D> struct MadWide {
  using U = Unsigned<D>;
  template <class T> static D f(T a, T b, D c) {
    return static_cast<D>(static_cast<U>(static_cast<D>(a) * static_cast<D>(b)) +
                          static_cast<U>(c));
  }
};
struct MadLo {
  template <class T> static T f(T a, T b, T c) { return static_cast<T>(mul_low(a, b) + c); }
};
struct MadHi {
  template <class T> static T f(T a, T b, T c) {
    return static_cast<T>(static_cast<Unsigned<T>>(mul_high(a, b)) + static_cast<Unsigned<T>>(c));
  }
};
struct Sad {
  template <class T> static T f(T a, T b, T c) {
    using U = Unsigned<T>;
    const U diff = a < b ? static_cast<U>(static_cast<U>(b) - static_cast<U>(a))
                         : static_cast<U>(static_cast<U>(a) - static_cast<U>(b));
    return static_cast<T>(static_cast<U>(static_cast<U>(c) + diff));
  }
};
inline s32 clamp_s32(s64 v) {
  return v > 0x7fffffffll ? 0x7fffffff : v < -0x80000000ll ? -0x7fffffff - 1 : static_cast<s32>(v);
}
struct AddSat { static s32 f(s32 a, s32 b) { return clamp_s32(s64{a} + b); } };
struct SubSat { static s32 f(s32 a, s32 b) { return clamp_s32(s64{a} - b); } };
struct MadHiSat {
  static s32 f(s32 a, s32 b, s32 c) { return clamp_s32(((s64{a} * b) >> 32) + c); }
};
template <class T, int kShift> struct Mul24 {
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
  template <class T> static T f(T a) {
    return a < 0 ? static_cast<T>(Unsigned<T>{0} - static_cast<Unsigned<T>>(a)) : a;
  }
};
struct NegInt {
  template <class T> static T f(T a) {
    return static_cast<T>(Unsigned<T>{0} - static_cast<Unsigned<T>>(a));
  }
};
struct Not { template <class T> static T f(T a) { return static_cast<T>(~a); } };
struct Cnot { template <class T> static T f(T a) { return a == 0 ? T{1} : T{0}; } };
struct Shl {
  template <class T> static T f(T a, u32 n) {
    return n < kBits<T> ? static_cast<T>(static_cast<u64>(a) << (n & 63)) : T{0};
  }
  static u32 f(u32 a, u32 n) { return n < 32 ? a << (n & 31) : 0; }
};
struct Shr {
  template <class T> static T f(T a, u32 n) {
    const u32 last = kBits<T> - 1;
    if constexpr (kIsSigned<T>) return static_cast<T>(a >> (n < last ? n : last));
    else return n <= last ? static_cast<T>(a >> (n & last)) : T{0};
  }
};
inline u32 funnel(u32 lo, u32 hi, u32 n) {  // bits n.. of hi:lo, n in 0..32
  return static_cast<u32>(((u64{hi} << 32) | lo) >> n);
}
struct ShfRWrap { static u32 f(u32 a, u32 b, u32 c) { return funnel(a, b, c & 31); } };
struct ShfRClamp { static u32 f(u32 a, u32 b, u32 c) { return funnel(a, b, c < 32 ? c : 32); } };
struct ShfLWrap {
  static u32 f(u32 a, u32 b, u32 c) {
    return static_cast<u32>((((u64{b} << 32) | a) << (c & 31)) >> 32);
  }
};
struct ShfLClamp {
  static u32 f(u32 a, u32 b, u32 c) {
    return static_cast<u32>((((u64{b} << 32) | a) << (c < 32 ? c : 32)) >> 32);
  }
};
inline u32 pick_byte(u64 bytes, u32 selector) {
  const u32 byte = static_cast<u32>(bytes >> ((selector & 7) * 8)) & 0xff;
  const u32 sign = (byte & 0x80) != 0 ? 0xff : 0;
  return (selector & 8) != 0 ? sign : byte;
}
struct Prmt {
  static u32 f(u32 a, u32 b, u32 c) {
    const u64 bytes = (u64{b} << 32) | a;
    return pick_byte(bytes, c) | pick_byte(bytes, c >> 4) << 8 | pick_byte(bytes, c >> 8) << 16 |
           pick_byte(bytes, c >> 12) << 24;
  }
};
// prmt.{f4e,b4e,rc8,ecl,ecr,rc16}: the four selectors by mode (inst.imm) and the low bits of c.
struct PrmtMode {
  static u32 f(const Inst& in, u32 a, u32 b, u32 c) {
    const u32 n = c & 3;
    u32 s[4];
    for (u32 k = 0; k < 4; ++k) {
      switch (in.imm) {
        case 1: s[k] = n + k; break;                       // f4e
        case 2: s[k] = (n + 8 - k) & 7; break;             // b4e
        case 3: s[k] = n; break;                           // rc8
        case 4: s[k] = k < n ? n : k; break;               // ecl
        case 5: s[k] = k > n ? n : k; break;               // ecr
        default: s[k] = ((n & 1) << 1) + (k & 1); break;   // rc16
      }
    }
    return Prmt::f(a, b, s[0] | s[1] << 4 | s[2] << 8 | s[3] << 12);
  }
};
struct Bfe {
  template <class T> static T f(T a, u32 pos, u32 len) {
    const u32 msb = kBits<T> - 1;
    // PTX allows 0..255. Beyond that the hardware wraps for 32 bits and saturates for 64.
    pos = kBits<T> == 32 ? pos & 0xff : pos < 255 ? pos : 255;
    len = kBits<T> == 32 ? len & 0xff : len < 255 ? len : 255;
    if (len == 0) return 0;
    const u32 top = pos + len - 1 < msb ? pos + len - 1 : msb;  // bit that holds the sign
    const bool sign = kIsSigned<T> && ((static_cast<Unsigned<T>>(a) >> top) & 1) != 0;
    using U = Unsigned<T>;
    const U field = pos > msb ? U{0} : static_cast<U>(static_cast<U>(a) >> (pos & msb));
    if (len > msb) {
      // Everything from pos; above what is there: the sign.
      const U high = pos == 0 ? U{0} : pos > msb ? static_cast<U>(~U{0})
                                                 : static_cast<U>(~U{0} << ((msb + 1 - pos) & msb));
      return static_cast<T>(sign ? static_cast<U>(field | high) : field);
    }
    const U mask = static_cast<U>((U{1} << len) - 1);
    U r = field & mask;
    // Bits of the field that lie above the register repeat the sign, too.
    if (sign) {
      const u32 have = top >= pos ? top - pos + 1 : 0;
      r = static_cast<U>(r | (have > msb ? U{0} : static_cast<U>(~U{0} << have)));
    }
    return static_cast<T>(r);
  }
};
template <class T> Flow bfi(Warp& w, const Inst& in) {
  const auto* a = source<T>(w, in.a);
  const auto* b = source<T>(w, in.b);
  const auto* c = source<u32>(w, in.c);
  const auto* e = source<u32>(w, in.e);
  auto* d = target<T>(w, in.d);
  const u32 m = w.exec;
  SLUICE_LANES {
    const u32 pos = kBits<T> == 32 ? c[i] & 0xff : c[i] < 255 ? c[i] : 255;  // as for bfe
    const u32 len = kBits<T> == 32 ? e[i] & 0xff : e[i] < 255 ? e[i] : 255;
    const T ones = len >= kBits<T> ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << len) - 1);
    const T mask = pos >= kBits<T> ? T{0} : static_cast<T>(ones << pos);
    const T field = pos >= kBits<T> ? T{0} : static_cast<T>(a[i] << pos);
    const T r = static_cast<T>((b[i] & ~mask) | (field & mask));
    d[i] = ((m >> i) & 1) != 0 ? r : d[i];
  }
  return Flow::kNext;
}
struct Popc {
  static u32 f(u32 a) { return static_cast<u32>(__builtin_popcount(a)); }
  static u32 f(u64 a) { return static_cast<u32>(__builtin_popcountll(a)); }
};
struct Clz {
  static u32 f(u32 a) { return a == 0 ? 32 : static_cast<u32>(__builtin_clz(a)); }
  static u32 f(u64 a) { return a == 0 ? 64 : static_cast<u32>(__builtin_clzll(a)); }
};
struct Brev {
  static u32 f(u32 v) {
    v = ((v >> 1) & 0x55555555u) | ((v & 0x55555555u) << 1);
    v = ((v >> 2) & 0x33333333u) | ((v & 0x33333333u) << 2);
    v = ((v >> 4) & 0x0f0f0f0fu) | ((v & 0x0f0f0f0fu) << 4);
    return __builtin_bswap32(v);
  }
  static u64 f(u64 v) {
    return u64{f(static_cast<u32>(v))} << 32 | f(static_cast<u32>(v >> 32));
  }
};
struct Bfind {
  template <class T> static u32 f(const Inst& in, T a) {
    using U = Unsigned<T>;
    U v = static_cast<U>(a);
    if (kIsSigned<T> && a < 0) v = static_cast<U>(~v);
    if (v == 0) return 0xffffffffu;
    const u32 bit = static_cast<u32>(63 - __builtin_clzll(static_cast<u64>(v)));
    return in.imm != 0 ? kBits<T> - 1 - bit : bit;  // .shiftamt
  }
};
inline u32 mask_of(u32 pos, u32 len) {
  const u64 ones = len >= 32 ? 0xffffffffull : (1ull << len) - 1;
  return pos >= 32 ? 0 : static_cast<u32>(ones << pos);
}
struct BmskWrap { static u32 f(u32 a, u32 b) { return mask_of(a & 31, b & 31); } };
struct BmskClamp { static u32 f(u32 a, u32 b) { return mask_of(a, b); } };
template <class T> inline T extend_from(T a, u32 n) {  // the low n bits, n in 0..32
  if (n == 0) return 0;
  if (n >= 32) return a;
  if constexpr (kIsSigned<T>) return static_cast<s32>(static_cast<u32>(a) << (32 - n)) >> (32 - n);
  else return a & ((1u << n) - 1);
}
struct SzextWrap { template <class T> static T f(T a, u32 n) { return extend_from(a, n & 31); } };
struct SzextClamp { template <class T> static T f(T a, u32 n) { return extend_from(a, n); } };
struct Fns {
  static u32 f(const Inst&, u32 mask, u32 base, s32 offset) {
    base &= 31;
    if (offset == 0) return (mask >> base) & 1 ? base : 0xffffffffu;
    const int step = offset > 0 ? 1 : -1;
    s64 left = offset > 0 ? offset : -static_cast<s64>(offset);
    for (int pos = static_cast<int>(base); pos >= 0 && pos < 32; pos += step)
      if (((mask >> pos) & 1) != 0 && --left == 0) return static_cast<u32>(pos);
    return 0xffffffffu;
  }
};
Flow lop3(Warp& w, const Inst& in) {
  const u32* a = source<u32>(w, in.a);
  const u32* b = source<u32>(w, in.b);
  const u32* c = source<u32>(w, in.c);
  u32* d = target<u32>(w, in.d);
  // Selected by c, then b, then a: three levels of "s ? x : y", with x and y from the table's bits.
  u32 t[8];
  for (int k = 0; k < 8; ++k) t[k] = (in.imm >> k) & 1 ? ~0u : 0u;
  const u32 m = w.exec;
  SLUICE_LANES {
    const u32 z = c[i], y = b[i], x = a[i];
    const u32 p0 = t[0] ^ ((t[0] ^ t[1]) & z), p1 = t[2] ^ ((t[2] ^ t[3]) & z);
    const u32 p2 = t[4] ^ ((t[4] ^ t[5]) & z), p3 = t[6] ^ ((t[6] ^ t[7]) & z);
    const u32 q0 = p0 ^ ((p0 ^ p1) & y), q1 = p2 ^ ((p2 ^ p3) & y);
    const u32 r = q0 ^ ((q0 ^ q1) & x);
    d[i] = ((m >> i) & 1) != 0 ? r : d[i];
  }
  return Flow::kNext;
}
// add/addc/sub/subc with .cc: one carry bit per lane in Warp::cc. For subtraction it is the borrow.
template <class T, bool kSubtract> Flow add_carry(Warp& w, const Inst& in) {
  const T* a = source<T>(w, in.a);
  const T* b = source<T>(w, in.b);
  T* d = target<T>(w, in.d);
  u32 out = 0;
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const int i = __builtin_ctz(m);
    const T carry = (in.mod & kModUseCc) != 0 ? static_cast<T>((w.cc >> i) & 1) : T{0};
    T r;
    bool c1, c2;
    if constexpr (kSubtract) {
      c1 = __builtin_sub_overflow(a[i], b[i], &r);
      c2 = __builtin_sub_overflow(r, carry, &r);
    } else {
      c1 = __builtin_add_overflow(a[i], b[i], &r);
      c2 = __builtin_add_overflow(r, carry, &r);
    }
    d[i] = r;
    out |= static_cast<u32>(c1 || c2) << i;
  }
  if ((in.mod & kModSetCc) != 0) w.cc = (w.cc & ~w.exec) | out;
  return Flow::kNext;
}
template <class T, bool kHigh> Flow mad_carry(Warp& w, const Inst& in) {
  using U = Unsigned<T>;
  const T* a = source<T>(w, in.a);
  const T* b = source<T>(w, in.b);
  const U* c = source<U>(w, in.c);
  U* d = target<U>(w, in.d);
  u32 out = 0;
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const int i = __builtin_ctz(m);
    const U carry = (in.mod & kModUseCc) != 0 ? static_cast<U>((w.cc >> i) & 1) : U{0};
    const U product = kHigh ? static_cast<U>(mul_high(a[i], b[i])) : static_cast<U>(mul_low(a[i], b[i]));
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
struct Eq { template <class T> static bool f(T a, T b) { return a == b; } };
struct Ne { template <class T> static bool f(T a, T b) { return a != b; } };
struct Lt { template <class T> static bool f(T a, T b) { return a < b; } };
struct Le { template <class T> static bool f(T a, T b) { return a <= b; } };
struct Gt { template <class T> static bool f(T a, T b) { return a > b; } };
struct Ge { template <class T> static bool f(T a, T b) { return a >= b; } };

Flow pred_and(Warp& w, const Inst& in) {
  w.set_pred(in.d, w.pred(in.a) & w.pred(in.b));
  return Flow::kNext;
}
Flow pred_or(Warp& w, const Inst& in) {
  w.set_pred(in.d, w.pred(in.a) | w.pred(in.b));
  return Flow::kNext;
}
Flow pred_xor(Warp& w, const Inst& in) {
  w.set_pred(in.d, w.pred(in.a) ^ w.pred(in.b));
  return Flow::kNext;
}
Flow pred_not(Warp& w, const Inst& in) {
  w.set_pred(in.d, ~w.pred(in.a));
  return Flow::kNext;
}
Flow pred_mov(Warp& w, const Inst& in) {
  w.set_pred(in.d, w.pred(in.a));
  return Flow::kNext;
}
struct Same { template <class T> static T f(T a) { return a; } };
template <class T> Flow select(Warp& w, const Inst& in) {
  const T* a = source<T>(w, in.a);
  const T* b = source<T>(w, in.b);
  T* d = target<T>(w, in.d);
  const u32 p = w.pred(in.c), m = w.exec;
  if (m == w.live) {
    SLUICE_LANES d[i] = ((p >> i) & 1) != 0 ? a[i] : b[i];
  } else {
    SLUICE_LANES {
      const T r = ((p >> i) & 1) != 0 ? a[i] : b[i];
      d[i] = ((m >> i) & 1) != 0 ? r : d[i];
    }
  }
  return Flow::kNext;
}
struct Slct {
  template <class T, class C> static T f(T a, T b, C c) { return c >= 0 ? a : b; }
};
struct Pack64 { static u64 f(u32 a, u32 b) { return u64{b} << 32 | a; } };
struct Pack32 { static u32 f(u32 a, u32 b) { return b << 16 | (a & 0xffff); } };
template <class D, int kPartBits> Flow pack4(Warp& w, const Inst& in) {
  const u32* p[4] = {source<u32>(w, in.a), source<u32>(w, in.b), source<u32>(w, in.c),
                     source<u32>(w, in.e)};
  D* d = target<D>(w, in.d);
  const D mask = static_cast<D>((D{1} << kPartBits) - 1);
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const int i = __builtin_ctz(m);
    D r = 0;
    for (int k = 0; k < 4; ++k) r |= static_cast<D>((static_cast<D>(p[k][i]) & mask) << (k * kPartBits));
    d[i] = r;
  }
  return Flow::kNext;
}
// Part number inst.imm of a wider register.
template <class D, class A> Flow part(Warp& w, const Inst& in) {
  const A* a = source<A>(w, in.a);
  auto* d = target<D>(w, in.d);
  const u32 shift = static_cast<u32>(in.imm) * kBits<Unsigned<A>> / (sizeof(A) / sizeof(D));
  const u32 m = w.exec;
  SLUICE_LANES {
    const auto r = to_lane<D>(static_cast<D>(a[i] >> shift));
    d[i] = ((m >> i) & 1) != 0 ? r : d[i];
  }
  return Flow::kNext;
}
template <class D> struct Convert {
  template <class S> static D f(S a) { return static_cast<D>(a); }
};
// cvt.sat between integer types: inst.imm = destination | source << 4, numbered u8 s8 u16 ... s64.
inline s128 widen(u64 v, u32 type) {
  const u32 bits = 8u << (type >> 1);
  if (bits < 64) v &= (1ull << bits) - 1;
  if ((type & 1) == 0) return static_cast<s128>(v);
  return static_cast<s64>(v << (64 - bits)) >> (64 - bits);
}
Flow convert_saturating(Warp& w, const Inst& in) {
  const u32 to = in.imm & 15, from = (in.imm >> 4) & 15;
  const u32 bits = 8u << (to >> 1);
  const bool is_signed = (to & 1) != 0;
  const s128 high = is_signed ? (static_cast<s128>(1) << (bits - 1)) - 1 : (static_cast<s128>(1) << bits) - 1;
  const s128 low = is_signed ? -(static_cast<s128>(1) << (bits - 1)) : 0;
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const int i = __builtin_ctz(m);
    s128 v = widen(from >= 6 ? source<u64>(w, in.a)[i] : source<u32>(w, in.a)[i], from);
    v = v > high ? high : v < low ? low : v;
    if (to >= 6) target<u64>(w, in.d)[i] = static_cast<u64>(v);
    else target<u32>(w, in.d)[i] = static_cast<u32>(v);
  }
  return Flow::kNext;
}
// isspacep: inst.imm = the window's base, 0 for global.
Flow is_space(Warp& w, const Inst& in) {
  const u64* a = source<u64>(w, in.a);
  u32 mask = 0;
  for (int i = 0; i < 32; ++i) {
    const u64 window = a[i] & ~(kWindowBytes - 1);
    const u64 wanted = static_cast<u64>(in.imm);
    const bool yes = wanted != 0 ? window == wanted : a[i] < kSharedWindow;
    mask |= static_cast<u32>(yes) << i;
  }
  w.set_pred(in.d, mask);
  return Flow::kNext;
}
Flow special(Warp& w, const Inst& in) {
  read_special(w, in);
  return Flow::kNext;
}

}  // namespace

#define SLUICE_EXEC_FILL(name, handler) table[static_cast<uint16_t>(Op::k_##name)] = &SLUICE_EXEC_STRIP handler;
#define SLUICE_EXEC_STRIP(...) __VA_ARGS__
void SLUICE_EXEC_NAME(fill_int)(Handler* table) { SLUICE_EXEC_INT_OPS(SLUICE_EXEC_FILL) }

}  // namespace sluice::exec::detail
#if defined(__clang__) && SLUICE_EXEC_ISA != 0
#pragma clang attribute pop
#endif
