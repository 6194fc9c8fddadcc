// SPDX-License-Identifier: Apache-2.0
// Fences for shared memory that may be mapped write-back, write-combined or uncached.
//
// Used by ring/ in guest and host; no state. On x86 with write-back memory, plain stores are
// ordered and these are needed only where a store must come before a load. Write-combined memory (a
// guest's mapping of BAR2 may be) has none of that order: stores sit in buffers that drain in any
// order, and loads may be done early. Intel SDM vol. 3, 12.3 (memory types) and 12.2.5 (fences):
// SFENCE and MFENCE drain the buffers, LFENCE stops early loads. A few nanoseconds each where there
// is nothing to drain.
//
// The compilers' builtins instead of <immintrin.h>, of which four functions would be used: that
// header takes half a second, and a tenth of all files include this one.
#pragma once

#include <atomic>
#include <cstdint>

namespace sluice {

// All earlier stores are seen before any later store: between a record and its head index.
inline void store_fence() {
  std::atomic_thread_fence(std::memory_order_release);
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#endif
}

// No later load is done before an earlier one: between the peer's index and the record.
inline void load_fence() {
  std::atomic_thread_fence(std::memory_order_acquire);
#if defined(__x86_64__)
  __builtin_ia32_lfence();
#endif
}

// All earlier stores are seen before any later load: between publishing and reading `armed`, and
// between setting `armed` and reading the index. MFENCE rather than what the compiler makes of
// a seq_cst fence (a locked instruction on the stack): the manual promises it for every memory
// type.
inline void full_fence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
#if defined(__x86_64__)
  __builtin_ia32_mfence();
#endif
}

// One shared word. Plain loads and stores: no locked instruction ever touches shared memory.
template <class T>
inline T load_shared(const T& word, std::memory_order order = std::memory_order_relaxed) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(order);
}
template <class T>
inline void store_shared(T& word, T value, std::memory_order order = std::memory_order_relaxed) {
  std::atomic_ref<T>(word).store(value, order);
}

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace sluice
