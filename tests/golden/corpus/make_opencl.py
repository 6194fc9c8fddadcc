#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the OpenCL kernels in opencl/ to PTX with each optimisation level of clang; needs no
GPU. Debian: clang-19, libclc-19.

usage: make_opencl.py OUT [CLANG [BUILTINS]]

Leaves OUT/kernels.O0.ptx to OUT/kernels.O3.ptx. BUILTINS: libclc's nvptx64--nvidiacl.bc.
"""
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parent / "opencl/kernels.cl"
OPTIONS = ["-w", "-target", "nvptx64-unknown-nvidiacl", "-Xclang", "-target-cpu", "-Xclang",
           "sm_70", "-Xclang", "-target-feature", "-Xclang", "+ptx70", "-cl-std=CL1.2", "-S"]


def main():
    if not 2 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    clang = sys.argv[2] if len(sys.argv) > 2 else "clang-19"
    builtins = sys.argv[3] if len(sys.argv) > 3 else "/usr/lib/clc/nvptx64--nvidiacl.bc"
    for level in range(4):
        subprocess.run([clang, *OPTIONS, f"-O{level}", "-Xclang", "-mlink-builtin-bitcode",
                        "-Xclang", builtins, SOURCE, "-o", out / f"kernels.O{level}.ptx"],
                       check=True)


if __name__ == "__main__":
    main()
