#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the OpenMP regions in openmp/ to PTX with each optimisation level of clang, its device
runtime linked in; needs no GPU. Debian: clang-19, libomp-19-dev.

usage: make_openmp.py OUT [CLANG [RUNTIME]]

Leaves OUT/regions.O0.ptx to OUT/regions.O3.ptx. RUNTIME: libomptarget-nvptx-sm_70.bc.
"""
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parent / "openmp/regions.c"
OFFLOAD = ["-w", "-fopenmp", "--offload-arch=sm_70", "--offload-device-only", "-nogpuinc",
           "--cuda-path=/usr/local/cuda", "-emit-llvm", "-c"]
TO_TEXT = ["-w", "-target", "nvptx64-nvidia-cuda", "-march=sm_70", "-Xclang", "-target-feature",
           "-Xclang", "+ptx70", "-nogpulib", "-S", "-x", "ir"]


def main():
    if not 2 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    clang = sys.argv[2] if len(sys.argv) > 2 else "clang-19"
    runtime = (sys.argv[3] if len(sys.argv) > 3
               else "/usr/lib/llvm-19/lib/libomptarget-nvptx-sm_70.bc")
    for level in range(4):
        middle = out / f"regions.O{level}.bc"
        subprocess.run([clang, *OFFLOAD, f"-O{level}", f"--libomptarget-nvptx-bc-path={runtime}",
                        SOURCE, "-o", middle], check=True)
        subprocess.run([clang, *TO_TEXT, middle, f"-O{level}", "-Xclang",
                        "-mlink-builtin-bitcode", "-Xclang", runtime, "-o",
                        middle.with_suffix(".ptx")], check=True)
        middle.unlink()


if __name__ == "__main__":
    main()
