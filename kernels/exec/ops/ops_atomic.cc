// SPDX-License-Identifier: Apache-2.0
// Atomics and reductions; see ops_atomic.h for the list. Compiled once per instruction set
// (kernels/exec/program/isa.h). addresses.inc checks every address before it is touched.
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

#include "kernels/exec/ops/addresses.inc"

#include "kernels/exec/ops/half.inc"

struct AtomAdd {
  template <class T>
  static T f(T a, T b) {
    return static_cast<T>(a + b);
  }
  template <class T>
  static T rmw(T* p, T b) {
    return __atomic_fetch_add(p, b, __ATOMIC_SEQ_CST);
  }
};
// The rest is what the host has no single instruction for that returns the old value.
template <class F>
struct ByExchange {
  template <class T>
  static T rmw(T* p, T b) {
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(p, &old, F::f(old, b), true, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {
    }
    return old;
  }
};
inline u32 flush_bits(u32 v) { return (v & 0x7f800000u) == 0 ? v & 0x80000000u : v; }
// Subnormals: flushed in global memory, kept in shared memory (PTX ISA, atom; as an H200 does).
struct AtomAddF32Global {
  static u32 f(u32 a, u32 b);
};
struct AtomAddF32 : ByExchange<AtomAddF32Global> {
  static u32 f(u32 a, u32 b) {
    const f32 sum = bit_cast_to<f32>(a) + bit_cast_to<f32>(b);
    return sum != sum ? 0x7fffffffu : bit_cast_to<u32>(sum);
  }
};
inline u32 AtomAddF32Global::f(u32 a, u32 b) {
  return flush_bits(AtomAddF32::f(flush_bits(a), flush_bits(b)));
}
struct AtomAddF64 : ByExchange<AtomAddF64> {
  static u64 f(u64 a, u64 b) {
    const f64 x = bit_cast_to<f64>(a), y = bit_cast_to<f64>(b);
    const u64 quiet = 0x0008000000000000ull;  // NaN operands pass: the second before the first
    return y != y ? b | quiet : x != x ? a | quiet : bit_cast_to<u64>(x + y);
  }
};
template <class S>
struct AtomMin : ByExchange<AtomMin<S>> {
  template <class T>
  static T f(T a, T b) {
    return static_cast<S>(a) < static_cast<S>(b) ? a : b;
  }
};
template <class S>
struct AtomMax : ByExchange<AtomMax<S>> {
  template <class T>
  static T f(T a, T b) {
    return static_cast<S>(a) > static_cast<S>(b) ? a : b;
  }
};
struct AtomAnd : ByExchange<AtomAnd> {
  template <class T>
  static T f(T a, T b) {
    return a & b;
  }
};
struct AtomOr : ByExchange<AtomOr> {
  template <class T>
  static T f(T a, T b) {
    return a | b;
  }
};
struct AtomXor : ByExchange<AtomXor> {
  template <class T>
  static T f(T a, T b) {
    return a ^ b;
  }
};
struct AtomExch {
  template <class T>
  static T f(T, T b) {
    return b;
  }
  template <class T>
  static T rmw(T* p, T b) {
    return __atomic_exchange_n(p, b, __ATOMIC_SEQ_CST);
  }
};
struct AtomInc : ByExchange<AtomInc> {
  static u32 f(u32 a, u32 b) { return a >= b ? 0 : a + 1; }
};
struct AtomDec : ByExchange<AtomDec> {
  static u32 f(u32 a, u32 b) { return a == 0 || a > b ? b : a - 1; }
};
template <class H>
struct AtomAddHalf : ByExchange<AtomAddHalf<H>> {
  static u16 f(u16 a, u16 b) { return half_add(H{a}, H{b}).bits; }
};
template <class H>
struct AtomAddPair : ByExchange<AtomAddPair<H>> {
  static u32 f(u32 a, u32 b) {
    const u32 lo = half_add(H{static_cast<u16>(a)}, H{static_cast<u16>(b)}).bits;
    const u32 hi = half_add(H{static_cast<u16>(a >> 16)}, H{static_cast<u16>(b >> 16)}).bits;
    return hi << 16 | lo;
  }
};

// Lanes one after the other, in lane order: the order of a warp's atomics is unspecified.
template <class T, class F>
Flow atomic(Warp& w, const Inst& in) {
  alignas(64) u64 p[32];
  if (resolve(w, in, where_of(in, sizeof(T), true), p) == Pattern::kFault) return Flow::kFault;
  bool changes = false;  // atomics that leave everything as it was are polls, too
  const auto* b = source<T>(w, in.b);
  auto* d = in.d == kNoOperand ? nullptr : target<T>(w, in.d);
  // Shared memory belongs to this block alone, and this block to this thread.
  const u64 shared = reinterpret_cast<u64>(w.block->shared), shared_bytes = w.block->shared_bytes;
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const int i = __builtin_ctz(m);
    T* at = as_mutable<T>(p[i]);
    T old;
    if (p[i] - shared < shared_bytes) {
      old = *at;
      *at = F::f(old, static_cast<T>(b[i]));
    } else {
      old = F::rmw(at, static_cast<T>(b[i]));
    }
    changes = changes || F::f(old, static_cast<T>(b[i])) != old;
    if (d != nullptr) d[i] = to_lane<T>(old);
  }
  if (!changes) ++w.spin;
  return Flow::kNext;
}
template <class T>
Flow atomic_cas(Warp& w, const Inst& in) {
  alignas(64) u64 p[32];
  if (resolve(w, in, where_of(in, sizeof(T), true), p) == Pattern::kFault) return Flow::kFault;
  bool changes = false;
  const auto* b = source<T>(w, in.b);
  const auto* c = source<T>(w, in.c);
  auto* d = in.d == kNoOperand ? nullptr : target<T>(w, in.d);
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const int i = __builtin_ctz(m);
    T expected = static_cast<T>(b[i]);
    const bool done =
        __atomic_compare_exchange_n(as_mutable<T>(p[i]), &expected, static_cast<T>(c[i]), false,
                                    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    changes = changes || done;
    if (d != nullptr) d[i] = to_lane<T>(expected);
  }
  if (!changes) ++w.spin;
  return Flow::kNext;
}

}  // namespace

#define SLUICE_EXEC_STRIP(...) __VA_ARGS__
#define SLUICE_EXEC_FILL(name, handler) \
  table[static_cast<uint16_t>(Op::k_##name)] = &SLUICE_EXEC_STRIP handler;
void SLUICE_EXEC_NAME(fill_atomic)(Handler* table) { SLUICE_EXEC_ATOMIC_OPS(SLUICE_EXEC_FILL) }

}  // namespace sluice::exec::detail
#include "kernels/exec/program/isa_end.h"
