// Loads, stores, atomics and fences; see ops_mem.h for the list. Compiled once per instruction set
// (kernels/exec/isa.h).
//
// Every address is checked before it is touched: global ones against the MemoryMap by way of the
// warp's remembered ranges, the others against their space's size. Whole warps that access one
// contiguous piece or one word take short paths.
#include <cstdint>

#include "kernels/exec/block.h"
#include "kernels/exec/block_state.h"
#include "kernels/exec/inst.h"
#include "kernels/exec/warp.h"

// Last, and apart: changes the target of everything below.
#include "kernels/exec/isa.h"

namespace sluice::exec::detail {
namespace {

#include "kernels/exec/lanes.inc"

#include "kernels/exec/half.inc"

enum class Pattern : u32 { kFault, kContiguous, kUniform, kScattered };

struct Where {
  u32 space;    // kSpace...
  u32 operand;  // address register or constant
  bool narrow;  // the address is 32 bits wide
  s64 offset;
  u32 bytes;  // of the whole access of one lane, a power of two
  u32 align;  // what the address must be a multiple of
  bool write;
};

inline Where where_of(const Inst& in, u32 bytes, bool write) {
  return {static_cast<u32>(in.mod & kSpaceMask),
          in.a,
          (in.mod & kModAddress32) != 0,
          in.imm,
          bytes,
          bytes,
          write};
}

// One lane of a space other than global: its host address, or 0 and the fault is set.
u64 resolve_lane(Warp& w, const Where& at, u32 space, u64 address, u32 lane) {
  const BlockState& block = *w.block;
  u64 size, base;
  FaultKind out = FaultKind::kOutOfBounds;
  if (space == kSpaceShared) {
    base = reinterpret_cast<u64>(block.shared);
    size = block.shared_bytes;
    out = FaultKind::kSharedBounds;
  } else if (space == kSpaceLocal) {
    base = reinterpret_cast<u64>(w.local) + u64{lane} * block.local_bytes;
    size = block.local_bytes;
    out = FaultKind::kLocalBounds;
  } else {
    base = reinterpret_cast<u64>(block.params);
    size = block.param_bytes;
    if (at.write) {
      w.fault(FaultKind::kWrongSpace, lane, address, at.bytes);
      return 0;
    }
  }
  if (size < at.bytes || address > size - at.bytes) {
    w.fault(out, lane, address, at.bytes);
    return 0;
  }
  return base + address;
}

u64 resolve_generic_lane(Warp& w, const Where& at, u64 address, u32 lane, CachedRange& cached) {
  const u64 window = address & ~(kWindowBytes - 1);
  const u64 inside = address & (kWindowBytes - 1);
  if (window == kSharedWindow) return resolve_lane(w, at, kSpaceShared, inside, lane);
  if (window == kLocalWindow) return resolve_lane(w, at, kSpaceLocal, inside, lane);
  if (window == kParamWindow) return resolve_lane(w, at, kSpaceParam, inside, lane);
  const u64 p = find_global(w, address, at.bytes, at.write, cached);
  if (p == 0) {
    // A store to read-only memory is told apart, because it is the likelier surprise.
    CachedRange other;
    const bool readable = at.write && find_global(w, address, at.bytes, false, other) != 0;
    w.fault(readable ? FaultKind::kReadOnly : FaultKind::kOutOfBounds, lane, address, at.bytes);
  }
  return p;
}

// The range that the warp remembers for an instruction.
inline CachedRange& remembered(Warp& w, const Inst& in, bool write) {
  const u32 slot = static_cast<u32>((reinterpret_cast<u64>(&in) / sizeof(Inst)) % kRangeCacheSize);
  return write ? w.write_ranges[slot] : w.read_ranges[slot];
}

// The lanes' host addresses into p; lanes that do not execute get the first one's that does.
Pattern resolve(Warp& w, const Inst& in, const Where& at, u64* __restrict p) {
  const u32 m = w.exec;
  const int first_lane = __builtin_ctz(m);
  alignas(64) u64 address[32];
  if (at.narrow) {
    const u32* a = source<u32>(w, at.operand);
    const u32 offset = static_cast<u32>(at.offset);
    SLUICE_LANES address[i] = static_cast<u32>(a[i] + offset);
  } else {
    const u64* a = source<u64>(w, at.operand);
    const u64 offset = static_cast<u64>(at.offset);
    SLUICE_LANES address[i] = a[i] + offset;
  }
  const u64 first = address[first_lane];
  if (m != 0xffffffffu) {
    SLUICE_LANES address[i] = ((m >> i) & 1) != 0 ? address[i] : first;
  }
  const u64 bytes = at.bytes;
  u64 low_bits = 0, step = 0, differ = 0, top = 0;
  SLUICE_LANES {
    low_bits |= address[i];
    step |= address[i] ^ (first + bytes * static_cast<u64>(i));
    differ |= address[i] ^ first;
    top |= address[i];
  }
  if ((low_bits & (at.align - 1)) != 0) {
    for (u32 k = m; k != 0; k &= k - 1) {
      const u32 lane = static_cast<u32>(__builtin_ctz(k));
      if ((address[lane] & (at.align - 1)) != 0) {
        w.fault(FaultKind::kMisaligned, lane, address[lane], at.bytes);
        break;
      }
    }
    return Pattern::kFault;
  }
  const Pattern pattern = differ == 0                     ? Pattern::kUniform
                          : step == 0 && m == 0xffffffffu ? Pattern::kContiguous
                                                          : Pattern::kScattered;
  const BlockState& block = *w.block;
  switch (at.space) {
    case kSpaceGlobal:
    case kSpaceGeneric: {
      refresh_ranges(w);
      CachedRange& cached = remembered(w, in, at.write);
      if (cached.bytes >= bytes) {
        const u64 base = cached.base, limit = cached.bytes - bytes;
        u64 outside = 0;
        SLUICE_LANES {
          outside |= address[i] - base > limit ? 1u : 0u;
          p[i] = address[i];
        }
        if (outside == 0) return pattern;
      }
      for (u32 k = m; k != 0; k &= k - 1) {
        const u32 lane = static_cast<u32>(__builtin_ctz(k));
        u64 host;
        if (at.space == kSpaceGeneric) {
          host = resolve_generic_lane(w, at, address[lane], lane, cached);
        } else {
          // A window address is no global address: find_global would not know it either, but a
          // range registered there by mistake must not make it one.
          host = address[lane] >= kSharedWindow
                     ? (w.fault(FaultKind::kOutOfBounds, lane, address[lane], at.bytes), 0)
                     : resolve_generic_lane(w, at, address[lane], lane, cached);
        }
        if (host == 0) return Pattern::kFault;
        p[lane] = host;
      }
      if (m != 0xffffffffu) {
        const u64 host = p[first_lane];
        SLUICE_LANES p[i] = ((m >> i) & 1) != 0 ? p[i] : host;
      }
      // Addresses in one window are as contiguous on the host, except local ones.
      if ((first & ~(kWindowBytes - 1)) == kLocalWindow) return Pattern::kScattered;
      if (first >= kSharedWindow || top < kSharedWindow) return pattern;
      return Pattern::kScattered;
    }
    case kSpaceShared: {
      const u64 size = block.shared_bytes;
      const u64 base = reinterpret_cast<u64>(block.shared);
      u64 outside = size < bytes ? 1 : 0;
      const u64 limit = size - bytes;
      SLUICE_LANES {
        outside |= address[i] > limit ? 1u : 0u;
        p[i] = base + address[i];
      }
      if (outside == 0) return pattern;
      break;
    }
    case kSpaceLocal: {
      const u64 size = block.local_bytes;
      const u64 base = reinterpret_cast<u64>(w.local);
      u64 outside = size < bytes ? 1 : 0;
      const u64 limit = size - bytes;
      SLUICE_LANES {
        outside |= address[i] > limit ? 1u : 0u;
        p[i] = base + size * static_cast<u64>(i) + address[i];
      }
      if (outside == 0) {
        if (m != 0xffffffffu) {
          const u64 host = p[first_lane];
          SLUICE_LANES p[i] = ((m >> i) & 1) != 0 ? p[i] : host;
        }
        return Pattern::kScattered;
      }
      break;
    }
    default: {
      const u64 size = block.param_bytes;
      const u64 base = reinterpret_cast<u64>(block.params);
      u64 outside = size < bytes || at.write ? 1 : 0;
      const u64 limit = size - bytes;
      SLUICE_LANES {
        outside |= address[i] > limit ? 1u : 0u;
        p[i] = base + address[i];
      }
      if (outside == 0) return pattern;
      break;
    }
  }
  for (u32 k = m; k != 0; k &= k - 1) {
    const u32 lane = static_cast<u32>(__builtin_ctz(k));
    if (resolve_lane(w, at, at.space, address[lane], lane) == 0) break;
  }
  return Pattern::kFault;
}

template <class T>
inline const T* as(u64 p) {
  return reinterpret_cast<const T*>(p);
}
template <class T>
inline T* as_mutable(u64 p) {
  return reinterpret_cast<T*>(p);
}

template <class T>
inline void broadcast(Warp& w, u32 operand, T value) {
  auto* d = target<T>(w, operand);
  const auto v = to_lane<T>(value);
  const u32 m = w.exec;
  SLUICE_LANES d[i] = ((m >> i) & 1) != 0 ? v : d[i];
}

// The commonest access by far: a whole warp at one contiguous, aligned piece of global memory that
// lies in the range remembered for this instruction, or of shared memory. Its host address, or 0:
// it may be anything else, `resolve` knows. One scalar check of the ends stands for 32 of the
// addresses, once it is seen that they are in a row.
inline u64 contiguous_piece(Warp& w, const Inst& in, u32 bytes, bool write) {
  if (w.exec != 0xffffffffu || (in.mod & kModStrong) != 0) return 0;
  const u32 space = in.mod & kSpaceMask;
  if ((in.mod & kModAddress32) != 0) {
    if (space != kSpaceShared) return 0;
    const u32* a = source<u32>(w, in.a);
    const u32 first = a[0];
    u32 differ = 0;
    SLUICE_LANES differ |= a[i] ^ (first + bytes * static_cast<u32>(i));
    const u64 at = static_cast<u32>(first + static_cast<u32>(in.imm));
    if (differ != 0 || (at & (bytes - 1)) != 0 || at + 32 * u64{bytes} > w.block->shared_bytes)
      return 0;
    return reinterpret_cast<u64>(w.block->shared) + at;
  }
  if (space != kSpaceGlobal && space != kSpaceGeneric) return 0;
  if (w.block->map->version() != w.range_version) return 0;
  const u64* a = source<u64>(w, in.a);
  const u64 at = a[0] + static_cast<u64>(in.imm);
  const CachedRange& range = remembered(w, in, write);
  if (range.bytes < 32 * u64{bytes} || at - range.base > range.bytes - 32 * u64{bytes} ||
      (at & (bytes - 1)) != 0)
    return 0;
  const u64 first = a[0];
  u64 differ = 0;
  SLUICE_LANES differ |= a[i] ^ (first + bytes * static_cast<u64>(i));
  return differ == 0 ? at : 0;
}

// A parameter at an address that the text names: the same for all lanes, and no more to check.
// False: it is none, or out of bounds.
template <class T>
inline bool load_parameter(Warp& w, const Inst& in) {
  if ((in.mod & kSpaceMask) != kSpaceParam || (in.a & kConstBit) == 0) return false;
  const u64 at =
      ((in.mod & kModAddress32) != 0 ? u64{*source<u32>(w, in.a)} : *source<u64>(w, in.a)) +
      static_cast<u64>(in.imm);
  if (at > w.block->param_bytes || w.block->param_bytes - at < sizeof(T) || at % sizeof(T) != 0)
    return false;
  const T value = *as<T>(reinterpret_cast<u64>(w.block->params) + at);
  auto* d = target<T>(w, in.d);
  if (w.exec == w.live) {
    SLUICE_LANES d[i] = to_lane<T>(value);
  } else {
    broadcast<T>(w, in.d, value);
  }
  return true;
}

template <class T, int N>
Flow load(Warp& w, const Inst& in) {
  if constexpr (N == 1) {
    if (load_parameter<T>(w, in)) return Flow::kNext;
    if (const u64 from = contiguous_piece(w, in, sizeof(T), false)) {
      auto* d = target<T>(w, in.d);
      const T* values = as<T>(from);
      SLUICE_LANES d[i] = to_lane<T>(values[i]);
      return Flow::kNext;
    }
  }
  alignas(64) u64 p[32];
  const Pattern pattern = resolve(w, in, where_of(in, sizeof(T) * N, false), p);
  if (pattern == Pattern::kFault) return Flow::kFault;
  u32 to[N];
  if constexpr (N == 1)
    to[0] = in.d;
  else
    for (int k = 0; k < N; ++k) to[k] = w.block->aux[in.aux + static_cast<u32>(k)];
  const u32 m = w.exec;
  if ((in.mod & kModStrong) != 0) {
    // A load that finds what its register held already is probably one of a polling loop.
    bool news = false;
    for (int k = 0; k < N; ++k) {
      if (to[k] == kNoOperand) continue;
      auto* d = target<T>(w, to[k]);
      if (pattern == Pattern::kUniform) {
        const T value = __atomic_load_n(as<T>(p[0]) + k, __ATOMIC_RELAXED);
        news = news || d[__builtin_ctz(m)] != to_lane<T>(value);
        broadcast<T>(w, to[k], value);
      } else {
        for (u32 j = m; j != 0; j &= j - 1) {
          const int i = __builtin_ctz(j);
          const auto value = to_lane<T>(__atomic_load_n(as<T>(p[i]) + k, __ATOMIC_RELAXED));
          news = news || d[i] != value;
          d[i] = value;
        }
      }
    }
    if (!news) ++w.spin;
    if ((in.mod & kModAcquire) != 0) __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return Flow::kNext;
  }
  for (int k = 0; k < N; ++k) {
    if (to[k] == kNoOperand) continue;
    auto* d = target<T>(w, to[k]);
    if (pattern == Pattern::kUniform) {
      broadcast<T>(w, to[k], as<T>(p[0])[k]);
    } else if (pattern == Pattern::kContiguous) {
      const T* from = as<T>(p[0]) + k;
      SLUICE_LANES d[i] = to_lane<T>(from[i * N]);
    } else if (m == w.live) {
      SLUICE_LANES d[i] = to_lane<T>(as<T>(p[i])[k]);
    } else {
      for (u32 j = m; j != 0; j &= j - 1) {
        const int i = __builtin_ctz(j);
        d[i] = to_lane<T>(as<T>(p[i])[k]);
      }
    }
  }
  return Flow::kNext;
}

template <class T, int N>
Flow store(Warp& w, const Inst& in) {
  if constexpr (N == 1) {
    if (const u64 to = contiguous_piece(w, in, sizeof(T), true)) {
      const auto* b = source<T>(w, in.b);
      T* values = as_mutable<T>(to);
      SLUICE_LANES values[i] = static_cast<T>(b[i]);
      return Flow::kNext;
    }
  }
  alignas(64) u64 p[32];
  const Pattern pattern = resolve(w, in, where_of(in, sizeof(T) * N, true), p);
  if (pattern == Pattern::kFault) return Flow::kFault;
  const u32 m = w.exec;
  const bool strong = (in.mod & kModStrong) != 0;
  if ((in.mod & kModRelease) != 0) __atomic_thread_fence(__ATOMIC_RELEASE);
  for (int k = 0; k < N; ++k) {
    const u32 operand = N == 1 ? in.b : w.block->aux[in.aux + static_cast<u32>(k)];
    const auto* b = source<T>(w, operand);
    if (strong) {
      for (u32 j = m; j != 0; j &= j - 1) {
        const int i = __builtin_ctz(j);
        __atomic_store_n(as_mutable<T>(p[i]) + k, static_cast<T>(b[i]), __ATOMIC_RELAXED);
      }
    } else if (pattern == Pattern::kContiguous) {
      T* to = as_mutable<T>(p[0]) + k;
      SLUICE_LANES to[i * N] = static_cast<T>(b[i]);
    } else {
      for (u32 j = m; j != 0; j &= j - 1) {
        const int i = __builtin_ctz(j);
        as_mutable<T>(p[i])[k] = static_cast<T>(b[i]);
      }
    }
  }
  return Flow::kNext;
}

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

// cp.async, at once: a = shared address, b = global address, imm = bytes, c = source bytes (the
// rest is zero) or none, aux = the two offsets. Waiting for it is then no work.
Flow copy_async(Warp& w, const Inst& in) {
  const u32* offsets = w.block->aux + in.aux;
  const u32 bytes = static_cast<u32>(in.imm);
  alignas(64) u64 to[32], from[32];
  const Where destination{
      kSpaceShared, in.a, (in.mod & kModAddress32) != 0, static_cast<s32>(offsets[0]), bytes,
      bytes,        true};
  if (resolve(w, in, destination, to) == Pattern::kFault) return Flow::kFault;
  const Where origin{kSpaceGlobal, in.b, false, static_cast<s32>(offsets[1]), bytes, bytes, false};
  const u32* limit = in.c == kNoOperand ? nullptr : source<u32>(w, in.c);
  const u32 all = w.exec;
  if (limit != nullptr) {  // lanes that read nothing may name any address
    u32 reading = 0;
    for (int i = 0; i < 32; ++i) reading |= static_cast<u32>(limit[i] != 0) << i;
    w.exec = all & reading;
  }
  const bool bad = w.exec != 0 && resolve(w, in, origin, from) == Pattern::kFault;
  w.exec = all;
  if (bad) return Flow::kFault;
  for (u32 m = all; m != 0; m &= m - 1) {
    const int i = __builtin_ctz(m);
    const u32 have = limit == nullptr ? bytes : limit[i] < bytes ? limit[i] : bytes;
    u8* d = as_mutable<u8>(to[i]);
    const u8* s = as<u8>(from[i]);
    for (u32 k = 0; k < bytes; ++k) d[k] = k < have ? s[k] : u8{0};
  }
  return Flow::kNext;
}

Flow fence(Warp&, const Inst&) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  return Flow::kNext;
}

}  // namespace

#define SLUICE_EXEC_STRIP(...) __VA_ARGS__
#define SLUICE_EXEC_FILL(name, handler) \
  table[static_cast<uint16_t>(Op::k_##name)] = &SLUICE_EXEC_STRIP handler;
void SLUICE_EXEC_NAME(fill_mem)(Handler* table) { SLUICE_EXEC_MEM_OPS(SLUICE_EXEC_FILL) }

}  // namespace sluice::exec::detail
#if defined(__clang__) && SLUICE_EXEC_ISA != 0
#pragma clang attribute pop
#endif
