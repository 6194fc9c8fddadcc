#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""vGPUs that share a GPU in space (scheduler.spatial) beside the same vGPUs in time, in one run.

usage: in_space.py [--build DIR] [--device soft|nvidia] [--sms N] [--seconds S] [--rate-seconds S]
                   [--rounds N] [--mps] [--green on|off] [--only PART,..] [--out FILE]
       in_space.py --plot FILE.json

Starts a sluiced for each part, local clients on it, and leaves one JSON object and a plot (.png;
needs gnuplot):

  mixed      two vGPUs, the suite's programs two at a time in each, weights 2:1 and then 1:3: shares
             of SM-time, evictions, hand-over latency, results right and wrong; by turns in space
             and in time
  rates      md5 alone, in two vGPUs of 2:1 in space and in time, in four of 4:3:2:1 in space:
             launches a second of each over those of one that is alone, so that nothing rests on
             sluiced's own clock
  apart      two vGPUs whose tasks write down their SM and their times: no SM works for both at one
             time

--mps (nvidia): starts an MPS server of its own for the run, and ends it. --green off: launches are
not confined by the hardware; rates have 2:1 in space both ways. Under MPS SMs are numbered from 0
in each green context: of two clients it is not known then whether an SM worked for both, and
`apart` checks only whether each was on more of them than it had. Exits 1 if a result was wrong, a
program failed, or an SM worked for both.
"""
import argparse
import bisect
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/lib"))
import demo  # noqa: E402
import report  # noqa: E402
from gpu_bench.ways import Mps  # noqa: E402
from host import Sluiced  # noqa: E402

HALVES = [[2, 1], [1, 3]]
# %globaltimer steps by so much on the GPUs measured.
TIMER_NS = 1024


class Bench:
    def __init__(self, args):
        self.args = args
        self.nvidia = args.device == "nvidia"
        self.sms = args.sms or (132 if self.nvidia else 4)
        self.problems = []
        self.said = set()
        self.right = self.wrong = 0
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="sluice-space."))

    def mediator(self, space, weights, green=None):
        """A running sluiced and the names of its vGPUs."""
        green = self.args.green == "on" if green is None else green
        extra = f"nvidia_sms = {self.sms}\n" if self.nvidia else ""
        extra += self.args.device_line + "\n" if self.args.device_line else ""
        extra += demo.GPU_SETTINGS if self.nvidia else ""
        extra += f"[scheduler]\nspatial = {'true' if space else 'false'}\n"
        extra += f"green_contexts = {'true' if green else 'false'}\n"
        env = {} if self.nvidia else {"SLUICE_SOFT_MODE": "mps"}
        s = Sluiced(self.args.build, tempfile.mkdtemp(dir=self.work), device=self.args.device,
                    soft_sms=self.sms,
                    extra=extra, env=env)
        s.start()
        names = [f"vm{i + 1}" for i in range(len(weights))]
        for n, w in zip(names, weights):
            s.ctl("create", n, "--weight", w)
        return s, names

    def end(self, s, what):
        log = s.log()
        # Why launches did without, once for each session.
        self.said |= {line.split("info: ", 1)[-1] for line in log.splitlines()
                      if "green context" in line or "groups of" in line}
        if "policy-violation" in log or "overdue" in log:
            self.problems.append(f"{what}: sluiced's log: " + log[-1500:])
        s.stop()

    def count(self, what, results, problems):
        self.right += sum(r["right"] for r in results)
        self.wrong += sum(r["wrong"] for r in results)
        self.problems += [f"{what}: {p}" for p in problems]

    # ---- mixed -----------------------------------------------------------------------------------
    def mixed(self, space):
        s, names = self.mediator(space, HALVES[0])
        try:
            clients = []
            for n, w in zip(names, HALVES[0]):
                c = demo.LocalClient(n, w)
                c.env, c.bin = s.client_env(n), self.args.build / "kernels/suite"
                clients.append(c)
            until = time.monotonic() + self.args.seconds + 3
            lanes = []
            for c in clients:
                for i in range(demo.LANES):
                    shift = i * len(demo.PROGRAMS) // demo.LANES
                    order = demo.PROGRAMS[shift:] + demo.PROGRAMS[:shift]
                    lanes.append(threading.Thread(target=c.lane, args=(order, until, self.nvidia),
                                                  daemon=True))
                    lanes[-1].start()
            demo.wait_for_contention(s)
            history, halves, begin = [], [], time.monotonic()
            for i, weights in enumerate(HALVES):
                if i:
                    for n, w in zip(names, weights):
                        s.ctl("set", n, "--weight", w)
                first = s.stats()
                while time.monotonic() < begin + self.args.seconds * (i + 1) / len(HALVES):
                    history.append(s.stats())
                    time.sleep(0.25)
                halves.append(report.half(weights, first, s.stats(), names))
            final = s.stats()
            for t in lanes:
                t.join(300)
            self.count("mixed", [r for c in clients for r in c.results],
                       [p for c in clients for p in c.problems])
            v = final["vgpus"]
            latency = final["evict_latency_us"]
            wall = (final["now_ns"] - history[0]["now_ns"]) / 1e9
            return {"form": "space" if space else "time", "halves": halves,
                    "evictions": {n: v[n]["evictions"] for n in names},
                    "evictions_per_s": round(sum(v[n]["evictions"] for n in names) / wall, 1),
                    "green": {n: {k: v[n][k]
                                  for k in ("part_launches", "green_launches", "green_contexts")}
                                  for n in names},
                    "eviction_latency_us": {k: latency[k] for k in ("p50", "p99")},
                    "launches": {n: v[n]["launches_done"] for n in names},
                    "history": [[round((h["now_ns"] - history[0]["now_ns"]) / 1e9, 3),
                                 round(h["contended_ns"] / 1e9, 3)] +
                                [round(h["vgpus"][n]["contended_gpu_ns"] / 1e9, 4) for n in names]
                                for h in history]}
        finally:
            self.end(s, "mixed")

    # ---- rates -----------------------------------------------------------------------------------
    def rate(self, space, weights, green=None):
        """Launches of md5 a second and vGPU, over a window in which all run."""
        s, names = self.mediator(space, weights, green)
        try:
            options = demo.GPU_SIZES["md5"] if self.nvidia else ["--size", "65536"]
            seconds = self.args.rate_seconds + 1.5
            running = [subprocess.Popen([self.args.build / "kernels/suite/sluice-suite-md5",
                                         *options, "--verify", "last",
                                         "--seconds", str(seconds), "--json"], env=s.client_env(n),
                                         text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                                        for n in names]
            end = time.monotonic() + 120
            while not all(v["launches_done"] > 20 for v in s.stats()["vgpus"].values()):
                if time.monotonic() > end or any(p.poll() is not None for p in running):
                    break
                time.sleep(0.05)
            time.sleep(0.5)
            first = s.stats()
            time.sleep(self.args.rate_seconds)
            last = s.stats()
            results, problems = [], []
            for p in running:
                text, _ = p.communicate(timeout=300)
                lines = [line for line in text.splitlines() if line.startswith("{")]
                if p.returncode or not lines:
                    problems.append(f"md5 ended with {p.returncode}: {text[-500:]}")
                else:
                    results.append(json.loads(lines[-1]))
            self.count("rates", results, problems)
            took = (last["now_ns"] - first["now_ns"]) / 1e9
            sm_time = report._shares(first, last, names)
            return {"form": "space" if space else "time", "weights": weights,
                    "green": space and (self.args.green == "on" if green is None else green),
                    "launches_per_s": [round((last["vgpus"][n]["launches_done"] -
                                              first["vgpus"][n]["launches_done"]) / took, 2)
                                       for n in names],
                    "shares": [round(x, 4) for x in sm_time] if len(names) > 1 else [1.0],
                    "per_s": {k: [round((last["vgpus"][n][k] - first["vgpus"][n][k]) / took, 1)
                                  for n in names]
                              for k in ("set_changes", "evictions", "physical_evictions", "resumes",
                                        "part_launches", "green_launches", "green_contexts")},
                    "sms": [last["vgpus"][n]["sms"] for n in names],
                    "eviction_latency_us": {k: last["evict_latency_us"][k] for k in ("p50", "p99")}}
        finally:
            self.end(s, "rates")

    def rates(self):
        rows = []
        for _ in range(self.args.rounds):
            alone = self.rate(False, [1])
            rows.append(alone)
            for space, weights, green in ((True, [2, 1], None), (True, [2, 1], False),
                                          (False, [2, 1], None), (True, [4, 3, 2, 1], None)):
                if green is False and self.args.green == "off":
                    continue
                r = self.rate(space, weights, green)
                # What each got of what it would do alone; together: the GPU's work, 1 if sharing
                # cost nothing.
                of_alone = [x / alone["launches_per_s"][0] for x in r["launches_per_s"]]
                r["of_alone"] = [round(x, 4) for x in of_alone]
                r["together"] = round(sum(of_alone), 4)
                r["work_shares"] = [round(x / max(sum(of_alone), 1e-9), 4) for x in of_alone]
                rows.append(r)
        return rows

    # ---- apart -----------------------------------------------------------------------------------
    def apart(self):
        s, names = self.mediator(True, [2, 1])
        try:
            stop = self.work / "stop"
            sizes = ["16384", "400000", "3"] if self.nvidia else []
            outs = [self.work / f"tasks-{n}" for n in names]
            running = [subprocess.Popen([self.args.build / "tests/system/sm-tasks", stop, out,
                                         *sizes], text=True,
                                        env=s.client_env(n), stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT)
                       for n, out in zip(names, outs)]
            end = time.monotonic() + 60
            while not all(v["launches_done"] > 100
                          for v in s.stats()["vgpus"].values()) and time.monotonic() < end:
                time.sleep(0.05)
            # Sets that change often, and seldom in the order in which they were given.
            for w in (3, 1, 4, 2):
                s.ctl("set", names[0], "--weight", w)
                time.sleep(0.5)
            # As many SMs as each had at most, lately.
            had = [0] * len(names)
            lately_ns = int(0.4e9)
            until = time.monotonic() + 2 * lately_ns / 1e9
            while time.monotonic() < until:
                stats = s.stats()["vgpus"]
                had = [max(h, count_sms(stats[n]["sms"])) for h, n in zip(had, names)]
                time.sleep(0.02)
            stop.touch()
            for p in running:
                text, _ = p.communicate(timeout=300)
                if p.returncode:
                    self.problems.append(f"apart: sm-tasks: {text[-500:]}")
            tasks = [[tuple(map(int, line.split())) for line in out.read_text().splitlines()]
                     if out.exists() else []
                     for out in outs]
            begin = max((min(t[1] for t in x) for x in tasks if x), default=0)
            both = 0
            for sm in {t[0] for t in tasks[0]} & {t[0] for t in tasks[1]}:
                spans = sorted((b, e) for m, b, e in tasks[1] if m == sm)
                begins, latest, ends = [b for b, _ in spans], 0, []
                for _, e in spans:
                    latest = max(latest, e)
                    ends.append(latest)
                for m, b, e in tasks[0]:
                    i = bisect.bisect_left(begins, e - TIMER_NS)
                    if m == sm and i and ends[i - 1] > b + TIMER_NS:
                        both += 1
            green = [[stats[n]["green_launches"], stats[n]["green_contexts"]] for n in names]
            lately = []
            for x in tasks:
                last = max((t[2] for t in x), default=0)
                lately.append(len({t[0] for t in x if t[1] > last - lately_ns / 2}))
            # What SMs are called in green contexts under MPS says nothing of others'.
            names_only = self.nvidia and any(launches for launches, _ in green)
            if names_only:
                self.problems += [f"apart: {n} was on {used} SMs and had {most}"
                                  for n, used, most in zip(names, lately, had) if used > most]
            elif both:
                self.problems.append(f"apart: {both} tasks ran on an SM that worked for the other "
                                     "too")
            beside = [[t for t in x if t[1] >= begin] for x in tasks]
            # Tasks of the first in whose middle a task of the other was running somewhere.
            spans, reach = sorted((b, e) for _, b, e in tasks[1]), []
            for _, e in spans:
                reach.append(max(e, reach[-1]) if reach else e)
            at = [bisect.bisect_right(spans, ((b + e) // 2, 1 << 63)) for _, b, e in beside[0]]
            together = sum(1 for i,
                           (_, b, e) in zip(at, beside[0]) if i and reach[i - 1] > (b + e) // 2)
            return {"tasks": [len(x) for x in tasks], "tasks_beside": [len(x) for x in beside],
                    "sms_used": [len({t[0] for t in x}) for x in beside],
                    "highest_sm": max((t[0] for x in tasks for t in x), default=-1),
                    "on_an_sm_of_both": both,
                    "while_the_other_ran": round(together / max(len(beside[0]), 1), 3),
                    "task_us": round(sorted(
                        (e - b for _, b, e in beside[0]))[len(beside[0]) // 2] / 1000, 2)
                        if beside[0] else 0,
                    "evictions": [stats[n]["evictions"] for n in names],
                    "green": green, "sm_numbers_are_each_clients_own": names_only,
                    "sms_lately": lately, "sms_had_lately": had}
        finally:
            self.end(s, "apart")


def count_sms(sms):
    """Of what `sluicectl stats` calls a vGPU's SMs: a number, or ranges as "0-3,8"."""
    if isinstance(sms, int):
        return sms
    parts = [r.split("-") for r in sms.split(",")] if sms else []
    return sum(int(r[-1]) - int(r[0]) + 1 for r in parts)


def plot(path):
    data = json.loads(path.read_text())
    rows = data["mixed"]
    lines = ["set terminal pngcairo size 1000,640 font 'sans,11'",
             f"set output '{path.with_suffix('.png')}'",
             f"set multiplot layout {len(rows)},1", "set yrange [0:1]", "set format y '%.1f'",
             "set grid",
             "set ylabel 'share of SM-time'", "set key outside right"]
    for run in rows:
        h, total = run["history"], run["history"][-1][0]
        lines.append("$d << EOD")
        for a, b in zip(h, h[4:]):
            used = [y - x for x, y in zip(a[2:], b[2:])]
            if b[1] - a[1] > 0.4 * (b[0] - a[0]) and sum(used):
                lines.append(" ".join(f"{x:.4f}"
                                      for x in [(a[0] + b[0]) / 2, *(u / sum(used) for u in used)]))
            else:
                lines.append("")  # nothing is owed where not both had work
        lines += ["EOD", f"set title 'in {run['form']} (dashed: asked)'", "unset arrow",
                  f"set xrange [0:{total}]"]
        for i, half in enumerate(run["halves"]):
            for k, w in enumerate(half["weights"], 1):
                y = w / sum(half["weights"])
                lines.append(f"set arrow from {total * i / 2},{y} to {total * (i + 1) / 2},{y} "
                             f"nohead dashtype 2 linecolor {k}")
        lines.append("plot $d using 1:2 with lines lw 2 lc 1 title 'vm1', $d using 1:3 with lines "
                     "lw 2 lc 2 title 'vm2'")
    subprocess.run(["gnuplot"], input="\n".join(lines) + "\n", text=True, check=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--device", choices=["soft", "nvidia"], default="soft")
    p.add_argument("--device-line",
                   help="a line for [device] of sluiced's configuration, as signal = \"host\"")
    p.add_argument("--sms", type=int, help="SMs of the GPU (default 4, and 132 on NVIDIA's)")
    p.add_argument("--seconds", type=float, default=12, help="of each mixed run")
    p.add_argument("--rate-seconds", type=float, default=4)
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--mps", action="store_true")
    p.add_argument("--green", choices=["on", "off"], default="on")
    p.add_argument("--only", default="apart,rates,mixed")
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path("in_space.json"))
    p.add_argument("--plot", type=pathlib.Path)
    a = p.parse_args()
    if a.plot:
        return plot(a.plot)
    a.build = a.build.resolve()
    b = Bench(a)
    result = {"device": a.device, "sms": b.sms, "green_contexts": a.green == "on"}
    parts = a.only.split(",")
    server = contextlib.ExitStack()
    try:
        if a.mps:
            os.environ.update(server.enter_context(Mps()))
        if "apart" in parts:
            result["apart"] = b.apart()
            print(json.dumps(result["apart"]), flush=True)
        if "rates" in parts:
            result["rates"] = b.rates()
            for r in result["rates"]:
                print(json.dumps(r), flush=True)
        if "mixed" in parts:
            result["mixed"] = []
            for _ in range(a.rounds):
                for space in (True, False):
                    result["mixed"].append(b.mixed(space))
                    print(json.dumps({k: v for k,
                                      v in result["mixed"][-1].items() if k != "history"}),
                                      flush=True)
    finally:
        result["results_right"], result["results_wrong"] = b.right, b.wrong
        result["problems"] = b.problems
        a.out.write_text(json.dumps(result, indent=1) + "\n")
        server.close()
        shutil.rmtree(b.work, ignore_errors=True)
    for x in sorted(b.said):
        print(f"in_space: a worker says: {x}", file=sys.stderr)
    for x in b.problems:
        print(f"in_space: {x}", file=sys.stderr)
    sys.exit(1 if b.problems or b.wrong or (not b.right and "mixed" in parts) else 0)


if __name__ == "__main__":
    main()
