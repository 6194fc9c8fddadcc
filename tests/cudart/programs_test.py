#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiled CUDA C++ programs on the software GPU with our libcudart.

programs_test.py FOLDER LIBRARIES: FOLDER holds the programs that `ninja cudart-programs` compiled,
LIBRARIES is the search path of libcudart.so.13 and libcuda.so.1. Exit 77: skipped.
"""
import os
import pathlib
import subprocess
import sys

TIMEOUT_S = 300
# The software GPU alone has no graphs, pools, advice, peer copies or events of several processes:
# they are the guest's, and tests/system/cases_cudart.py runs these programs there. The cases have a
# test of their own.
NOT_ALONE = {"device_launches", "graphs", "graph_nodes", "graph_update", "graph_parts", "host_side",
             "ipc", "mapped_ranges", "memory_calls", "shared_pools", "cudart_cases_test"}


def main():
    folder, libraries = pathlib.Path(sys.argv[1]), sys.argv[2]
    if not folder.is_dir():
        print("no compiled programs: ninja cudart-programs, where nvcc is")
        sys.exit(77)
    wrong = 0
    for path in sorted(folder.iterdir()):
        if path.name in NOT_ALONE:
            continue
        p = subprocess.run([path], env={**os.environ, "LD_LIBRARY_PATH": libraries},
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           timeout=TIMEOUT_S)
        print(path.name, "right" if p.returncode == 0 else f"WRONG ({p.returncode})\n{p.stdout}")
        wrong += p.returncode != 0
    sys.exit(1 if wrong else 0)


main()
