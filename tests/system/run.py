#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the system tests: whole programs, real guests under TCG, faults. No GPU is needed.

    run.py --build DIR [--cases DIR]... [--junit FILE] [-k TEXT]... [--device nvidia]

With `--device nvidia` sluiced uses the GPU of this machine; meant for `-k Adversary` and `-k
Local`.

Each module cases_*.py of the folders --cases (default: this one, its `adversaries` and its
`guests`) holds unittest cases; they find the build through `support.BUILD`. Nothing here asserts on
time; time-outs are generous, a guest's boot may be retried, a wrong result never.
"""
import argparse
import os
import pathlib
import sys
import time
import unittest
from xml.sax import saxutils

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "scripts/lib")]
import support  # noqa: E402


class JUnitResult(unittest.TextTestResult):
    """Prints a line a test as it ends and keeps what the JUnit file needs."""

    def __init__(self, *args, **kw):
        super().__init__(*args, **kw)
        self.rows = []

    def startTest(self, test):
        super().startTest(test)
        self._began = time.monotonic()

    def _row(self, test, kind="", text=""):
        self.rows.append((test.id(), time.monotonic() - self._began, kind, text))

    def addSuccess(self, test):
        super().addSuccess(test)
        self._row(test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._row(test, "failure", self._exc_info_to_string(err, test))

    def addError(self, test, err):
        super().addError(test, err)
        if not hasattr(self, "_began"):
            self._began = time.monotonic()
        self._row(test, "error", self._exc_info_to_string(err, test))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._row(test, "skipped", reason)

    def write(self, path):
        with open(path, "w", encoding="utf-8") as f:
            f.write(f'<?xml version="1.0" encoding="utf-8"?>\n<testsuite name="{path.stem}">\n')
            for name, seconds, kind, text in self.rows:
                cls, _, case = name.rpartition(".")
                f.write(f"<testcase classname={saxutils.quoteattr(cls)} "
                        f"name={saxutils.quoteattr(case)} time=\"{seconds:.3f}\">")
                if kind:
                    clean = "".join(c if c >= " " or c in "\n\t" else "?" for c in text)
                    f.write(f"<{kind}>{saxutils.escape(clean)}</{kind}>")
                f.write("</testcase>\n")
            f.write("</testsuite>\n")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", required=True, type=pathlib.Path)
    p.add_argument("--cases", type=pathlib.Path, action="append")
    p.add_argument("--junit", type=pathlib.Path)
    p.add_argument("-k", dest="pattern", action="append")
    p.add_argument("--device", choices=("soft", "nvidia"), default="soft")
    a = p.parse_args()
    support.BUILD = a.build.resolve()
    support.DEVICE = a.device
    folders = [f.resolve() for f in a.cases or (HERE, HERE / "adversaries", HERE / "guests")]
    sys.path[:0] = map(str, folders)
    if os.geteuid() == 0:
        import virt
        virt.enter_private_namespace()
    loader = unittest.TestLoader()
    if a.pattern:
        loader.testNamePatterns = [f"*{p}*" for p in a.pattern]
    suite = unittest.TestSuite(loader.discover(str(f), "cases_*.py", str(f)) for f in folders)
    result = unittest.TextTestRunner(verbosity=2, resultclass=JUnitResult).run(suite)
    support.clean_up()
    if a.junit:
        result.write(a.junit)
    # A class that is skipped as a whole runs no test.
    return 0 if result.wasSuccessful() and (result.testsRun or result.skipped) else 1


if __name__ == "__main__":
    sys.exit(main())
