#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a program feels: copies, launches, waits and whole programs, natively and through the
channel of the local transport, in one run.

usage: feel.py [--build DIR] [--device soft|nvidia] [--modes NAME,..] [--runs N] [--rounds N]
               [--samples N] [--only ROW,..] [--pin CPU,..] [--programs DIR] [--program-rounds N]
               [--program-seconds S] [--out DIR]

modes   default    what is configured where nothing is
        eviction   contexts of their own, kernels are rewritten
        originals  the same with `clones = "none"`
        turns      contexts side by side (MPS), `scheduler.turns = "priority"`
        slices     contexts of their own on the hardware's time slices

Each run is a process (feel) that has both libraries and alternates between them. A figure is the
median of the runs' medians; P99 is of all samples; a run is slow if its median is more than twice
that. Rows and goals are those of GOALS. --programs: the folder that scripts/cudart-native made;
whole programs are timed too, from start to end, in alternating rounds. Their list was frozen before
anything was tuned. --pin keeps all processes to these processors, as a guest has few.

Leaves feel.json and a table of it in --out (default: feel-out).
"""
import argparse
import contextlib
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts/lib"))
from gpu_bench.ways import EVICTION, Mps  # noqa: E402
from host import Sluiced, driver_folder  # noqa: E402

MODES = {"default": "",
         "eviction": "[scheduler]\n" + EVICTION,
         "originals": 'clones = "none"\n[scheduler]\n' + EVICTION,
         "turns": '[scheduler]\npolicy = "wfq"\nturns = "priority"\n',
         "slices": '[scheduler]\npolicy = "wfq"\nslices = true\n'}

# What each row may cost more than natively: ("add", us at P50, us at P99 or None) or ("ratio", r).
GOALS = {
    "upload_4k": ("add", 3, None),
    "download_4k": ("add", 3, None),
    "there_and_back_4k": ("add", 6, None),
    "upload_1m": ("ratio", 1.05),
    "download_1m": ("ratio", 1.05),
    "there_and_back_1m": ("ratio", 1.05),
    "upload_64m_pinned": ("ratio", 1.05),
    "download_64m_pinned": ("ratio", 1.05),
    "launch_and_wait": ("add", 2, 10),
    "launch_100us": ("add", 4, None),
    "rest_launch": ("add", 10, 40),
    "rest_launch_100us": ("add", 10, 40),
    "queued_launches": ("ratio", 1.05),
    "between_4k": ("ratio", 1.05),
    "between_64m": ("ratio", 1.05),
    "empty_call": ("add", 1, None),
    "mem_get_info": ("add", 1, None),
    "symbol_launch": ("add", 4, 10),
    "uploads_16x1k": ("ratio", 1.1),
    "alloc_free_64k": ("add", 10, None),
    "alloc_free_16m": ("add", 10, None),
    "pool_launches": ("add", 2, None),
    "pool_launches_100us": ("ratio", 1.05),
    "timed_launch": ("add", 4, 10),
    "host_function": ("add", 10, None),
}
PROGRAMS_GOAL = 1.03

# Frozen on 2026-11-25, before the first change that they led to.
SUITE = ["triad", "matmul", "reduction", "stencil2d", "histogram", "md5", "vecadd", "fft", "scan",
         "sort", "spmv", "blackscholes"]
CUDART = ["vector_add", "streams_events", "host_memory", "managed", "async_copy", "cooperative",
          "arrays_textures", "atomics_shuffles", "symbols", "printf_kernel", "rdc", "graphs",
          "callbacks", "pools", "threads", "per_thread_stream", "legacy_stream", "scan_blocks",
          "pipeline", "thrust_cub"]


def geometric_mean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def side(runs, library):
    """Median of medians, P99 of all samples, runs whose median is more than twice the median."""
    medians = [statistics.median(r[library]) for r in runs]
    p50 = statistics.median(medians)
    everything = [us for r in runs for us in r[library]]
    return p50, percentile(everything, 0.99), sum(m > 2 * p50 for m in medians)


def judge(runs):
    """`runs`: what feel printed, one object a run. A row a measurement."""
    rows = []
    for name, goal in GOALS.items():
        found = [r[name] for r in runs if name in r]
        if not found:
            continue
        native, native99, native_slow = side(found, "direct")
        ours, ours99, slow = side(found, "channel")
        row = {"row": name, "direct_p50_us": round(native, 2), "direct_p99_us": round(native99, 2),
               "channel_p50_us": round(ours, 2), "channel_p99_us": round(ours99, 2),
               "added_us": round(ours - native, 2), "ratio": round(ours / max(native, 1e-3), 3),
               "runs": len(found), "slow_runs": slow, "direct_slow_runs": native_slow}
        if goal[0] == "ratio":
            row["goal"] = f"at most {goal[1]}"
            met = ours <= native * goal[1]
        else:
            row["goal"] = f"+{goal[1]} us" + (f", P99 +{goal[2]}" if goal[2] else "")
            met = ours <= native + goal[1]
            met = met and (goal[2] is None or ours99 <= native99 + goal[2])
        row["met"] = met and slow <= native_slow
        rows.append(row)
    return rows


def table(result):
    lines = []
    for mode, of_mode in result["modes"].items():
        lines += [f"## {mode}", "", "| row | native P50 / P99 | Sluice P50 / P99 | added, us "
                  "| ratio | slow runs | goal | met |", "|---|---|---|---|---|---|---|---|"]
        for r in of_mode["rows"]:
            lines.append(
                f"| {r['row']} | {r['direct_p50_us']} / {r['direct_p99_us']} | "
                f"{r['channel_p50_us']} / {r['channel_p99_us']} | {r['added_us']} | {r['ratio']} | "
                f"{r['slow_runs']} of {r['runs']} (native {r['direct_slow_runs']}) | {r['goal']} | "
                f"{'yes' if r['met'] else '**no**'} |")
        lines.append("")
        programs = of_mode.get("programs")
        if programs:
            lines += [f"Whole programs: {programs['count']}, geometric mean {programs['mean']} "
                      f"(goal {PROGRAMS_GOAL}), worst {programs['worst']}", "",
                      "| program | native, ms | Sluice, ms | ratio |", "|---|---|---|---|"]
            lines += [f"| {p['program']} | {p['direct_ms']} | {p['channel_ms']} | {p['ratio']} |"
                      for p in programs["programs"]]
            lines.append("")
    return "\n".join(lines)


class Bench:
    def __init__(self, args):
        self.args = args
        self.soft = args.build / "mediator/softgpu/libsluice-softcuda.so"

    @contextlib.contextmanager
    def host(self, mode):
        """A sluiced in `mode`, and the environment of programs without it."""
        nvidia = self.args.device == "nvidia"
        server = Mps() if nvidia and mode == "turns" else contextlib.nullcontext({})
        with server as env:
            work = pathlib.Path(tempfile.mkdtemp(prefix="sluice-feel."))
            work.chmod(0o711)
            sluiced = Sluiced(self.args.build, work, device=self.args.device, soft_sms=4, env=env,
                              extra=("nvidia_sms = 132\n" if nvidia else "") + MODES[mode])
            try:
                sluiced.start()
                sluiced.ctl("create", "bench", "--weight", 100)
                yield sluiced, {**os.environ, **env}
            except BaseException:
                print(sluiced.log()[-3000:], file=sys.stderr)
                raise
            finally:
                sluiced.stop()
                shutil.rmtree(work, ignore_errors=True)

    def feel(self, sluiced, native_env):
        env = {**native_env, **sluiced.client_env("bench")}
        # The search path must not lead the direct library, libcuda.so.1 by name, to the guest's.
        env.pop("LD_LIBRARY_PATH", None)
        command = [self.args.build / "tests/bench/feel",
                   "--direct", self.soft if self.args.device == "soft" else "libcuda.so.1",
                   "--channel", self.args.build / "guest-agent/shim/libcuda.so.1",
                   "--rounds", str(self.args.rounds), "--samples", str(self.args.samples)]
        if self.args.only:
            command += ["--only", self.args.only]
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, timeout=300)
        if done.returncode != 0:
            raise RuntimeError(f"feel ended with {done.returncode}")
        return json.loads(done.stdout)

    def programs(self):
        """Name and command of each whole program."""
        suite = self.args.build / "kernels/suite/sluice-suite-catalog"
        scale = ["--gpu-scale"] if self.args.device == "nvidia" else []
        kind = "sm_90" if self.args.device == "nvidia" else "ptx"
        found = [(f"suite/{n}", [suite, *scale, n]) for n in SUITE]
        folder = self.args.programs / kind
        return found + [(n, [folder / n]) for n in CUDART if (folder / n).exists()]

    def whole_programs(self, sluiced, native_env, native_libraries):
        cudart = self.args.build / "guest-agent/cudart"
        native_cudart = self.args.programs / "nvidia" if self.args.device == "nvidia" else cudart
        sides = {"direct": {**native_env, "LD_LIBRARY_PATH": f"{native_libraries}:{native_cudart}"},
                 "channel": {**native_env, **sluiced.client_env("bench")}}
        sides["channel"]["LD_LIBRARY_PATH"] += f":{cudart}"
        times, first = {}, {}
        end = time.monotonic() + self.args.program_seconds
        # The first round fills caches; it counts for whom no time is left afterwards.
        for n in range(self.args.program_rounds + 1):
            for name, command in self.programs():
                if time.monotonic() > end:
                    break
                for label, env in sides.items():
                    begin = time.monotonic()
                    done = subprocess.run(command, env=env, stdout=subprocess.DEVNULL,
                                          stderr=subprocess.PIPE, timeout=120)
                    ms = (time.monotonic() - begin) * 1e3
                    if done.returncode != 0:
                        times.setdefault(name, {})["failed"] = f"{label}: {done.stderr[-200:]}"
                    else:
                        to = times if n > 0 else first
                        to.setdefault(name, {}).setdefault(label, []).append(ms)
        for name, by_side in first.items():
            if len(times.get(name, {})) < 2 and "failed" not in times.get(name, {}):
                times[name] = {**by_side, "cold": True}
        rows = []
        for name, by_side in times.items():
            if not set(sides) <= set(by_side) and "failed" not in by_side:
                continue  # no time was left
            if "failed" in by_side:
                print(f"feel: {name} failed, {by_side['failed']}", file=sys.stderr)
                continue
            native, ours = (statistics.median(by_side[s]) for s in sides)
            rows.append({"program": name, "direct_ms": round(native, 1),
                         "channel_ms": round(ours, 1), "ratio": round(ours / native, 3),
                         "cold": by_side.get("cold", False)})
        if not rows:
            raise RuntimeError("no program ran on both sides")
        mean = geometric_mean([r["ratio"] for r in rows])
        return {"count": len(rows), "failed": len(times) - len(rows), "mean": round(mean, 3),
                "worst": max(r["ratio"] for r in rows), "goal": PROGRAMS_GOAL,
                "met": mean <= PROGRAMS_GOAL and len(rows) == len(times), "programs": rows}

    @contextlib.contextmanager
    def native_libraries(self):
        """A folder in which libcuda.so.1 is the one that programs without Sluice have."""
        with tempfile.TemporaryDirectory(prefix="sluice-feel-native.") as folder:
            if self.args.device == "soft":
                (pathlib.Path(folder) / "libcuda.so.1").symlink_to(self.soft)
                yield folder
            else:
                yield driver_folder(pathlib.Path(folder))

    def run(self):
        result = {"device": self.args.device, "runs": self.args.runs, "rounds": self.args.rounds,
                  "samples": self.args.samples, "modes": {}}
        for mode in self.args.modes:
            with self.host(mode) as (sluiced, env):
                runs = [self.feel(sluiced, env) for _ in range(self.args.runs)]
                of_mode = {"rows": judge(runs)}
                result.update({k: runs[0][k] for k in ("blocks", "steps")})
                result["device_name"] = runs[0]["device"]
                if self.args.programs:
                    with self.native_libraries() as folder:
                        of_mode["programs"] = self.whole_programs(sluiced, env, folder)
            result["modes"][mode] = of_mode
            print(table({"modes": {mode: of_mode}}), flush=True)
        return result


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--device", choices=["soft", "nvidia"], default="soft")
    p.add_argument("--modes", type=lambda s: s.split(","), default=list(MODES))
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--samples", type=int, default=200)
    p.add_argument("--only", default="")
    p.add_argument("--pin", help="processors, by commas")
    p.add_argument("--programs", type=pathlib.Path)
    p.add_argument("--program-rounds", type=int, default=5)
    p.add_argument("--program-seconds", type=float, default=1e9, help="no program begins later")
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path("feel-out"))
    args = p.parse_args()
    args.build = args.build.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.pin:
        os.sched_setaffinity(0, {int(n) for n in args.pin.split(",")})
    result = Bench(args).run()
    (args.out / "feel.json").write_text(json.dumps(result, indent=1) + "\n")
    (args.out / "feel.md").write_text(table(result))


if __name__ == "__main__":
    main()
