# SPDX-License-Identifier: Apache-2.0
"""What both tests share: the programs of a build folder, started and ended.

Each test file: NAME_test.py BUILD_DIR [unittest's arguments]
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = None
TIMEOUT_S = 60

sys.path.insert(0, str(ROOT / "scripts/lib"))


def environment():
    return {**os.environ, "SLUICE_KUBERNETES": str(BUILD / "packaging/kubernetes"),
            "SLUICE_DOMAIN_ATTACH": str(BUILD / "mediator/libvirt/sluice-domain-attach")}


def program(name, *args):
    """The command line of one of packaging/kubernetes's programs."""
    return [sys.executable, str(ROOT / "packaging/kubernetes" / name), *map(str, args)]


class Running:
    """A program that runs until stop(). What it prints is in `log()`. With `answer_within_s` it
    waits for an answer of sluiced no longer than that."""

    def __init__(self, folder, name, *args, answer_within_s=None):
        self.log_path = folder / f"{name}.log"
        command = program(name, *args)
        if answer_within_s:
            code = ("import os, runpy, sys\n"
                    "sys.path.insert(0, os.environ['SLUICE_KUBERNETES'])\n"
                    "from sluice_kubernetes import admin\n"
                    f"admin.TIMEOUT_S = {answer_within_s}\n"
                    "del sys.argv[0]\n"
                    "runpy.run_path(sys.argv[0], run_name='__main__')\n")
            command[1:1] = ["-c", code]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, env=environment())

    def log(self):
        return self.log_path.read_text(errors="replace")

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        return self.wait()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def wait(self):
        try:
            return self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"it did not end:\n{self.log()}") from None


class Case(unittest.TestCase):
    maxDiff = None

    @classmethod
    def folder(cls):
        d = pathlib.Path(tempfile.mkdtemp(prefix="sluice-k."))
        d.chmod(0o711)  # a sluiced that is not root reaches what it made there
        cls.addClassCleanup(shutil.rmtree, d, ignore_errors=True)
        return d

    def eventually(self, condition, what):
        end = time.monotonic() + TIMEOUT_S
        while not condition():
            if time.monotonic() > end:
                self.fail(f"never: {what}")
            time.sleep(0.02)


def main():
    global BUILD
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2, warnings="ignore")
