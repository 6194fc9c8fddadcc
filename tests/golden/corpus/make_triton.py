# SPDX-License-Identifier: Apache-2.0
"""Triton kernels, each in several specialisations. Triton keeps their PTX in its cache."""

import torch
import triton
import triton.language as tl

from common import attempt


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def softmax(out, x, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * stride + i, e / tl.sum(e, axis=0), mask=i < n)


@triton.jit
def softmax_persistent(out, x, stride, rows, n, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        i = tl.arange(0, BLOCK)
        v = tl.load(x + row * stride + i, mask=i < n, other=-float("inf"))
        e = tl.exp(v - tl.max(v, axis=0))
        tl.store(out + row * stride + i, e / tl.sum(e, axis=0), mask=i < n)


@triton.jit
def layer_norm(x, out, w, b, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for at in range(0, n, BLOCK):
        i = at + tl.arange(0, BLOCK)
        total += tl.load(x + row * stride + i, mask=i < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for at in range(0, n, BLOCK):
        i = at + tl.arange(0, BLOCK)
        d = tl.where(i < n, tl.load(x + row * stride + i, mask=i < n, other=0.0).to(tl.float32) -
                     mean, 0.0)
        squares += d * d
    r = 1 / tl.sqrt(tl.sum(squares, axis=0) / n + eps)
    for at in range(0, n, BLOCK):
        i = at + tl.arange(0, BLOCK)
        v = tl.load(x + row * stride + i, mask=i < n, other=0.0).to(tl.float32)
        y = (v - mean) * r * tl.load(w + i, mask=i < n) + tl.load(b + i, mask=i < n)
        tl.store(out + row * stride + i, y, mask=i < n)


@triton.jit
def lock_norm_grad(dx, dw, locks, x, stride, n, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    """A sum over rows under a spin lock per group, as tutorials do it."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + i, mask=i < n, other=0.0)
    tl.store(dx + row * stride + i, v * 2, mask=i < n)
    group = row % GROUPS
    lock = locks + group
    count = lock + GROUPS
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    seen = tl.load(count)
    if seen == 0:
        tl.atomic_xchg(count, 1)
    else:
        v += tl.load(dw + group * n + i, mask=i < n)
    tl.store(dw + group * n + i, v, mask=i < n)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def matmul(a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn, BM: tl.constexpr, BN: tl.constexpr,
           BK: tl.constexpr,
           GROUP: tl.constexpr, SPLIT: tl.constexpr):
    pid = tl.program_id(0)
    k_part = tl.program_id(1)
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    in_group = GROUP * tiles_n
    first = pid // in_group * GROUP
    size = min(tiles_m - first, GROUP)
    m = first + pid % in_group % size
    n = pid % in_group // size
    om = (m * BM + tl.arange(0, BM)) % M
    on = (n * BN + tl.arange(0, BN)) % N
    ok = k_part * BK + tl.arange(0, BK)
    pa = a + om[:, None] * sam + ok[None, :] * sak
    pb = b + ok[:, None] * sbk + on[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK * SPLIT)):
        left = K - k * BK * SPLIT
        acc = tl.dot(tl.load(pa, mask=ok[None, :] < left, other=0.0),
                     tl.load(pb, mask=ok[:, None] < left, other=0.0), acc)
        pa += BK * SPLIT * sak
        pb += BK * SPLIT * sbk
    cm = m * BM + tl.arange(0, BM)
    cn = n * BN + tl.arange(0, BN)
    pc = c + cm[:, None] * scm + cn[None, :] * scn
    inside = (cm[:, None] < M) & (cn[None, :] < N)
    if SPLIT == 1:
        tl.store(pc, acc.to(c.dtype.element_ty), mask=inside)
    else:
        tl.atomic_add(pc, acc.to(c.dtype.element_ty), mask=inside)


@triton.jit
def matmul_persistent(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                      PROGRAMS: tl.constexpr):
    tiles_n = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * tiles_n
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=True):
        om = tile // tiles_n * BM + tl.arange(0, BM)
        on = tile % tiles_n * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, tl.cdiv(K, BK)):
            ok = k * BK + tl.arange(0, BK)
            acc = tl.dot(tl.load(a + om[:, None] * K + ok[None, :]),
                         tl.load(b + ok[:, None] * N + on[None, :]), acc)
        tl.store(c + om[:, None] * N + on[None, :], acc.to(tl.float16))


@triton.jit
def matmul_tensor_map(da, db, dc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        acc = tl.dot(da.load([m, k * BK]), db.load([k * BK, n]), acc)
    dc.store([m, n], acc.to(tl.float16))


@triton.jit
def attention(q, k, v, out, scale, S, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
              CAUSAL: tl.constexpr):
    start = tl.program_id(0)
    base = tl.program_id(1) * S * D
    om = start * BM + tl.arange(0, BM)
    od = tl.arange(0, D)
    qs = tl.load(q + base + om[:, None] * D + od[None, :], mask=om[:, None] < S, other=0.0)
    top = tl.full([BM], -float("inf"), dtype=tl.float32)
    bottom = tl.full([BM], 1.0, dtype=tl.float32)
    acc = tl.zeros([BM, D], dtype=tl.float32)
    end = (start + 1) * BM if CAUSAL else S
    for at in range(0, end, BN):
        on = at + tl.arange(0, BN)
        ks = tl.load(k + base + on[None, :] * D + od[:, None], mask=on[None, :] < S, other=0.0)
        s = tl.dot(qs, ks) * scale
        s = tl.where((on[None, :] < S) & ((om[:, None] >= on[None, :]) if CAUSAL else True), s,
                     -1.0e6)
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        alpha = tl.exp2(top - new)
        bottom = bottom * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        vs = tl.load(v + base + on[:, None] * D + od[None, :], mask=on[:, None] < S, other=0.0)
        acc = tl.dot(p.to(tl.float16), vs, acc)
        top = new
    tl.store(out + base + om[:, None] * D + od[None, :], (acc / bottom[:, None]).to(tl.float16),
             mask=om[:, None] < S)


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def scans(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(out + i, tl.associative_scan(v, 0, plus) + tl.cumprod(v, 0) + tl.sort(v))


@triton.jit
def look_back(x, out, flags, sums, BLOCK: tl.constexpr):
    """Chained scan over blocks: each waits for the one before it."""
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    total = tl.sum(v, axis=0)
    before = 0.0
    if pid > 0:
        while tl.atomic_add(flags + pid - 1, 0) == 0:
            pass
        before = tl.load(sums + pid - 1, volatile=True)
    tl.store(sums + pid, before + total)
    tl.debug_barrier()
    tl.atomic_xchg(flags + pid, 1)
    tl.store(out + i, tl.cumsum(v, 0) + before)


@triton.jit
def histogram(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    h = tl.histogram(tl.load(x + i, mask=i < n, other=0), BINS)
    tl.atomic_add(out + tl.arange(0, BINS), h)


@triton.jit
def mixed(x, out, seed, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.rand(seed, i) > 0.5
    v = tl.load(x + i, mask=i < n)
    v = tl.where(keep, tl.math.erf(v) + tl.sin(v), tl.sqrt(tl.abs(v)))
    tl.device_assert(i >= 0, "negative")
    w = tl.inline_asm_elementwise("lop3.b32 $0, $1, $2, 0, 0xC0;", "=r,r,r", [v.to(tl.int32), i],
                                  dtype=tl.int32,
                                  is_pure=True, pack=1)
    tl.store(out + i, v + w, mask=i < n)
    if n < 0:
        tl.device_print("n", n)


@triton.jit
def atomics(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_max(out + i % 7, v, mask=i < n)
    tl.atomic_add(out + 7 + i % 5, v, mask=i < n, sem="relaxed")
    tl.atomic_and(out + 15 + i % 3, v, mask=i < n, scope="sys")
    tl.atomic_xchg(out + 31, tl.max(v, axis=0))


def main():
    r = torch.randn
    n = 1 << 14
    x, y, out = r(n, device="cuda"), r(n, device="cuda"), torch.empty(n, device="cuda")
    for block, warps in ((128, 1), (1024, 4), (4096, 8)):
        attempt("add", lambda: add[(triton.cdiv(n, block),)](x, y, out, n - 3, BLOCK=block,
                                                             num_warps=warps))
    attempt("add half", lambda: add[(n // 1024,)](x.half(), y.half(), out.half(), n, BLOCK=1024))
    for t in (torch.bfloat16, torch.int8, torch.int64, torch.float64):
        attempt("add", lambda: add[(n // 512,)](x.to(t), y.to(t), out.to(t), n - 1, BLOCK=512))
    m = r(64, 1000, device="cuda")
    o = torch.empty_like(m)
    for warps in (1, 4, 16):
        attempt("softmax", lambda: softmax[(64,)](o, m, 1000, 1000, BLOCK=1024, num_warps=warps))
    for stages in (1, 2, 4):
        attempt("softmax persistent",
                lambda: softmax_persistent[(8,)](o, m, 1000, 64, 1000, BLOCK=1024, STAGES=stages))
    w = r(1000, device="cuda")
    attempt("layer norm", lambda: layer_norm[(64,)](m, o, w, w, 1000, 1000, 1e-5, BLOCK=256))
    attempt("layer norm half",
            lambda: layer_norm[(64,)](m.half(), o.half(), w, w, 1000, 1000, 1e-5, BLOCK=1024,
                                      num_warps=8))
    locks = torch.zeros(32, dtype=torch.int32, device="cuda")
    attempt("locks", lambda: lock_norm_grad[(64,)](o, torch.zeros(16000, device="cuda"), locks, m,
                                                   1000, 1000, GROUPS=16, BLOCK=1024))
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.int8, torch.float8_e4m3fn,
                  torch.float8_e5m2):
        a = r(256, 256, device="cuda").to(dtype)
        b = r(256, 256, device="cuda").t().to(dtype)
        for stages, tile, warps, split in ((1, 64, 4, 1), (2, 32, 4, 1), (3, 128, 8, 1),
                                           (4, 64, 4, 1), (3, 64, 4, 4), (3, 128, 4, 1),
                                           (2, 16, 1, 1)):
            if dtype == torch.int8:
                continue
            c = torch.zeros(256, 256, device="cuda",
                            dtype=torch.float32 if split > 1 else torch.float16)
            attempt("matmul", lambda: matmul[((256 // tile)**2, split)](
                a, b, c, 256, 256, 256, 256, 1, 1, 256, 256, 1, BM=tile, BN=tile, BK=32, GROUP=4,
                SPLIT=split, num_warps=warps, num_stages=stages))
    a, b, c = (r(256, 256, device="cuda").half() for _ in range(3))
    for stages in (1, 3):
        attempt("persistent",
                lambda: matmul_persistent[(4,)](a, b, c, 256, 256, 256, BM=64, BN=64, BK=64,
                                                PROGRAMS=4, num_stages=stages))
        attempt("persistent 8 warps",
                lambda: matmul_persistent[(4,)](a, b, c, 256, 256, 256, BM=128, BN=128, BK=64,
                                                PROGRAMS=4, num_stages=stages, num_warps=8))

    def tensor_maps(stages, warps):
        from triton.tools.tensor_descriptor import TensorDescriptor
        d = [TensorDescriptor.from_tensor(t, [64, 64]) for t in (a, b, c)]
        matmul_tensor_map[(4, 4)](*d, 256, BM=64, BN=64, BK=64, num_stages=stages, num_warps=warps)

    attempt("tensor maps", tensor_maps, 3, 4)
    attempt("tensor maps", tensor_maps, 1, 8)
    q = r(4, 256, 64, device="cuda").half()
    for causal in (False, True):
        for stages, warps in ((1, 4), (3, 4), (2, 8)):
            attempt("attention", lambda: attention[(4, 4)](q, q, q, torch.empty_like(q), 0.1, 256,
                                                           D=64, BM=64, BN=32, CAUSAL=causal,
                                                           num_stages=stages, num_warps=warps))
    attempt("scans", lambda: scans[(16,)](x, out, BLOCK=1024))
    attempt("look back", lambda: look_back[(16,)](x, out,
                                                  torch.zeros(16, dtype=torch.int32, device="cuda"),
                                                  torch.zeros(16, device="cuda"), BLOCK=1024))
    whole = torch.randint(0, 64, (n,), device="cuda", dtype=torch.int32)
    attempt("histogram", lambda: histogram[(16,)](whole,
                                                  torch.zeros(64, dtype=torch.int32, device="cuda"),
                                                  n, BINS=64, BLOCK=1024))
    attempt("atomics", lambda: atomics[(16,)](whole,
                                              torch.zeros(64, dtype=torch.int32, device="cuda"), n,
                                              BLOCK=1024))
    attempt("mixed", lambda: mixed[(16,)](x, out, 7, n, BLOCK=1024))
    attempt("mixed debug", lambda: mixed[(16,)](x, out, 8, n - 1, BLOCK=512, debug=True))
    attempt("matmul cluster",
            lambda: matmul[(16, 1)](a, b, c, 256, 256, 256, 256, 1, 256, 1, 256, 1, BM=64, BN=64,
                                    BK=32, GROUP=4, SPLIT=1, num_ctas=2))
    torch.cuda.synchronize()


main()
