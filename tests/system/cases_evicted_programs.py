# SPDX-License-Identifier: Apache-2.0
"""Programs of the CUDA runtime API that are evicted again and again by a second vGPU: each checks
its own results, which are those that it has alone.

The second vGPU has the higher priority, and short kernels every 0.5 to 5 ms (visitor.cc), each of
which takes the GPU from whoever has it. The gate runs the runtime's own test so, and a sample of
the compiled programs where nvcc has made them (ninja -C BUILD cudart-programs).
SLUICE_EVICTED_PROGRAMS=all (scripts/test --all) runs them all and the cases of each function, with
both ways of making clones, and beside rivals that come, go and change the weights at random
(SLUICE_RANDOM_SEED).
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
SAMPLE = ("async_copy", "atomics_shuffles", "matrix_tiles", "scan_blocks", "thrust_cub")
ALL = os.environ.get("SLUICE_EVICTED_PROGRAMS") == "all"
SEED = int(os.environ.get("SLUICE_RANDOM_SEED", "1"))
# A fault ends the session of a guest's program (cases_cudart.py says why).
NOT_AFTER_A_FAULT = "-Runtime.AFaultStaysUntilTheReset"
OWN = ["cudart_runtime_test"] + (["cudart_cases_test"] if ALL else [])


class Evicted(WithSluiced):
    EXTRA = 'clones = "lazy"\n'

    def visitor(self, seed):
        p = subprocess.Popen([support.BUILD / "tests/system/visitor", str(seed)],
                             env=self.sluiced.client_env("b"), stdout=subprocess.DEVNULL)

        def end():
            p.kill()
            p.wait()

        self.addCleanup(end)
        return p, end

    @contextlib.contextmanager
    def rival(self):
        self.sluiced.ctl("set", "b", "--priority", 1)
        visitors = [self.visitor(SEED), self.visitor(SEED + 1)]
        self.eventually(lambda: self.vgpu("b")["launches_done"] > 10, "the visitors launch")
        try:
            yield
            for p, _ in visitors:
                self.assertIsNone(p.poll(), "a visitor has ended")
        finally:
            for _, end in visitors:
                end()
            self.eventually(lambda: self.vgpu("b")["sessions"] == 0, "the visitors have left")

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

    def test_the_runtimes_own(self):
        with self.rival():
            self.run_all([support.BUILD / "tests/cudart" / name for name in OWN])

    def test_programs(self):
        folder = support.BUILD.joinpath(*PROGRAMS)
        if not folder.is_dir():
            raise unittest.SkipTest("no compiled programs: ninja cudart-programs, where nvcc is")
        paths = [p for p in sorted(folder.iterdir())
                 if (ALL or p.name in SAMPLE) and p.name != "cudart_cases_test"]
        with self.rival():
            self.run_all(paths)

    def test_a_program_that_is_evicted_often(self):
        """Long kernels, so that every visit evicts one."""
        before = self.vgpu("a")["evictions"]
        with self.rival():
            p = self.program("a", "md5", "--seconds", 100000, "--verify", "every", "--json")
            self.eventually(lambda: self.vgpu("a")["evictions"] >= before + 50, "50 evictions")
            p.process.send_signal(support.signal.SIGINT)
            self.assert_right(p.finish())
        self.assert_all_free("a")


class Chaos(Evicted):
    """Beside rivals that come and go, are killed, and change weights and priorities at random."""
    EXTRA = 'clones = "lazy"\n[scheduler]\nquantum_min_us = 500\nquantum_max_us = 2000\n'

    @contextlib.contextmanager
    def rival(self):
        done = threading.Event()
        trouble = []

        def disturb():
            chance = random.Random(SEED)
            rivals = []
            try:
                while not done.wait(chance.uniform(0, 0.05)):
                    what = chance.randrange(5)
                    if what == 0 and len(rivals) < 3:
                        rivals.append(self.visitor(chance.randrange(1000))[1])
                    elif what == 1 and len(rivals) < 3:
                        rivals.append(support.Program(self.sluiced, "b", "stencil2d", "--seconds",
                                                      100000).kill)
                    elif what == 2 and rivals:
                        rivals.pop(chance.randrange(len(rivals)))()
                    elif what == 3:
                        self.sluiced.ctl("set", "b", "--priority", chance.randrange(2))
                    else:
                        self.sluiced.ctl("set", chance.choice("ab"), "--weight",
                                         chance.choice((1, 10, 100, 1000)))
            except Exception as e:  # a thread's exception would be lost
                trouble.append(e)
            finally:
                for end in rivals:
                    end()

        thread = threading.Thread(target=disturb)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            self.assertEqual(trouble, [])
            self.sluiced.ctl("set", "b", "--priority", 0)
            self.eventually(lambda: self.vgpu("b")["sessions"] == 0, "the rivals have left")

    def test_a_program_that_is_evicted_often(self):
        raise unittest.SkipTest("by visitors only")


@unittest.skipUnless(ALL, "SLUICE_EVICTED_PROGRAMS=all")
class AllClonesAtOnce(Evicted):
    EXTRA = 'clones = "eager"\n'
