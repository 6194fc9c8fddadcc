#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shares of two vGPUs on the hardware's time slices, by weight, for programs that queue their
launches and programs that wait after each.

usage: shares.py [--build DIR] [--device soft|nvidia] [--seconds S] [--weights 2:1,3:1,..]
                 [--kinds queue,wait,mixed] [--launch-us N] [--steps N] [--sources LIST]
                 [--extra TOML] [--out FILE.json]

Two programs launch kernels of some N us (5000) for S seconds, both at a time:

  queue   eight launches are queued at any time
  wait    the program waits after each launch
  mixed   the first one waits, the second one queues

Per pair of weights and kind: what each did of the work of one alone on the driver itself, the share
of the first in the work of both, how many points that is off its weight, and what both lack
together. `source`: what sluiced's accounting goes by. JSON and a table.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/lib"))
from host import Sluiced  # noqa: E402

DEPTH = {"queue": (8, 8), "wait": (1, 1), "mixed": (1, 8)}


class Bench:
    def __init__(self, args):
        self.args = args
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-shares."))
        self.folder.chmod(0o711)
        self.runs = 0

    def together(self, env_of, programs, seconds):
        """`programs`: name -> (blocks, depth). All begin at one moment; their answers by name."""
        self.runs += 1
        start = self.folder / f"start{self.runs}"
        running = {
            name: subprocess.Popen(
                [self.args.build / "tests/bench/turnaround", str(blocks), str(self.args.steps),
                 "0", str(seconds), start, str(depth)],
                env=env_of(name), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for name, (blocks, depth) in programs.items()}
        time.sleep(self.args.settle)
        start.touch()
        answers = {}
        for name, p in running.items():
            out, err = p.communicate(timeout=300)
            if p.returncode != 0:
                sys.exit(f"shares: {name} ended with {p.returncode}: {err[-800:]}")
            answers[name] = json.loads(out)
        return answers

    def blocks_for(self, env_of, us):
        blocks = 1000
        for _ in range(4):
            r = self.together(env_of, {"one": (blocks, 1)}, 0.3)["one"]
            last, blocks = blocks, max(64, int(blocks * us / r["p50_us"]))
            if 0.93 < blocks / last < 1.07:
                break
        return blocks


def rate(answer):
    """Launches that ended, a second: those that were still queued do not count."""
    return answer["finished"] * 1e6 / answer["span_us"]


def counted(before, after):
    """What sluiced has counted meanwhile, of figures that are numbers and have grown."""
    return {k: round(v - before[k], 3) for k, v in after.items()
            if isinstance(v, (int, float)) and not isinstance(v, bool) and k in before
            and v != before[k]}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--device", choices=["soft", "nvidia"], default="soft")
    p.add_argument("--seconds", type=float, default=3)
    p.add_argument("--settle", type=float, default=1.5, help="until all have loaded their kernels")
    p.add_argument("--weights", default="2:1,3:1,10:1")
    p.add_argument("--kinds", default="queue,wait,mixed")
    p.add_argument("--launch-us", type=float, default=5000)
    p.add_argument("--steps", type=int, default=2500)
    p.add_argument("--sources", default="", help='accounting.sources, as "clock"')
    p.add_argument("--extra", default="[scheduler]\nslices = true\n")
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path("shares.json"))
    a = p.parse_args()
    a.build = a.build.resolve()
    bench = Bench(a)
    sources = f"[accounting]\nsources = [\"{a.sources}\"]\n" if a.sources else ""
    s = Sluiced(a.build, bench.folder, device=a.device, extra=a.extra + sources).start()
    rows = []
    try:
        s.ctl("create", "one", "--weight", 1)
        s.ctl("create", "two", "--weight", 1)

        def native(_name):
            return None if a.device == "nvidia" else s.client_env("one")
        blocks = bench.blocks_for(native, a.launch_us)
        alone = rate(bench.together(native, {"one": (blocks, 8)}, a.seconds)["one"])
        print(f"{blocks} blocks a launch, {alone:.0f} a second alone", flush=True)
        for weights in a.weights.split(","):
            first, second = map(int, weights.split(":"))
            s.ctl("set", "one", "--weight", first)
            s.ctl("set", "two", "--weight", second)
            for kind in a.kinds.split(","):
                depths = DEPTH[kind]
                before = s.stats()["vgpus"]
                r = bench.together(s.client_env, {"one": (blocks, depths[0]),
                                                  "two": (blocks, depths[1])}, a.seconds)
                after = s.stats()["vgpus"]
                one, two = rate(r["one"]) / alone, rate(r["two"]) / alone
                share, due = one / (one + two), first / (first + second)
                rows.append({"experiment": "shares-on-slices", "weights": weights, "kind": kind,
                             "one": round(one, 3), "two": round(two, 3),
                             "share": round(share, 4), "off_points": round(100 * (share - due), 2),
                             "loss": round(1 - one - two, 3), "goal": 1,
                             "met": abs(share - due) <= 0.01,
                             "counted": {n: counted(before[n], after[n]) for n in ("one", "two")},
                             "source": s.ctl("info")["accounting"]["source"]})
                print(json.dumps(rows[-1]), flush=True)
        sources = s.ctl("info")["accounting"]["sources"]
    except BaseException:
        print(s.log()[-3000:], file=sys.stderr)
        raise
    finally:
        s.stop()
        shutil.rmtree(bench.folder, ignore_errors=True)
    a.out.write_text(json.dumps({"device": a.device, "seconds": a.seconds, "sources": sources,
                                 "rows": rows}, indent=1) + "\n")
    print(f"{'weights':8} {'kind':6} {'one':>6} {'two':>6} {'share':>7} {'off':>6} {'loss':>6}")
    for r in rows:
        print(f"{r['weights']:8} {r['kind']:6} {r['one']:6.3f} {r['two']:6.3f} "
              f"{100 * r['share']:6.1f}% {r['off_points']:6.2f} {r['loss']:6.3f}")


if __name__ == "__main__":
    main()
