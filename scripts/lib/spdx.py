#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts the licence's SPDX line into every source file that lacks it, or reports those that do.

usage: spdx.py ROOT           writes
       spdx.py ROOT --check   writes nothing; status 1 if a file lacks the line

The line is the first of the file, or the second below `#!`. Text that a tool made (PTX, golden
files, recordings), documents and manual pages have none; debian/copyright covers them. Where PTX
carries the line numbers of its .cu file, run scripts/regenerate-ptx after writing. PTX that holds
a table of NVIDIA's libdevice, as sinf() and cosf() bring one, is reported, too.
"""
import pathlib
import sys

LINE = "SPDX-License-Identifier: Apache-2.0"
SLASHES = {".cc", ".h", ".cu", ".cuh", ".inc", ".cl"}
HASHES = {".py", ".sh", ".build", ".toml", ".service"}


def comment(path):
    """The line as the file's language writes it; None for what has none."""
    if path.suffix == ".c" or path.suffix == ".map" or path.name == "cuda_driver_values.h":
        return f"/* {LINE} */"
    if path.suffix in SLASHES:
        return f"/* {LINE} */" if path.parent.name == "abi" else f"// {LINE}"
    if path.suffix in HASHES or path.name == "meson_options.txt":
        return f"# {LINE}"
    if path.read_bytes()[:2] == b"#!":
        return f"# {LINE}"
    return None


def main():
    root, write = pathlib.Path(sys.argv[1]), "--check" not in sys.argv
    lacking, foreign = [], []
    for path in sorted(root.rglob("*")):
        first = path.relative_to(root).parts[0]
        if not path.is_file() or first == ".git" or first.startswith("build"):
            continue
        if first in ("out", "demo-out") or path.is_symlink():
            continue
        if path.suffix == ".ptx" and ".b8 __cudart" in path.read_text(encoding="utf-8"):
            foreign.append(path.relative_to(root))
        line = comment(path)
        if line is None:
            continue
        text = path.read_text(encoding="utf-8")
        if LINE in "\n".join(text.splitlines()[:3]):
            continue
        lacking.append(path.relative_to(root))
        if write:
            head, rest = text.split("\n", 1) if text.startswith("#!") else (None, text)
            path.write_text(f"{line}\n{text}" if head is None else f"{head}\n{line}\n{rest}",
                            encoding="utf-8")
    for path in lacking:
        print(f"{path}: {'now has' if write else 'lacks'} its SPDX line")
    for path in foreign:
        print(f"{path}: holds a table of NVIDIA's libdevice")
    sys.exit(1 if foreign or (lacking and not write) else 0)


if __name__ == "__main__":
    main()
