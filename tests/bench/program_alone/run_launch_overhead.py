#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs launch_overhead against a sluiced of its own on the local transport, nobody else busy.

usage: run_launch_overhead.py [--build DIR] [--device soft|nvidia] [--out DIR] [--rounds N]
                              [--launches N] [--pin WORKER,PROGRAM] [--require]

--pin gives the worker and the program a processor each, as they have on a machine where nobody else
runs anything; else the kernel may put both on one, and what is measured is its changes of thread.
Leaves launch_overhead.json, .csv (all samples) and .svg in --out, and prints the JSON.
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

VGPU = "bench"


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--device", choices=["soft", "nvidia"], default="soft")
    p.add_argument("--out", type=pathlib.Path, default=ROOT / "out/launch_overhead")
    p.add_argument("--rounds", type=int, default=20)
    p.add_argument("--launches", type=int, default=500)
    p.add_argument("--pin", metavar="WORKER,PROGRAM", help="processors of the two sides")
    p.add_argument("--require", action="store_true", help="fail where a wanted figure is not met")
    a = p.parse_args()
    build = a.build.resolve()
    a.out.mkdir(parents=True, exist_ok=True)
    direct = (build / "mediator/softgpu/libsluice-softcuda.so" if a.device == "soft"
              else "libcuda.so.1")
    with tempfile.TemporaryDirectory(prefix="sluice-bench.") as work:
        sluiced = Sluiced(build, work, device=a.device)
        if a.pin:
            worker_cpu, program_cpu = map(int, a.pin.split(","))
            os.sched_setaffinity(0, {worker_cpu})  # inherited by sluiced and its workers
        sluiced.start()
        if a.pin:
            os.sched_setaffinity(0, {program_cpu})
        try:
            sluiced.ctl("create", VGPU, "--weight", 100)
            env = sluiced.client_env(VGPU)
            # The channel's library is named by its path; the search path must not lead the direct
            # one, libcuda.so.1 by name, to the guest's.
            env.pop("LD_LIBRARY_PATH", None)
            command = [build / "tests/bench/launch_overhead", "--direct", direct,
                       "--channel", build / "guest-agent/shim/libcuda.so.1",
                       "--rounds", str(a.rounds), "--launches", str(a.launches),
                       "--samples", a.out / "launch_overhead.csv"]
            if a.require:
                command.append("--require")
            done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True)
        finally:
            sluiced.stop()
    print(done.stdout, end="")
    if done.stdout:
        json.loads(done.stdout)
        (a.out / "launch_overhead.json").write_text(done.stdout)
        subprocess.run([sys.executable, pathlib.Path(__file__).with_name("plot_launch_overhead.py"),
                        a.out / "launch_overhead.csv", a.out / "launch_overhead.svg"], check=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
