#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that compile kernels at run time, alone on the driver and through the channel: do they
run, and can their launches be evicted?

usage: jit_clients.py --build DIR [--device soft|nvidia] [--clients NAME,..] [--ways NAME,..]
                      [--launches N] [--limit S] [--out FILE.json] [--logs DIR]

Each client checks its own results. Ways:

    native       NVIDIA's driver, the compilers as they are
    native-jit   NVIDIA's driver, machine code that carries its PTX
    off, on      through the channel, by sluice-run with SLUICE_JIT=off and on
    rival        on, beside another vGPU's kernels without end: evicted every few ms

A client whose package is not installed is skipped. Printed: how many pieces of machine code got
their PTX, launches, how many of them were opaque, how many of these have clones but were there at
once, evictions; and for each kernel its launches, its grids and its tier or the reason why it is
opaque. `--logs`: the guest's calls and log of each run, in files.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/lib"))
from gpu_bench.ways import EVICTION  # noqa: E402
from host import Sluiced  # noqa: E402

SHORT_TURNS = "quantum_max_us = 2000\n"  # so that a rival evicts often
WAYS = ("native", "native-jit", "off", "on", "rival")

# NVRTC and nvJitLink as programs use them that bind them by themselves.
DRIVER = r'''
import ctypes, ctypes.util, glob, os, sys
cu = ctypes.CDLL("libcuda.so.1")
def ck(r):
    if r: raise SystemExit(f"answers {r}")
def library(stem):
    for pattern in ("/usr/local/cuda/lib64/", "/usr/local/cuda-1*/lib64/",
                    *(p + "/nvidia/*/lib/" for p in sys.path)):
        for path in sorted(glob.glob(pattern + stem + ".so.1[0-9]")):
            return ctypes.CDLL(path)
    print("no " + stem); sys.exit(77)
class Compiler:
    def __init__(self): self.it = library("libnvrtc")
    def compile(self, source, *options):
        p, n = ctypes.c_void_p(), self.it
        ck(n.nvrtcCreateProgram(ctypes.byref(p), source.encode(), b"a.cu", 0, None, None))
        o = [x.encode() for x in options]
        ck(n.nvrtcCompileProgram(p, len(o), (ctypes.c_char_p * len(o))(*o)))
        def got(what):
            size = ctypes.c_size_t()
            ck(getattr(n, f"nvrtcGet{what}Size")(p, ctypes.byref(size)))
            to = ctypes.create_string_buffer(size.value)
            ck(getattr(n, "nvrtcGet" + what)(p, to))
            return to.raw
        return got("CUBIN"), got("PTX")
SOURCE = """extern "C" __global__ void scale(float* x, float f, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int k = 0; k < 200; ++k) if (i < n) x[i] = x[i] * f + k - k;
}"""
def arch():
    ck(cu.cuInit(0))
    major, minor = ctypes.c_int(), ctypes.c_int()
    ck(cu.cuDeviceGetAttribute(ctypes.byref(major), 75, 0))
    ck(cu.cuDeviceGetAttribute(ctypes.byref(minor), 76, 0))
    return f"-arch=sm_{major.value}{minor.value}"
def run(code):
    context, module, f, d = (ctypes.c_void_p() for _ in range(4))
    ck(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)); ck(cu.cuCtxSetCurrent(context))
    ck(cu.cuModuleLoadData(ctypes.byref(module), code))
    ck(cu.cuModuleGetFunction(ctypes.byref(f), module, b"scale"))
    n = int(os.environ.get("COUNT", 1 << 22)); host = (ctypes.c_float * n)(*([1.5] * n))
    ck(cu.cuMemAlloc_v2(ctypes.byref(d), ctypes.c_size_t(4 * n)))
    ck(cu.cuMemcpyHtoD_v2(d, host, ctypes.c_size_t(4 * n)))
    one, count = ctypes.c_float(1), ctypes.c_int(n)
    params = (ctypes.c_void_p * 3)(*(ctypes.addressof(x) for x in (d, one, count)))
    for _ in range(LAUNCHES):
        ck(cu.cuLaunchKernel(f, (n + 255) // 256, 1, 1, 256, 1, 1, 0, None, params, None))
    ck(cu.cuCtxSynchronize())
    back = (ctypes.c_float * n)(); ck(cu.cuMemcpyDtoH_v2(back, d, ctypes.c_size_t(4 * n)))
    if any(x != 1.5 for x in back): raise SystemExit("wrong")
'''
TORCH = r'''
import sys
try: import torch
except ImportError: sys.exit(77)
'''
CLIENTS = {
    "nvrtc": DRIVER + 'run(Compiler().compile(SOURCE, arch())[0])',
    "nvjitlink": DRIVER + r'''
ptx = Compiler().compile(SOURCE, arch())[1]
l, h = library("libnvJitLink"), ctypes.c_void_p()
ck(l.nvJitLinkCreate(ctypes.byref(h), 1, (ctypes.c_char_p * 1)(arch().encode())))
ck(l.nvJitLinkAddData(h, 2, ptx, ctypes.c_size_t(len(ptx)), b"a"))
ck(l.nvJitLinkComplete(h))
size = ctypes.c_size_t(); ck(l.nvJitLinkGetLinkedCubinSize(h, ctypes.byref(size)))
code = ctypes.create_string_buffer(size.value); ck(l.nvJitLinkGetLinkedCubin(h, code))
run(code.raw)
''',
    "triton": TORCH + r'''
try: import triton, triton.language as tl
except ImportError: sys.exit(77)
import os, tempfile
@triton.jit
def axpy(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(y + i, 2 * tl.load(x + i, m) + tl.load(y + i, m), m)
@triton.jit
def rows(x, y, n, B: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + r * n + i, i < n, -float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + r * n + i, e / tl.sum(e, 0), i < n)
n = 1 << 22
x = torch.arange(n, device="cuda", dtype=torch.float32) % 1000; y = torch.ones_like(x)
for _ in range(LAUNCHES): axpy[(n // 1024,)](x, y, n, B=1024)
if not torch.equal(y.cpu(), 2 * LAUNCHES * (torch.arange(n, dtype=torch.float32) % 1000) + 1):
    sys.exit("wrong")
a = torch.randn(4096, 700); b = torch.empty(4096, 700, device="cuda")
g = a.cuda()
for _ in range(LAUNCHES): rows[(4096,)](g, b, 700, B=1024)
if not torch.allclose(b.cpu(), torch.softmax(a, 1), atol=1e-6): sys.exit("wrong")
''',
    "jiterator": TORCH + r'''
f = torch.cuda.jiterator._create_jit_fn("template <typename T> T f(T x, T y) { return 2*x+y; }")
n = 1 << 23
x = torch.arange(n, device="cuda", dtype=torch.float32)
for _ in range(LAUNCHES): y = f(x, x)
if not torch.equal(y.cpu(), 3 * torch.arange(n, dtype=torch.float32)): sys.exit("wrong")
''',
    "inductor": TORCH + r'''
@torch.compile
def f(x, y): return torch.sin(x) * y + torch.sum(x * y, 1, keepdim=True)
x = torch.linspace(0, 1, 1 << 23).view(-1, 512); y = x + 1
a, b = x.cuda(), y.cuda()
for _ in range(LAUNCHES): z = f(a, b)
if not torch.allclose(z.cpu(), torch.sin(x) * y + torch.sum(x * y, 1, keepdim=True), rtol=1e-4):
    sys.exit("wrong")
''',
    "numba": r'''
import sys
try:
    import numpy as np
    if not hasattr(np, "row_stack"): np.row_stack = np.vstack  # numba-cuda 0.30 with NumPy 2.5
    from numba import cuda
except ImportError: sys.exit(77)
@cuda.jit
def scale(x, f):
    i = cuda.grid(1)
    if i < x.size: x[i] = x[i] * f
d = cuda.to_device(np.arange(1 << 20, dtype=np.float32))
for k in range(LAUNCHES): scale[4096, 256](d, 2.0 if k % 2 == 0 else 0.5)
if not (d.copy_to_host() == np.arange(1 << 20, dtype=np.float32)).all(): sys.exit("wrong")
''',
    "cuda.core": r'''
import sys
try:
    try: from cuda.core import Device, Program, ProgramOptions, LaunchConfig, launch
    except ImportError: from cuda.core.experimental import (Device, Program, ProgramOptions,
                                                            LaunchConfig, launch)
except ImportError: sys.exit(77)
d = Device(); d.set_current(); s = d.create_stream()
major, minor = d.compute_capability
code = Program("extern \"C\" __global__ void set(int* x) { x[blockIdx.x] = blockIdx.x; }",
               code_type="c++", options=ProgramOptions(arch=f"sm_{major}{minor}")).compile("cubin")
n = 1 << 16
buffer = d.allocate(n * 4, stream=s); s.sync()
for _ in range(LAUNCHES): launch(s, LaunchConfig(grid=n, block=1), code.get_kernel("set"), buffer)
s.sync()
import ctypes
host = (ctypes.c_int * n)()
r = ctypes.CDLL("libcuda.so.1").cuMemcpyDtoH_v2(
    host, ctypes.c_void_p(int(buffer.handle)), ctypes.c_size_t(4 * n))
if r or any(host[i] != i for i in range(n)): sys.exit(f"wrong ({r})")
''',
    "cupy": r'''
import sys
try: import cupy
except ImportError: sys.exit(77)
f = cupy.RawKernel("extern \"C\" __global__ void twice(float* x) {"
                   "  x[blockIdx.x * 256 + threadIdx.x] *= 2; }", "twice")
x = cupy.ones(1 << 20, dtype=cupy.float32)
for k in range(LAUNCHES): f((4096,), (256,), (x,)); x /= 2
if not (x == 1).all(): sys.exit("wrong")
''',
    "jax": r'''
import sys
try: import jax, jax.numpy as jnp
except ImportError: sys.exit(77)
if jax.default_backend() != "gpu": sys.exit(77)
n = 1 << 23
f = jax.jit(lambda x: (jnp.sum(jnp.sin(x) ** 2 + jnp.cos(x) ** 2), jnp.sqrt(x) * x + 1))
x = jnp.linspace(0, 9, n)
for _ in range(LAUNCHES): z, y = f(x)
if abs(float(z) - n) > 512: sys.exit("wrong")
if not jnp.allclose(y, x ** 1.5 + 1, rtol=1e-5): sys.exit("wrong")
''',
}


def kernels_of(log):
    """What became of each kernel that was launched, from the guest's log. Launches and grids are
    there with SLUICE_TRACE=calls only."""
    grids, said = collections.defaultdict(collections.Counter), {}
    for line in log.splitlines():
        if m := re.match(r"sluice\[\d+\]: launch\((.+?), (\d+), (\d+), (\d+), "
                         r"(\d+), (\d+), (\d+)\)", line):
            grid, block = "x".join(m.groups()[1:4]), "x".join(m.groups()[4:7])
            grids[m[1]][f"{grid} of {block}"] += 1
        elif m := re.match(r"sluice\[\d+\]: kernel (\S+): (.*)", line):
            said.setdefault(m[1], [])
            if m[2][:160] not in said[m[1]]:
                said[m[1]].append(m[2][:160])
    return {name: {"launches": dict(shapes), "said": said.get(name, [])}
            for name, shapes in grids.items()}


class Ways:
    def __init__(self, a, work):
        self.a, self.work = a, work
        self.sluiced = None
        self.folder = work / "guest"
        self.folder.mkdir()
        for stem, where in (("libcudart.so.13", "cudart"), ("libcudart.so.12", "cudart/twelve"),
                            ("libsluice-jit.so", "jit")):
            (self.folder / stem).symlink_to(a.build.resolve() / "guest-agent" / where / stem)

    def environment(self, way):
        # Whatever a compiler has cached carries its PTX, or not, as when it was made.
        caches = {"TRITON_CACHE_DIR": f"{self.work}/triton-{way}",
                  "TORCHINDUCTOR_CACHE_DIR": f"{self.work}/inductor-{way}",
                  "PYTORCH_KERNEL_CACHE_PATH": f"{self.work}/kernels-{way}",
                  "CUPY_CACHE_DIR": f"{self.work}/cupy-{way}"}
        env = dict(os.environ) if way.startswith("native") else self.sluiced.client_env("a")
        if way == "native-jit":
            env["LD_PRELOAD"] = str(self.folder / "libsluice-jit.so")
        env["SLUICE_JIT"] = "off" if way == "off" else "on"
        env["SLUICE_GUEST_LIBDIR"] = str(self.folder)
        env["SLUICE_LOG"] = str(self.work / f"log-{way}")
        if self.a.logs:
            env["SLUICE_TRACE"] = "calls"
        for name, path in caches.items():
            os.makedirs(path, exist_ok=True)
            env[name] = path
        return env

    def launches(self):
        v = self.sluiced.stats()["vgpus"]["a"]
        return {k: v.get(k, 0)
                for k in ("launches_done", "opaque_launches", "whole_launches", "evictions")}

    def run(self, client, way):
        script = self.work / f"client_{client}.py"  # not the name of what it imports
        launches = self.a.launches if way == "rival" else 20
        script.write_text(f"LAUNCHES = {launches}\n" + CLIENTS[client])
        command = [sys.executable, script]
        channel = not way.startswith("native")
        if channel:
            command = ["sh", ROOT / "guest-agent/cudart/sluice-run.in", *command]
        before = self.launches() if channel else {}
        rival = None
        if way == "rival":
            rival = subprocess.Popen([self.a.build / "kernels/suite/sluice-suite-md5", "--seconds",
                                      "100000"], env=self.sluiced.client_env("b"),
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            p = subprocess.run(command, env=self.environment(way), stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, timeout=self.a.limit)
            status, text = p.returncode, p.stdout
        except subprocess.TimeoutExpired as e:
            status, text = "too long", str(e.stdout)[-2000:]
        finally:
            if rival is not None:
                rival.kill()
                rival.wait()
        log = pathlib.Path(self.environment(way)["SLUICE_LOG"])
        lines = log.read_text() if log.exists() else ""
        log.unlink(missing_ok=True)
        if self.a.logs:
            self.a.logs.mkdir(parents=True, exist_ok=True)
            (self.a.logs / f"{client}-{way}.log").write_text(lines[:400_000] + lines[-400_000:]
                                                             if len(lines) > 800_000 else lines)
        row = {"client": client, "way": way, "status": status,
               "attached": lines.count("keeps its PTX"), "kernels": kernels_of(lines)}
        if channel:
            row.update({k: v - before[k] for k, v in self.launches().items()})
        if status not in (0, 77):
            row["text"] = text[-1500:]
        return row


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--device", choices=("soft", "nvidia"), default="soft")
    p.add_argument("--clients", default=",".join(CLIENTS))
    p.add_argument("--ways", default=",".join(WAYS))
    p.add_argument("--launches", type=int, default=20, help="of each kernel beside a rival; even")
    p.add_argument("--limit", type=float, default=300)
    p.add_argument("--out", type=pathlib.Path)
    p.add_argument("--logs", type=pathlib.Path)
    a = p.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="sluice-jit.", ignore_cleanup_errors=True) as work:
        work = pathlib.Path(work)
        work.chmod(0o711)
        ways = Ways(a, work)
        ways.sluiced = Sluiced(a.build, work / "sluiced", device=a.device,
                               extra="[scheduler]\n" + EVICTION + SHORT_TURNS)
        try:
            ways.sluiced.start()
            for name in ("a", "b"):
                ways.sluiced.ctl("create", name, "--weight", 1)
            for client in a.clients.split(","):
                for way in a.ways.split(","):
                    if a.device == "soft" and way.startswith("native"):
                        continue
                    row = ways.run(client, way)
                    rows.append(row)
                    print(json.dumps({k: v for k, v in row.items() if k != "kernels"}), flush=True)
                    for kernel, what in row["kernels"].items():
                        print(f"    {kernel[:60]}: {what['launches']} {'; '.join(what['said'])}")
                    if a.out:
                        a.out.write_text(json.dumps(rows, indent=1) + "\n")
                    if row["status"] == 77:
                        break
        finally:
            ways.sluiced.stop()


if __name__ == "__main__":
    main()
