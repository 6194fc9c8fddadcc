# SPDX-License-Identifier: Apache-2.0
"""The host's time of day is set back and forth all the time (stepping_clock.c): sluiced and its
spawner go by the monotonic clock, so turns, deadlines, back-offs and limits are as ever."""
import support
from host import Sluiced


class ClockSteps(support.WithSluiced):
    @classmethod
    def setUpClass(cls):
        cls.work = support.folder()
        clock = support.BUILD / "tests/system" / "libstepping-clock.so"
        cls.sluiced = Sluiced(support.BUILD, cls.work, env={"LD_PRELOAD": str(clock)})
        cls.addClassCleanup(cls.sluiced.stop)
        cls.sluiced.start()
        for name in ("a", "b"):
            cls.sluiced.ctl("create", name, "--weight", 1)

    def test_two_vgpus_take_turns_and_nothing_is_late(self):
        running = [self.program(v, "stencil2d", "--seconds", 100000) for v in ("a", "b")]
        self.eventually(lambda: all(self.vgpu(v)["evictions"] > 20 and
                                    self.vgpu(v)["launches_done"] > 20 for v in ("a", "b")),
                        "both have turns", timeout=support.TIMEOUT_S)
        for v in ("a", "b"):
            self.assertEqual(self.vgpu(v)["forced_ends"], 0, self.sluiced.log())
        for p in running:
            p.kill()
        for v in ("a", "b"):
            self.assert_all_free(v)
        self.assert_right(self.program("a", "triad", "--launches", 4, "--json").finish())
        # The steps were seen, by what is for people: each line has the time of day.
        events = self.sluiced.ctl("events")["events"]
        times = [e["unix_ms"] for e in events]
        self.assertGreater(len(times), 4)
        self.assertNotEqual(times, sorted(times), "the clock did step")
        numbers = [e["number"] for e in events]
        self.assertEqual(numbers, sorted(numbers), "their order is not the clock's")
