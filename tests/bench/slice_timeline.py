#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the hardware made of the time slices that it was given: by the GPU's context-switch log
beside sluiced's trace and the programs' own times. For an NVIDIA GPU, as root.

usage: slice_timeline.py [--build DIR] [--device nvidia|soft] [--seconds S] [--cases A,B,..]
                         [--late-us N] [--folder DIR] [--extra TOML]

A case is two vGPUs' weights and how each launches: `2:1/queue` (eight launches of 5 ms queued),
`2:1/wait` (the program waits after each), `2:1/mixed` (the first one waits), `2:1/wait300` (of 300
us), `low`, `normal`, `batch` (100 us every 2 ms, of that latency class, beside 5 ms back to back),
`1:1/short` (the first waits after each launch of 100 us, the other queues eight of 5 ms).
Per vGPU, of the time in which both ran:

  work       what its program got done, of one alone
  charged    what sluiced charged it, of the time
  resident   how long its contexts were on the engine, of the time
  intervals  how often, and percentiles of how long, us; `dead`: of the time before each start
  cost_us    (resident - work) for each interval: saving and restoring
  slices     the slices that it was given, us: how often each

Beside `low` and its like, what happened around each launch that took longer than N us (600) is
printed: records of the log (+ and - of a vGPU), slices, arrivals. On the software GPU there is no
log, and those figures are left out. Raw files are left in the folder.
"""
import argparse
import bisect
import collections
import json
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/lib"))
from host import Sluiced  # noqa: E402

CASES = "2:1/queue,3:1/queue,10:1/queue,2:1/wait,low,batch"
LIGHT = ("low", "normal", "batch")
SHOWN = 12   # late launches of a case
ALONE = 0.5  # s


class Timeline:
    def __init__(self, args):
        self.args = args
        self.folder = args.folder or pathlib.Path(tempfile.mkdtemp(prefix="slice-timeline."))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="slice-timeline."))
        self.work.chmod(0o711)
        self.runs = 0

    def program(self, env, blocks, gap_us, seconds, start, depth, times):
        return subprocess.Popen(
            [self.args.build / "tests/bench/turnaround",
             *map(str, (blocks, self.args.steps, gap_us, seconds, start, depth, times))],
            env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def answers(self, programs):
        found = []
        for p in programs:
            out, err = p.communicate(timeout=120)
            if p.returncode != 0:
                sys.exit(f"slice_timeline: a program ended with {p.returncode}: {err[-800:]}")
            found.append(json.loads(out))
        return found

    def blocks_for(self, env, us):
        blocks = 1000
        for _ in range(4):
            self.runs += 1
            start = self.work / f"start{self.runs}"
            start.touch()
            r = self.answers([self.program(env, blocks, 0, 0.3, start, 1, self.work / "none")])[0]
            last, blocks = blocks, max(1, int(blocks * us / r["p50_us"]))
            if 0.95 < blocks / last < 1.05:
                break
        return last, r["p50_us"]

    def case(self, s, name, sizes):
        """Both programs at once, with the log read beside them: everything, by vGPU."""
        self.runs += 1
        weights, _, how = name.partition("/")
        light = weights in LIGHT
        first, second = (1, 1) if light else map(int, weights.split(":"))
        s.ctl("set", "one", "--weight", first, "--latency", weights if light else "normal")
        s.ctl("set", "two", "--weight", second)
        long, short = sizes[5000], sizes[100 if light else 300]
        plans = {"one": (short, 2000, 1), "two": (long, 0, 1)} if light else {
            "one": (sizes[100], 0, 1), "two": (long, 0, 8)} if how == "short" else {
            v: (short if how == "wait300" else long, 0,
                8 if how == "queue" or (how == "mixed" and v == "two") else 1)
            for v in ("one", "two")}
        starts = {v: self.work / f"start{self.runs}-{v}" for v in plans}
        files = {v: self.work / f"times-{self.runs}-{v}" for v in plans}
        for f in files.values():
            f.touch()
        # The light one is there first, and nobody knows yet that it visits.
        alone = ALONE if light else 0
        running = {v: self.program(s.client_env(v), size[0], gap,
                                   self.args.seconds + (alone if v == "one" else 0), starts[v],
                                   depth, files[v])
                   for v, (size, gap, depth) in plans.items()}
        time.sleep(self.args.settle)
        pids = {session["worker_pid"]: v for v in plans
                for session in s.ctl("show", v)["session_list"]}
        records = self.folder / f"log-{name.replace('/', '-').replace(':', '-')}.txt"
        probe = None
        if self.args.device == "nvidia":
            probe = subprocess.Popen([self.args.build / "tests/bench/switch_log_probe",
                                      str(self.args.seconds + alone + 0.3), records],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(0.2)
        starts["one"].touch()
        time.sleep(alone)
        starts["two"].touch()
        answers = dict(zip(running, self.answers(running.values())))
        if probe:
            probe.wait(30)
        time.sleep(0.3)  # the trace is written at each heartbeat
        calls = {v: [tuple(map(int, line.split())) for line in f.read_text().splitlines()]
                 for v, f in files.items()}
        log = [line.split() for line in records.read_text().splitlines()] if probe else []
        return {"plans": plans, "answers": answers, "calls": calls,
                "log": [(int(t), pids.get(int(pid), "?"), up == "1") for t, pid, up in log]}


def trace_of(path):
    events, begin = [], 0
    for line in path.read_text().splitlines():
        try:
            e = json.loads(line)
        except json.JSONDecodeError:
            break  # the last line is still being written
        begin = e.get("begin_ns", begin)
        if "t" in e:
            e["t"] += begin
            events.append(e)
    return events


def percentiles(values):
    v = sorted(values)
    return [round(v[min(len(v) - 1, int(len(v) * q))]) for q in (0.01, 0.1, 0.5, 0.9, 0.99)] + [
        round(v[-1])] if v else []


def figures(name, found, events):
    begin = max(c[0][0] for c in found["calls"].values())
    end = min(c[-1][1] for c in found["calls"].values())
    span = end - begin
    rows = []
    for v, (size, _, _) in found["plans"].items():
        a = found["answers"][v]
        work = a["finished"] * size[1] / a["span_us"]
        row = {"case": name, "vgpu": v, "work": round(work, 4), "p50_us": a["p50_us"],
               "p99_us": a["p99_us"], "max_us": a["max_us"]}
        mine = [e for e in events if e["vgpu"] == v and begin <= e["t"] < end]
        row["charged"] = round(sum(e["ns"] for e in mine if e["event"] == "used") / span, 4)
        slices = [e["ns"] // 1000 for e in mine if e["event"] == "slice"]
        row["sets"] = len(slices)
        row["slices"] = dict(collections.Counter(slices).most_common(8))
        row["arrivals"] = sum(e["event"] == "arrival" for e in mine)
        intervals, dead, last_end, since = [], [], None, {}
        for t, who, up in found["log"]:
            if up:
                since[who] = t
                if who == v and last_end and begin <= t < end:
                    dead.append((t - last_end) / 1e3)
            else:
                last_end = t
                if who == v and who in since and begin <= since[who] and t < end:
                    intervals.append((t - since.pop(who)) / 1e3)
        if intervals:
            resident = sum(intervals) * 1e3 / span
            row |= {"resident": round(resident, 4), "intervals": len(intervals),
                    "interval_us": percentiles(intervals), "dead_us": percentiles(dead),
                    "cost_us": round((resident - work) * span / 1e3 / len(intervals), 1)}
        rows.append(row)
    total = sum(r["work"] for r in rows)
    rows.append({"case": name, "share": round(rows[0]["work"] / total, 4) if total else 0,
                 "loss": round(1 - total, 4), "seconds": round(span / 1e9, 3),
                 "strangers": sum(who == "?" for _, who, _ in found["log"])})
    return rows


def late(found, events, late_us):
    """What happened around each launch of the light one that took long; us from its call."""
    log_times = [t for t, _, _ in found["log"]]
    event_times = [e["t"] for e in events]
    calls = found["calls"]["one"]
    over = [(n, c) for n, c in enumerate(calls) if c[1] - c[0] > late_us * 1000]
    print(f"  {len(over)} of {len(calls)} launches took longer than {late_us} us: "
          f"{[n for n, _ in over][:60]}")
    for n, (call, back) in over[:SHOWN]:
        lo, hi = call - 1_500_000, back + 200_000
        seen = [(t, ("+" if up else "-") + who) for t, who, up in
                found["log"][bisect.bisect(log_times, lo):bisect.bisect(log_times, hi)]]
        seen += [(e["t"], f"{e['event']} {e['vgpu']} {e.get('ns', 0) // 1000 or ''}".strip())
                 for e in events[bisect.bisect(event_times, lo):bisect.bisect(event_times, hi)]]
        text = ", ".join(f"{(t - call) / 1000:.0f} {what}" for t, what in sorted(seen))
        print(f"  launch {n}, {(back - call) / 1000:.0f} us: {text}")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--device", choices=["soft", "nvidia"], default="nvidia")
    p.add_argument("--seconds", type=float, default=2)
    p.add_argument("--settle", type=float, default=1.3)
    p.add_argument("--cases", default=CASES)
    p.add_argument("--late-us", type=float, default=600)
    p.add_argument("--folder", type=pathlib.Path)
    p.add_argument("--extra", default="[scheduler]\nslices = true\n")
    a = p.parse_args()
    a.build = a.build.resolve()
    a.steps = 2500 if a.device == "nvidia" else 250
    line = Timeline(a)
    trace = line.work / "trace.jsonl"
    s = Sluiced(a.build, line.work, device=a.device,
                extra=a.extra + f'trace = "{trace}"\n').start()
    try:
        s.ctl("create", "one")
        s.ctl("create", "two")
        native = None if a.device == "nvidia" else s.client_env("one")
        sizes = {us: line.blocks_for(native, us) for us in (5000, 300, 100)}
        print("alone, us of each size:", {us: round(t, 1) for us, (_, t) in sizes.items()},
              flush=True)
        for name in a.cases.split(","):
            found = line.case(s, name, sizes)
            events = trace_of(trace)
            for row in figures(name, found, events):
                print(json.dumps(row), flush=True)
            if name.partition("/")[0] in LIGHT:
                late(found, events, a.late_us)
        print("accounting:", s.ctl("info")["accounting"]["source"])
    except BaseException:
        print(s.log()[-3000:], file=sys.stderr)
        raise
    finally:
        s.stop()
        (line.folder / "trace.jsonl").write_bytes(trace.read_bytes())


if __name__ == "__main__":
    main()
