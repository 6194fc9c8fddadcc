#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names, for ninja, of what the tests outside of the given suites need; a line each.

usage: sanitized_targets.py BUILD SUITE...

`meson-test-prereq` would also build what only the left-out suites need, which under sanitizers is
a third of everything.
"""
import json
import pathlib
import subprocess
import sys


def introspect(build, what):
    done = subprocess.run(["meson", "introspect", what, build], capture_output=True, text=True,
                          check=True)
    return json.loads(done.stdout)


def main():
    build, left_out = sys.argv[1], set(sys.argv[2:])
    files = {t["id"]: t["filename"] for t in introspect(build, "--targets")}
    needed = set()
    for test in introspect(build, "--tests"):
        if left_out.isdisjoint(suite.split(":")[-1] for suite in test["suite"]):
            for target in test["depends"]:
                needed.update(files[target])
    root = pathlib.Path(build).resolve()
    for name in sorted(needed):
        print(pathlib.Path(name).resolve().relative_to(root))


if __name__ == "__main__":
    main()
