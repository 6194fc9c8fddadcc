# SPDX-License-Identifier: Apache-2.0
"""Malformed ring records: the session that sends them ends (or gets an error), with a reason that
it can read; the neighbour's results, the daemon and the vGPU itself are untouched."""
import signal
import subprocess

import support
from support import WithSluiced

# Calls that are well-formed on the wire but wrong as CUDA calls may be answered with a CUresult; a
# broken record or ring always ends the session. `None`: either.
MUST_END = {"record-of-0-bytes", "record-of-8-bytes", "record-not-aligned",
            "record-longer-than-published", "record-longer-than-allowed", "record-of-4-gib",
            "head-not-aligned", "head-jumps-ahead", "head-beyond-the-ring", "head-jumps-back",
            "short-arguments",
            "string-longer-than-record", "nobody-reads-the-answers"}
SLOTS = 16  # of a vGPU


class Hostile(WithSluiced):
    def client(self, *args):
        return subprocess.run([support.BUILD / "tests/system/hostile-client", *args],
                              env=self.sluiced.client_env("a"), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=support.TIMEOUT_S)

    def test_every_scenario(self):
        names = self.client("--list").stdout.split()
        self.assertGreater(len(names), 25)
        neighbour = self.neighbour()
        for name in names:
            with self.subTest(name):
                p = self.client(name)
                self.assertEqual(p.returncode, 0, p.stdout)
                word, _, rest = p.stdout.strip().splitlines()[-1].partition(" ")
                if name in MUST_END:
                    self.assertEqual(word, "ended", p.stdout)
                    number, _, reason = rest.partition(" ")
                    self.assertNotEqual(int(number), 0, p.stdout)
                    self.assertGreater(len(reason), 8, "the guest can read why")
                elif name.startswith("random-records") and word == "answered":
                    pass  # one of them may be a good call, answered before a bad one is read
                else:
                    self.assertIn(word, ("ended", "answered"), p.stdout)
                    self.assertNotEqual(rest.split()[0], "0", f"{name} was taken for a good call")
                if name.startswith("unknown-"):  # as of a later libcuda
                    self.assertEqual(p.stdout.strip().splitlines()[-1], "answered 801")
                self.assertIsNone(self.sluiced.process.poll(), "sluiced lives")
        self.assert_neighbour_right(neighbour)
        self.assert_all_free("a")
        # The vGPU serves the next program as if nothing had been.
        self.assert_right(self.program("a", "reduction", "--launches", 4, "--json").finish())

    def test_more_sessions_than_slots(self):
        served = [self.program("a", "triad", "--scale", 0.01, "--seconds", 100000)
                  for _ in range(SLOTS)]
        self.eventually(lambda: self.vgpu("a")["sessions"] == SLOTS, "each program has a slot")
        for _ in range(4):
            status, text = self.program("a", "triad", "--launches", 1).finish()
            self.assertNotEqual(status, 0, text)
            self.assertIn("slot", text)
        for p in served:
            p.process.send_signal(signal.SIGINT)
        for p in served:
            self.assert_right(p.finish(), "a program with a slot")
        self.assert_all_free("a")
