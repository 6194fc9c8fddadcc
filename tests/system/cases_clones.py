# SPDX-License-Identifier: Apache-2.0
"""device.clones: kernels' clones come at their first launch, in modules of their own ("lazy"), or
with their module ("eager")."""
import os
import subprocess

import support
from support import WithVictim

LAZY = 'clones = "lazy"\n'


class EagerClones(WithVictim):
    EXTRA = 'clones = "eager"\n'

    def test_kernels_are_evicted_and_right(self):
        # Of md5 the table is a variable of its module.
        running = {v: self.program(v, p, "--seconds", 100000, "--verify", "every", "--json")
                   for v, p in (("a", "md5"), ("b", "stencil2d"))}
        self.eventually(lambda: all(self.vgpu(v)["evictions"] >= 4 for v in running),
                        "both are evicted", timeout=support.TIMEOUT_S)
        for p in running.values():
            p.process.send_signal(support.signal.SIGINT)
        for v, p in running.items():
            self.assert_right(p.finish(), v)
        self.assert_all_free("a")
        self.assert_all_free("b")


class LazyClones(EagerClones):
    EXTRA = LAZY

    def test_programs_of_the_runtime_api_are_right(self):
        env = self.sluiced.client_env("a")
        env["SLUICE_TRACE"] = "calls"
        env["SLUICE_REWRITE"] = "all"
        env["GTEST_FILTER"] = "-Runtime.AFaultStaysUntilTheReset"  # cases_cudart.py says why
        env["LD_LIBRARY_PATH"] = os.pathsep.join(
            [str(support.BUILD / "guest-agent/cudart"), env["LD_LIBRARY_PATH"]])
        p = subprocess.run([support.BUILD / "tests/cudart/cudart_runtime_test"], env=env,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           timeout=support.TIMEOUT_S)
        self.assertEqual(p.returncode, 0, f"{p.stdout[-3000:]}\n{self.sluiced.log()[-3000:]}")
        self.assertIn("function_clones", p.stdout)
        self.assert_all_free("a")

    def test_a_launch_that_waits_for_the_program_does_not_hold_it_up(self):
        # Its memory calls launch for the first time behind values that they write afterwards.
        self.assertIn("function_clones", self.memory_calls("all"))

    def test_a_grid_that_the_gpu_holds_at_once_needs_none(self):
        self.assertNotIn("function_clones", self.memory_calls(""))
        shown = self.vgpu("a")
        self.assertGreater(shown["whole_launches"], 0)
        self.assertEqual(shown["whole_launches"], shown["opaque_launches"])

    def memory_calls(self, rewrite):
        env = {**self.sluiced.client_env("a"), "SLUICE_TRACE": "calls", "SLUICE_REWRITE": rewrite}
        p = subprocess.run([support.BUILD / "tests/system/memory-calls"], env=env,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           timeout=support.TIMEOUT_S)
        self.assertEqual(p.returncode, 0, f"{p.stdout[-3000:]}\n{self.sluiced.log()[-3000:]}")
        self.assert_all_free("a")
        return p.stdout


class ClonesOnRequest(WithVictim):
    """With turns by priority only kernels that take long have clones: here each, or none."""
    WHOLE_US = 1_000_000
    EXTRA = f'{LAZY}[scheduler]\nturns = "priority"\nturn_whole_us = {WHOLE_US}\n'
    CLONES = False

    def test_they_come_for_kernels_that_take_long(self):
        env = self.sluiced.client_env("a")
        env["SLUICE_TRACE"] = "calls"
        p = subprocess.run([support.BUILD / "kernels/suite/sluice-suite-md5", "--launches", "40",
                            "--verify", "every"], env=env, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, timeout=support.TIMEOUT_S)
        self.assertEqual(p.returncode, 0, f"{p.stdout[-3000:]}\n{self.sluiced.log()[-3000:]}")
        self.assertEqual("function_clones" in p.stdout, self.CLONES)
        self.assert_all_free("a")


class ClonesOfAllOnRequest(ClonesOnRequest):
    EXTRA = f'{LAZY}[scheduler]\nturns = "priority"\nturn_whole_us = 0\n'
    CLONES = True
