#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a victim keeps beside each adversary, over what a fair rival would leave it.

    tests/bench/adversaries.py --build build [--device nvidia] [--seconds 6] [--pairs 2]
                               [--only NAME...] [--together N [--seed S]]
                               [--victim US:PAUSE_US] [--slices] [--kill S] [--free-faults]
                               [--out FILE.json]

The victim checks every result, or (--victim) launches kernels of so many microseconds and pauses
for so long after each. Windows alternate: beside an honest program of the same weight that
never pauses (the fair rival), then beside an adversary, which starts again as often as it ends.
Each window's rival has a new vGPU, so that no debt of an earlier one is in it and the first seconds
of an attack count. `kept` is the victim's launches a second beside the adversary, over those beside
the fair rival just before; the goal is 0.95. With --together N, N of the adversaries run at once,
each on a vGPU, beside the honest programs' N; which ones is drawn anew for each pair, from --seed.
With --kill S a program or a worker of the adversaries is killed, or stopped for a moment, each S
seconds on average, at moments drawn from --seed. What makes any calls has other seeds each time.
With --free-faults (software GPU) a fault stops nobody, and nobody rests for it: what else an attack
does goes on and is measured.
`gpu` is the same by the victim's GPU time: the software GPU's SMs are this host's processors, which
an adversary's programs use, too, so that there a second of GPU time is less work beside some.
`answer_ms` is the slowest answer of the admin socket.
`ended` is how often the scheduler has ended a session of the adversary; should it end one of the
victim's, this fails. What sluiced logs of time slices that are too long is printed below each row.
"""
import argparse
import json
import os
import pathlib
import random
import re
import signal
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
    "spins, gone before the deadline": ["fault-again", "brief", "1000"],
    "forged report, spinning": ["forged-report", "spin"],
    "modules": ["take-memory", "modules"],
    "contexts": ["take-memory", "contexts"],
    "contexts again": ["open-again", "contexts"],
    "modules again": ["open-again", "modules"],
    "local memory": ["take-memory", "local"],
    "long kernels": ["hog", "long", "400"],
    "kernels of 9 ms": ["hog", "long", "9"],
    "tiny launches": ["hog", "tiny", "16"],
    "copies": ["hog", "copies"],
    "fills": ["hog", "fills"],
    "transfers": ["hog", "transfers"],
    "host functions, chains of waits": ["bomb", "chain", "100000"],
    "stalled launches": ["bomb", "stalled-launches", "1000000"],
    "launches behind nothing": ["bomb", "launches", "1000000"],
    "any calls": ["any-calls", "SEED", "100000", "150"],
    "any calls, 3 at once": ["any-calls", "SEED", "100000", "150"],
    "any calls, rewriting": ["any-calls", "SEED", "100000", "60", "rewrite"],
    "random records": ["../hostile-client", "random-records"],
    "changing records": ["../hostile-client", "records-that-change"],
}
CRASHES = "died of signal .*(SEGV|Segm|Bus|Abort|Illegal|Floating|Bad system call)"
AT_ONCE = {"any calls, 3 at once": 3}
# Workers that were taken over (claiming_worker.cc), by what their vGPUs' names begin with; their
# program is the honest one, and so are as many fair rivals.
CLAIMS = {
    "claims work": "queued",
    "claims that work runs": "running",
    "two claim work": "queued queued",
    "claims and is idle, each 0.2 ms": "blink200",
    "claims and is idle, each 20 ms": "blink20000",
}
# The same, before a real worker, whose program launches 400 ms each.
OVERSTAYS = {
    "ignores its gate, slices of 10 s": "overstay10000",
    "ignores its gate, slices of 450 ms": "overstay450",
    "ignores its gate, slices of 20 ms": "overstay20",
    "ignores its gate, sets its slice each ms": "reset1000",
}


class Again(threading.Thread):
    """Runs a program again and again until it is stopped; the argument SEED is another each time,
    by `draws`."""

    def __init__(self, command, env, draws):
        super().__init__(daemon=True)
        self.command, self.env, self.over, self.runs = command, env, threading.Event(), 0
        self.process, self.draws = None, random.Random(draws.random())

    def run(self):
        while not self.over.is_set():
            command = [str(self.draws.randrange(1 << 40)) if part == "SEED" else part
                       for part in self.command]
            self.process = subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.process.wait()
            self.runs += 1

    def stop(self):
        self.over.set()
        if self.process and self.process.poll() is None:
            self.process.kill()
        self.join(60)


class Killer(threading.Thread):
    """Kills, or stops for up to 0.2 s, a program or a worker of the vGPUs `names`, each
    `seconds` on average, until it is stopped. `killed` and `stopped` count."""

    def __init__(self, sluiced, names, seconds, draws):
        super().__init__(daemon=True)
        self.sluiced, self.names, self.seconds, self.draws = sluiced, names, seconds, draws
        self.killed, self.stopped, self.over = 0, 0, threading.Event()

    def run(self):
        while not self.over.wait(self.draws.expovariate(1 / self.seconds)):
            sessions = self.sluiced.ctl("show", self.draws.choice(self.names))["session_list"]
            processes = [s[kind] for s in sessions if s["state"] == "open"
                         for kind in ("pid", "worker_pid")]
            if not processes:
                continue
            process = self.draws.choice(processes)
            try:
                if self.draws.random() < 0.7:
                    os.kill(process, signal.SIGKILL)
                    self.killed += 1
                    continue
                os.kill(process, signal.SIGSTOP)
                self.stopped += 1
                self.over.wait(0.2 * self.draws.random())
                os.kill(process, signal.SIGCONT)
            except ProcessLookupError:
                pass

    def stop(self):
        self.over.set()
        self.join(60)


class Bench:
    """One sluiced with a victim on vGPU `v`; each window has a rival on a fresh vGPU."""

    def __init__(self, build, a, work):
        self.build, self.a, self.vgpus, self.logged = build, a, 0, 0
        self.draws, self.killed, self.stopped = random.Random(a.seed), 0, 0
        extra = "[scheduler]\nslices = true\n" if a.slices else ""
        extra += "[vgpu]\nback_off = false\n" if a.free_faults else ""
        if a.device == "soft":
            extra += "[worker_environment]\n"
            extra += 'SLUICE_SOFT_MODE = "timeslice"\n' if a.slices else ""
            for stall in ("FAULT", "EXCEPTION") if a.free_faults else ():
                extra += f'SLUICE_SOFT_{stall}_US = "0"\n'
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
        command = [build / "kernels/suite/sluice-suite-stencil2d", "--seconds", "100000",
                   "--verify", "every", "--json"]
        if a.victim:
            command = [build / "tests/system/adversaries/hog", "paced", *a.victim.split(":")]
        self.victim = subprocess.Popen(command, env=self.s.client_env("v"),
                                       stdout=subprocess.PIPE, text=True)
        while self.used()[0] == 0:
            time.sleep(0.05)

    def command(self, name):
        program, *arguments = ADVERSARIES.get(name, ADVERSARIES["long kernels"])
        return [self.build / "tests/system/adversaries" / program, *arguments]

    def commands(self, name):
        """Of one vGPU, all at once."""
        return [self.command(name) for _ in range(AT_ONCE.get(name, 1))]

    def used(self):
        """The victim's launches and its GPU time so far, in seconds."""
        v = self.s.stats()["vgpus"]["v"]
        return v["launches_done"], v["gpu_ns"] / 1e9

    def window(self, rivals, names=("r",), kill_s=None):
        """The victim's launches and GPU time a second beside `rivals` (a vGPU's commands each), how
        often they ran, and how often the scheduler ended them. `names`: what their vGPUs' names
        begin with.
        `kill_s`: a Killer is at work."""
        names = [f"{name}-{self.vgpus + i}" for i, name in enumerate(names, 1)]
        self.vgpus += len(names)
        for name in names:
            self.s.ctl("create", name, "--weight", 1)
            self.s.ctl("set", name, "--memory", "4G" if self.a.device == "nvidia" else "64M")
        rivals = [Again(command, self.s.client_env(name), self.draws)
                  for rival, name in zip(rivals, names) for command in rival]
        killer = Killer(self.s, names, kill_s, self.draws) if kill_s else None
        before, began = self.used(), time.monotonic()
        for again in rivals:
            again.start()
        if killer:
            killer.start()
        time.sleep(self.a.seconds)
        took_s = time.monotonic() - began
        rate, gpu = ((after - then) / took_s for then, after in zip(before, self.used()))
        if killer:
            killer.stop()
            self.killed += killer.killed
            self.stopped += killer.stopped
        for again in rivals:
            again.stop()
        vgpus = self.s.stats()["vgpus"]
        for name in names:
            self.s.ctl("delete", name)
        if vgpus["v"]["sessions_ended_by_scheduler"]:
            raise SystemExit("sluiced has ended the victim's session")
        return (rate, gpu, sum(again.runs for again in rivals),
                sum(vgpus[name]["sessions_ended_by_scheduler"] for name in names))

    def news(self):
        """What sluiced has logged since the last call of the witness and what it proves, and of
        workers that crashed."""
        lines = self.s.log_path.read_text(errors="replace").splitlines()
        self.logged, new = len(lines), lines[self.logged:]
        told = re.compile("witness|beyond its time slices|" + CRASHES)
        return [line for line in new if told.search(line)]

    def end(self):
        if self.a.victim:
            if self.victim.poll() is not None:
                raise SystemExit("the victim's program has ended")
            return
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
    p.add_argument("--only", nargs="*", metavar="NAME")
    p.add_argument("--together", type=int, metavar="N", help="adversaries at once")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--victim", metavar="US:PAUSE_US", help="its launches and pauses")
    p.add_argument("--slices", action="store_true", help="on the hardware's time slices")
    p.add_argument("--kill", type=float, metavar="S", help="seconds between random kills")
    p.add_argument("--free-faults", action="store_true", help="nobody pays for faults")
    p.add_argument("--out", type=pathlib.Path)
    a = p.parse_args()
    workers = () if a.together else (*CLAIMS, *OVERSTAYS)
    a.only = a.only or [*ADVERSARIES, *workers]
    build = a.build.resolve()
    honest = [build / "kernels/suite/sluice-suite-stencil2d", "--seconds", "100000"]
    rows = []
    with tempfile.TemporaryDirectory(prefix="sluice-bench.") as work:
        bench = Bench(build, a, work)
        try:
            draws = random.Random(a.seed)
            for name in a.only if not a.together else [f"{a.together} of {len(a.only)}"]:
                vgpus = {**CLAIMS, **OVERSTAYS}.get(name, "r").split()
                commands = ([[honest]] * len(vgpus) if name in CLAIMS else
                            [bench.commands(name) for _ in vgpus])
                monitor = AdminMonitor(bench.s.admin)
                monitor.start()
                pairs = []
                for _ in range(a.pairs):
                    if a.together:
                        drawn = draws.sample(a.only, a.together)
                        print(f"    {', '.join(drawn)}", flush=True)
                        commands = [bench.commands(one) for one in drawn]
                        vgpus = ["r"] * a.together
                    pairs.append((*bench.window([[honest]] * len(vgpus), "r" * len(vgpus))[:2],
                                  *bench.window(commands, vgpus, a.kill)))
                monitor.finish()
                if monitor.silent:
                    raise SystemExit(monitor.silent)
                each = [beside / fair for fair, _, beside, *_ in pairs]
                kept, gpu = (sum(pair[i + 2] for pair in pairs) / sum(pair[i] for pair in pairs)
                             for i in range(2))
                answer = 1000 * monitor.slowest_s
                rows.append({"experiment": "adversaries", "adversary": name, "kept": kept,
                             "gpu": gpu, "each": each,
                             "fair": [fair for fair, *_ in pairs], "goal": 0.95,
                             "met": kept >= 0.95, "answer_ms": answer,
                             "runs": sum(pair[4] for pair in pairs),
                             "ended": sum(pair[5] for pair in pairs), "seconds": a.seconds})
                print(f"{name:31} kept {kept:5.2f}   gpu {gpu:5.2f}   "
                      f"each {' '.join(f'{e:.2f}' for e in each)}   "
                      f"beside the fair rival {pairs[0][0]:7.1f} launches/s   runs "
                      f"{rows[-1]['runs']:4}   ended {rows[-1]['ended']:2}   slowest answer "
                      f"{answer:6.1f} ms", flush=True)
                if a.kill:
                    print(f"    {bench.killed} killed, {bench.stopped} stopped", flush=True)
                print("".join(f"    {line}\n" for line in bench.news()), end="", flush=True)
                if a.out:
                    a.out.write_text(json.dumps(rows, indent=1) + "\n")
            bench.end()
        finally:
            bench.victim.kill()
            bench.s.stop()


if __name__ == "__main__":
    main()
