# SPDX-License-Identifier: Apache-2.0
"""Numba kernels, compiled without being run; for several architectures."""

import math

import numpy as np

for _old, _new in (("row_stack", "vstack"), ("in1d", "isin"), ("trapz", "trapezoid")):
    if not hasattr(np, _old):  # Numba may be older than NumPy
        setattr(np, _old, getattr(np, _new))

from numba import cuda, float32, float64, int32, int64

from common import attempt, save


def saxpy(a, x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]


def stride_loop(x, out):
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        out[i] = math.sin(x[i]) ** 2 + math.pow(x[i], 3.5) + math.erf(x[i]) + math.floor(x[i])


def block_sum(x, out):
    tile = cuda.shared.array(256, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    tile[t] = x[i] if i < x.size else 0.0
    cuda.syncthreads()
    s = cuda.blockDim.x // 2
    while s > 0:
        if t < s:
            tile[t] += tile[t + s]
        cuda.syncthreads()
        s //= 2
    if t == 0:
        cuda.atomic.add(out, 0, tile[0])


def early_return(x, out):
    i = cuda.grid(1)
    if i >= x.size:
        return
    tile = cuda.shared.array(128, float32)
    tile[cuda.threadIdx.x] = x[i]
    cuda.syncthreads()
    out[i] = tile[(cuda.threadIdx.x + 1) % 128]


def matmul(a, b, c):
    sa = cuda.shared.array((16, 16), float64)
    sb = cuda.shared.array((16, 16), float64)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    acc = 0.0
    for k in range(cuda.gridDim.x):
        sa[ty, tx] = a[y, tx + k * 16] if y < a.shape[0] and tx + k * 16 < a.shape[1] else 0
        sb[ty, tx] = b[ty + k * 16, x] if x < b.shape[1] and ty + k * 16 < b.shape[0] else 0
        cuda.syncthreads()
        for j in range(16):
            acc += sa[ty, j] * sb[j, tx]
        cuda.syncthreads()
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = acc


def atomics(x, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.max(out, x[i] % 3, i)
        cuda.atomic.compare_and_swap(out[5:], 0, i)
        cuda.atomic.add(out, 3, 1)
        cuda.atomic.exch(out, 4, i)
        cuda.atomic.inc(out, 6, 100)


def warps(x, out):
    i = cuda.grid(1)
    if i >= x.size:
        return
    v = x[i]
    for d in (16, 8, 4, 2, 1):
        v += cuda.shfl_xor_sync(0xFFFFFFFF, v, d)
    m = cuda.ballot_sync(0xFFFFFFFF, v > 3)
    out[i] = v + cuda.popc(m) + cuda.any_sync(0xFFFFFFFF, v == 2) + cuda.match_any_sync(0xFFFFFFFF,
            v)
    cuda.syncwarp()


def counted(x, out):
    i = cuda.grid(1)
    out[i] = cuda.syncthreads_count(x[i] > 0) + cuda.syncthreads_or(x[i] > 5)


def local_array(x, out):
    a = cuda.local.array(32, int32)
    i = cuda.grid(1)
    for k in range(32):
        a[k] = x[(i + k) % x.size]
    s = 0
    for k in range(32):
        s += a[(k * 7 + i) % 32]
    out[i] = s


def dynamic_shared(x, out):
    tile = cuda.shared.array(0, float32)
    tile[cuda.threadIdx.x] = x[cuda.grid(1)]
    cuda.syncthreads()
    out[cuda.grid(1)] = tile[cuda.blockDim.x - 1 - cuda.threadIdx.x]


def printing(x):
    i = cuda.grid(1)
    if i < 3:
        print("at", i, x[i])


def raising(x, out):
    i = cuda.grid(1)
    if x[i] == 0:
        raise ZeroDivisionError("zero")
    out[i] = 100 // x[i]


def grid_sync(x, out):
    g = cuda.cg.this_grid()
    i = cuda.grid(1)
    for k in range(1, 4):
        out[i] = x[(i + k) % x.size] + 1
        g.sync()
        x[i] = out[i]
        g.sync()


def spin_lock(lock, total):
    if cuda.threadIdx.x == 0:
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
        cuda.threadfence()
        total[0] += 1
        cuda.threadfence()
        cuda.atomic.exch(lock, 0, 0)


def flow(x, out):
    i = cuda.grid(1)
    if i >= x.size:
        return
    for k in range(x[i]):
        if k == 7:
            continue
        if k > 20:
            break
        cuda.syncthreads()
        if x[(i + k) % x.size] == 9:
            return
        out[i] += k


def complex_numbers(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] * x[i] + x[i].conjugate() / (1 + 2j)


def three_dimensions(x):
    i, j, k = cuda.grid(3)
    nx, ny, nz = cuda.gridsize(3)
    if i < x.shape[0] and j < x.shape[1] and k < x.shape[2]:
        x[i, j, k] = i + 10 * j + 100 * k + nx + ny + nz


@cuda.jit(device=True, inline=False)
def helper(x, i):
    return x[i] + cuda.blockIdx.x * cuda.blockDim.x


def calls_helper(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = helper(x, i)


def sleeping(x):
    cuda.nanosleep(100)
    x[cuda.grid(1)] = cuda.clock64() if hasattr(cuda, "clock64") else 0


CASES = [
    (saxpy, (float32, float32[:], float32[:], float32[:])), (stride_loop, (float64[:], float64[:])),
    (block_sum, (float32[:], float32[:])), (early_return, (float32[:], float32[:])),
    (matmul, (float64[:, :], float64[:, :], float64[:, :])),
    (atomics, (int32[:], int32[:])), (warps, (int32[:], int32[:])), (counted, (int32[:], int32[:])),
    (local_array, (int32[:], int32[:])),
    (dynamic_shared, (float32[:], float32[:])), (printing, (float32[:],)),
    (raising, (int32[:], int32[:])), (grid_sync, (int32[:], int32[:])),
    (spin_lock, (int32[:], int64[:])), (flow, (int32[:], int32[:])),
    (three_dimensions, (int64[:, :, :],)), (calls_helper, (int32[:], int32[:])),
    (sleeping, (int64[:],)),
]


def compile_one(function, signature, cc, **options):
    text, _ = cuda.compile_ptx(function, signature, cc=cc, device=False, **options)
    save(f"{function.__name__}-{cc[0]}{cc[1]}" + "".join(options), text)


def from_generators():
    from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float32

    @cuda.jit
    def pi(states, n, out):
        t = cuda.grid(1)
        inside = 0
        for _ in range(n):
            x = xoroshiro128p_uniform_float32(states, t)
            y = xoroshiro128p_uniform_float32(states, t)
            inside += x * x + y * y < 1
        out[t] = inside

    pi[2, 64](create_xoroshiro128p_states(128, seed=1), 10, cuda.device_array(128, np.float32))
    for text in pi.inspect_asm().values():
        save("generator", text)

    @cuda.reduce
    def total(a, b):
        return a + b

    total(np.arange(1000.0))
    for kernel in type(total)._cache.values():
        for text in kernel.inspect_asm().values():
            save("reduce", text)

    @cuda.jit
    def vector(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = x[i] * x[i]

    vector[1, 32](np.ones(32, np.complex64), np.ones(32, np.complex64))
    for text in vector.inspect_asm().values():
        save("complex", text)


def main():
    for function, signature in CASES:
        for cc in ((7, 5), (9, 0)):
            attempt(function.__name__, compile_one, function, signature, cc)
        attempt(function.__name__ + " debug",
                lambda: compile_one(function, signature, (8, 0), debug=True, opt=False))
        attempt(function.__name__ + " fast",
                lambda: compile_one(function, signature, (8, 6), fastmath=True, lineinfo=True))
    attempt("generators", from_generators)


main()
