#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that compile kernels at run time, alone on the driver and through the channel: do they
run, and can their launches be evicted?

usage: jit_clients.py --build DIR [--device soft|nvidia] [--clients NAME,..] [--ways NAME,..]
                      [--limit S] [--out FILE.json]

Each client checks its own results. Ways:

    native       NVIDIA's driver, the compilers as they are
    native-jit   NVIDIA's driver, machine code that carries its PTX
    off, on      through the channel, by sluice-run with SLUICE_JIT=off and on
    rival        on, beside another vGPU's kernel without end

A client whose package is not installed is skipped. Printed: how many pieces of machine code got
their PTX, launches, how many of them were opaque, evictions.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/lib"))
from host import Sluiced  # noqa: E402

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
    for _ in range(20):
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
for _ in range(20): axpy[(n // 1024,)](x, y, n, B=1024)
if not torch.equal(y.cpu(), 40 * (torch.arange(n, dtype=torch.float32) % 1000) + 1):
    sys.exit("wrong")
a = torch.randn(4096, 700); b = torch.empty(4096, 700, device="cuda")
for _ in range(20): rows[(4096,)](a.cuda(), b, 700, B=1024)
if not torch.allclose(b.cpu(), torch.softmax(a, 1), atol=1e-6): sys.exit("wrong")
''',
    "jiterator": TORCH + r'''
f = torch.cuda.jiterator._create_jit_fn("template <typename T> T f(T x, T y) { return 2*x+y; }")
x = torch.arange(1 << 20, device="cuda", dtype=torch.float32)
for _ in range(20): y = f(x, x)
if not torch.equal(y.cpu(), 3 * torch.arange(1 << 20, dtype=torch.float32)): sys.exit("wrong")
''',
    "inductor": TORCH + r'''
@torch.compile
def f(x, y): return torch.sin(x) * y + torch.sum(x * y)
x = torch.linspace(0, 1, 1 << 16); y = torch.linspace(1, 2, 1 << 16)
for _ in range(20): z = f(x.cuda(), y.cuda())
if not torch.allclose(z.cpu(), torch.sin(x) * y + torch.sum(x * y), rtol=1e-4): sys.exit("wrong")
''',
    "numba": r'''
import sys
try: from numba import cuda; import numpy as np
except ImportError: sys.exit(77)
@cuda.jit
def scale(x, f):
    i = cuda.grid(1)
    if i < x.size: x[i] = x[i] * f
d = cuda.to_device(np.arange(1 << 20, dtype=np.float32))
for k in range(20): scale[4096, 256](d, 2.0 if k % 2 == 0 else 0.5)
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
buffer = d.allocate(4096 * 4, stream=s); s.sync()
for _ in range(20): launch(s, LaunchConfig(grid=4096, block=1), code.get_kernel("set"), buffer)
s.sync()
''',
    "cupy": r'''
import sys
try: import cupy
except ImportError: sys.exit(77)
f = cupy.RawKernel("extern \"C\" __global__ void twice(float* x) {"
                   "  x[blockIdx.x * 256 + threadIdx.x] *= 2; }", "twice")
x = cupy.ones(1 << 20, dtype=cupy.float32)
for _ in range(20): f((4096,), (256,), (x,))
if not (x == 2.0 ** 20).all(): sys.exit("wrong")
''',
    "jax": r'''
import sys
try: import jax, jax.numpy as jnp
except ImportError: sys.exit(77)
if jax.default_backend() != "gpu": sys.exit(77)
f = jax.jit(lambda x: jnp.sum(jnp.sin(x) ** 2 + jnp.cos(x) ** 2))
for _ in range(20): z = f(jnp.linspace(0, 9, 1 << 20))
if abs(float(z) - (1 << 20)) > 64: sys.exit("wrong")
''',
}


class Ways:
    def __init__(self, a, work):
        self.a, self.work = a, work
        self.sluiced = None
        self.attached = {}  # machine code with PTX so far, by way
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
        for name, path in caches.items():
            os.makedirs(path, exist_ok=True)
            env[name] = path
        return env

    def launches(self):
        v = self.sluiced.stats()["vgpus"]["a"]
        return {k: v[k] for k in ("launches_done", "opaque_launches", "evictions")}

    def run(self, client, way):
        script = self.work / f"client_{client}.py"  # not the name of what it imports
        script.write_text(CLIENTS[client])
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
        attached = log.read_text().count("keeps its PTX") if log.exists() else 0
        row = {"client": client, "way": way, "status": status,
               "attached": attached - self.attached.get(way, 0)}
        self.attached[way] = attached
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
    p.add_argument("--limit", type=float, default=300)
    p.add_argument("--out", type=pathlib.Path)
    a = p.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="sluice-jit.", ignore_cleanup_errors=True) as work:
        work = pathlib.Path(work)
        work.chmod(0o711)
        ways = Ways(a, work)
        ways.sluiced = Sluiced(a.build, work / "sluiced", device=a.device)
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
                    print(json.dumps(row), flush=True)
                    if a.out:
                        a.out.write_text(json.dumps(rows, indent=1) + "\n")
                    if row["status"] == 77:
                        break
            log = work / "log-on"
            if log.exists():
                print("".join(x for x in log.read_text().splitlines(True)
                              if "no clones" in x or "opaque" in x)[-3000:])
        finally:
            ways.sluiced.stop()


if __name__ == "__main__":
    main()
