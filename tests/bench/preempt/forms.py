#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A launch's clones beside each other: draws docs/results/pictures/h200-forms.svg from its JSON,
or makes both from a run.

    tests/bench/preempt/forms.py docs/results/data/h200-forms.json
        --out docs/results/pictures/h200-forms.svg
    preempt_bench --cccl build/tests/cccl/timing --variant loop:once=0 --variant one:once=1
        --variant windows:window=16 ratio > lines.txt
    tests/bench/preempt/forms.py lines.txt --out out/forms.svg       # and out/forms.json

Of a run each launch of `--from-us` and more counts: what its variants took of the original's time,
and the form that the worker's rule chose with its own figure (form "adaptive"). `mriq` is drawn and
left out of the summary (docs/notes/2026-11-22-benchmarks.md says why).
"""
import argparse
import json
import math
import pathlib
import sys
from xml.sax.saxutils import escape

from run import svg

# of the command above -> in the JSON
VARIANTS = {"loop": "loop", "one": "one_task", "windows": "windows"}
LOOP, CHOSEN = "#aaa", {"loop": "#36c", "one task a block": "#2a7", "windows": "#c60"}


def figures(quotients):
    v = sorted(quotients)
    return {"launches": len(v), "mean": round(math.exp(sum(map(math.log, v)) / len(v)), 3),
            "p95": v[min(len(v) - 1, math.ceil(0.95 * len(v)) - 1)],
            "worst": v[-1]} if v else {"launches": 0}


def summary(launches, from_us):
    out = {}
    for name, in_order in (("not in order", 0), ("in order", 1)):
        some = [x for x in launches if x["in_order"] == in_order and x["us"] >= from_us
                and x["kernel"] != "mriq"]
        out[name] = {"chosen": figures(x["quotient"] for x in some),
                     "loops only": figures(x["loop"] for x in some if x.get("loop") is not None)}
    return out


def from_lines(lines, from_us):
    """The JSON of a run of preempt_bench with the variants above."""
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    gpu = next((r for r in rows if "gpu" in r), {}).get("gpu", "")
    launches = {}
    for r in rows:
        if "quotient" not in r or "ratio" not in r or r["us"] < from_us:
            continue
        x = launches.setdefault((r["ratio"], r["kernel"], r["tasks"]),
                                {"case": r["ratio"], "kernel": r["kernel"], "tasks": r["tasks"],
                                 "us": r["us"],
                                 "in_order": r["in_order"], "loop": None, "one_task": None})
        # A case launches a kernel more than once: the first counts, as in run.py.
        if r["form"] == "adaptive" and "quotient" not in x:
            x["form"] = ("one task a block" if r["once"] else
                         "windows" if r.get("windows") else "loop")
            x["quotient"] = r["quotient"]
        elif r["form"] in VARIANTS and x.get(VARIANTS[r["form"]]) is None:
            # A variant that a kernel has no clone for runs the loop.
            if {"one": r["once"], "windows": r.get("windows")}.get(r["form"], True):
                x[VARIANTS[r["form"]]] = r["quotient"]
    done = [x for x in launches.values() if "quotient" in x]
    if not done:
        raise SystemExit("forms.py: no launch with a figure of the chosen form")
    return {"gpu": gpu, "summary": summary(done, from_us), "launches": done}


def draw(data, from_us):
    """A line for each launch: grey what the loop takes, coloured what the chosen form takes."""
    launches = [x for x in data["launches"] if x["us"] >= from_us]
    launches.sort(key=lambda x: (x["quotient"], x["case"], x["kernel"]))
    left, top, row, low, high, span = 330, 48, 14, 0.55, 1.45, 520
    bottom = top + len(launches) * row

    def at(value):
        return left + span * (min(max(value, low), high) - low) / (high - low)

    parts = ['<text x="10" y="20" font-size="14">Run time of clones over their originals, '
             f'{escape(data["gpu"])}: '
             f'loops (grey) and the form that is chosen</text>']
    x = 330
    for name, colour in CHOSEN.items():
        if any(launch["form"] == name for launch in launches):
            parts.append(f'<circle cx="{x}" cy="30" r="4" fill="{colour}"/><text x="{x + 8}" '
                         f'y="34">{name}</text>')
            x += 30 + 8 * len(name)
    for value in (0.6, 0.8, 1.0, 1.2, 1.4):
        parts.append(f'<line x1="{at(value):.1f}" x2="{at(value):.1f}" y1="{top - 8}" '
                     f'y2="{bottom}" '
                     f'stroke="{"#444" if value == 1 else "#ddd"}"/>'
                     f'<text x="{at(value):.1f}" y="{bottom + 14}" '
                     f'text-anchor="middle">{value}</text>')
    for i, launch in enumerate(launches):
        y = top + i * row
        name = launch["case"]
        if not name.startswith("cccl/") and launch["kernel"] not in name:
            name += " " + launch["kernel"]
        name += " (in order)" if launch["in_order"] else ""
        loop, chosen = launch.get("loop"), launch["quotient"]
        parts.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end" '
                     f'font-size="11">{escape(name[:56])}</text>')
        if loop is not None:
            parts.append(f'<line x1="{at(loop):.1f}" x2="{at(chosen):.1f}" y1="{y}" y2="{y}" '
                         'stroke="#bbb"/>'
                         f'<circle cx="{at(loop):.1f}" cy="{y}" r="3" fill="{LOOP}"/>')
        parts.append(f'<circle cx="{at(chosen):.1f}" cy="{y}" r="4" '
                     f'fill="{CHOSEN[launch["form"]]}"/>')
        # What lies beyond the scale is given as a number.
        for value in {loop, chosen} - {None}:
            if not low <= value <= high:
                parts.append(f'<text x="{at(value) + 7:.1f}" y="{y + 4}" '
                             f'font-size="10">{value:.2f}</text>')
    return svg(left + span + 50, bottom + 24, parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="the JSON of an earlier run, or a run's lines")
    parser.add_argument("--from-us", type=float, default=100,
                        help="launches whose originals take less are left out")
    parser.add_argument("--out", required=True, help="the plot; of lines the JSON stands beside it")
    args = parser.parse_args()
    text = pathlib.Path(args.source).read_text(encoding="utf-8")
    out = pathlib.Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    if args.source.endswith(".json"):
        data = json.loads(text)
    else:
        data = from_lines(text.splitlines(), args.from_us)
        out.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    for kind, forms in summary(data["launches"], args.from_us).items():
        for form, s in forms.items():
            if s["launches"]:
                print(f"{kind}, {form}: {s['launches']} launches, mean {s['mean']}, p95 "
                      f"{s['p95']:.3f}, "
                      f"worst {s['worst']:.3f}")
    out.write_text(draw(data, args.from_us), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
