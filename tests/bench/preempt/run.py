#!/usr/bin/env python3
"""Runs preempt_bench on a GPU, gathers its lines into one JSON file, prints tables, draws a plot.

    tests/bench/preempt/run.py --bench build/tests/bench/preempt_bench --out out
    tests/bench/preempt/run.py --from out/lines.txt --out out       # tables and plot of an earlier run
"""
import argparse
import json
import math
import pathlib
import subprocess

STEPS = [["--scale", "0.25", "--seeds", "3", "equality"], ["ratio"], ["--samples", "200", "latency"], ["loss"],
         ["--papers", "--slicing", "--rounds", "3", "ratio"]]


def gather(args):
    if args.lines:
        return pathlib.Path(args.lines).read_text().splitlines()
    lines = []
    for step in STEPS:
        done = subprocess.run([args.bench, "--library", args.library, *step], capture_output=True, text=True)
        lines += done.stdout.splitlines()
        if done.returncode not in (0, 1):
            raise SystemExit(f"{step}: exit code {done.returncode}: {done.stderr}")
    return lines


def summary(rows):
    """Per form of checking: geometric mean, 95th percentile and worst of the quotients."""
    forms = {}
    for r in rows:
        if "quotient" in r and r["us"] >= 100:
            kind = " (in order)" if r.get("in_order") else ""
            forms.setdefault(r["form"] + kind, {})[r["ratio"]] = r["quotient"]
    out = {}
    for form, q in forms.items():
        v = sorted(q.values())
        out[form] = {"kernels": len(v), "mean": round(math.exp(sum(map(math.log, v)) / len(v)), 4),
                     "p95": v[min(len(v) - 1, math.ceil(0.95 * len(v)) - 1)], "worst": v[-1]}
    return out


def plot(rows, path):
    try:
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        return
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5))
    ours = {r["ratio"]: r["quotient"] for r in rows if r.get("form") == "adaptive" and r["us"] >= 100}
    names = sorted(ours, key=ours.get)
    left.barh(names, [ours[n] for n in names])
    left.axvline(1, color="black", linewidth=0.8)
    left.set_xlim(0.8, 1.3)
    left.set_xlabel("run time, rewritten / original, never evicted")
    for signal in ("proxy", "stream-write", "copy"):
        of = [r for r in rows if r.get("latency") == signal and r["chunks"] == "adaptive"]
        right.plot([r["task_us"] for r in of], [r["p50_us"] for r in of], marker="o", label=signal + ", P50")
        right.plot([r["task_us"] for r in of], [r["p99_us"] for r in of], linestyle=":", label=signal + ", P99")
    right.set_xscale("log")
    right.set_yscale("log")
    right.set_xlabel("task, us (nominal)")
    right.set_ylabel("host's store to last block out, us")
    right.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default="build/tests/bench/preempt_bench")
    parser.add_argument("--library", default="libcuda.so.1")
    parser.add_argument("--from", dest="lines", help="the lines of an earlier run instead of a new one")
    parser.add_argument("--out", default="out")
    args = parser.parse_args()
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    lines = gather(args)
    (out / "lines.txt").write_text("\n".join(lines) + "\n")
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    forms = summary(rows)
    (out / "preempt.json").write_text(json.dumps({"summary": forms, "rows": rows}, indent=0) + "\n")
    plot(rows, out / "preempt.png")
    for form, s in forms.items():
        print(f"{form}: {s['kernels']} kernels, mean {s['mean']:.3f}, p95 {s['p95']:.3f}, worst {s['worst']:.3f}")


if __name__ == "__main__":
    main()
