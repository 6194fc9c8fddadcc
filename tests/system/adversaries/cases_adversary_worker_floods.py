# SPDX-License-Identifier: Apache-2.0
"""A worker that a guest has taken over floods sluiced (programs/flooding_worker.cc): by its
standard error, by descriptors over its sockets, by requests. The loop stays quick; memory,
descriptors and the log stay bounded."""
import os
import pathlib
import time

import support
from host import Sluiced
from support import WithVictim

FLOODS = ("lines", "many", "endless", "descriptors", "asks", "requests", "rings")
LAUNCHES = 300          # of the victim, beside each flood
MOST_MEMORY = 64 << 20
MOST_LINES = 1000       # of sluiced's log: base/limits.h allows a worker far fewer
MOST_LINE_BYTES = 1000
LINES_AT_ONCE, LINES_PER_S = 200, 10  # that begin alike; half of them say how many were not


class WorkerFloods(WithVictim):
    @classmethod
    def setUpClass(cls):
        cls.work = support.folder()
        real = support.BUILD / "mediator/worker"
        evil = support.BUILD / "tests/system/adversaries/flooding-worker"
        cls.sluiced = Sluiced(support.BUILD, cls.work, device="soft", extra=cls.SOFT_GPU,
                              env={"SLUICE_EVIL_REAL": str(real / "sluice-worker")})
        text = cls.sluiced.config.read_text()
        text = text.replace(f'worker = "{real}/sluice-worker"', f'worker = "{evil}"', 1)
        text = text.replace("[workers]\n", f'[workers]\npaths = ["{real}"]\n', 1)
        cls.sluiced.config.write_text(text)
        cls.addClassCleanup(cls.sluiced.stop)
        cls.sluiced.start()
        for name in ("b", *FLOODS):
            cls.sluiced.ctl("create", name, "--weight", 1)

    def of_sluiced(self):
        proc = pathlib.Path(f"/proc/{self.sluiced.process.pid}")
        resident = int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return len(os.listdir(proc / "fd")), resident

    def flood(self, name, sessions=1, launches=LAUNCHES):
        with self.attack():
            descriptors, resident = self.of_sluiced()
            opened = len(self.sluiced.log())
            guests = [self.program(name, "triad", "--seconds", 100000) for _ in range(sessions)]
            self.eventually(
                lambda: self.sluiced.log()[opened:].count("is on (worker") >= sessions, "it floods")
            # Only now, when all of them have started: a start costs sluiced more than its flood.
            done = self.vgpu("b")["launches_done"]
            cpu_s, elapsed_s = self.sluiced_use_until(
                lambda: self.vgpu("b")["launches_done"] > done + launches, "the victim works")
            descriptors_now, resident_now = self.of_sluiced()
            print(f"{name}: sluiced {cpu_s:.2f} s of a core in {elapsed_s:.1f} s, "
                  f"{descriptors_now - descriptors} descriptors and "
                  f"{(resident_now - resident) >> 20} MiB more, "
                  f"{len(self.sluiced.log()) - opened} bytes of log", flush=True)
            # By rings and messages at most 10 %, and 5 % while others wait for what they report
            # (io/loop_budget.h), by the rest some 8 %. Six sessions' rings took 60 % when wake-ups
            # were counted, a line without end 36 % when it was read as it came.
            self.assertLess(cpu_s, 0.3 * elapsed_s + 0.3)
            # Its own sessions: some 20 descriptors each, and a region.
            self.assertLess(descriptors_now, descriptors + 64 * sessions)
            self.assertLess(resident_now, resident + MOST_MEMORY)
            lines = self.sluiced.log()[opened:].splitlines()
            self.assertLess(len(lines), MOST_LINES)
            self.assertLess(max(len(line) for line in lines), MOST_LINE_BYTES)
            for guest in guests:
                guest.kill()
            self.assert_all_free(name)
            self.eventually(lambda: self.of_sluiced()[0] <= descriptors,
                            "its descriptors are closed")
        return lines

    def test_rings_of_many_sessions(self):
        self.flood("rings", sessions=6, launches=50)

    def test_lines(self):
        self.assertTrue(any("were dropped" in line for line in self.flood("lines")))
        self.assertTrue(self.sluiced.ctl("events"), "events can be read, whatever a worker writes")

    def test_lines_of_many_workers_count_together(self):
        began, opened = time.monotonic(), len(self.sluiced.log())
        guests = [self.program("many", "triad", "--seconds", 100000) for _ in range(12)]
        self.eventually(lambda: self.sluiced.log()[opened:].count("is on (worker") == len(guests),
                        "all are on")
        for guest in guests:
            guest.kill()
        self.assert_all_free("many")
        lines = self.sluiced.log()[opened:].splitlines()
        theirs = sum(" workers of many: " in line for line in lines)
        self.assertGreater(theirs, 50)
        self.assertLess(theirs, LINES_AT_ONCE + LINES_PER_S * (time.monotonic() - began) + 10)

    def test_a_line_without_end(self):
        self.flood("endless")

    def test_descriptors(self):
        self.flood("descriptors")

    def test_requests_whose_answers_it_reads(self):
        self.flood("asks")

    def test_requests_whose_answers_it_does_not_read(self):
        lines = self.flood("requests")
        self.assertTrue(any("does not read its answers" in line for line in lines), lines)
