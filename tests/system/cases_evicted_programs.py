# SPDX-License-Identifier: Apache-2.0
"""Programs of the CUDA runtime API that are evicted again and again by a second vGPU: each checks
its own results, which are those that it has alone.

The gate runs a sample of the compiled programs (where nvcc has made them: ninja -C BUILD
cudart-programs) and the cases of each function; SLUICE_EVICTED_PROGRAMS=all (scripts/test --all)
runs them all, at three lengths of turns and beside a rival that comes, goes and changes its weight
at random (SLUICE_RANDOM_SEED).
"""
import contextlib
import os
import random
import subprocess
import threading
import unittest

import support
from support import WithSluiced

PROGRAMS = ("tests/cudart", "native", "ptx")
SAMPLE = ("async_copy", "atomics_shuffles", "managed", "matrix_tiles", "scan_blocks", "thrust_cub")
ALL = os.environ.get("SLUICE_EVICTED_PROGRAMS") == "all"
# What a program prints or ends with where the API says so (cases_cudart.py).
NOT_AFTER_A_FAULT = "-Runtime.AFaultStaysUntilTheReset"
# Faults and resets end sessions; their evictions are others' business.
CASES = ("cudart_runtime_test", "cudart_cases_test")


def scheduler(turn_us, clones="lazy"):
    return (f'clones = "{clones}"\n[scheduler]\nquantum_min_us = {turn_us}\n'
            f'quantum_max_us = {turn_us}\n')


class Evicted(WithSluiced):
    """Turns of half a millisecond beside a rival that always has work."""
    EXTRA = scheduler(500)

    @contextlib.contextmanager
    def rival(self):
        rival = self.program("b", "md5", "--seconds", 100000)
        self.eventually(lambda: self.vgpu("b")["launches_done"] > 0, "the rival launches")
        try:
            yield
        finally:
            rival.kill()
            self.eventually(lambda: self.vgpu("b")["sessions"] == 0, "the rival has left")

    def programs(self):
        folder = support.BUILD.joinpath(*PROGRAMS)
        if not folder.is_dir():
            raise unittest.SkipTest("no compiled programs: ninja cudart-programs, where nvcc is")
        return [p for p in sorted(folder.iterdir())
                if (ALL or p.name in SAMPLE) and p.name not in CASES]

    def run_all(self, paths):
        before = self.vgpu("a")["evictions"]
        env = self.sluiced.client_env("a")
        env["GTEST_FILTER"] = NOT_AFTER_A_FAULT
        env["LD_LIBRARY_PATH"] = os.pathsep.join(
            [str(support.BUILD / "guest-agent/cudart"), env["LD_LIBRARY_PATH"]])
        for path in paths:
            with self.subTest(path.name):
                p = subprocess.run([path], env=env, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, timeout=support.TIMEOUT_S)
                self.assertEqual(p.returncode, 0, f"{path.name}: {p.stdout[-3000:]}\n"
                                 f"--- sluiced:\n{self.sluiced.log()[-3000:]}")
        v = self.vgpu("a")
        print(f"{len(paths)} programs, {v['evictions'] - before} evictions", flush=True)
        self.assert_all_free("a")

    def test_cases_of_each_function(self):
        with self.rival():
            self.run_all([support.BUILD / "tests/cudart" / name for name in CASES])

    def test_programs(self):
        paths = self.programs()
        with self.rival():
            self.run_all(paths)


class Chaos(Evicted):
    """Beside rivals that come and go, are killed, and change both weights at random."""
    EXTRA = scheduler(1000)

    @contextlib.contextmanager
    def rival(self):
        seed = int(os.environ.get("SLUICE_RANDOM_SEED", "1"))
        done = threading.Event()
        trouble = []

        def disturb():
            chance = random.Random(seed)
            rivals = []
            try:
                while not done.wait(chance.uniform(0, 0.05)):
                    what = chance.randrange(4)
                    if what == 0 and len(rivals) < 3:
                        name = chance.choice(("md5", "stencil2d", "reduction"))
                        rivals.append(support.Program(self.sluiced, "b", name, "--seconds", 100000))
                    elif what == 1 and rivals:
                        rivals.pop(chance.randrange(len(rivals))).kill()
                    else:
                        self.sluiced.ctl("set", chance.choice("ab"), "--weight",
                                         chance.choice((1, 10, 100, 1000)))
            except Exception as e:  # a thread's exception would be lost
                trouble.append(e)
            finally:
                for r in rivals:
                    r.kill()

        thread = threading.Thread(target=disturb)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            self.assertEqual(trouble, [])
            self.eventually(lambda: self.vgpu("b")["sessions"] == 0, "the rivals have left")


@unittest.skipUnless(ALL, "SLUICE_EVICTED_PROGRAMS=all")
class LongerTurns(Evicted):
    EXTRA = scheduler(2000)


@unittest.skipUnless(ALL, "SLUICE_EVICTED_PROGRAMS=all")
class LongestTurnsAllClonesAtOnce(Evicted):
    EXTRA = scheduler(5000, "eager")
