#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The software GPU beside OpenCL devices on the same processor: ratios, kernel by kernel.

usage: run_side_by_side.py --build DIR [--out DIR] [--rounds N] [--seconds S] [--require]

Needs Debian's ocl-icd-opencl-dev at build time and pocl-opencl-icd, oclgrind here. For each case
the engines run in turn, `rounds` times, and the best of each counts; ratios are of items per
second, at the same size (Oclgrind, an interpreter of single work-items, at a smaller one than PoCL,
which compiles). A case whose engines computed different bytes fails. --require: exit 1 unless the
geometric means reach the goals. Leaves side_by_side.json and side_by_side.svg in --out.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
from xml.sax.saxutils import escape

GOALS = {"oclgrind": 100.0, "pocl": 0.2}
LOG_ITEMS = {"oclgrind": 16, "pocl": 21}
PLATFORMS = {"oclgrind": "Oclgrind", "pocl": "Portable Computing"}
OCLGRIND_ICD = "/usr/lib/oclgrind/liboclgrind-rt-icd.so"
ROOT = pathlib.Path(__file__).resolve().parents[3]


def measure(program, kind, which, case, log_items, seconds, env):
    done = subprocess.run([program, kind, which, case, str(log_items), str(seconds), str(ROOT)],
                          env=env, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        return {"error": (done.stderr.strip().splitlines() or ["failed"])[-1]}
    return json.loads(done.stdout)


def compare(build, case, rival, rounds, seconds, env):
    """Best figures of both in alternating rounds; ratio of items per second, and per processor
    second."""
    program = str(build / "tests/bench/side_by_side")
    soft_library = str(build / "mediator/softgpu/libsluice-softcuda.so")
    best = {}
    for _ in range(rounds):
        for name, kind, which in (("soft", "soft", soft_library),
                                  (rival, "opencl", PLATFORMS[rival])):
            got = measure(program, kind, which, case, LOG_ITEMS[rival], seconds, env)
            if "error" in got:
                return {"case": case, "rival": rival, "engine": name, "error": got["error"]}
            if name not in best or got["items_per_s"] > best[name]["items_per_s"]:
                best[name] = got
    soft, other = best["soft"], best[rival]
    return {"case": case, "rival": rival, "unit": soft["unit"], "items": soft["items"],
            "soft_items_per_s": soft["items_per_s"], "rival_items_per_s": other["items_per_s"],
            "ratio": soft["items_per_s"] / other["items_per_s"],
            "ratio_per_processor_second": soft["items_per_cpu_s"] / other["items_per_cpu_s"],
            "same_bytes": soft["digest"] == other["digest"]}


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else 0.0


def plot(rows, means, path):
    """Bars on a logarithmic axis: how many times the rival's speed."""
    width, left, row_h, top, span = 780, 110, 22, 46, 560
    low, high = -2.5, 4.0
    height = top + 50
    out = []
    for rival in GOALS:
        mine = [r for r in rows if r["rival"] == rival and "ratio" in r]
        out.append(f'<text x="{left}" y="{height - 28}" font-weight="bold">software GPU / {rival}: '
                   'geometric mean '
                   f'{means[rival]:.3g}, goal {GOALS[rival]:g}</text>')
        for i, r in enumerate(mine):
            y = height + i * row_h
            at = left + span * (math.log10(r["ratio"]) - low) / (high - low)
            one = left + span * (0 - low) / (high - low)
            out.append(f'<text x="{left - 8}" y="{y + 5}" '
                       f'text-anchor="end">{escape(r["case"])}</text>')
            out.append(f'<rect x="{min(at, one):.1f}" y="{y - 7}" width="{abs(at - one):.1f}" '
                       'height="14" '
                       f'fill="{"#2c7a4b" if r["ratio"] >= 1 else "#b5651d"}"/>')
            out.append(f'<text x="{max(at, one) + 6:.1f}" y="{y + 5}">{r["ratio"]:.3g}</text>')
        for value in (GOALS[rival], 1.0):
            at = left + span * (math.log10(value) - low) / (high - low)
            dash = ' stroke-dasharray="4 3"' if value != 1.0 else ""
            out.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{height - 14}" '
                       f'y2="{height + len(mine) * row_h - 8}" '
                       f'stroke="#555"{dash}/>')
        height += len(mine) * row_h + 56
    path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                    'font-family="sans-serif" font-size="13"><rect width="100%" height="100%" '
                    'fill="white"/>'
                    f'<text x="{left}" y="24" font-size="16">Kernels per second, as a ratio '
                    '(dashed: the goal)</text>'
                    + "".join(out) + "</svg>\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/side_by_side"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--require", action="store_true")
    args = parser.parse_args()
    build = args.build.resolve()
    program = build / "tests/bench/side_by_side"
    if not program.exists():
        sys.exit(f"{program} is not there: install ocl-icd-opencl-dev, configure anew and build it")
    cases = subprocess.run([program, "--list"], capture_output=True, text=True,
                           check=True).stdout.split()
    rows = []
    with tempfile.TemporaryDirectory() as vendors:
        pathlib.Path(vendors, "oclgrind.icd").write_text(OCLGRIND_ICD + "\n", encoding="utf-8")
        environments = {"pocl": dict(os.environ),
                        "oclgrind": dict(os.environ, OCL_ICD_VENDORS=vendors)}
        for rival in GOALS:
            for case in cases:
                row = compare(build, case, rival, args.rounds, args.seconds, environments[rival])
                rows.append(row)
                print(f"{rival:9} {case:11} " +
                      (row["error"] if "error" in row else
                       f"{row['soft_items_per_s']:.3g} to {row['rival_items_per_s']:.3g} "
                       f"{row['unit']}/s, "
                       f"ratio {row['ratio']:.3g}"
                       f"{'' if row['same_bytes'] else '  DIFFERENT BYTES'}"), flush=True)
    means = {rival: geometric_mean([r["ratio"] for r in rows if r["rival"] == rival
                                    and "ratio" in r])
             for rival in GOALS}
    args.out.mkdir(parents=True, exist_ok=True)
    result = {"rows": rows, "geometric_means": means, "goals": GOALS, "processors": os.cpu_count()}
    (args.out / "side_by_side.json").write_text(json.dumps(result, indent=1) + "\n",
                                                encoding="utf-8")
    plot(rows, means, args.out / "side_by_side.svg")
    print("geometric means: " + ", ".join(f"{m:.3g} times {rival} (goal {GOALS[rival]:g})"
                                          for rival, m in means.items()))
    if any(not r.get("same_bytes", True) for r in rows):
        sys.exit("engines disagree")
    if args.require and any(means[rival] < goal for rival, goal in GOALS.items()):
        sys.exit("a goal is not met")


if __name__ == "__main__":
    main()
