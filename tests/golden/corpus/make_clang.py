#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels in clang/ to PTX with each optimisation level of clang; needs no GPU and
none of CUDA's headers.

usage: make_clang.py OUT [CLANG]

Leaves OUT/NAME.O0.ptx to OUT/NAME.O3.ptx. Those of must_refuse.cu must all be opaque (`waits`), and
of suites.cu the six that its head names.
"""
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent / "clang"
OPTIONS = ["-w", "-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=sm_70", "-std=c++17",
           "-Xclang", "-target-feature", "-Xclang", "+ptx70", "-nocudainc", "-nocudalib", "-S"]


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    clang = sys.argv[2] if len(sys.argv) == 3 else "clang"
    for source in sorted(HERE.glob("*.cu")):
        for level in range(4):
            to = out / f"{source.stem}.O{level}.ptx"
            subprocess.run([clang, *OPTIONS, f"-O{level}", source, "-o", to], check=True)


if __name__ == "__main__":
    main()
