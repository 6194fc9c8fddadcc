# SPDX-License-Identifier: Apache-2.0
"""vGPUs on the time slices of one software GPU: scheduler.slices, from the policy to what each one
got."""
import unittest

import support
from host import HostError, Sluiced
from support import WithSluiced


class Slices(WithSluiced):
    EXTRA = '[scheduler]\nslices = true\n'

    def test_time_follows_the_slices_of_whoever_has_work(self):
        self.sluiced.ctl("set", "a", "--weight", 8)
        running = [self.program(v, "triad", "--seconds", 2, "--json") for v in ("a", "b")]
        both = {}

        def side_by_side():
            for v in ("a", "b"):
                both[v] = self.vgpu(v)
            return all(v["holds"] and v["busy"] for v in both.values())
        self.eventually(side_by_side, "both hold the GPU at once")
        for p in running:
            self.assert_right(p.finish(), p.name)
        a, b = self.vgpu("a"), self.vgpu("b")
        # 8 to 1 by weight; not less than 2 to 1 however this machine is loaded, and nobody starves.
        self.assertGreater(a["own_contended_gpu_ns"], 2 * b["own_contended_gpu_ns"])
        self.assertGreater(b["own_contended_gpu_ns"], 0)
        for v in (a, b):
            self.assertGreater(v["usage"]["charged_sm_ns"], 0)
            self.assertEqual(v["sessions_ended_by_scheduler"], 0)
        self.assertNotIn("asked for what cannot be", self.sluiced.log())

    def test_a_killed_program_leaves_the_gpu_to_the_others(self):
        victim = self.program("a", "md5", "--seconds", 60)
        self.eventually(lambda: self.vgpu("a")["launches"] > 2, "the victim launches")
        other = self.program("b", "reduction", "--seconds", 1, "--json")
        self.eventually(lambda: self.vgpu("b")["launches"] > 2, "the other launches")
        victim.kill()
        self.assert_right(other.finish(), "the other")
        self.assert_all_free("a")


class OriginalsAlone(WithSluiced):
    """clones = "none", as on an NVIDIA GPU's time slices: kernels run as they are."""
    EXTRA = 'clones = "none"\n[scheduler]\nslices = true\n'

    def test_both_get_on_and_nothing_is_rewritten(self):
        running = [self.program(v, p, "--seconds", 1, "--json") for v,
                   p in (("a", "triad"), ("b", "md5"))]
        for p in running:
            self.assert_right(p.finish(), p.name)
        for v in "ab":
            shown = self.vgpu(v)
            self.assertGreater(shown["own_contended_gpu_ns"], 0, v)
            self.assertGreater(shown["launches"], 0, v)
            self.assertEqual(shown["opaque_launches"], shown["launches"], v)


class Loga(WithSluiced):
    """Disengaged fair queuing suspends who is ahead; both get on."""
    EXTRA = '[scheduler]\nslices = true\npolicy = "loga"\n'

    def test_both_get_on(self):
        self.assertEqual({p["name"] for p in self.sluiced.ctl("policies")}, {"wfq", "loga"})
        running = [self.program(v, p, "--seconds", 1, "--json") for v,
                   p in (("a", "triad"), ("b", "md5"))]
        for p in running:
            self.assert_right(p.finish(), p.name)
        for v in ("a", "b"):
            self.assertGreater(self.vgpu(v)["own_contended_gpu_ns"], 0, v)
        self.assertNotIn("asked for what cannot be", self.sluiced.log())


class Refused(unittest.TestCase):
    def refusal(self, extra, env=None):
        s = Sluiced(support.BUILD, support.folder(), device="soft",
                    extra="[scheduler]\nslices = true\n" + extra, env=env)
        self.addCleanup(s.stop)
        with self.assertRaises(HostError) as e:
            s.start()
        return str(e.exception)

    def test_what_cannot_be_is_said_with_the_reason(self):
        self.assertIn("those that do are: wfq, loga", self.refusal('policy = "srt"\n'))
        self.assertIn("not by both", self.refusal("spatial = true\n"))
        self.assertIn("timeslice", self.refusal("", {"SLUICE_SOFT_MODE": "fcfs"}))
