#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs preempt_bench on a GPU, gathers its lines into one JSON file, prints tables, draws a plot.

    tests/bench/preempt/run.py --bench build/tests/bench/preempt_bench --out out
    tests/bench/preempt/run.py --from out/lines.txt --out out   # of an earlier run
"""
import argparse
import json
import math
import pathlib
import subprocess
from xml.sax.saxutils import escape

# The papers' forms take up to a thousand times the original's time: on some kernels only.
PAPERS = ("transpose,gemm1024,black_scholes,softmax,stencil3d,scan_look,triad,histogram,"
          "suite/md5,suite/fft,suite/lbm")
STEPS = [["--scale", "0.25", "--seeds", "1", "equality"], ["ratio"],
         ["--samples", "200", "latency"], ["loss"], ["forms"],
         ["--papers", "--slicing", "--rounds", "2", "--only", PAPERS, "ratio"]]


def gather(args):
    if args.lines:
        return pathlib.Path(args.lines).read_text().splitlines()
    lines = []
    for step in STEPS:
        more = ["--cccl", args.cccl] if args.cccl and step == ["ratio"] else []
        done = subprocess.run([args.bench, "--library", args.library, *more, *step],
                              capture_output=True, text=True)
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
            forms.setdefault(r["form"] + kind, {}).setdefault((r["ratio"], r["kernel"], r["tasks"]),
                                                              r["quotient"])
    out = {}
    for form, q in forms.items():
        v = sorted(q.values())
        out[form] = {"kernels": len(v), "mean": round(math.exp(sum(map(math.log, v)) / len(v)), 4),
                     "p95": v[min(len(v) - 1, math.ceil(0.95 * len(v)) - 1)], "worst": v[-1]}
    return out


COLOURS = ("#2c7a4b", "#b5651d", "#35609e", "#7a2c6b", "#777")


def svg(width, height, parts):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            'font-family="sans-serif" '
            f'font-size="12"><rect width="100%" height="100%" fill="white"/>' + "".join(parts) +
            "</svg>\n")


def plot_ratios(rows, path):
    """A bar for each kernel of at least 100 us: run time of the rewritten form over the
    original."""
    ours = [r for r in rows if r.get("form") == "adaptive" and "quotient" in r and r["us"] >= 100]
    ours.sort(key=lambda r: (r["in_order"], r["quotient"]))
    left, row, top, low, high, span = 330, 16, 60, 0.5, 1.5, 420

    def at(value):
        return left + span * (min(max(value, low), high) - low) / (high - low)

    parts = [f'<text x="{left}" y="24" font-size="15">Run time, rewritten / original, never '
             'evicted</text>',
             f'<text x="{left}" y="42">dashed: 1.03 and 1.08; brown: in order</text>']
    for i, r in enumerate(ours):
        y = top + i * row
        name = r["ratio"] if r["ratio"].startswith("cccl/") else f'{r["ratio"]} {r["kernel"]}'
        parts.append(f'<text x="{left - 8}" y="{y + 11}" '
                     f'text-anchor="end">{escape(name[:48])}</text>')
        parts.append(f'<rect x="{min(at(1), at(r["quotient"])):.1f}" y="{y + 2}" height="11" '
                     f'width="{abs(at(r["quotient"]) - at(1)):.1f}" '
                     f'fill="{COLOURS[1 if r["in_order"] else 0]}"/>')
        parts.append(f'<text x="{max(at(1), at(r["quotient"])) + 5:.1f}" '
                     f'y="{y + 11}">{r["quotient"]:.3f}</text>')
    for value, dash in ((1, ""), (1.03, ' stroke-dasharray="3 3"'),
                        (1.08, ' stroke-dasharray="3 3"')):
        parts.append(f'<line x1="{at(value):.1f}" x2="{at(value):.1f}" y1="{top - 6}" '
                     f'y2="{top + len(ours) * row}" '
                     f'stroke="#555"{dash}/>')
    path.write_text(svg(left + span + 80, top + len(ours) * row + 16, parts), encoding="utf-8")


def plot_latency(rows, path):
    """Distribution of the time from the host's store to the last block out, by task length."""
    ours = [r for r in rows if r.get("latency") == "proxy" and r["chunks"] == "adaptive"
            and r["task_us"] <= 10]
    if not ours or "quantiles_us" not in ours[0]:
        return
    left, top, width, height, most = 60, 50, 560, 300, 40
    parts = [f'<text x="{left}" y="22" font-size="15">Host\'s store to last block out (proxy, '
             'adaptive)</text>']
    for value in range(0, most + 1, 5):
        x = left + width * value / most
        parts.append(f'<line x1="{x}" x2="{x}" y1="{top}" y2="{top + height}" stroke="#ddd"/>'
                     f'<text x="{x}" y="{top + height + 16}" text-anchor="middle">{value}</text>')
    for share in (0, 0.5, 0.9, 1):
        y = top + height * (1 - share)
        parts.append(f'<line x1="{left}" x2="{left + width}" y1="{y}" y2="{y}" stroke="#ddd"/>'
                     f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{share:g}</text>')
    for i, r in enumerate(ours):
        q = r["quantiles_us"]
        points = " ".join(f"{left + width * min(v, most) / most:.1f},"
                          f"{top + height * (1 - k / (len(q) - 1)):.1f}" for k, v in enumerate(q))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[i % 5]}" '
                     'stroke-width="2"/>'
                     f'<text x="{left + width - 150}" y="{top + 200 + 18 * i}" '
                     f'fill="{COLOURS[i % 5]}">'
                     f'tasks of {r.get("task_took_us", r["task_us"])} us</text>')
    parts.append(f'<text x="{left + width / 2}" y="{top + height + 34}" '
                 'text-anchor="middle">us</text>')
    path.write_text(svg(left + width + 30, top + height + 50, parts), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default="build/tests/bench/preempt_bench")
    parser.add_argument("--library", default="libcuda.so.1")
    parser.add_argument("--cccl",
                        help="folder of the recorded CUB programs: BUILD/tests/cccl/timing")
    parser.add_argument("--from", dest="lines",
                        help="the lines of an earlier run instead of a new one")
    parser.add_argument("--out", default="out")
    args = parser.parse_args()
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    lines = gather(args)
    (out / "lines.txt").write_text("\n".join(lines) + "\n")
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    forms = summary(rows)
    (out / "preempt.json").write_text(json.dumps({"summary": forms, "rows": rows}, indent=0) + "\n")
    plot_ratios(rows, out / "preempt-ratios.svg")
    plot_latency(rows, out / "preempt-latency.svg")
    for form, s in forms.items():
        print(f"{form}: {s['kernels']} kernels, mean {s['mean']:.3f}, p95 {s['p95']:.3f}, worst "
              f"{s['worst']:.3f}")
    for r in rows:
        if r.get("latency") == "proxy" and r["chunks"] == "adaptive":
            print(f"store to last block out, tasks of {r.get('task_took_us', r['task_us'])} us: "
                  f"P50 {r['p50_us']:.1f}, P99 {r['p99_us']:.1f} us")
        elif "loss" in r:
            print(f"an eviction and resumption, tasks of {r['task_us']} us (nominal): "
                  f"{r['lost_us_each']:.1f} us lost")


if __name__ == "__main__":
    main()
