#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the PTX that the usual GPU frameworks make, for `sluice-ptx report` and `rewrite` to be
examined with.

Usage: dump.py OUT [FRAMEWORK ...]      (default: all; needs a GPU and the frameworks, which are
imported one by one)

Each framework runs in a process of its own, all side by side, and leaves files
OUT/FRAMEWORK/NAME.ptx. What fails is said on standard error and leaves no file: a corpus is what
the installed versions make, not a fixed list.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
FRAMEWORKS = ("triton", "inductor", "numba", "cupy", "nvrtc", "libraries")
LIMIT_S = float(os.environ.get("SLUICE_DUMP_LIMIT", "120"))


def environment(framework, out):
    """Caches go to a fresh folder, because all of these frameworks write PTX only for what they
    compile anew."""
    caches = out / ".cache" / framework
    env = dict(os.environ)
    env["PYTHONPATH"] = str(HERE) + os.pathsep + env.get("PYTHONPATH", "")
    env["TRITON_CACHE_DIR"] = str(caches / "triton")
    env["TORCHINDUCTOR_CACHE_DIR"] = str(caches / "inductor")
    env["CUPY_CACHE_DIR"] = str(caches / "cupy")
    env["CUPY_CACHE_IN_MEMORY"] = "1"
    env["SLUICE_DUMP_TO"] = str(out / framework)
    return env


def gather(framework, out):
    """Moves what a framework's own caches hold beside what its script wrote."""
    caches = out / ".cache" / framework
    if not caches.exists():
        return
    for number, path in enumerate(sorted(caches.rglob("*.ptx"))):
        shutil.copy(path, out / framework / f"{number:04d}-{path.name[-80:]}")
    shutil.rmtree(caches, ignore_errors=True)


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1]).resolve()
    wanted = sys.argv[2:] or FRAMEWORKS
    running = []
    deadline = time.monotonic() + LIMIT_S
    for framework in wanted:
        (out / framework).mkdir(parents=True, exist_ok=True)
        log = open(out / f"{framework}.log", "w", encoding="utf-8")
        running.append((framework,
                        subprocess.Popen([sys.executable, str(HERE / f"make_{framework}.py")],
                                                    env=environment(framework, out), stdout=log,
                                                    stderr=log)))
    for framework, process in running:
        try:
            code = process.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            code = "stopped at its limit"
        gather(framework, out)
        files = list((out / framework).glob("*.ptx"))
        print(f"{framework}: {len(files)} files, exit {code}; log in {out / framework}.log")


if __name__ == "__main__":
    main()
