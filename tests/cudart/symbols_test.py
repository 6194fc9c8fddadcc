#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What libcudart.so.N exports is what its table says, and what the toolkit's library exports where
that is installed.

symbols_test.py PROGRAM LIBRARY VERSION [TOOLKIT_LIBRARY]: PROGRAM prints the table.
"""
import pathlib
import subprocess
import sys


def exports(library):
    """{symbol: version} of what it defines."""
    text = subprocess.run(["nm", "-D", "--defined-only", library], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    found = {}
    for line in text.splitlines():
        name, _, version = line.split()[-1].partition("@")
        if name != version.lstrip("@") and not (name.startswith("libcudart.so") and not version):
            found[name] = version.lstrip("@")
    return found


def main():
    program, library, version = sys.argv[1:4]
    table = subprocess.run([program], check=True, stdout=subprocess.PIPE,
                           text=True).stdout.split()
    assert len(table) == len(set(table)), "a symbol stands twice in the table"
    ours = exports(library)
    assert set(ours) == set(table), f"exports and table differ: {sorted(set(ours) ^ set(table))}"
    assert set(ours.values()) == {version}, f"versions: {set(ours.values())}"
    for path in map(pathlib.Path, sys.argv[4:]):
        if path.exists():
            theirs = exports(path)
            different = sorted(set(theirs.items()) ^ set(ours.items()))
            assert theirs == ours, f"{path} differs: {different}"
    print(f"{len(ours)} symbols of {version}")


main()
