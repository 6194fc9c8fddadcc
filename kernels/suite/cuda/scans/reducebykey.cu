// SPDX-License-Identifier: Apache-2.0
// Reduce by key in one pass: runs of equal keys become one key and the sum of their values. A tile
// publishes two numbers, which are no word: values first, then, past a fence, the flag that they
// are there.
constexpr unsigned kThreads = 128;

// Runs begun so far, and the sum since the last of them began.
struct Runs {
  unsigned begun, sum;
};
__device__ Runs join(Runs a, Runs b) {
  return {a.begun + b.begun, b.begun ? b.sum : a.sum + b.sum};
}

__device__ Runs take(const Runs* from) {
  const volatile Runs* words = from;
  return {words->begun, words->sum};
}

// For one thread: everything before `tile`. flags: 0 nothing, 1 `own` is there, 2 `prefix` too.
__device__ Runs look_back(volatile unsigned* flags, Runs* own, Runs* prefix, unsigned tile,
                          Runs mine) {
  if (tile != 0) {
    own[tile] = mine;
    __threadfence();
    flags[tile] = 1;
  }
  Runs before = {0, 0};
  for (unsigned k = tile; k-- > 0;) {
    unsigned flag;
    do flag = flags[k];
    while (flag == 0);
    __threadfence();
    before = join(take(flag == 2 ? prefix + k : own + k), before);
    if (flag == 2) break;
  }
  prefix[tile] = join(before, mine);
  __threadfence();
  flags[tile] = 2;
  return before;
}

extern "C" __global__ void reducebykey(unsigned* keys_out, unsigned* sums_out, unsigned* runs_out,
                                       unsigned* flags, Runs* own, Runs* prefix,
                                       const unsigned* keys, const unsigned* values, unsigned n) {
  __shared__ Runs shared[kThreads], before_tile;
  const unsigned t = threadIdx.x, i = blockIdx.x * kThreads + t;
  const unsigned key = i < n ? keys[i] : 0;
  const bool head = i < n && (i == 0 || keys[i - 1] != key);
  Runs mine = {head, i < n ? values[i] : 0};
  shared[t] = mine;
  __syncthreads();
  for (unsigned d = 1; d < kThreads; d *= 2) {
    if (t >= d) mine = join(shared[t - d], mine);
    __syncthreads();
    shared[t] = mine;
    __syncthreads();
  }
  if (t == kThreads - 1) before_tile = look_back(flags, own, prefix, blockIdx.x, mine);
  __syncthreads();
  mine = join(before_tile, mine);
  if (i >= n) return;
  if (head) keys_out[mine.begun - 1] = key;
  if (i + 1 == n || keys[i + 1] != key) sums_out[mine.begun - 1] = mine.sum;
  if (i + 1 == n) *runs_out = mine.begun;
}
