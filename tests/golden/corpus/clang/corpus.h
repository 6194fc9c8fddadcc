// SPDX-License-Identifier: Apache-2.0
// What clang needs of CUDA's headers, for device text only.
#pragma once
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))

using u32 = unsigned;
using u64 = unsigned long long;

struct Axis {
  u32 x, y;
};
__device__ inline Axis thread() {
  return {u32(__nvvm_read_ptx_sreg_tid_x()), u32(__nvvm_read_ptx_sreg_tid_y())};
}
__device__ inline Axis block() {
  return {u32(__nvvm_read_ptx_sreg_ctaid_x()), u32(__nvvm_read_ptx_sreg_ctaid_y())};
}
__device__ inline Axis threads() {
  return {u32(__nvvm_read_ptx_sreg_ntid_x()), u32(__nvvm_read_ptx_sreg_ntid_y())};
}
__device__ inline Axis blocks() {
  return {u32(__nvvm_read_ptx_sreg_nctaid_x()), u32(__nvvm_read_ptx_sreg_nctaid_y())};
}
__device__ inline u32 global_thread() { return block().x * threads().x + thread().x; }
__device__ inline u32 all_threads() { return blocks().x * threads().x; }
__device__ inline void sync_block() { __syncthreads(); }
__device__ inline void fence_device() { __nvvm_membar_gl(); }
__device__ inline int add_to(int* p, int v) { return __nvvm_atom_add_gen_i(p, v); }
__device__ inline u32 add_to(u32* p, u32 v) { return __nvvm_atom_add_gen_i((int*)p, v); }
__device__ inline float add_to(float* p, float v) { return __nvvm_atom_add_gen_f(p, v); }
__device__ inline int swap(int* p, int old, int v) { return __nvvm_atom_cas_gen_i(p, old, v); }
__device__ inline int put(int* p, int v) { return __nvvm_atom_xchg_gen_i(p, v); }
__device__ inline int largest(int* p, int v) { return __nvvm_atom_max_gen_i(p, v); }
template <typename T>
__device__ T now(const T* p) {
  return *(const volatile T*)p;
}
__device__ inline int down(int v, int by) {
  return __nvvm_shfl_sync_down_i32(0xffffffff, v, by, 31);
}
__device__ inline u32 down(u32 v, int by) {
  return __nvvm_shfl_sync_down_i32(0xffffffff, v, by, 31);
}
__device__ inline float down(float v, int by) {
  return __nvvm_shfl_sync_down_f32(0xffffffff, v, by, 31);
}
__device__ inline int up(int v, int by) { return __nvvm_shfl_sync_up_i32(0xffffffff, v, by, 0); }
__device__ inline float up(float v, int by) {
  return __nvvm_shfl_sync_up_f32(0xffffffff, v, by, 0);
}
