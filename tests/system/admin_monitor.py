# SPDX-License-Identifier: Apache-2.0
"""Asks sluiced for its version every 50 ms, in a process of its own, so that no wait is another
thread's; in real time where it may, so that none is its own.

    admin_monitor.py SOCKET PATIENCE_S     until its input ends; then a line of JSON: how many
                                           `answers`, the `slowest_s`, why it gave up (`silent`)
"""
import contextlib
import json
import os
import select
import socket
import sys
import time

PERIOD_S = 0.05


def main():
    path, patience_s = sys.argv[1], float(sys.argv[2])
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))
    answers, slowest_s, silent = 0, 0.0, None
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(patience_s)
            s.connect(path)
            print("connected", flush=True)
            lines = s.makefile("rb")
            while not select.select([0], [], [], PERIOD_S)[0]:
                began = time.monotonic()
                s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"version","params":{}}\n')
                if b'"result"' not in lines.readline():
                    raise OSError("the connection was closed or the answer is an error")
                slowest_s = max(slowest_s, time.monotonic() - began)
                answers += 1
    except OSError as e:
        silent = f"no answer from the admin socket: {e!r}"
    print(json.dumps({"answers": answers, "slowest_s": slowest_s, "silent": silent}), flush=True)


if __name__ == "__main__":
    main()
