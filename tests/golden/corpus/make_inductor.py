# SPDX-License-Identifier: Apache-2.0
"""torch.compile: the kernels that Inductor generates. Their PTX is in Triton's cache."""

import torch
import torch.nn.functional as F

from common import attempt


def case(name, function, *inputs, **options):
    attempt(name, lambda: torch.compile(function, fullgraph=True, **options)(*inputs))


def main():
    g = "cuda"
    a = torch.randn(64, 1024, device=g)
    wide = torch.randn(8, 100003, device=g)
    i = torch.randint(0, 1024, (4096,), device=g)
    image = torch.randn(4, 16, 32, 32, device=g)
    case("elementwise", lambda x: F.gelu(x * 2 + 1).sigmoid() - x.tanh(), a)
    case("half", lambda x: F.silu(x) * x.abs().sqrt(), a.half())
    case("reduce", lambda x: (x.sum(1), x.amax(1), x.argmin(1), x.var(1)), a)
    case("reduce all", lambda x: (x.sum(), x.prod(), x.norm()), wide)
    case("reduce outer", lambda x: x.mean(0), wide)
    case("softmax", lambda x: F.softmax(x, -1), a)
    case("log softmax wide", lambda x: F.log_softmax(x, -1), wide)
    case("layer norm", lambda x: F.layer_norm(x, (1024,)), a)
    case("group norm", lambda x: F.group_norm(x, 4), image)
    case("batch norm", lambda x: F.batch_norm(x, None, None, training=True), image)
    case("cumsum", lambda x: (x.cumsum(1), x.cumprod(0)), a)
    case("cumsum wide", lambda x: x.cumsum(-1), wide)
    case("cummax", lambda x: x.cummax(1), a)
    case("logcumsumexp", lambda x: torch.logcumsumexp(x, 1), a)
    case("sort", lambda x: x.sort(1), torch.randn(32, 256, device=g))
    case("topk", lambda x: x.topk(4, 1), torch.randn(32, 256, device=g))
    case("scatter", lambda x, j: torch.zeros(1024, device=g).index_add(0, j, x),
         torch.randn(4096, device=g), i)
    case("scatter reduce", lambda x, j: torch.zeros(1024, device=g).scatter_reduce(0, j, x, "amax"),
         torch.randn(4096, device=g), i)
    case("gather", lambda x, j: x[:, j], a, i)
    case("embedding", lambda w, j: F.embedding(j, w).sum(0), torch.randn(1024, 64, device=g), i)
    case("embedding bag", lambda w, j: F.embedding_bag(j.view(64, 64), w),
         torch.randn(1024, 64, device=g), i)
    case("dropout", lambda x: F.dropout(x, 0.3), a)
    case("random", lambda x: torch.rand_like(x) + torch.randn_like(x) + torch.randint_like(x, 10),
         a)
    case("transpose", lambda x: (x.t() + 1).contiguous(), a)
    case("cat", lambda x: torch.cat([x, x * 2, x.flip(1)], 1), a)
    case("pad", lambda x: F.pad(x, (1, 2, 3, 4), mode="reflect"), image)
    case("pool", lambda x: (F.max_pool2d(x, 3), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 5)),
         image)
    case("upsample", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), image)
    case("grid sample", lambda x, p: F.grid_sample(x, p), image, torch.randn(4, 8, 8, 2, device=g))
    case("loss", lambda x, j: F.cross_entropy(x, j), a, i[:64])
    case("integer", lambda x: (x // 3, x % 7, x << 2, x ^ 5, x.float().round()),
         torch.randint(-99, 99, (5000,), device=g))
    case("double", lambda x: torch.special.erf(x) + x.exp().log1p() + torch.lgamma(x), a.double())
    case("special", lambda x: (torch.special.i0(x), torch.digamma(x),
                               torch.bessel_j0(x) if hasattr(torch, "bessel_j0") else x), a)
    case("bool", lambda x: (x > 0).any(1) | (x < 0).all(1), a)
    case("bucketize", lambda x: torch.bucketize(x, torch.linspace(-1, 1, 33, device=g)), a)
    case("nested", lambda x: F.softmax(F.layer_norm(x + x.roll(1, 0), (1024,)), -1).sum(0), a)
    case("foreach", lambda *t: torch._foreach_add(list(t), 1.0),
         *[torch.randn(k, device=g) for k in (10, 1000, 33)])
    case("bf16 norm", lambda x: F.rms_norm(x, (1024,)), a.bfloat16())
    case("dynamic", lambda x: (x * 2).sum(1), torch.randn(33, 77, device=g), dynamic=True)
    case("welford split", lambda x: torch.var_mean(x), wide)
    case("complex", lambda x: (x[..., 0] * x[..., 1]).cos(), torch.randn(100, 100, 2, device=g))
    case("matmul tuned", lambda x, y: torch.mm(x, y).relu(), torch.randn(512, 512, device=g).half(),
         torch.randn(512, 512, device=g).half(),
         options={"max_autotune_gemm": True, "max_autotune_gemm_backends": "TRITON"})

    def flex():
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        q = torch.randn(1, 2, 256, 64, device=g, dtype=torch.float16, requires_grad=True)
        mask = create_block_mask(lambda b, h, m, n: m >= n, None, None, 256, 256, device=g)
        torch.compile(flex_attention)(q, q, q, block_mask=mask).sum().backward()

    attempt("flex attention", flex)

    def train():
        net = torch.nn.Sequential(torch.nn.Conv2d(16, 8, 3), torch.nn.BatchNorm2d(8),
                                  torch.nn.ReLU(), torch.nn.Flatten(),
                                  torch.nn.Linear(8 * 900, 10)).to(g)
        F.cross_entropy(torch.compile(net)(image), i[:4] % 10).backward()

    attempt("train", train)
    torch.cuda.synchronize()


main()
