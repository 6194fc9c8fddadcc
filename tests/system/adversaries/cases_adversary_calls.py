# SPDX-License-Identifier: Apache-2.0
"""Guests that make any call with values that mean something (programs/any_calls.cc), one session
after the other. Whatever they ask for, their workers end by themselves, if they end, and nothing is
left of the sessions on the host."""
import os
import pathlib
import re

import support
from support import WithVictim

# By hand: SLUICE_TEST_SESSIONS=1000.
SESSIONS = int(os.environ.get("SLUICE_TEST_SESSIONS", support.rounds(24, 12)))
CALLS = 150
AT_ONCE = 3


def descriptors(pid):
    return len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


def resident_kib(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1])


def processes_of(pid):
    """It and all below it, with their names."""
    found, todo = {}, [pid]
    while todo:
        p = todo.pop()
        try:
            found[p] = pathlib.Path(f"/proc/{p}/comm").read_text().strip()
            for task in pathlib.Path(f"/proc/{p}/task").iterdir():
                todo += map(int, (task / "children").read_text().split())
        except OSError:
            pass
    return found


# Ends by a signal that mean a mistake of the worker's own. Killed ones are sluiced's doing.
CRASHES = "SIGSEGV|Segmentation|Bus error|Abort|Illegal|Floating|Bad system call"


class AdversaryCalls(WithVictim):
    # Else faults among the calls would soon have them wait for most of a minute (vgpu.back_off).
    EXTRA = "[vgpu]\nback_off = false\n"
    MORE, SESSIONS, CALLS = [], SESSIONS, CALLS

    def play(self, first, sessions):
        guests = [self.adversary("any-calls", first + i * 1000000, sessions, self.CALLS, *self.MORE)
                  for i in range(AT_ONCE)]
        lines = []
        for guest in guests:
            text, _ = guest.communicate(timeout=support.TIMEOUT_S + sessions * 10)
            self.assertEqual(guest.returncode, 0, text)
            lines += text.splitlines()
        others = [line for line in lines if not re.search(r"\d+ calls", line)]
        lines = [line for line in lines if line not in others]
        print("\n".join(others), flush=True)  # what the guest's library says
        self.assertEqual(len(lines), sessions * AT_ONCE, others)
        print("\n".join(line for line in lines if "signal" in line), flush=True)
        made, succeeded = (sum(int(re.search(pattern, line)[1]) for line in lines)
                           for pattern in (r"(\d+) calls", r"(\d+) succeeded"))
        print(f"{len(lines)} sessions, {made} calls, {succeeded} succeeded, "
              f"{sum(line.startswith('ended') for line in lines)} ended early", flush=True)
        if not self.MORE:
            self.assertGreater(succeeded, made / 20, "or they would mean nothing")

    def left(self):
        self.eventually(lambda: self.vgpu("a")["sessions"] == 0, "the sessions have ended")
        self.assert_all_free("a")
        tree = processes_of(self.sluiced.process.pid)
        return {f"{name} {what}": value(pid) for pid, name in tree.items()
                if not name.startswith("sluice-worker")
                for what, value in (("descriptors", descriptors), ("KiB", resident_kib))}

    def test_their_workers_never_crash_and_nothing_is_left(self):
        with self.attack():
            self.play(1, 2)  # what is made once is made
            before = self.left()
            self.play(100, max(1, self.SESSIONS // AT_ONCE))
            # A closed one may still be on its way to the thread that closes it.
            after = {}

            def closed():
                after.update(self.left())
                return all(after[what] <= value for what, value in before.items()
                           if what.endswith("descriptors"))

            self.eventually(closed, "descriptors are as many as before")
            print(f"before {before}, after {after}", flush=True)
            workers = [name for name in processes_of(self.sluiced.process.pid).values()
                       if name.startswith("sluice-worker")]
            self.assertEqual(len(workers), 1,
                             "the victim's alone\n" + self.sluiced.log()[-3000:])
            self.assertEqual(before.keys(), after.keys())
            for what, value in before.items():
                if what.endswith("descriptors"):
                    self.assertLessEqual(after[what], value, what)
                else:  # what an allocator keeps does not grow with the sessions
                    self.assertLess(after[what], value + 16384, what)
        crashed = [line for line in self.sluiced.log().splitlines()
                   if re.search(f"died of signal .*({CRASHES})", line)]
        self.assertEqual(crashed, [])


class AdversaryRewrites(AdversaryCalls):
    """The same, while another thread of the guest rewrites the shared memory at random."""
    MORE, SESSIONS, CALLS = ["rewrite"], SESSIONS // 2, 60
