#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sluice-run puts Sluice's libcudart before the one that a program brings with it.

    sluice_run_test.py SLUICE_RUN COUNT_DEVICES FOLDER_OF_LIBCUDART
"""
import os
import subprocess
import sys
import tempfile
import unittest

RUN, PROGRAM, FOLDER = sys.argv[1:4]


def run(*command, **env):
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True,
                          timeout=300)


class SluiceRun(unittest.TestCase):
    def test_the_programs_own_library_finds_no_gpu(self):
        p = run(PROGRAM)
        self.assertEqual((p.returncode, p.stdout), (3, "801 0 0\n"), p.stderr)

    def test_ours_comes_first(self):
        p = run("sh", RUN, PROGRAM, "an argument", SLUICE_GUEST_LIBDIR=FOLDER)
        self.assertEqual((p.returncode, p.stdout), (0, "0 1 1\n"), p.stderr)

    def test_before_a_library_path_and_beside_a_preload(self):
        p = run("sh", RUN, "env", SLUICE_GUEST_LIBDIR=FOLDER, LD_PRELOAD="/other.so")
        line = next(x for x in p.stdout.splitlines() if x.startswith("LD_PRELOAD="))
        self.assertEqual(line, f"LD_PRELOAD={FOLDER}/libcudart.so.13:/other.so")

    def test_compilers_keep_ptx_unless_that_is_off(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("libcudart.so.13", "libsluice-jit.so"):
                open(os.path.join(folder, name), "w").close()
            for jit, expected in (("", ["libcudart.so.13", "libsluice-jit.so"]),
                                  ("off", ["libcudart.so.13"])):
                p = run("sh", RUN, "env", SLUICE_GUEST_LIBDIR=folder, SLUICE_JIT=jit)
                line = next(x for x in p.stdout.splitlines() if x.startswith("LD_PRELOAD="))
                self.assertEqual(line, "LD_PRELOAD=" + ":".join(
                    os.path.join(folder, name) for name in expected))

    def test_status_is_the_programs(self):
        p = run("sh", RUN, "sh", "-c", "exit 41", SLUICE_GUEST_LIBDIR=FOLDER)
        self.assertEqual(p.returncode, 41, p.stderr)

    def test_what_is_wrong_is_said(self):
        with tempfile.TemporaryDirectory() as empty:
            for status, word, command, folder in (
                    (2, "usage:", [], FOLDER),
                    (2, "unknown option --fast", ["--fast", PROGRAM], FOLDER),
                    (126, f"no libcudart.so in {empty}", [PROGRAM], empty),
                    (127, "/no/program: no such program", ["/no/program"], FOLDER)):
                with self.subTest(command=command):
                    p = run("sh", RUN, *command, SLUICE_GUEST_LIBDIR=folder)
                    self.assertEqual(p.returncode, status, p.stderr)
                    self.assertIn(word, p.stderr)

    def test_help(self):
        p = run("sh", RUN, "--help")
        self.assertEqual(p.returncode, 0)
        self.assertIn("usage: sluice-run PROGRAM", p.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
