#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names, for ninja, of what tests need; a line each.

usage: test_targets.py BUILD system            the programs of the system tests, and all packages
       test_targets.py BUILD without SUITE...  what the tests outside of these suites need

`meson-test-prereq` would also build what only the left-out suites need, which under sanitizers is
a third of everything.
"""
import json
import pathlib
import subprocess
import sys

# Folders of tests/ whose programs the system tests run.
SYSTEM_FOLDERS = ["system", "cudart", "jit", "conformance", "unit/nvml"]


def introspect(build, what):
    done = subprocess.run(["meson", "introspect", what, build], capture_output=True, text=True,
                          check=True)
    return json.loads(done.stdout)


def of_system_tests(root):
    """Everything but libraries that programs contain, and of the tests the above folders alone."""
    tests = root / "tests"
    for target in introspect(root, "--targets"):
        if not target["build_by_default"] or target["type"] == "static library":
            continue
        for file in map(pathlib.Path, target["filename"]):
            if not file.is_relative_to(tests) or any(
                    file.is_relative_to(tests / folder) for folder in SYSTEM_FOLDERS):
                yield str(file)


def of_tests_outside(root, suites):
    files = {t["id"]: t["filename"] for t in introspect(root, "--targets")}
    for test in introspect(root, "--tests"):
        if suites.isdisjoint(suite.split(":")[-1] for suite in test["suite"]):
            for target in test["depends"]:
                yield from files[target]


def main():
    root, what = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    found = of_system_tests(root) if what == "system" else of_tests_outside(root, set(sys.argv[3:]))
    # A target may be a link, which is not followed; folders above it are.
    for name in sorted({pathlib.Path(f).parent.resolve() / pathlib.Path(f).name for f in found}):
        print(name.relative_to(root))


if __name__ == "__main__":
    main()
