# SPDX-License-Identifier: Apache-2.0
"""Programs whose kernels write what a vGPU that has left the GPU would report, and stay
(docs/concepts/threat-model.md)."""
import contextlib
import mmap
import os
import struct
import threading

import support
from support import WithVictim

# The adversary has to come back again and again, at once.
NO_DELAY = "[vgpu]\nback_off = false\n"
CLOCK_ONLY = '[accounting]\nsources = ["clock"]\n'


class ForgedReport(WithVictim):
    EXTRA = NO_DELAY
    # Where the header stood when it shared its memory with the records; all words whose addresses a
    # launch gets.
    SPINS = ["+0", "words", "spin"]

    def play(self, what):
        """The adversary's last words. It must be over without anybody's help."""
        return self.last_words(self.adversary("forged-report", what))

    def last_words(self, p):
        text, _ = p.communicate(timeout=300)
        self.assertIn("launched", text)
        return text.splitlines()[-1]

    def assert_victim_stays(self, ended):
        self.assertEqual(self.vgpu("b")["sessions_ended_by_scheduler"], 0,
                         self.sluiced.log()[-3000:])
        self.assertEqual(self.vgpu("b")["sessions"], 1, self.sluiced.log()[-3000:])
        self.assertEqual(self.vgpu("a")["sessions_ended_by_scheduler"], ended,
                         self.sluiced.log()[-3000:])

    def test_a_kernel_that_spins_and_writes_that_it_has_left_is_ended(self):
        with self.attack():
            ended = self.vgpu("a")["sessions_ended_by_scheduler"]
            for n, what in enumerate(self.SPINS, 1):
                with self.subTest(what):
                    before = self.vgpu("b")["launches_done"]
                    self.assertIn("did not leave", self.play(what))
                    self.assert_victim_stays(ended + n)
                    self.eventually(lambda: self.vgpu("b")["launches_done"] > before + 4,
                                    "the victim goes on")
        self.assert_all_free("a")

    def test_a_session_that_failed_while_its_kernel_runs_has_not_left(self):
        ended = self.vgpu("a")["sessions_ended_by_scheduler"]
        p = self.adversary("forged-report", "fail")
        # Alone its session fails before anybody tells it to leave.
        self.assertEqual([p.stdout.readline().strip() for _ in range(2)],
                         ["launched", "failed 719"])
        with self.attack():
            self.assertIn("did not leave", p.communicate(timeout=300)[0])
            self.assert_victim_stays(ended + 1)
        self.assert_all_free("a")

    def test_what_lies_beside_the_records_is_out_of_reach(self):
        with self.attack():
            ended = self.vgpu("a")["sessions_ended_by_scheduler"]
            # The pages before and behind them, and where a mapping made just before or after them
            # would be.
            for what in ["-4096", "-8192", "-32768", "+32768", "+36864", "+65536"]:
                with self.subTest(what):
                    # The fault comes at once; or, where the session's own memory is, nothing comes
                    # but the spinning.
                    self.assertRegex(self.play(what), r"answered 700|ended 700|did not leave")
                    self.assertEqual(self.vgpu("b")["sessions_ended_by_scheduler"], 0)
            self.assertEqual(self.vgpu("b")["sessions"], 1)
            self.assertLessEqual(self.vgpu("a")["sessions_ended_by_scheduler"] - ended, 6)


class ForgedReportByTheClock(ForgedReport):
    EXTRA = NO_DELAY + CLOCK_ONLY
    SPINS = support.rounds(ForgedReport.SPINS, ["words"])
    if not support.rounds(True, False):  # no matter of how time is measured
        test_what_lies_beside_the_records_is_out_of_reach = None


class WorkerThatLies(ForgedReport):
    """The worker of the adversary was taken over: its report page always has nothing in flight."""
    test_a_kernel_that_spins_and_writes_that_it_has_left_is_ended = None
    test_what_lies_beside_the_records_is_out_of_reach = None
    test_a_session_that_failed_while_its_kernel_runs_has_not_left = None

    def reports(self):
        """The report pages that sluiced has, by their inodes."""
        folder = f"/proc/{self.sluiced.process.pid}/fd"
        found = {}
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                if "memfd:sluice-report" in os.readlink(f"{folder}/{name}"):
                    found[os.stat(f"{folder}/{name}").st_ino] = f"{folder}/{name}"
        return found

    @contextlib.contextmanager
    def lying(self, path):
        with open(path, "r+b") as f:
            page = mmap.mmap(f.fileno(), 4096)
        over = threading.Event()

        def lie():
            while not over.wait(0.0005):
                page[4:8] = struct.pack("<I", 0)  # sluice_report_header.in_flight

        liar = threading.Thread(target=lie)
        liar.start()
        try:
            yield
        finally:
            over.set()
            liar.join()
            page.close()

    def test_it_is_ended_and_nobody_else_is(self):
        with self.attack():
            before = self.reports()
            self.assertEqual(len(before), 1, "the victim's")
            p = self.adversary("forged-report", "spin")
            self.eventually(lambda: len(self.reports()) == 2, "the adversary has a worker")
            (new,) = set(self.reports()) - set(before)
            with self.lying(self.reports()[new]):
                self.assertIn("without a grant", self.last_words(p), self.sluiced.log()[-3000:])
            self.assert_victim_stays(1)
            charged = self.vgpu("a")["usage"]["ungranted_ns"]
            self.assertGreater(charged, 0, "it is charged")
            # On a busy machine an honest worker is interrupted between its kernel's end and the
            # release (docs/concepts/accounting.md).
            self.assertLess(self.vgpu("b")["usage"]["ungranted_ns"], charged / 10)
        self.assert_all_free("a")


class WorkerThatLiesOnSlices(WorkerThatLies):
    """Contexts take turns by slices, as on NVIDIA's GPUs: the victim gets a part of the time
    meanwhile."""
    EXTRA = NO_DELAY + '[worker_environment]\nSLUICE_SOFT_MODE = "timeslice"\n'
