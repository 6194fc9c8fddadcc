"""Programs whose kernels write what a vGPU that has left the GPU would report, and stay (docs/threat-model.md)."""
from support import WithVictim

CLOCK_ONLY = '[accounting]\nsources = ["clock"]\n'


class ForgedReport(WithVictim):
    def play(self, what):
        """The adversary's last words. It must be over without anybody's help."""
        p = self.adversary("forged-report", what)
        text, _ = p.communicate(timeout=300)
        self.assertIn("launched", text)
        return text.splitlines()[-1]

    def assert_victim_stays(self, ended):
        self.assertEqual(self.vgpu("b")["sessions_ended_by_scheduler"], 0, self.sluiced.log()[-3000:])
        self.assertEqual(self.vgpu("b")["sessions"], 1, self.sluiced.log()[-3000:])
        self.assertEqual(self.vgpu("a")["sessions_ended_by_scheduler"], ended, self.sluiced.log()[-3000:])

    def test_a_kernel_that_spins_and_writes_that_it_has_left_is_ended(self):
        with self.attack():
            ended = self.vgpu("a")["sessions_ended_by_scheduler"]
            # Where the header stood when it shared its memory with the records; all words that a launch is told of.
            for n, what in enumerate(["+0", "words", "spin"], 1):
                with self.subTest(what):
                    before = self.vgpu("b")["launches_done"]
                    self.assertIn("did not leave", self.play(what))
                    self.assert_victim_stays(ended + n)
                    self.eventually(lambda: self.vgpu("b")["launches_done"] > before + 4, "the victim goes on")
        self.assert_all_free("a")

    def test_what_lies_beside_the_records_is_out_of_reach(self):
        with self.attack():
            ended = self.vgpu("a")["sessions_ended_by_scheduler"]
            # The pages before and behind them, and where a mapping made just before or after them would be.
            for what in ["-4096", "-8192", "-32768", "+32768", "+36864", "+65536"]:
                with self.subTest(what):
                    # The fault comes at once; or, where the session's own memory is, nothing comes but the spinning.
                    self.assertRegex(self.play(what), r"answered 700|ended 700|did not leave")
                    self.assertEqual(self.vgpu("b")["sessions_ended_by_scheduler"], 0)
            self.assertEqual(self.vgpu("b")["sessions"], 1)
            self.assertLessEqual(self.vgpu("a")["sessions_ended_by_scheduler"] - ended, 6)


class ForgedReportByTheClock(ForgedReport):
    EXTRA = CLOCK_ONLY
