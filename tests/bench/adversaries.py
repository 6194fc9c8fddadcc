#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a victim keeps beside each adversary, over what a fair rival would leave it.

    tests/bench/adversaries.py --build build [--device nvidia] [--seconds 12] [--slices]
                               [--out FILE.json]

The victim checks every result. Its launches a second are measured beside an honest program of the
same weight that never pauses (the fair rival), then beside each adversary, which starts again as
often as it ends. `kept` is the one over the other; the goal is 0.95. The first seconds of an attack
count. `answer_ms` is the slowest answer of the admin socket meanwhile.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "scripts/lib"), str(ROOT / "tests/system")]
from host import Sluiced  # noqa: E402
from support import AdminMonitor  # noqa: E402

ADVERSARIES = {
    "faults": ["fault-again", "unmapped", "1000"],
    "misaligned": ["fault-again", "misaligned", "1000"],
    "traps": ["fault-again", "trap", "1000"],
    "spins": ["fault-again", "spin", "1000"],
    "forged report, spinning": ["forged-report", "spin"],
    "modules": ["take-memory", "modules"],
    "contexts": ["take-memory", "contexts"],
    "contexts again": ["open-again", "contexts"],
    "modules again": ["open-again", "modules"],
    "local memory": ["take-memory", "local"],
    "random records": ["../hostile-client", "random-records"],
    "changing records": ["../hostile-client", "records-that-change"],
}


class Again(threading.Thread):
    """Runs a program again and again until it is stopped."""

    def __init__(self, command, env):
        super().__init__(daemon=True)
        self.command, self.env, self.over, self.runs = command, env, threading.Event(), 0
        self.process = None

    def run(self):
        while not self.over.is_set():
            self.process = subprocess.Popen(self.command, env=self.env, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.process.wait()
            self.runs += 1

    def stop(self):
        self.over.set()
        if self.process and self.process.poll() is None:
            self.process.kill()
        self.join(60)


def measure(build, a, rival):
    """The victim's launches a second beside `rival` (a command), and the slowest answer in ms."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench.") as work:
        extra = "[scheduler]\nslices = true\n" if a.slices else ""
        s = Sluiced(build, work, device=a.device, extra=extra).start()
        try:
            for name in "ab":
                s.ctl("create", name, "--weight", 1)
            s.ctl("set", "a", "--memory", "4G" if a.device == "nvidia" else "64M")
            victim = subprocess.Popen(
                [build / "kernels/suite/sluice-suite-stencil2d", "--seconds", "100000", "--verify",
                 "every", "--json"], env=s.client_env("b"), stdout=subprocess.PIPE, text=True)
            done = lambda: s.stats()["vgpus"]["b"]["launches_done"]  # noqa: E731
            while done() == 0:
                time.sleep(0.05)
            monitor = AdminMonitor(s.admin)
            monitor.start()
            again = Again(rival, s.client_env("a"))
            before, began = done(), time.monotonic()
            again.start()
            time.sleep(a.seconds)
            rate = (done() - before) / (time.monotonic() - began)
            again.stop()
            monitor.finish()
            victim.send_signal(2)
            result = json.loads(victim.communicate(timeout=120)[0].splitlines()[-1])
            if result["wrong"] or monitor.silent:
                raise SystemExit(f"{rival}: {result['wrong']} wrong; {monitor.silent}")
            return rate, 1000 * monitor.slowest_s, again.runs
        finally:
            s.stop()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--build", required=True, type=pathlib.Path)
    p.add_argument("--device", choices=("soft", "nvidia"), default="soft")
    p.add_argument("--seconds", type=float, default=12)
    p.add_argument("--slices", action="store_true", help="on the hardware's time slices")
    p.add_argument("--out", type=pathlib.Path)
    a = p.parse_args()
    build = a.build.resolve()
    honest = [build / "kernels/suite/sluice-suite-stencil2d", "--seconds", "100000"]
    fair, answer, _ = measure(build, a, honest)
    print(f"{'fair rival':26} {fair:8.1f} launches/s   slowest answer {answer:6.1f} ms", flush=True)
    rows = []
    for name, command in ADVERSARIES.items():
        folder = build / "tests/system/adversaries"
        command = [folder / command[0], *command[1:]]
        rate, answer, runs = measure(build, a, command)
        rows.append({"experiment": "adversaries", "adversary": name, "kept": rate / fair,
                     "goal": 0.95, "met": rate >= 0.95 * fair, "answer_ms": answer,
                     "runs": runs})
        print(f"{name:26} {rate:8.1f} launches/s   kept {rate / fair:5.2f}   runs {runs:4}   "
              f"slowest answer {answer:6.1f} ms", flush=True)
    if a.out:
        a.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
