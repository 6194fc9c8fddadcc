#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the programs of tests/cudart/programs on a machine with nvcc and a GPU, and runs each
natively with NVIDIA's libcudart and with ours, through the channel, and through the channel beside
another vGPU whose kernels take the GPU from it.

    programs_everywhere.py --build DIR --work DIR --toolkit DIR [--device nvidia] [--out FILE]
                           [PROGRAM...]

Prints a line for each program that is not right in each way, and a count; exit 0 if all are right.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/lib"))
from host import Sluiced  # noqa: E402

PROGRAMS = ROOT / "tests/cudart/programs"
TIMEOUT_S = 60
SYSTEM_LIBRARIES = "/usr/lib/x86_64-linux-gnu"


def compile_program(nvcc, name, to):
    source, = PROGRAMS.rglob(f"{name}.cu")
    text = source.read_text()
    more = re.findall(r"^// nvcc: (.*)$", text, re.M)
    sass = re.findall(r"^// sass: sm_(.*)$", text, re.M)
    arch = [f"-gencode=arch=compute_{sass[0]},code=[sm_{sass[0]},compute_{sass[0]}]"
            if sass else "-arch=sm_90"]
    p = subprocess.run([nvcc, "-std=c++17", "-O1", "-cudart", "shared", *arch,
                        *(more[0].split() if more else []), source.name, "-o", to],
                       cwd=source.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True)
    return p.returncode == 0


def run(path, env):
    try:
        p = subprocess.run([path], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True, errors="replace", timeout=TIMEOUT_S)
        return {"status": p.returncode, "text": p.stdout[-1500:]}
    except subprocess.TimeoutExpired:
        return {"status": "late", "text": ""}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("programs", nargs="*")
    p.add_argument("--build", type=pathlib.Path, required=True)
    p.add_argument("--work", type=pathlib.Path, required=True)
    p.add_argument("--toolkit", type=pathlib.Path, default=pathlib.Path("/usr/local/cuda"))
    p.add_argument("--device", choices=("soft", "nvidia"), default="nvidia")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--out", type=pathlib.Path)
    a = p.parse_args()
    a.build = a.build.resolve()
    names = a.programs or sorted(f.stem for f in PROGRAMS.rglob("*.cu") if ".part" not in f.name)
    a.work.mkdir(parents=True, exist_ok=True)
    a.work.chmod(0o711)
    results = {name: {} for name in names}
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        made = dict(zip(names, pool.map(
            lambda n: compile_program(a.toolkit / "bin/nvcc", n, a.work / n), names)))
    names = [n for n in names if made[n]]
    ours = str(a.build / "guest-agent/cudart")
    sluiced = Sluiced(a.build, a.work / "sluiced", device=a.device)
    (a.work / "sluiced").chmod(0o711)
    sluiced.start()
    try:
        for vgpu in ("a", "b"):
            sluiced.ctl("create", vgpu, "--weight", 1)
        channel = sluiced.client_env("a")
        channel["LD_LIBRARY_PATH"] = os.pathsep.join([ours, channel["LD_LIBRARY_PATH"]])

        def libraries(*folders):
            return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(map(str, folders))}

        ways = {"channel": channel, "beside": channel}
        if a.device == "nvidia":
            ways = {"nvidia": libraries(a.toolkit / "lib64", SYSTEM_LIBRARIES),
                    "native": libraries(ours, SYSTEM_LIBRARIES), **ways}
        neighbour, evictions = None, 0
        for way, env in ways.items():
            if way == "beside":
                neighbour = subprocess.Popen(
                    [a.build / "kernels/suite/sluice-suite-md5", "--seconds", "600"],
                    env=sluiced.client_env("b"), stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL)
            for name in names:
                results[name][way] = run(a.work / name, env)
        if neighbour:
            evictions = sluiced.stats()["vgpus"]["a"]["physical_evictions"]
            neighbour.kill()
            neighbour.wait()
    finally:
        sluiced.stop()
    right = 0
    for name, by_way in results.items():
        wrong = {w: r for w, r in by_way.items() if r["status"] != 0}
        right += bool(by_way) and not wrong
        for way, r in wrong.items():
            print(f"{name}, {way}: {r['status']}: {r['text'].strip()[-400:]}")
        if not by_way:
            print(f"{name}: not compiled")
    counts = {w: sum(r[w]["status"] == 0 for r in results.values() if w in r) for w in ways}
    summary = {"programs": len(results), "right": right, "ways": counts, "evictions": evictions}
    print(json.dumps(summary))
    if a.out:
        a.out.write_text(json.dumps({**summary, "results": results}, indent=1))
    sys.exit(0 if right == len(results) else 1)


if __name__ == "__main__":
    main()
