# SPDX-License-Identifier: Apache-2.0
"""Asks sluiced for its version every 50 ms, in a process of its own, so that no wait is another
thread's; in real time where it may, so that none is its own.

    admin_monitor.py SOCKET PATIENCE_S     until its input ends; then a line of JSON: how many
                                           `answers`, the `slowest_s`, why it gave up (`silent`),
                                           and of what single answers had to wait for at most
                                           `worked_s` and `slept_s`

An answer takes its time because sluiced's thread works, has no processor, or sleeps although it was
asked. The kernel counts the first two (/proc/PID/task/TID/schedstat). The first, `worked_s`, and
the rest, `slept_s`, do not depend on what else the host has to do: a loop that waits for a peer
sleeps. Where the kernel does not count, both are null.
"""
import contextlib
import json
import os
import select
import socket
import struct
import sys
import time

PERIOD_S = 0.05


def used_s(thread):
    """Seconds for which a thread has had a processor, and for which it has waited for one."""
    with open(f"/proc/{thread}/schedstat", encoding="ascii") as f:
        ran, waited = f.read().split()[:2]
    return int(ran) / 1e9, int(waited) / 1e9


class Waits:
    """What a thread's answers had to wait for; `worked_s`, `slept_s`: the longest of one answer."""

    def __init__(self, pid):
        self.threads = [f"{pid}/task/{pid}", "self"]
        self.worked_s = self.slept_s = None
        with contextlib.suppress(OSError, ValueError):
            if sum(used_s(self.threads[0])) > 0:
                self.worked_s = self.slept_s = 0.0

    def begin(self):
        if self.worked_s is not None:
            self.before = [used_s(t) for t in self.threads]
        self.began = time.monotonic()

    def end(self):
        """Returns how long it took."""
        took_s = time.monotonic() - self.began
        if self.worked_s is not None:
            (worked, waited), own = ([a - b for a, b in zip(used_s(t), before)]
                                     for t, before in zip(self.threads, self.before))
            self.worked_s = max(self.worked_s, worked)
            self.slept_s = max(self.slept_s, took_s - worked - waited - sum(own))
        return took_s


def main():
    path, patience_s = sys.argv[1], float(sys.argv[2])
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))
    answers, slowest_s, silent, waits = 0, 0.0, None, None
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(patience_s)
            s.connect(path)
            credentials = s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            waits = Waits(struct.unpack("3i", credentials)[0])
            print("connected", flush=True)
            lines = s.makefile("rb")
            while not select.select([0], [], [], PERIOD_S)[0]:
                waits.begin()
                s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"version","params":{}}\n')
                if b'"result"' not in lines.readline():
                    raise OSError("the connection was closed or the answer is an error")
                slowest_s = max(slowest_s, waits.end())
                answers += 1
    except OSError as e:
        silent = f"no answer from the admin socket: {e!r}"
    print(json.dumps({"answers": answers, "slowest_s": slowest_s, "silent": silent,
                      "worked_s": waits and waits.worked_s, "slept_s": waits and waits.slept_s}),
          flush=True)


if __name__ == "__main__":
    main()
