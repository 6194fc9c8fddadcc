#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a victim keeps beside each adversary, over what a fair rival would leave it.

    tests/bench/adversaries.py --build build [--device nvidia] [--seconds 6] [--pairs 2]
                               [--only NAME...] [--slices] [--out FILE.json]

The victim checks every result. Windows alternate: beside an honest program of the same weight that
never pauses (the fair rival), then beside an adversary, which starts again as often as it ends.
Each window's rival has a new vGPU, so that no debt of an earlier one is in it and the first seconds
of an attack count. `kept` is the victim's launches a second beside the adversary, over those beside
the fair rival just before; the goal is 0.95. `answer_ms` is the slowest answer of the admin socket.
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
    "faults, 12 at once": ["fault-again", "unmapped", "1000", "12"],
    "spins": ["fault-again", "spin", "1000"],
    "forged report, spinning": ["forged-report", "spin"],
    "modules": ["take-memory", "modules"],
    "contexts": ["take-memory", "contexts"],
    "contexts again": ["open-again", "contexts"],
    "modules again": ["open-again", "modules"],
    "local memory": ["take-memory", "local"],
    "long kernels": ["hog", "long", "400"],
    "tiny launches": ["hog", "tiny", "16"],
    "copies": ["hog", "copies"],
    "fills": ["hog", "fills"],
    "transfers": ["hog", "transfers"],
    "host functions, chains of waits": ["bomb", "chain", "100000"],
    "stalled launches": ["bomb", "stalled-launches", "1000000"],
    "launches behind nothing": ["bomb", "launches", "1000000"],
    "any calls": ["any-calls", "1", "100000", "150"],
    "random records": ["../hostile-client", "random-records"],
    "changing records": ["../hostile-client", "records-that-change"],
}
# Workers that were taken over (claiming_worker.cc), by what their vGPU's name begins with; their
# program is the honest one.
CLAIMS = {
    "claims work": "queued",
    "claims that work runs": "running",
    "claims and is idle, each 0.2 ms": "blink200",
    "claims and is idle, each 20 ms": "blink20000",
    "ignores its gate, slices of 10 s": "overstay10000",
    "ignores its gate, slices of 450 ms": "overstay450",
    "ignores its gate, slices of 20 ms": "overstay20",
    "ignores its gate, sets its slice each ms": "reset1000",
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


class Bench:
    """One sluiced with a victim on vGPU `v`; each window has a rival on a fresh vGPU."""

    def __init__(self, build, a, work):
        self.build, self.a, self.vgpus = build, a, 0
        extra = "[scheduler]\nslices = true\n" if a.slices else ""
        if a.slices and a.device == "soft":
            extra += '[worker_environment]\nSLUICE_SOFT_MODE = "timeslice"\n'
        real = build / "mediator/worker"
        self.s = Sluiced(build, work, device=a.device, extra=extra,
                         env={"SLUICE_EVIL_REAL": str(real / "sluice-worker")})
        text = self.s.config.read_text()
        text = text.replace(f'worker = "{real}/sluice-worker"',
                            f'worker = "{build}/tests/system/adversaries/claiming-worker"', 1)
        text = text.replace("[workers]\n", f'[workers]\npaths = ["{real}"]\n', 1)
        self.s.config.write_text(text)
        self.s.start()
        self.s.ctl("create", "v", "--weight", 1)
        self.victim = subprocess.Popen(
            [build / "kernels/suite/sluice-suite-stencil2d", "--seconds", "100000", "--verify",
             "every", "--json"], env=self.s.client_env("v"), stdout=subprocess.PIPE, text=True)
        while self.done() == 0:
            time.sleep(0.05)

    def done(self):
        return self.s.stats()["vgpus"]["v"]["launches_done"]

    def window(self, rival, name="r"):
        """The victim's launches a second beside `rival` (a command), and how often that ran.
        `name`: what its vGPU's name begins with."""
        self.vgpus += 1
        name = f"{name}-{self.vgpus}"
        self.s.ctl("create", name, "--weight", 1)
        self.s.ctl("set", name, "--memory", "4G" if self.a.device == "nvidia" else "64M")
        again = Again(rival, self.s.client_env(name))
        before, began = self.done(), time.monotonic()
        again.start()
        time.sleep(self.a.seconds)
        rate = (self.done() - before) / (time.monotonic() - began)
        again.stop()
        self.s.ctl("delete", name)
        return rate, again.runs

    def end(self):
        self.victim.send_signal(2)
        result = json.loads(self.victim.communicate(timeout=120)[0].splitlines()[-1])
        if result["wrong"]:
            raise SystemExit(f"the victim: {result['wrong']} wrong results")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--build", required=True, type=pathlib.Path)
    p.add_argument("--device", choices=("soft", "nvidia"), default="soft")
    p.add_argument("--seconds", type=float, default=6, help="of a window")
    p.add_argument("--pairs", type=int, default=2)
    p.add_argument("--only", nargs="*", default=[*ADVERSARIES, *CLAIMS])
    p.add_argument("--slices", action="store_true", help="on the hardware's time slices")
    p.add_argument("--out", type=pathlib.Path)
    a = p.parse_args()
    build = a.build.resolve()
    honest = [build / "kernels/suite/sluice-suite-stencil2d", "--seconds", "100000"]
    rows = []
    with tempfile.TemporaryDirectory(prefix="sluice-bench.") as work:
        bench = Bench(build, a, work)
        try:
            for name in a.only:
                command, vgpu = honest, CLAIMS.get(name, "r")
                if name not in CLAIMS:
                    program, *arguments = ADVERSARIES[name]
                    command = [build / "tests/system/adversaries" / program, *arguments]
                monitor = AdminMonitor(bench.s.admin)
                monitor.start()
                pairs = [(bench.window(honest)[0], *bench.window(command, vgpu))
                         for _ in range(a.pairs)]
                monitor.finish()
                if monitor.silent:
                    raise SystemExit(monitor.silent)
                each = [beside / fair for fair, beside, _ in pairs]
                kept = sum(beside for _, beside, _ in pairs) / sum(fair for fair, _, _ in pairs)
                answer = 1000 * monitor.slowest_s
                rows.append({"experiment": "adversaries", "adversary": name, "kept": kept,
                             "each": each, "fair": [fair for fair, _, _ in pairs], "goal": 0.95,
                             "met": kept >= 0.95, "answer_ms": answer,
                             "runs": sum(runs for _, _, runs in pairs), "seconds": a.seconds})
                print(f"{name:31} kept {kept:5.2f}   each {' '.join(f'{e:.2f}' for e in each)}   "
                      f"beside the fair rival {pairs[0][0]:7.1f} launches/s   runs "
                      f"{rows[-1]['runs']:4}   slowest answer {answer:6.1f} ms", flush=True)
                if a.out:
                    a.out.write_text(json.dumps(rows, indent=1) + "\n")
            bench.end()
        finally:
            bench.victim.kill()
            bench.s.stop()


if __name__ == "__main__":
    main()
