// SPDX-License-Identifier: Apache-2.0
// Comparisons, predicates, selections, moves and integer conversions; see ops_move.h for the list.
// Compiled once per instruction set (kernels/exec/program/isa.h).
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

struct Eq {
  template <class T>
  static bool f(T a, T b) {
    return a == b;
  }
};
struct Ne {
  template <class T>
  static bool f(T a, T b) {
    return a != b;
  }
};
struct Lt {
  template <class T>
  static bool f(T a, T b) {
    return a < b;
  }
};
struct Le {
  template <class T>
  static bool f(T a, T b) {
    return a <= b;
  }
};
struct Gt {
  template <class T>
  static bool f(T a, T b) {
    return a > b;
  }
};
struct Ge {
  template <class T>
  static bool f(T a, T b) {
    return a >= b;
  }
};

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
struct Same {
  template <class T>
  static T f(T a) {
    return a;
  }
};
template <class T>
Flow select(Warp& w, const Inst& in) {
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
  template <class T, class C>
  static T f(T a, T b, C c) {
    return c >= 0 ? a : b;
  }
};
struct Pack64 {
  static u64 f(u32 a, u32 b) { return u64{b} << 32 | a; }
};
struct Pack32 {
  static u32 f(u32 a, u32 b) { return b << 16 | (a & 0xffff); }
};
template <class D, int kPartBits>
Flow pack4(Warp& w, const Inst& in) {
  const u32* p[4] = {source<u32>(w, in.a), source<u32>(w, in.b), source<u32>(w, in.c),
                     source<u32>(w, in.e)};
  D* d = target<D>(w, in.d);
  const D mask = static_cast<D>((D{1} << kPartBits) - 1);
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const int i = __builtin_ctz(m);
    D r = 0;
    for (int k = 0; k < 4; ++k)
      r |= static_cast<D>((static_cast<D>(p[k][i]) & mask) << (k * kPartBits));
    d[i] = r;
  }
  return Flow::kNext;
}
// Part number inst.imm of a wider register.
template <class D, class A>
Flow part(Warp& w, const Inst& in) {
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
template <class D>
struct Convert {
  template <class S>
  static D f(S a) {
    return static_cast<D>(a);
  }
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
  const s128 high =
      is_signed ? (static_cast<s128>(1) << (bits - 1)) - 1 : (static_cast<s128>(1) << bits) - 1;
  const s128 low = is_signed ? -(static_cast<s128>(1) << (bits - 1)) : 0;
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const int i = __builtin_ctz(m);
    s128 v = widen(from >= 6 ? source<u64>(w, in.a)[i] : source<u32>(w, in.a)[i], from);
    v = v > high ? high : v < low ? low : v;
    if (to >= 6)
      target<u64>(w, in.d)[i] = static_cast<u64>(v);
    else
      target<u32>(w, in.d)[i] = static_cast<u32>(v);
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

#define SLUICE_EXEC_STRIP(...) __VA_ARGS__
#define SLUICE_EXEC_FILL(name, handler) \
  table[static_cast<uint16_t>(Op::k_##name)] = &SLUICE_EXEC_STRIP handler;
void SLUICE_EXEC_NAME(fill_move)(Handler* table) { SLUICE_EXEC_MOVE_OPS(SLUICE_EXEC_FILL) }

}  // namespace sluice::exec::detail
#include "kernels/exec/program/isa_end.h"
