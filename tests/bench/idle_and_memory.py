#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Sluice costs while nobody uses the GPU: memory, and processor time of sluiced and its
workers.

usage: idle_and_memory.py [--build DIR] [--device soft|nvidia] [--vgpus N] [--seconds S]
                          [--out FILE] [--require]

Starts a sluiced with N vGPUs (two) on the local transport. On each, a program makes a context,
loads a module, launches a kernel, waits for it, and then does nothing. Prints, and leaves in --out,
a JSON object:

  sluiced.rss_kib        resident memory of sluiced
  workers[].rss_kib      resident memory of each worker, of which
    driver_kib             is the driver library's own: what the same library adds to a process that
                           does by itself what the program did (measured here, beside it);
    region_kib             pages of the vGPU's memory that the worker has touched: rings, staging;
                           the guest has them too, they are counted in rss_kib and besides_kib;
    besides_kib            is the rest: rss_kib - driver_kib, what the issue's goal is about
  cpu_percent            of one processor, sluiced and all workers together, over --seconds
"""
import argparse
import ctypes
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/lib"))
from host import Sluiced  # noqa: E402

# Goals of the project for two vGPUs; --require fails where one is missed.
MAX_SLUICED_KIB = 30 * 1024
MAX_WORKER_KIB = 40 * 1024
MAX_CPU_PERCENT = 1.0
# Start-up is over by then: caches of the loader, threads that look whether there is more to do.
SETTLE_S = 2.0
EMPTY_PTX = ROOT / "kernels/suite/ptx/empty.ptx"


def rss_kib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError(f"process {pid} has no VmRSS")


def mappings_kib(pid):
    """Resident KiB by kind of mapping."""
    kinds, kind = {}, None
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        fields = line.split(None, 5)
        if "-" in fields[0] and not fields[0].endswith(":"):
            name = fields[5] if len(fields) > 5 else ""
            if "memfd:" in name:
                kind = "memfd"
            elif name.startswith("/"):
                kind = os.path.basename(name.split(" (deleted)")[0])
            else:
                kind = "anonymous"
        elif fields[0] == "Rss:":
            kinds[kind] = kinds.get(kind, 0) + int(fields[1])
    return kinds


def cpu_ns(pids):
    """Processor time of all threads. Ended threads are missed, but idle processes end none."""
    total = 0
    for pid in pids:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    return total


def children(pid):
    text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def use_driver(path):
    """Child: makes a context and launches once; says so and what memory that took; waits for
    stdin."""
    for shared in ("libstdc++.so.6", "libm.so.6", "libgcc_s.so.1"):
        ctypes.CDLL(shared)  # not the driver library's own: a worker has them anyway
    text = EMPTY_PTX.read_bytes() + b"\0"
    before = rss_kib(os.getpid())
    cuda = ctypes.CDLL(path)

    def call(name, *args):
        result = getattr(cuda, name)(*args)
        if result != 0:
            sys.exit(f"{path}: {name} failed: {result}")

    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    call("cuModuleLoadData", ctypes.byref(module), text)
    call("cuModuleGetFunction", ctypes.byref(function), module, b"empty")
    call("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, None, None, None)
    call("cuCtxSynchronize")
    print(json.dumps({"added_kib": rss_kib(os.getpid()) - before}), flush=True)
    sys.stdin.read()


class Program:
    """use_driver in a process of its own."""

    def __init__(self, library, env=None):
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--use-driver", str(library)], env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a program on {library} failed")
        self.added_kib = json.loads(line)["added_kib"]

    def stop(self):
        self.process.communicate()


def measure(a):
    build = a.build.resolve()
    driver = (str(build / "mediator/softgpu/libsluice-softcuda.so") if a.device == "soft"
              else "libcuda.so.1")
    plain = Program(driver)
    driver_kib = plain.added_kib
    plain.stop()
    programs = []
    with tempfile.TemporaryDirectory(prefix="sluice-bench.") as work:
        sluiced = Sluiced(build, work, device=a.device)
        sluiced.start()
        try:
            for i in range(a.vgpus):
                sluiced.ctl("create", f"idle{i}", "--weight", 100)
                programs.append(Program(build / "guest-agent/shim/libcuda.so.1",
                                        sluiced.client_env(f"idle{i}")))
            time.sleep(SETTLE_S)
            daemon = sluiced.process.pid
            workers = children(daemon)
            began, used = time.monotonic(), cpu_ns([daemon, *workers])
            time.sleep(a.seconds)
            seconds = time.monotonic() - began
            used_workers = cpu_ns(workers)
            used = cpu_ns([daemon, *workers]) - used
            if children(daemon) != workers or len(workers) != a.vgpus:
                raise RuntimeError("the workers changed while they were measured")
            result = {
                "benchmark": "idle_and_memory",
                "device": a.device,
                "vgpus": a.vgpus,
                "kernel": platform.release(),
                "processors": os.cpu_count(),
                "load_average": os.getloadavg()[0],
                "driver_kib": driver_kib,
                "sluiced": {"rss_kib": rss_kib(daemon), "mappings_kib": mappings_kib(daemon)},
                "workers": [],
                "seconds": round(seconds, 3),
                "cpu_percent": round(100e-9 * used / seconds, 4),
                "workers_cpu_ms_since_start": round(used_workers / 1e6, 1),
            }
            for pid in workers:
                by_kind = mappings_kib(pid)
                rss = rss_kib(pid)
                result["workers"].append({
                    "rss_kib": rss,
                    "driver_kib": driver_kib,
                    "besides_kib": rss - driver_kib,
                    "region_kib": by_kind.get("memfd", 0),
                    "mappings_kib": by_kind,
                })
        finally:
            for program in programs:
                program.stop()
            sluiced.stop()
    result["goals"] = {"sluiced_kib": MAX_SLUICED_KIB, "worker_besides_kib": MAX_WORKER_KIB,
                       "cpu_percent": MAX_CPU_PERCENT}
    result["met"] = (result["sluiced"]["rss_kib"] < MAX_SLUICED_KIB
                     and all(w["besides_kib"] < MAX_WORKER_KIB for w in result["workers"])
                     and result["cpu_percent"] < MAX_CPU_PERCENT)
    return result


def main():
    if sys.argv[1:2] == ["--use-driver"]:
        return use_driver(sys.argv[2])
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--device", choices=["soft", "nvidia"], default="soft")
    p.add_argument("--vgpus", type=int, default=2)
    p.add_argument("--seconds", type=float, default=10)
    p.add_argument("--out", type=pathlib.Path)
    p.add_argument("--require", action="store_true", help="fail where a goal is missed")
    a = p.parse_args()
    result = measure(a)
    text = json.dumps(result, indent=1)
    print(text)
    if a.out:
        a.out.parent.mkdir(parents=True, exist_ok=True)
        a.out.write_text(text + "\n")
    return 1 if a.require and not result["met"] else 0


if __name__ == "__main__":
    sys.exit(main())
