// SPDX-License-Identifier: Apache-2.0
// For authors of CUDA kernels: where a block may leave the GPU in the middle of its work, and how
// it goes on later.
//
//   for (; state.i < n; ++state.i) {
//     if (sluice::block_should_leave()) sluice::leave(state);
//     ... one step ...
//   }
//
// Without Sluice (and where the kernel cannot be used like this: `sluice-ptx report` says why) all
// of it is a constant that the assembler folds away. Under Sluice, which rewrites the kernel's PTX,
// a block that leaves has its state saved, and is later started again with the same blockIdx;
// sluice::resume() then gives the state back. docs/operating/kernel-authors.md has rules and
// examples.
//
// One header, no library, C++14 or later, sm_70 or later, nvcc, NVRTC or clang.
// Source: the low-level calls of EffiSha (PPoPP'17, section 4).
#ifndef SLUICE_PREEMPT_CUH
#define SLUICE_PREEMPT_CUH

namespace sluice {

namespace detail {
// Sluice knows these instructions by the names of their destinations
// (kernels/passes/analysis/author_points.h).
__device__ __forceinline__ unsigned ask() {
  unsigned yes;
  asm volatile(
      "{\n\t.reg .b32 sluice_should_leave;\n\tmov.b32 sluice_should_leave, 0;\n\t"
      "mov.b32 %0, sluice_should_leave;\n\t}"
      : "=r"(yes)::"memory");
  return yes;
}
template <unsigned Bytes>
__device__ __forceinline__ unsigned long long resume_at() {
  unsigned long long at;
  asm volatile(
      "{\n\t.reg .b64 sluice_resume_at;\n\tand.b64 sluice_resume_at, %1, 0;\n\t"
      "mov.b64 %0, sluice_resume_at;\n\t}"
      : "=l"(at)
      : "n"(Bytes)
      : "memory");
  return at;
}
template <unsigned Bytes>
__device__ __forceinline__ unsigned long long save_at() {
  unsigned long long at;
  asm volatile(
      "{\n\t.reg .b64 sluice_save_at;\n\tand.b64 sluice_save_at, %1, 0;\n\t"
      "mov.b64 %0, sluice_save_at;\n\t}"
      : "=l"(at)
      : "n"(Bytes)
      : "memory");
  return at;
}
template <unsigned Bytes>
__device__ __forceinline__ void leave_now() {
  asm volatile(
      "{\n\t.reg .b32 sluice_leave;\n\tand.b32 sluice_leave, %0, 0;\n\texit;\n\t}" ::"n"(Bytes)
      : "memory");
  __builtin_unreachable();
}
template <class State>
struct check_state {
  static_assert(__is_trivially_copyable(State), "a state is copied byte by byte");
  static_assert(alignof(State) <= 16, "a state is aligned to at most 16 bytes");
  static_assert(sizeof(State) <= 1024, "a thread can save at most 1024 bytes");
  static constexpr unsigned bytes = sizeof(State);
};
}  // namespace detail

// Whether the block should leave now. For any thread; costs a read of device memory (half a
// microsecond or so). Threads may get different answers, so a block needs one that all of them
// follow: block_should_leave(), or one thread asks and tells the others with what it tells them
// anyway.
__device__ __forceinline__ bool should_leave() { return detail::ask() != 0; }

// The same answer for all threads of the block, which all call it together; a barrier, also without
// Sluice.
__device__ __forceinline__ bool block_should_leave() {
  bool yes = false;
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) yes = should_leave();
  return __syncthreads_or(yes) != 0;
}

// The block leaves; never returns. All threads of the block call it, after should_leave() said so;
// none of them may have returned. Each thread saves its own `state`; shared memory and barriers are
// lost, and copies in flight must have been waited for.
template <class State>
__device__ __forceinline__ void leave(const State& state) {
  *reinterpret_cast<State*>(detail::save_at<detail::check_state<State>::bytes>()) = state;
  detail::leave_now<detail::check_state<State>::bytes>();
}

// The same without a state: the block begins anew when it comes back. For work queues.
__device__ __forceinline__ void leave() { detail::leave_now<0>(); }

// True: the block had left, and `state` is what this thread saved. False: it begins, and `state` is
// as it was. To be called once, before the first leave(), with the same type.
template <class State>
__device__ __forceinline__ bool resume(State& state) {
  const unsigned long long at = detail::resume_at<detail::check_state<State>::bytes>();
  if (at == 0) return false;
  state = *reinterpret_cast<const State*>(at);
  return true;
}

}  // namespace sluice

#endif  // SLUICE_PREEMPT_CUH
