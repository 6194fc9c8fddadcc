# SPDX-License-Identifier: Apache-2.0
"""Policies that go by the lengths of launches, in sluiced: what it learns of kernels, and whom it
lets run."""
import re
import subprocess

from support import WithSluiced

# One launch of the first takes a hundred times as long as one of the second.
LONG = ("triad", "--size", 1 << 21)
SHORT = ("triad", "--size", 1 << 14)


class Shortest(WithSluiced):
    """`a` has long launches, `b` short ones."""
    EXTRA = '[scheduler]\npolicy = "srt"\n'

    def learn(self):
        """Each alone: launches that nobody evicts are learnt from."""
        for v, p in (("a", LONG), ("b", SHORT)):
            self.assert_right(self.program(v, *p, "--launches", 8, "--json").finish(), v)
            self.assert_all_free(v)
            self.assertEqual(self.sluiced.ctl("show", v)["launches"]["kernels_known"], 1, v)

    def request(self):
        self.assert_right(self.program("b", *SHORT, "--launches", 3, "--depth", 1,
                                       "--json").finish(), "short")

    def test_short_launches_take_the_gpu_from_long_ones(self):
        self.learn()
        before = {v: self.vgpu(v)["evictions"] for v in "ab"}
        long = self.program("a", *LONG, "--seconds", 300)
        self.eventually(lambda: self.vgpu("a")["progress"]["predicted_launches"] > 0,
                        "long launches are predicted")

        def evicted():
            self.request()
            a = self.sluiced.ctl("show", "a")
            return (self.vgpu("a")["evictions"] >= 4
                    and a["launches"]["kernels_with_evict_cost"] == 1)
        self.eventually(evicted,
                        "long launches go when short ones come, and it is known what that costs")
        # Each of the requests has a hundred times less to do than the rest of what it meets, so
        # that no load of this machine makes it the longer one for good.
        a, b = (self.vgpu(v)["evictions"] - before[v] for v in "ab")
        self.assertLess(b, a, "and not the other way round")
        long.kill()
        self.assert_all_free("a")
        self.assertEqual(self.sluiced.ctl("show", "a")["launches"]["queued"], 0)
        # What an eviction costs is kept, too.
        self.assertEqual(self.sluiced.stop(), 0, self.sluiced.log()[-3000:])
        kept = (self.work / "state/a.kernels").read_text()
        self.assertRegex(kept, r"sluice-preemption-costs 1\n\d+ \d+ \d+\n")
        self.sluiced.start()
        self.sluiced.ctl("create", "a", "--weight", 1)
        # Kept files are read on a thread, after the vGPU is there.
        self.eventually(lambda: self.sluiced.ctl("show", "a")["launches"]
                        ["kernels_with_evict_cost"] == 1, "what was kept is known again")
        self.assertNotIn("left aside", self.sluiced.log())
        self.sluiced.ctl("create", "b", "--weight", 1)


class ShortestTotal(Shortest):
    EXTRA = '[scheduler]\npolicy = "sjf"\n'


class ShortestWithinShares(Shortest):
    """The same order, as far as each one's own share of the time pays for it."""
    EXTRA = '[scheduler]\npolicy = "wfq-srt"\n'


class Slowdowns(WithSluiced):
    """frs gives the GPU to whom waiting has slowed down most: neither length starves the other."""
    EXTRA = '[scheduler]\npolicy = "frs"\n'

    def test_both_lengths_get_on(self):
        running = [self.program("a", *LONG, "--seconds", 2, "--json"),
                   self.program("b", *SHORT, "--seconds", 2, "--json")]
        for p in running:
            self.assert_right(p.finish(), p.name)
        a, b = self.vgpu("a"), self.vgpu("b")
        self.assertGreater(a["evictions"], 0)
        self.assertGreater(b["launches_done"], a["launches_done"], "they are shorter")
        text = subprocess.run([self.sluiced.build / "mediator/cli/sluicectl", "--socket",
                               self.sluiced.admin, "metrics"],
                              stdout=subprocess.PIPE, text=True, check=True).stdout
        for v in ("a", "b"):
            grants = re.search(rf'^sluice_vgpu_grants_total{{vgpu="{v}"}} (\d+)$', text, re.M)
            self.assertGreater(int(grants[1]), 1, v)
            held = re.search(rf'^sluice_vgpu_gpu_held_seconds_total{{vgpu="{v}"}} ([0-9.]+)$', text,
                             re.M)
            self.assertGreater(float(held[1]), 0, v)
