#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much later than any other process sluiced answers on a busy machine.

    tests/bench/answer_delay.py --build build [--seconds 15] [--burners 16] [--out FILE.json]

As root, and alone: it starves everybody else. `burners` processes keep the processors busy, two
programs of two vGPUs work, and one of four hostile clients attacks. Beside sluiced there is an echo
process with the same priority, which does nothing but answer. Both are asked in turn, every 20 ms
each, by a process in real time. What the echo waits is the machine's; what sluiced waits beyond
that is its own:

    own = sluiced's answer less the echo's, at P99 and at most

once at the ordinary priority, once with `nice = -10`, once with `real_time` as well. `busiest` is
the longest call of sluiced's loop in processor time.
"""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts/lib"))
from host import Sluiced  # noqa: E402

ATTACKS = {
    "no attack": [],
    "random records": ["../hostile-client", "random-records"],
    "faults": ["fault-again", "unmapped", "1000"],
    "modules": ["open-again", "modules"],
    "any calls": ["any-calls", "1", "100000", "150"],
}
AGAIN = 'while :; do "$@"; done'


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--build", required=True, type=pathlib.Path)
    p.add_argument("--seconds", type=float, default=15)
    p.add_argument("--burners", type=int, default=16)
    p.add_argument("--ways", nargs="*", default=["ordinary", "nice", "real time"])
    p.add_argument("--out", type=pathlib.Path)
    a = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    build = a.build.resolve()
    tool = build / "tests/bench/answer_delay"
    rows, running = [], []

    def start(command, **kw):
        running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True,
                                        stderr=subprocess.DEVNULL, **kw))
        return running[-1]

    def end(process):
        os.killpg(process.pid, 9)
        process.wait()
        running.remove(process)

    for way in a.ways:
        nice, real_time = 0 if way == "ordinary" else -10, way == "real time"
        with tempfile.TemporaryDirectory(prefix="sluice-bench.") as work:
            s = Sluiced(build, work, extra="[vgpu]\nback_off = false\n")
            s.config.write_text(f"nice = {nice}\nreal_time = {str(real_time).lower()}\n"
                                f"{s.config.read_text()}")
            s.start()
            try:
                for name in "abc":
                    s.ctl("create", name, "--weight", 1)
                echo = start([tool, "echo", f"{work}/echo"])
                while not pathlib.Path(f"{work}/echo").exists():
                    time.sleep(0.01)
                if way == "nice":
                    os.setpriority(os.PRIO_PROCESS, echo.pid, nice)
                if real_time:
                    os.sched_setscheduler(echo.pid, os.SCHED_RR, os.sched_param(1))
                for _ in range(a.burners):
                    start([tool, "burn"])
                for name in "bc":
                    start([build / "kernels/suite/sluice-suite-stencil2d", "--seconds", "100000"],
                          env=s.client_env(name))
                for attack, command in ATTACKS.items():
                    hostile = None
                    if command:
                        path = build / "tests/system/adversaries" / command[0]
                        hostile = start(["sh", "-c", AGAIN, "sh", path, *command[1:]],
                                        env=s.client_env("a"))
                    out = subprocess.run([tool, "ask", str(a.seconds), s.admin, f"{work}/echo"],
                                         check=True, stdout=subprocess.PIPE, text=True).stdout
                    if hostile:
                        end(hostile)
                    (ours, theirs) = ([float(v) / 1000 for v in line.split()[2:]]
                                      for line in out.splitlines())
                    loop = s.ctl("info")["loop"]
                    row = {"experiment": "answer_delay", "way": way, "attack": attack,
                           "sluiced_p50_ms": ours[0], "sluiced_p99_ms": ours[1],
                           "sluiced_most_ms": ours[2], "echo_p99_ms": theirs[1],
                           "echo_most_ms": theirs[2], "own_p99_ms": ours[1] - theirs[1],
                           "busiest_ms": loop["busiest"]["cpu_ms"], "burners": a.burners,
                           "real_time_spent": loop["real_time_spent"]}
                    rows.append(row)
                    print(f"{way:10} {attack:15} sluiced {ours[0]:7.2f} / {ours[1]:7.2f} / "
                          f"{ours[2]:7.2f} ms   echo {theirs[0]:7.2f} / {theirs[1]:7.2f} / "
                          f"{theirs[2]:7.2f}   busiest {row['busiest_ms']:.1f}", flush=True)
            finally:
                for process in list(running):
                    end(process)
                s.stop()
    if a.out:
        a.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
