// SPDX-License-Identifier: Apache-2.0
// Logic, shifts, bit fields and permutations; see ops_bits.h for the list. Compiled once per
// instruction set (kernels/exec/program/isa.h).
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

struct And {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
struct Not {
  template <class T>
  static T f(T a) {
    return static_cast<T>(~a);
  }
};
struct Cnot {
  template <class T>
  static T f(T a) {
    return a == 0 ? T{1} : T{0};
  }
};
struct Shl {
  template <class T>
  static T f(T a, u32 n) {
    return n < kBits<T> ? static_cast<T>(static_cast<u64>(a) << (n & 63)) : T{0};
  }
  static u32 f(u32 a, u32 n) { return n < 32 ? a << (n & 31) : 0; }
};
struct Shr {
  template <class T>
  static T f(T a, u32 n) {
    const u32 last = kBits<T> - 1;
    if constexpr (kIsSigned<T>)
      return static_cast<T>(a >> (n < last ? n : last));
    else
      return n <= last ? static_cast<T>(a >> (n & last)) : T{0};
  }
};
inline u32 funnel(u32 lo, u32 hi, u32 n) {  // bits n.. of hi:lo, n in 0..32
  return static_cast<u32>(((u64{hi} << 32) | lo) >> n);
}
struct ShfRWrap {
  static u32 f(u32 a, u32 b, u32 c) { return funnel(a, b, c & 31); }
};
struct ShfRClamp {
  static u32 f(u32 a, u32 b, u32 c) { return funnel(a, b, c < 32 ? c : 32); }
};
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
        case 1:
          s[k] = n + k;
          break;  // f4e
        case 2:
          s[k] = (n + 8 - k) & 7;
          break;  // b4e
        case 3:
          s[k] = n;
          break;  // rc8
        case 4:
          s[k] = k < n ? n : k;
          break;  // ecl
        case 5:
          s[k] = k > n ? n : k;
          break;  // ecr
        default:
          s[k] = ((n & 1) << 1) + (k & 1);
          break;  // rc16
      }
    }
    return Prmt::f(a, b, s[0] | s[1] << 4 | s[2] << 8 | s[3] << 12);
  }
};
struct Bfe {
  template <class T>
  static T f(T a, u32 pos, u32 len) {
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
      const U high = pos == 0    ? U{0}
                     : pos > msb ? static_cast<U>(~U{0})
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
template <class T>
Flow bfi(Warp& w, const Inst& in) {
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
  static u64 f(u64 v) { return u64{f(static_cast<u32>(v))} << 32 | f(static_cast<u32>(v >> 32)); }
};
struct Bfind {
  template <class T>
  static u32 f(const Inst& in, T a) {
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
struct BmskWrap {
  static u32 f(u32 a, u32 b) { return mask_of(a & 31, b & 31); }
};
struct BmskClamp {
  static u32 f(u32 a, u32 b) { return mask_of(a, b); }
};
template <class T>
inline T extend_from(T a, u32 n) {  // the low n bits, n in 0..32
  if (n == 0) return 0;
  if (n >= 32) return a;
  if constexpr (kIsSigned<T>)
    return static_cast<s32>(static_cast<u32>(a) << (32 - n)) >> (32 - n);
  else
    return a & ((1u << n) - 1);
}
struct SzextWrap {
  template <class T>
  static T f(T a, u32 n) {
    return extend_from(a, n & 31);
  }
};
struct SzextClamp {
  template <class T>
  static T f(T a, u32 n) {
    return extend_from(a, n);
  }
};
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

}  // namespace

#define SLUICE_EXEC_STRIP(...) __VA_ARGS__
#define SLUICE_EXEC_FILL(name, handler) \
  table[static_cast<uint16_t>(Op::k_##name)] = &SLUICE_EXEC_STRIP handler;
void SLUICE_EXEC_NAME(fill_bits)(Handler* table) { SLUICE_EXEC_BITS_OPS(SLUICE_EXEC_FILL) }

}  // namespace sluice::exec::detail
#include "kernels/exec/program/isa_end.h"
