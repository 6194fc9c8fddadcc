#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a program waits for at its start: loading a module of many kernels, and first launches.

usage: module_load.py [--build DIR] [--device soft|nvidia] [--images DIR] [--kernels 1,20,500]
                      [--ways NAME,..] [--launched N] [--rounds N] [--out FILE.json]
       module_load.py --make DIR [--kernels 1,20,500]     compiles the images, with nvcc

Each image twice: machine code for sm_90 with PTX beside it, as nvcc makes it, and PTX alone. Side
by side in each round: the driver alone (NVIDIA GPUs only), with its cache of compiled PTX and
without, Sluice with `clones = "eager"`, "lazy" and "none", each without a cache, and "again":
lazily, for a program that is not its vGPU's first. Medians of the rounds.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/lib"))
from host import Sluiced  # noqa: E402

KINDS = {"sass": ["-fatbin", "-gencode", "arch=compute_90,code=[sm_90,compute_90]"],
         "ptx": ["-ptx", "-gencode", "arch=compute_75,code=compute_75"]}


WAYS = ("native", "native-uncached", "eager", "lazy", "again", "none")


def source(kernels):
    """Each kernel has loops, shared memory and arithmetic of its own, about as long as people's."""
    text = ["__device__ unsigned launches;",
            "static __device__ unsigned table[64];"]
    for k in range(kernels):
        rounds = 3 + k % 5
        text.append(f"""
extern "C" __global__ void k{k}(unsigned *out, unsigned n) {{
  __shared__ unsigned part[256];
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  part[threadIdx.x] = i * {2 * k + 1}u + table[i & 63];
  __syncthreads();
  unsigned x = 0;
  for (int r = 0; r < {rounds}; ++r) {{
    x = x * {1664525 + 2 * k}u + part[(threadIdx.x + r) & 255];
    if (x == {k}u + 0x80000000u) x ^= part[(threadIdx.x * {k + 3}) & 255];
    __syncthreads();
  }}
  if (i < n) out[i] += {k} + (x == 0xfffffff1u && n == 1);
  if (i == 0) atomicAdd(&launches, 1u);
}}""")
    return "\n".join(text)


def make(folder, counts):
    folder.mkdir(parents=True, exist_ok=True)
    for n in counts:
        cu = folder / f"k{n}.cu"
        cu.write_text(source(n))
        for kind, options in KINDS.items():
            subprocess.run(["nvcc", "-O2", *options, str(cu), "-o", str(folder / f"k{n}.{kind}")],
                           check=True)


class Bench:
    def __init__(self, args):
        self.args = args
        self.daemons = {}

    def environment(self, way):
        if way.startswith("native"):
            env = dict(os.environ)
            env.pop("CUDA_CACHE_DISABLE", None)
            if way == "native-uncached":
                env["CUDA_CACHE_DISABLE"] = "1"
            return env
        if way not in self.daemons:
            s = Sluiced(self.args.build, tempfile.mkdtemp(prefix="sluice-load."),
                        device=self.args.device, soft_sms=4,
                        extra=("nvidia_sms = 132\n" if self.args.device == "nvidia" else "") +
                        f'clones = "{"lazy" if way == "again" else way}"\n',
                        workers="" if way == "again" else 'code_cache = "0M"\n')
            s.start()
            s.ctl("create", "a", "--weight", 1)
            self.daemons[way] = s
        return self.daemons[way].client_env("a")

    def one(self, way, image, kernels, *more):
        p = subprocess.run([self.args.build / "tests/bench/module_load", image, str(kernels),
                            str(min(kernels, self.args.launched)), *more],
                           env=self.environment(way), text=True, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, timeout=300)
        if p.returncode != 0:
            sys.exit(f"module_load: {way}, {image.name}: {p.returncode}: {p.stderr[-500:]}")
        return json.loads(p.stdout)

    def run(self):
        ways = [w for w in WAYS if self.args.device == "nvidia" or not w.startswith("native")]
        ways = [w for w in ways if w in self.args.ways]
        rows = []
        for n in self.args.kernels:
            for kind in KINDS:
                image = self.args.images / f"k{n}.{kind}"
                if self.args.device == "soft" and kind == "sass":
                    kind = "both"
                runs = {w: [] for w in ways}
                if "again" in ways:
                    self.one("again", image, n)
                for _ in range(self.args.rounds):
                    for w in ways:
                        runs[w].append(self.one(w, image, n))
                row = {"kernels": n, "image": kind}
                for w in ways:
                    row[w] = {k: statistics.median(r[k] for r in runs[w]) for k in runs[w][0]}
                rows.append(row)
                for w in ways:
                    r = row[w]
                    print(f"{n:4} {kind:5} {w:16} load {r['load_ms']:9.2f} find {r['find_ms']:8.2f}"
                          f" first {r['first_launches_ms']:9.2f} second"
                          f" {r['second_launches_ms']:8.2f} ms", flush=True)
        waits = {}
        for w in ways:
            waits[w] = self.one(w, self.args.images / "k1.sass", 1, "wait")["first_ms"]
            print(f"a first launch behind a wait in its stream returned after "
                  f"{waits[w]:.2f} ms: {w}", flush=True)
        return {"rows": rows, "launched": self.args.launched, "behind_a_wait_ms": waits}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--device", choices=("soft", "nvidia"), default="soft")
    p.add_argument("--images", type=pathlib.Path, default=pathlib.Path("images"))
    p.add_argument("--make", type=pathlib.Path)
    p.add_argument("--kernels", type=lambda s: [int(x) for x in s.split(",")],
                   default=[1, 20, 500])
    p.add_argument("--ways", type=lambda s: s.split(","), default=WAYS)
    p.add_argument("--launched", type=int, default=10)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--out", type=pathlib.Path)
    args = p.parse_args()
    if args.make:
        return make(args.make, args.kernels)
    args.build = args.build.resolve()
    bench = Bench(args)
    try:
        result = bench.run()
    finally:
        for s in bench.daemons.values():
            s.stop()
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
