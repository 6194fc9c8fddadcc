#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each script explains itself by --help, and does nothing else then.

    scripts_help_test.py SOURCE_ROOT
"""
import pathlib
import subprocess
import sys


def main():
    scripts = sorted(p for p in (pathlib.Path(sys.argv[1]) / "scripts").iterdir() if p.is_file())
    failures = []
    for script in scripts:
        p = subprocess.run([script, "--help"], capture_output=True, text=True, timeout=120,
                           stdin=subprocess.DEVNULL)
        if p.returncode != 0 or script.name not in p.stdout or p.stderr:
            failures.append(f"scripts/{script.name} --help: status {p.returncode}, "
                            f"{p.stdout[:200]!r}, {p.stderr[-200:]!r}")
    print("\n".join(failures) or f"{len(scripts)} scripts")
    sys.exit(bool(failures) or not scripts)


if __name__ == "__main__":
    main()
