# SPDX-License-Identifier: Apache-2.0
"""scheduler.turns = "priority": contexts side by side on one software GPU, whose turn it is goes
first, and nobody waits for anybody to leave."""
import unittest

import support
from host import HostError, Sluiced
from support import WithVictim

TURNS = '[scheduler]\nturns = "priority"\n'


class Turns(WithVictim):
    EXTRA = TURNS

    def test_results_of_four_programs_on_two_vgpus_are_right(self):
        self.assertEqual(self.sluiced.ctl("info")["sharing"], "turns by priority")
        running = [self.program(v, p, "--launches", 4, "--chain", 2, "--streams", 2, "--verify",
                                "every", "--json")
                   for v, p in (("a", "triad"), ("b", "matmul"), ("b", "reduction"), ("a", "md5"))]
        for p in running:
            self.assert_right(p.finish(), p.name)
        self.assert_all_free("a")
        self.assert_all_free("b")

    def test_both_have_turns_and_shares_follow_the_weights(self):
        self.sluiced.ctl("set", "a", "--weight", 3)
        running = [self.program(v, "stencil2d", "--seconds", 100000) for v in ("a", "b")]

        def share_of_a():
            before = self.sluiced.stats()["vgpus"]
            self.eventually(lambda: all(self.vgpu(n)["launches_done"] >
                                        before[n]["launches_done"] + 40 for n in ("a", "b")),
                            "both go on", timeout=support.TIMEOUT_S)
            after = self.sluiced.stats()["vgpus"]
            held = {n: after[n]["own_contended_gpu_ns"] - before[n]["own_contended_gpu_ns"]
                    for n in ("a", "b")}
            return held["a"] / max(1, held["a"] + held["b"])

        # A program that the host's processors keep waiting is not backlogged: one window says
        # little.
        self.eventually(lambda: 0.55 < share_of_a() < 0.95, "a has three quarters of a window",
                        timeout=support.TIMEOUT_S)
        for p in running:
            p.kill()
        self.sluiced.ctl("set", "a", "--weight", 1)
        self.assert_all_free("a")


class TurnsUnasked(WithVictim):
    """Short visits within a vGPU's share begin under the grant of the one before."""
    EXTRA = TURNS

    def test_a_light_program_comes_unasked_and_its_results_are_right(self):
        heavy = self.program("a", "stencil2d", "--seconds", 100000)
        light = []

        def came():
            light.append(self.program("b", "triad", "--size", 4096, "--launches", 20, "--chain", 1,
                                      "--depth", 1, "--verify", "every", "--json"))
            self.assert_right(light[-1].finish(), "triad")
            return self.vgpu("b")["unasked"] > 0
        self.eventually(came, "a visit began unasked", timeout=support.TIMEOUT_S)
        heavy.kill()
        self.assert_all_free("b")


class TurnsWithGapsFilled(WithVictim):
    """Class low: what fills the gaps is no launch of the program's, and changes no result."""
    EXTRA = TURNS

    def test_chains_of_two_vgpus_are_right(self):
        for v in ("a", "b"):
            self.sluiced.ctl("set", v, "--latency", "low")
        running = [self.program(v, p, "--launches", 8, "--chain", 8, "--verify", "every", "--json")
                   for v, p in (("a", "triad"), ("b", "reduction"), ("a", "md5"), ("b", "matmul"))]
        for p in running:
            self.assert_right(p.finish(), p.name)
        self.assert_all_free("a")
        self.assert_all_free("b")


class TurnsBesideASpin(WithVictim):
    """Of a sluiced of its own: the spinning vGPU is kept waiting afterwards."""
    EXTRA = TURNS

    def test_a_kernel_that_never_ends_is_ended_and_its_neighbour_is_not(self):
        with self.attack():
            attacker = self.adversary("fault-again", "spin", 1000)
            self.eventually(lambda: self.vgpu("a")["forced_ends"] >= 1, "it is ended",
                            timeout=support.TIMEOUT_S)
            attacker.kill()
        self.assertEqual(self.vgpu("b")["forced_ends"], 0)


class TurnsVisitBesideASpin(WithVictim):
    """The neighbour's launches are above the blocks that never end, and yet do not begin."""
    EXTRA = TURNS

    def test_who_spins_is_ended_and_the_visitor_goes_on(self):
        light = self.program("b", "triad", "--size", 4096, "--chain", 1, "--depth", 1,
                             "--seconds", 100000)
        self.eventually(lambda: self.vgpu("b")["launches_done"] > 100, "it has come and gone",
                        timeout=support.TIMEOUT_S)
        attacker = self.adversary("fault-again", "cover", 1000)
        self.eventually(lambda: self.vgpu("a")["forced_ends"] + self.vgpu("b")["forced_ends"] >= 1,
                        "one is ended", timeout=support.TIMEOUT_S)
        self.assertEqual(self.vgpu("b")["forced_ends"], 0)
        attacker.kill()
        done = self.vgpu("b")["launches_done"]
        self.eventually(lambda: self.vgpu("b")["launches_done"] > done + 100, "the other goes on",
                        timeout=support.TIMEOUT_S)
        self.assertEqual(self.vgpu("b")["forced_ends"], 0)
        light.kill()


class Refused(unittest.TestCase):
    def test_what_cannot_be_is_said_at_start(self):
        for extra, why in ((TURNS + "spatial = true\n", "unset scheduler.spatial"),
                           (TURNS + "slices = true\n", "unset scheduler.spatial and"),
                           (TURNS + 'policy = "loga"\n', "gives no turns"),
                           ('[scheduler]\nturns = "soon"\n', '"eviction" or "priority"'),
                           (TURNS + '[worker_environment]\nSLUICE_SOFT_MODE = "timeslice"\n',
                            'only in "mps"')):
            with self.subTest(extra=extra):
                s = Sluiced(support.BUILD, support.folder(), extra=extra)
                with self.assertRaises(HostError) as refused:
                    s.start()
                self.assertIn(why, str(refused.exception))
