#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long launches of different lengths take beside each other, policy by policy, through a live
sluiced.

usage: turnaround.py [--build DIR] [--device soft|nvidia] [--policies wfq,wfq-srt,hpf,rr]
                     [--seconds S] [--steps N] [--out FILE.json]

Three vGPUs of equal weight: one launches for 20 ms at a time without a pause, one for 2 ms with
pauses of 2 ms, one for 0.2 ms with pauses of 1 ms (`--scale` times as long; the kernel's size is
set so, alone). Then two that never pause, 5 ms and 0.5 ms, weights 2:1. For each policy NTT, the
mean turnaround over that alone, of each; their mean (ANTT); and the shares of the GPU while all had
work. JSON and a table. Exits 1 if a program failed or a block ran not once.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/lib"))
import report  # noqa: E402
from host import Sluiced  # noqa: E402

# Of each vGPU: milliseconds of a launch, microseconds between two, weight.
MIXES = {"lengths": [(20, 0, 1), (2, 2000, 1), (0.2, 1000, 1)],
         "two-to-one": [(5, 0, 2), (0.5, 0, 1)]}


class Bench:
    def __init__(self, args):
        self.args = args
        self.sizes = {}

    def mediator(self, policy, weights):
        nvidia = self.args.device == "nvidia"
        extra = ("nvidia_sms = 132\n" if nvidia else "") + f'[scheduler]\npolicy = "{policy}"\n'
        s = Sluiced(self.args.build, tempfile.mkdtemp(prefix="sluice-turnaround."),
                    device=self.args.device, soft_sms=4, extra=extra)
        s.start()
        for i, w in enumerate(weights):
            s.ctl("create", f"vm{i + 1}", "--weight", w)
        return s

    def client(self, s, i, blocks, gap_us, seconds, start):
        return subprocess.Popen([self.args.build / "tests/bench/turnaround", str(blocks),
                                 str(self.args.steps), str(gap_us), str(seconds),
                                 start], env=s.client_env(f"vm{i + 1}"), text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def result(self, p):
        out, err = p.communicate(timeout=600)
        if p.returncode != 0:
            sys.exit(f"turnaround: a program ended with {p.returncode}: {err[-500:]}")
        return json.loads(out)

    def alone(self, ms):
        """Blocks of a launch that takes about so long alone, and its mean turnaround in us."""
        if ms not in self.sizes:
            s = self.mediator("wfq", [1])
            try:
                blocks = 4000
                for _ in range(3):
                    r = self.result(self.client(s, 0, blocks, 0, 0.5, "/"))
                    last, blocks = blocks, max(64,
                                               int(blocks * 1000 * ms *
                                                   self.args.scale / r["p50_us"]))
                    if 0.9 < blocks / last < 1.1:
                        break
                self.sizes[ms] = (blocks,
                                  self.result(self.client(s, 0, blocks, 0, 1, "/"))["mean_us"])
            finally:
                s.stop()
        return self.sizes[ms]

    def run(self, policy, mix):
        s = self.mediator(policy, [w for _, _, w in mix])
        names = [f"vm{i + 1}" for i in range(len(mix))]
        try:
            start = pathlib.Path(tempfile.mkdtemp()) / "start"
            clients = [self.client(s, i, self.alone(ms)[0], gap, self.args.seconds, start) for i,
                       (ms, gap, _) in enumerate(mix)]
            deadline = time.monotonic() + 300
            while not all(v["launches_done"] >= 8 for v in s.stats()["vgpus"].values()):
                if time.monotonic() > deadline or any(p.poll() is not None for p in clients):
                    sys.exit("turnaround: a program does not come to its start: " + s.log()[-500:])
                time.sleep(0.05)
            start.touch()
            time.sleep(0.3)
            first = s.stats()
            time.sleep(self.args.seconds - 0.6)
            last = s.stats()
            results = [self.result(p) for p in clients]
        finally:
            s.stop()
        ntt = [r["mean_us"] / self.alone(ms)[1] for r, (ms, _, _) in zip(results, mix)]
        return {"policy": policy, "ntt": [round(x, 3) for x in ntt],
                "antt": round(sum(ntt) / len(ntt), 3),
                "p99_us": [r["p99_us"] for r in results],
                "launches": [r["launches"] for r in results],
                "shares": [round(x, 4) for x in report._shares(first, last, names)],
                "evictions": sum(v["evictions"] for v in last["vgpus"].values())}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--device", choices=["soft", "nvidia"], default="soft")
    p.add_argument("--policies", default="wfq,wfq-srt,hpf,rr")
    p.add_argument("--seconds", type=float, default=4)
    p.add_argument("--steps", type=int, default=2500, help="of a thread: how long a task is")
    p.add_argument("--scale", type=float, default=1, help="launches so many times as long")
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path("turnaround.json"))
    a = p.parse_args()
    a.build = a.build.resolve()
    b = Bench(a)
    rows = []
    for name, mix in MIXES.items():
        for policy in a.policies.split(","):
            rows.append({"mix": name, **b.run(policy, mix)})
            print(json.dumps(rows[-1]), flush=True)
    alone = {str(ms): {"blocks": n, "alone_us": us} for ms, (n, us) in b.sizes.items()}
    a.out.write_text(json.dumps({"device": a.device, "steps": a.steps, "scale": a.scale,
                                 "alone": alone, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
