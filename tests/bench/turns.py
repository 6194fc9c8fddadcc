#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A light tenant beside a heavy one, and two heavy ones at 2:1: Sluice beside what one could pick
instead, in one run.

usage: turns.py [--build DIR] [--device soft|nvidia] [--seconds S] [--rounds N]
                [--steps N,..] [--only NAME,..] [--light-us N] [--heavy-us N] [--out FILE.json]

light   launches some 100 us of work, waits for its end, and sleeps 2 ms
heavy   launches 5 ms of work back to back

Each way of sharing the GPU runs light alone, light beside heavy, and two heavy ones (weights 2:1
where it knows weights); rounds alternate between the ways. Per way: P50 and P99 of light's launches
in us, what heavy keeps of its own speed alone without Sluice, and what each of the two heavy ones
does of it. The median of the rounds is reported.

  slices            the driver's own time slices                              (nvidia)
  mps               NVIDIA's MPS as it comes                                  (nvidia)
  mps-priority      MPS, the light client at a higher client priority         (nvidia)
  sluice            contexts of their own, policy wfq
  sluice-slices     the same, on the hardware's time slices; light's latency normal, low, batch:
                    sluice-slices-low, sluice-slices-batch
  sluice-mps        contexts side by side, turns by eviction                  (nvidia)
  sluice-turns      contexts side by side, turns by priority, policy wfq
  sluice-turns-srt  the same, policy wfq-srt

--steps: how long a block is: 2500 is some 35 us on an H100, 50000 some 700 us. JSON and a table.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/lib"))
from host import Sluiced  # noqa: E402

# Name: (contexts side by side, Sluice's configuration; None: without Sluice).
SLICES = '[scheduler]\npolicy = "wfq"\nslices = true\n'
WAYS = {
    "slices": (False, None),
    "mps": (True, None),
    "mps-priority": (True, None),
    "sluice": (False, '[scheduler]\npolicy = "wfq"\n'),
    "sluice-slices": (False, SLICES),
    "sluice-slices-low": (False, SLICES),
    "sluice-slices-batch": (False, SLICES),
    "sluice-mps": (True, '[scheduler]\npolicy = "wfq"\n'),
    "sluice-turns": (True, '[scheduler]\npolicy = "wfq"\nturns = "priority"\n'),
    "sluice-turns-srt": (True, '[scheduler]\npolicy = "wfq-srt"\nturns = "priority"\n'),
}
LATENCIES = ("sluice-slices-low", "sluice-slices-batch")
GAP_US = 2000


class Mps:
    """An MPS server of our own, for several users, as Sluice's workers are."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-mps."))
        self.folder.chmod(0o777)
        self.env = {"CUDA_MPS_PIPE_DIRECTORY": str(self.folder),
                    "CUDA_MPS_LOG_DIRECTORY": str(self.folder)}

    def __enter__(self):
        subprocess.run(["nvidia-cuda-mps-control", "-M", "-d"], check=True,
                       env={**os.environ, **self.env})
        return self.env

    def __exit__(self, *_):
        subprocess.run(["nvidia-cuda-mps-control"], input="quit -t 1\n", text=True,
                       env={**os.environ, **self.env}, stdout=subprocess.DEVNULL)
        time.sleep(0.5)
        shutil.rmtree(self.folder, ignore_errors=True)


class Native:
    """Programs on the driver itself."""

    def __init__(self, way, env):
        self.way, self.env = way, env

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def client_env(self, name):
        env = {**os.environ, **self.env}
        if self.way == "mps-priority":
            env["CUDA_MPS_CLIENT_PRIORITY"] = "0" if name == "light" else "1"
        return env


class Mediated:
    """Programs as local clients of a sluiced."""

    def __init__(self, args, way, env):
        self.latency = way.removeprefix("sluice-slices-") if way in LATENCIES else "normal"
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="sluice-turns."))
        self.work.chmod(0o711)
        nvidia = "nvidia_sms = 132\n" if args.device == "nvidia" else ""
        self.sluiced = Sluiced(args.build, self.work, device=args.device, soft_sms=4,
                               extra=nvidia + WAYS[way][1], env=env)

    def __enter__(self):
        self.sluiced.start()
        for name, weight in (("light", 1), ("heavy", 1), ("one", 2), ("two", 1)):
            self.sluiced.ctl("create", name, "--weight", weight)
        self.sluiced.ctl("set", "light", "--latency", self.latency)
        return self

    def __exit__(self, kind, *_):
        if kind:
            print(self.sluiced.log()[-3000:], file=sys.stderr)
        self.sluiced.stop()
        shutil.rmtree(self.work, ignore_errors=True)

    def client_env(self, name):
        return self.sluiced.client_env(name)

    def evictions(self):
        return {n: v["evictions"] for n, v in self.sluiced.stats()["vgpus"].items()}


class Bench:
    def __init__(self, args):
        self.args = args

    def client(self, host, name, blocks, steps, gap_us, seconds, start):
        return subprocess.Popen(
            [self.args.build / "tests/bench/turnaround", str(blocks), str(steps), str(gap_us),
             str(seconds), str(start)], env=host.client_env(name), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def results(self, clients):
        answers = {}
        for name, p in clients.items():
            out, err = p.communicate(timeout=300)
            if p.returncode != 0:
                sys.exit(f"turns: {name} ended with {p.returncode}: {err[-800:]}")
            answers[name] = json.loads(out)
        return answers

    def together(self, host, clients, seconds):
        """`clients`: name -> (blocks, steps, gap). All begin at one moment."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-turns-start."))
        folder.chmod(0o755)
        start = folder / "start"
        running = {n: self.client(host, n, *c, seconds, start) for n, c in clients.items()}
        time.sleep(self.args.settle)
        start.touch()
        try:
            return self.results(running)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def blocks_for(self, host, steps, us):
        """Blocks of a launch that takes about `us` alone."""
        blocks = 1000
        for _ in range(4):
            r = self.together(host, {"heavy": (blocks, steps, 0)}, 0.3)["heavy"]
            last, blocks = blocks, max(64, int(blocks * us / r["p50_us"]))
            if 0.93 < blocks / last < 1.07:
                break
        return blocks

    def round(self, host, steps, light, heavy):
        s = self.args.seconds
        row = {}
        row["alone"] = self.together(host, {"light": (light, steps, GAP_US)}, s)["light"]
        row["heavy_alone"] = self.together(host, {"heavy": (heavy, steps, 0)}, s / 2)["heavy"]
        before = host.evictions() if isinstance(host, Mediated) else None
        row["beside"] = self.together(host, {"light": (light, steps, GAP_US),
                                             "heavy": (heavy, steps, 0)}, s)
        if before:
            row["evictions"] = {n: v - before[n] for n, v in host.evictions().items()}
        row["pair"] = self.together(host, {"one": (heavy, steps, 0), "two": (heavy, steps, 0)}, s)
        return row


def summary(rounds, seconds, speed):
    """Medians over rounds; `speed`: launches a second of heavy alone without Sluice."""
    def median(of):
        return statistics.median(of(r) for r in rounds)
    one = median(lambda r: r["pair"]["one"]["launches"]) / seconds / speed
    two = median(lambda r: r["pair"]["two"]["launches"]) / seconds / speed
    return {"light_alone_p50_us": median(lambda r: r["alone"]["p50_us"]),
            "light_alone_p99_us": median(lambda r: r["alone"]["p99_us"]),
            "heavy_alone": round(median(lambda r: r["heavy_alone"]["launches"]) /
                                 (seconds / 2) / speed, 3),
            "light_p50_us": median(lambda r: r["beside"]["light"]["p50_us"]),
            "light_p99_us": median(lambda r: r["beside"]["light"]["p99_us"]),
            "heavy_keeps": round(median(lambda r: r["beside"]["heavy"]["launches"]) / seconds /
                                 speed, 3),
            "pair": [round(one, 3), round(two, 3)], "pair_sum": round(one + two, 3),
            "share_of_one": round(one / (one + two), 3)}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--device", choices=["soft", "nvidia"], default="soft")
    p.add_argument("--seconds", type=float, default=3)
    p.add_argument("--settle", type=float, default=1.5, help="until all have loaded their kernels")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--steps", default="2500")
    p.add_argument("--light-us", type=float, default=100)
    p.add_argument("--heavy-us", type=float, default=5000)
    p.add_argument("--only", default="")
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path("turns.json"))
    a = p.parse_args()
    a.build = a.build.resolve()
    bench = Bench(a)
    nvidia = a.device == "nvidia"
    ways = [w for w in WAYS if (nvidia or WAYS[w][1] and w != "sluice-mps") and
            (not a.only or w in a.only.split(","))]
    result = {"device": a.device, "seconds": a.seconds, "rows": []}

    def host(way, env):
        return Native(way, env) if WAYS[way][1] is None else Mediated(a, way, env)

    for steps in map(int, a.steps.split(",")):
        first = "slices" if nvidia else ways[0]
        with host(first, {}) as h:
            light = bench.blocks_for(h, steps, a.light_us)
            heavy = bench.blocks_for(h, steps, a.heavy_us)
            alone = bench.together(h, {"heavy": (heavy, steps, 0)}, a.seconds)["heavy"]
        speed = alone["launches"] / a.seconds
        print(f"steps {steps}: light {light} blocks, heavy {heavy} blocks, "
              f"{alone['p50_us']:.0f} us alone", flush=True)
        rounds = {w: [] for w in ways}
        for _ in range(a.rounds):
            for way in ways:
                with Mps() if nvidia and WAYS[way][0] else contextlib.nullcontext({}) as env:
                    with host(way, env) as h:
                        rounds[way].append(bench.round(h, steps, light, heavy))
                print(json.dumps({"way": way, "steps": steps,
                                  **summary(rounds[way][-1:], a.seconds, speed),
                                  "evictions": rounds[way][-1].get("evictions")}), flush=True)
        for way in ways:
            result["rows"].append({"way": way, "steps": steps, "light_blocks": light,
                                   "heavy_blocks": heavy, "heavy_alone_us": alone["p50_us"],
                                   **summary(rounds[way], a.seconds, speed)})
    a.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{'way':18} {'steps':>6} {'alone P50':>9} {'P99':>6} {'beside P50':>10} {'P99':>6} "
          f"{'keeps':>6} {'one':>6} {'two':>6} {'sum':>6}")
    for r in result["rows"]:
        print(f"{r['way']:18} {r['steps']:6} {r['light_alone_p50_us']:9.0f} "
              f"{r['light_alone_p99_us']:6.0f} {r['light_p50_us']:10.0f} {r['light_p99_us']:6.0f} "
              f"{r['heavy_keeps']:6.3f} {r['pair'][0]:6.3f} {r['pair'][1]:6.3f} "
              f"{r['pair_sum']:6.3f}")


if __name__ == "__main__":
    main()
