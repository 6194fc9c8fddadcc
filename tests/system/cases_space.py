# SPDX-License-Identifier: Apache-2.0
"""vGPUs side by side on one software GPU: scheduler.spatial, from the policy to the SM that a block
runs on."""
import bisect
import subprocess
import unittest

import support
from host import HostError, Sluiced
from support import WithSluiced

SMS = 4


class Tasks(WithSluiced):
    """Programs whose tasks write down their SM and their times."""

    def sms(self, name):
        """The SMs that a vGPU holds now, as a set."""
        held = set()
        for part in filter(None, self.vgpu(name)["sms"].split(",")):
            lo, _, hi = part.partition("-")
            held |= set(range(int(lo), int(hi or lo) + 1))
        return held

    def start_tasks(self, vgpu, number=0):
        out = self.work / f"tasks-{vgpu}-{number}"
        p = subprocess.Popen([support.BUILD / "tests/system/sm-tasks", self.stop_file, out],
                             env=self.sluiced.client_env(vgpu), stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
        self.addCleanup(lambda: p.poll() is None and p.kill())
        return p, out

    def finish_tasks(self, started):
        p, out = started
        text, _ = p.communicate(timeout=support.TIMEOUT_S)
        self.assertEqual(p.returncode, 0, text + self.sluiced.log()[-3000:])
        return [tuple(map(int, line.split())) for line in out.read_text().splitlines()]

    def setUp(self):
        self.stop_file = self.work / f"stop-{self.id()}"

    def assert_apart(self, tasks_a, tasks_b):
        """No SM ran tasks of both at one time."""
        for sm in range(SMS):
            spans = sorted((begin, end) for s, begin, end in tasks_b if s == sm)
            begins = [s[0] for s in spans]
            # The latest end of all that began before each: tasks of one vGPU may run side by side.
            latest, ends = 0, []
            for _, end in spans:
                latest = max(latest, end)
                ends.append(latest)
            for s, begin, end in tasks_a:
                if s != sm:
                    continue
                i = bisect.bisect_left(begins, end)
                if i:
                    self.assertLessEqual(ends[i - 1], begin,
                                         f"SM {sm} ran tasks of both at {begin}")


class Space(Tasks):
    EXTRA = 'sm_unit = 1\n[scheduler]\nspatial = true\n'

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sluiced.ctl("set", "a", "--weight", 3)

    def share_of_a(self):
        """What a has of the GPU time of a window in which each completes 40 launches."""
        before = self.sluiced.stats()["vgpus"]
        self.eventually(lambda: all(self.vgpu(n)["launches_done"] > before[n]["launches_done"] + 40
                                    for n in ("a", "b")), "both go on", timeout=support.TIMEOUT_S)
        after = self.sluiced.stats()["vgpus"]
        held = {n: after[n]["own_contended_gpu_ns"] - before[n]["own_contended_gpu_ns"]
                for n in ("a", "b")}
        return held["a"] / max(1, held["a"] + held["b"])

    def test_three_to_one_in_space(self):
        a, b = self.start_tasks("a"), self.start_tasks("b")
        self.eventually(lambda: len(self.sms("a")) == 3 and len(self.sms("b")) == 1,
                        "a has 3 SMs, b has 1")
        # A program that the host's CPUs keep waiting is not backlogged, so one window says little.
        self.eventually(lambda: 0.6 < self.share_of_a() < 0.9, "a has three quarters of a window")
        self.stop_file.touch()
        tasks_a, tasks_b = self.finish_tasks(a), self.finish_tasks(b)
        self.assert_apart(tasks_a, tasks_b)
        self.assertGreaterEqual(len({t[0] for t in tasks_a}), 3)
        self.assert_all_free("a")
        self.assert_all_free("b")

    def test_who_comes_and_goes_and_weights_that_change(self):
        a, b = self.start_tasks("a"), self.start_tasks("b")
        self.eventually(lambda: self.sms("a") and self.sms("b"), "both have SMs")
        self.sluiced.ctl("set", "b", "--weight", 9)
        self.eventually(lambda: len(self.sms("b")) == 3, "b has 3 SMs of 4")
        # Launches stay where they are while their SMs change.
        self.eventually(lambda: self.vgpu("a")["launches_kept"] +
                        self.vgpu("b")["launches_kept"] > 0, "launches stay",
                        timeout=support.TIMEOUT_S)
        self.sluiced.ctl("set", "b", "--weight", 1)
        self.eventually(lambda: len(self.sms("a")) == 3, "a has 3 SMs again")
        self.stop_file.touch()
        self.assert_apart(self.finish_tasks(a), self.finish_tasks(b))
        self.assertGreater(self.vgpu("a")["evictions"] + self.vgpu("b")["evictions"], 0)

    def test_results_of_three_programs_are_right(self):
        running = [self.program(v, p, "--launches", 4, "--chain", 2, "--streams", 2, "--verify",
                                "every", "--json")
                   for v, p in (("a", "triad"), ("b", "matmul"), ("b", "reduction"))]
        for p in running:
            self.assert_right(p.finish(), p.name)


class InGreenContexts(Tasks):
    """As it is by default: SMs in pairs, as the hardware has them in groups, and launches are kept
    there by it."""
    EXTRA = '[scheduler]\nspatial = true\n'

    def test_two_vgpus_are_kept_apart_by_the_hardware(self):
        a, b = self.start_tasks("a"), self.start_tasks("b")
        self.eventually(lambda: sorted(map(sorted, (self.sms("a"), self.sms("b")))) ==
                        [[0, 1], [2, 3]], "each has a pair",
                        timeout=support.TIMEOUT_S)
        for name in ("a", "b"):
            self.eventually(lambda: self.vgpu(name)["green_launches"] > 40,
                            f"launches of {name} are confined",
                            timeout=support.TIMEOUT_S)
            self.assertGreater(self.vgpu(name)["green_contexts"], 0)
        self.stop_file.touch()
        self.assert_apart(self.finish_tasks(a), self.finish_tasks(b))


class RefusedSchedulers(unittest.TestCase):
    """What the scheduler cannot work with is said at once, and what to do."""

    def refusal(self, extra, env=None):
        s = Sluiced(support.BUILD, support.folder(), device="soft", extra=extra, env=env)
        self.addCleanup(s.stop)
        with self.assertRaises(HostError) as e:
            s.start()
        return str(e.exception)

    def test_another_mode_of_the_software_gpu(self):
        text = self.refusal('[scheduler]\nspatial = true\n', {"SLUICE_SOFT_MODE": "fcfs"})
        self.assertIn("SLUICE_SOFT_MODE", text)

    def test_units_that_do_not_fit_the_gpu(self):
        for unit in (3, 8):
            text = self.refusal(f'sm_unit = {unit}\n[scheduler]\nspatial = true\n')
            self.assertIn(f"device.sm_unit is {unit}, and the GPU's 4 SMs", text)

    def test_a_policy_that_gives_the_gpu_whole(self):
        text = self.refusal('[scheduler]\nspatial = true\npolicy = "fcfs"\n')
        self.assertIn("wfq", text)

    def test_a_policy_that_sluiced_cannot_run(self):
        text = self.refusal('[scheduler]\npolicy = "loga"\n')
        self.assertIn("scheduler.slices", text)
        self.assertIn("sluiced runs: wfq, ", text)
        self.assertIn("no such policy", self.refusal('[scheduler]\npolicy = "fair"\n'))
