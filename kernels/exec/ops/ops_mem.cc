// SPDX-License-Identifier: Apache-2.0
// Loads, stores, copies and fences; see ops_mem.h for the list. Compiled once per instruction set
// (kernels/exec/program/isa.h).
//
// addresses.inc checks every address before it is touched. Whole warps that access one contiguous
// piece or one word take short paths.
#include <cstdint>
#include <type_traits>

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

using Bits128 = long long __attribute__((vector_size(16)));
template <u32 bytes>
using UintOf = std::conditional_t<bytes == 2, u16, std::conditional_t<bytes == 4, u32, u64>>;

// A vector of one lane, of 16 bytes at most, read or written at once as a GPU does it: programs
// keep a value and its flag in one (CUB's look-back). An aligned access of 16 bytes is atomic on
// every x86 processor with AVX. The address is aligned to the whole in device memory; where the
// host's is not, by its elements.
template <class T, int N>
inline void load_vector(u64 from, T* values) {
  constexpr u32 bytes = sizeof(T) * N;
  if constexpr (bytes > 16) {  // no instruction has it
    load_vector<T, N / 2>(from, values);
    load_vector<T, N / 2>(from + bytes / 2, values + N / 2);
  } else if (from % bytes != 0) {
    for (int k = 0; k < N; ++k) values[k] = __atomic_load_n(as<T>(from) + k, __ATOMIC_RELAXED);
  } else if constexpr (bytes == 16) {
    Bits128 all;
    asm volatile("movdqa %1, %0" : "=x"(all) : "m"(*as<Bits128>(from)));
    __builtin_memcpy(values, &all, bytes);
  } else {
    using Bits = UintOf<bytes>;
    const Bits all = __atomic_load_n(as<Bits>(from), __ATOMIC_RELAXED);
    __builtin_memcpy(values, &all, bytes);
  }
}
template <class T, int N>
inline void store_vector(u64 to, const T* values) {
  constexpr u32 bytes = sizeof(T) * N;
  if constexpr (bytes > 16) {
    store_vector<T, N / 2>(to, values);
    store_vector<T, N / 2>(to + bytes / 2, values + N / 2);
  } else if (to % bytes != 0) {
    for (int k = 0; k < N; ++k)
      __atomic_store_n(as_mutable<T>(to) + k, values[k], __ATOMIC_RELAXED);
  } else if constexpr (bytes == 16) {
    Bits128 all;
    __builtin_memcpy(&all, values, bytes);
    asm volatile("movdqa %1, %0" : "=m"(*as_mutable<Bits128>(to)) : "x"(all));
  } else {
    using Bits = UintOf<bytes>;
    Bits all;
    __builtin_memcpy(&all, values, bytes);
    __atomic_store_n(as_mutable<Bits>(to), all, __ATOMIC_RELAXED);
  }
}

template <class T, int N>
bool load_vectors_strong(Warp& w, Pattern pattern, const u32* to, const u64* p) {
  bool news = false;
  T values[N];
  const bool uniform = pattern == Pattern::kUniform;
  if (uniform) load_vector<T, N>(p[0], values);
  for (u32 j = w.exec; j != 0; j &= j - 1) {
    const int i = __builtin_ctz(j);
    if (!uniform) load_vector<T, N>(p[i], values);
    for (int k = 0; k < N; ++k) {
      if (to[k] == kNoOperand) continue;
      auto* d = target<T>(w, to[k]);
      news = news || d[i] != to_lane<T>(values[k]);
      d[i] = to_lane<T>(values[k]);
    }
  }
  return news;
}

template <class T>
bool load_elements_strong(Warp& w, Pattern pattern, u32 to, const u64* p) {
  auto* d = target<T>(w, to);
  if (pattern == Pattern::kUniform) {
    const T value = __atomic_load_n(as<T>(p[0]), __ATOMIC_RELAXED);
    const bool news = d[__builtin_ctz(w.exec)] != to_lane<T>(value);
    broadcast<T>(w, to, value);
    return news;
  }
  bool news = false;
  for (u32 j = w.exec; j != 0; j &= j - 1) {
    const int i = __builtin_ctz(j);
    const auto value = to_lane<T>(__atomic_load_n(as<T>(p[i]), __ATOMIC_RELAXED));
    news = news || d[i] != value;
    d[i] = value;
  }
  return news;
}

// A volatile load, or one that is ordered: each lane's value is read once, as a whole.
template <class T, int N>
Flow load_strong(Warp& w, const Inst& in, Pattern pattern, const u32* to, const u64* p) {
  // A load that finds what its register held already is probably one of a polling loop.
  bool news = false;
  if constexpr (N == 1) {
    if (to[0] != kNoOperand) news = load_elements_strong<T>(w, pattern, to[0], p);
  } else {
    news = load_vectors_strong<T, N>(w, pattern, to, p);
  }
  if (!news) ++w.spin;
  if ((in.mod & kModAcquire) != 0) __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return Flow::kNext;
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
  if ((in.mod & kModStrong) != 0) return load_strong<T, N>(w, in, pattern, to, p);
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
Flow store_vectors_strong(Warp& w, const Inst& in, const u64* p) {
  for (u32 j = w.exec; j != 0; j &= j - 1) {
    const int i = __builtin_ctz(j);
    T values[N];
    for (int k = 0; k < N; ++k)
      values[k] = static_cast<T>(source<T>(w, w.block->aux[in.aux + static_cast<u32>(k)])[i]);
    store_vector<T, N>(p[i], values);
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
  if constexpr (N > 1) {
    if (strong) return store_vectors_strong<T, N>(w, in, p);
  }
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
#include "kernels/exec/program/isa_end.h"
