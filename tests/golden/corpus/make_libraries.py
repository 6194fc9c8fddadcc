# SPDX-License-Identifier: Apache-2.0
"""PTX that installed libraries carry for GPUs of the future, as cuobjdump gives it out. Copies
nothing else."""

import os
import pathlib
import subprocess
import sys
import sysconfig

from common import OUT, attempt

NAMES = ("libcublas.so*", "libcusolver.so*", "libcusparse.so*", "libcurand.so*", "libnccl.so*",
         "xla_cuda_plugin.so")
LIMIT_S = 100


def extract(library):
    folder = OUT / library.name
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cuobjdump", "-xptx", "all", str(library)], cwd=folder, timeout=LIMIT_S,
                   check=True, stdout=subprocess.DEVNULL)
    for path in folder.glob("*.ptx"):
        path.rename(OUT / path.name)


def main():
    site = pathlib.Path(sysconfig.get_paths()["purelib"])
    if len(sys.argv) > 1:
        site = pathlib.Path(sys.argv[1])
    for name in NAMES:
        for library in sorted(site.rglob(name)):
            if (library.is_file() and not library.is_symlink()
                    and os.path.getsize(library) > 1 << 20):
                attempt(library.name, extract, library)


main()
