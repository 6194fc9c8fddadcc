# SPDX-License-Identifier: Apache-2.0
"""CuPy: every program that it gives to NVRTC, as PTX."""

import cupy as cp
from cupy.cuda import compiler
from cupy_backends.cuda.libs import nvrtc

from common import attempt, save

_compile = compiler._NVRTCProgram.compile


def compile_and_save(self, *arguments, **options):
    result = _compile(self, *arguments, **options)
    attempt("getPTX", lambda: save(getattr(self, "name", "program"), nvrtc.getPTX(self.ptr)))
    return result


compiler._NVRTCProgram.compile = compile_and_save

RAW = r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void neighbours(const float* x, float* out, int n) {
  extern __shared__ float tile[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x] = i < n ? x[i] : 0;
  __syncthreads();
  if (i >= n) return;
  auto w = cg::tiled_partition<8>(cg::this_thread_block());
  float s = tile[threadIdx.x];
  for (int d = 4; d; d /= 2) s += w.shfl_down(s, d);
  out[i] = s;
}
extern "C" __global__ void whole_grid(float* x, int n) {
  auto g = cg::this_grid();
  for (int k = 0; k < 3; ++k) {
    for (int i = g.thread_rank(); i < n; i += g.size()) x[i] += k;
    g.sync();
  }
}
"""


def main():
    a = cp.random.rand(1000, 100)
    f = a.astype(cp.float32)
    i = cp.random.randint(0, 100, (5000,))
    cases = {
        "ufuncs": lambda: [getattr(cp, n)(f)
                           for n in ("sin", "exp", "log1p", "sqrt", "tanh", "isnan", "floor",
                                     "sign", "cbrt", "i0", "sinc")],
        "binary": lambda: [g(f, f)
                           for g in (cp.add, cp.maximum, cp.power, cp.arctan2, cp.hypot, cp.fmod,
                                     cp.logaddexp)],
        "integers": lambda: [i // 3, i % 7, i << 1, ~i, cp.gcd(i, i), i == 3],
        "complex": lambda: cp.exp(a + 1j) * cp.conj(a + 2j),
        "half": lambda: cp.sqrt(f.astype(cp.float16)) + 1,
        "reductions": lambda: [f.sum(), f.sum(0), f.max(1), f.argmin(1), f.var(), f.prod(0),
                               cp.nansum(f), (f > 1).any(), cp.median(f)],
        "scan": lambda: [cp.cumsum(f, 1), cp.cumprod(f), cp.cumsum(i)],
        "sort": lambda: [cp.sort(f, 1), cp.argsort(f), cp.lexsort(f[:3]), cp.partition(f, 5),
                         cp.unique(i)],
        "index": lambda: [f[i % 1000], cp.take(f, i % 100, 1), cp.where(f > 0.5, f, 0),
                          cp.nonzero(f > 0.5), cp.choose(i % 2, [i, i])],
        "scatter": lambda: [cp.add.at(cp.zeros(100), i, 1.0), cp.maximum.at(cp.zeros(100), i, 2.0),
                            cp.bincount(i), cp.histogram(f, 20)],
        "place": lambda: [cp.put(f.copy(), i, 1), cp.searchsorted(cp.arange(100), i),
                          cp.digitize(f, cp.linspace(0, 1, 9))],
        "shape": lambda: [cp.concatenate([f, f]), cp.tile(f, 2), cp.roll(f, 3), cp.repeat(f, 2),
                          cp.tril(f), cp.flip(f) + 1, cp.pad(f, 3)],
        "random": lambda: [cp.random.normal(size=10), cp.random.gamma(2, size=10),
                           cp.random.poisson(3, 10), cp.random.permutation(99),
                           cp.random.default_rng(1).beta(1, 2, 100),
                           cp.random.default_rng(1).integers(0, 9, 100)],
        "linear": lambda: [cp.matmul(i.reshape(50, 100), i.reshape(100, 50)),
                           cp.kron(f[:9, :9], f[:9, :9]), cp.einsum("ij,kj->i", f, f), cp.trace(f)],
        "signal": lambda: [cp.convolve(f[0], f[1]), cp.interp(f[0], cp.arange(9.0), cp.arange(9.0)),
                           cp.gradient(f), cp.diff(f)],
        "fuse": lambda: cp.fuse(lambda x, y: cp.sum(cp.sqrt(x * x + y) - 1, axis=1))(f, f),
        "elementwise": lambda: cp.ElementwiseKernel("T x, raw T y, int32 n", "T z",
                                                    "T s = 0; for (int k = 0; k < n; ++k) s += "
                                                    "y[(i + k) % n]; z = x > 0 ? s : -s;",
                                                    "ring")(f, f, 5),
        "reduction kernel": lambda: cp.ReductionKernel("T x, T y", "T z", "x * y", "a + b",
                                                       "z = sqrt(a)", "0", "dot")(f, f, axis=1),
        "raw": lambda: cp.RawModule(code=RAW).get_function("neighbours")((4,), (128,),
                (f, cp.empty_like(f), 500), shared_mem=512),
        "raw options": lambda: [cp.RawModule(code=RAW, options=o).get_function("neighbours")
                                for o in (("-G",), ("--use_fast_math",),
                                          ("-lineinfo", "--maxrregcount=32"),
                                          ("-std=c++11", "-DX"))],
        "bits": lambda: [cp.packbits(i > 50), cp.unpackbits(i.astype(cp.uint8))],
    }

    def special():
        import cupyx.scipy.special as s
        for n in ("gamma", "erf", "erfinv", "zeta", "j0", "y1", "gammainc", "betainc", "ndtri",
                  "digamma", "logit", "ellipk", "exp1", "lpmv", "sph_harm"):
            attempt(n, lambda: getattr(s,
                                       n)(*([f] * {"zeta": 2, "gammainc": 2, "betainc": 3}.get(n,
                                               1))))

    def images():
        import cupyx.scipy.ndimage as d
        for n, o in (("gaussian_filter", (1.0,)), ("median_filter", (3,)), ("label", ()),
                     ("rotate", (30,)), ("zoom", (2,)), ("sobel", ()),
                     ("maximum_filter", (3,)), ("distance_transform_edt", ()),
                     ("binary_erosion", ()), ("map_coordinates", (cp.random.rand(2, 50) * 9,))):
            attempt(n, lambda: getattr(d,
                                       n)(f if n not in ("label", "distance_transform_edt",
                                                         "binary_erosion") else f > 0.5, *o))

    def sparse():
        import cupyx.scipy.sparse as sp
        m = sp.random(100, 100, 0.1, format="csr", dtype=cp.float32)
        [m.tocsc(), m.tocoo().sum_duplicates(), m[3:9], m.multiply(m), m.max(1), m + m.T,
         m.astype(bool), m.diagonal()]

    def jit():
        from cupyx import jit as j

        @j.rawkernel()
        def kernel(x, out, n):
            s = j.shared_memory(cp.float32, 128)
            t = j.threadIdx.x
            i = j.blockIdx.x * j.blockDim.x + t
            s[t] = x[i] if i < n else 0
            j.syncthreads()
            v = s[127 - t] + j.shfl_xor_sync(0xffffffff, s[t], 1)
            j.atomic_add(out, t, v)

        kernel((4,), (128,), (f.ravel(), cp.zeros(128, cp.float32), 500))

    for name, make in cases.items():
        attempt(name, make)
    for extra in (special, images, sparse, jit):
        attempt(extra.__name__, extra)
    from cupy._core import _accelerator
    for routines in ([], ["cub"]):
        attempt("accelerators", lambda: cp._core.set_routine_accelerators(routines))
        attempt("accelerators", lambda: cp._core.set_reduction_accelerators(routines))
        for shape in ((7, 333), (100000,)):
            g = cp.random.rand(*shape).astype(cp.float32 if routines else cp.float64)
            attempt("accelerated",
                    lambda: [g.sum(0), g.max(), g.sum(-1), cp.cumsum(g), g.astype(cp.int16).min()])
    del _accelerator
    cp.cuda.Device().synchronize()


main()
