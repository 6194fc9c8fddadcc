# SPDX-License-Identifier: Apache-2.0
"""A guest that opens contexts, or loads modules, without end. Each stops its neighbours for a while
in the driver, so it may do that only so fast (core/stall_budget.h). The software GPU imitates that:
all stand still for as long as its options say."""
import threading
import unittest

import support
from host import Sluiced
from support import WithVictim

CONTEXT_MS = 40      # opened and ended: 20 each
MODULE_MS = 20
FREE_MS = 100        # core/stall_budget.h: what nobody waits for ...
FORGIVEN = 0.03      # ... and what of the time goes off the debt


@unittest.skipUnless(support.DEVICE == "soft", "the stalls are the software GPU's")
class AdversaryOpenings(WithVictim):
    @classmethod
    def setUpClass(cls):
        cls.work = support.folder()
        cls.sluiced = Sluiced(
            support.BUILD, cls.work,
            extra=f"{cls.SOFT_GPU}context_stall_ms = {CONTEXT_MS}\nmodule_stall_ms = {MODULE_MS}\n",
            env={"SLUICE_SOFT_CONTEXT_US": str(500 * CONTEXT_MS),
                 "SLUICE_SOFT_MODULE_US": str(1000 * MODULE_MS)})
        cls.addClassCleanup(cls.sluiced.stop)
        cls.sluiced.start()
        for name in ("a", "b"):
            cls.sluiced.ctl("create", name, "--weight", 1)

    def setUp(self):
        # What an earlier test has done is forgotten with the vGPU.
        self.sluiced.ctl("delete", "a")
        self.sluiced.ctl("create", "a", "--weight", 1)

    def stalled_ms(self, name="a"):
        return self.sluiced.ctl("show", name)["driver_stall_ms"]

    def flood(self, what, each_ms, sessions):
        with self.attack():
            before = self.vgpu("b")["launches_done"]
            self.eventually(lambda: self.vgpu("b")["launches_done"] > before + 4,
                            "the victim has all that it needs")
            own = self.stalled_ms("b")
            began_ns = self.sluiced.stats()["now_ns"]
            attackers = [self.adversary("open-again", what) for _ in range(sessions)]
            counts = [0] * sessions

            def count(i):
                for line in attackers[i].stdout:
                    counts[i] += line == "more\n"

            threads = [threading.Thread(target=count, args=(i,)) for i in range(sessions)]
            for t in threads:
                t.start()
            done = self.vgpu("b")["launches_done"]
            self.eventually(lambda: self.stalled_ms() > FREE_MS, "it has used up its burst")
            self.eventually(lambda: self.vgpu("b")["launches_done"] > done + 400,
                            "the victim works", timeout=support.TIMEOUT_S)
            done = sum(counts)
            stalled = self.stalled_ms()
            elapsed_ms = (self.sluiced.stats()["now_ns"] - began_ns) / 1e6
            for p in attackers:
                self.assertIsNone(p.poll(), "it is slowed, not refused")
                p.kill()
            for t in threads:
                t.join()
            print(f"{what}: {done} in {elapsed_ms / 1e3:.1f} s, {stalled:.0f} ms of stalls, "
                  f"{100 * stalled / elapsed_ms:.1f} %", flush=True)
            self.assertLessEqual(stalled, FREE_MS + CONTEXT_MS + FORGIVEN * elapsed_ms + 1)
            self.assertGreaterEqual(stalled, each_ms * done, "each that was done was charged")
            # But for another form of its kernel, which it loads once that has run for a while.
            self.assertLessEqual(self.stalled_ms("b"), own + MODULE_MS,
                                 "the victim pays for nothing")
        self.assert_all_free("a")

    def test_contexts(self):
        self.flood("contexts", CONTEXT_MS, 1)

    def test_contexts_of_many_sessions(self):
        self.flood("contexts", CONTEXT_MS, 4)

    def test_modules(self):
        self.flood("modules", MODULE_MS, 1)
