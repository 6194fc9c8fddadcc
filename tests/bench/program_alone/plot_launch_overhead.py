#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws launch_overhead's samples: for each measurement the share of samples below a time.

usage: plot_launch_overhead.py SAMPLES.csv OUTPUT.svg

Plain SVG, nothing but Python's own modules.
"""
import csv
import math
import sys
from xml.sax.saxutils import escape

TITLES = {
    "launch_call": "cuLaunchKernel, the call alone",
    "launch_and_wait": "launch until its end is seen",
    "back_to_back": "launches in a row, per launch",
    "mem_get_info": "cuMemGetInfo: round trip of an empty call",
    "stream_query": "cuStreamQuery of an idle stream",
}
COLOURS = {"direct": "#555555", "channel": "#c0392b"}
WIDTH, PANEL, LEFT, TOP, PLOT_W, PLOT_H = 760, 190, 70, 34, 640, 110


def read(path):
    samples = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            samples.setdefault(row["measurement"], {}).setdefault(row["library"], []).append(
                float(row["us"]))
    return samples


def panel(index, what, by_library):
    """One measurement: cumulative share over time on a logarithmic axis, medians marked."""
    y0 = index * PANEL + TOP
    values = [v for series in by_library.values() for v in series if v > 0]
    low = 10 ** math.floor(math.log10(min(values)))
    high = 10 ** math.ceil(math.log10(max(values) * 1.0001))
    span = math.log10(high / low)

    def x(us):
        return LEFT + PLOT_W * math.log10(min(max(us, low), high) / low) / span

    out = [f'<text x="{LEFT}" y="{y0 - 12}" '
           f'font-weight="bold">{escape(TITLES.get(what, what))}</text>',
           f'<rect x="{LEFT}" y="{y0}" width="{PLOT_W}" height="{PLOT_H}" fill="none" '
           'stroke="#999"/>']
    decade = low
    while decade <= high * 1.001:
        at = x(decade)
        out.append(f'<line x1="{at:.1f}" y1="{y0}" x2="{at:.1f}" y2="{y0 + PLOT_H}" '
                   f'stroke="#ddd"/>')
        out.append(f'<text x="{at:.1f}" y="{y0 + PLOT_H + 15}" text-anchor="middle">{decade:g} '
                   'us</text>')
        decade *= 10
    for share in (0, 0.5, 1):
        at = y0 + PLOT_H * (1 - share)
        out.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    for row, (library, series) in enumerate(sorted(by_library.items())):
        series = sorted(series)
        colour = COLOURS.get(library, "#2c3e50")
        steps = min(len(series), 400)
        points = []
        for i in range(steps + 1):
            at = min(len(series) - 1, i * len(series) // steps)
            points.append(f"{x(series[at]):.1f},{y0 + PLOT_H * (1 - (at + 1) / len(series)):.1f}")
        out.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" '
                   'stroke-width="1.6"/>')
        median = series[len(series) // 2]
        out.append(f'<text x="{LEFT + PLOT_W - 6}" y="{y0 + PLOT_H - 8 - 16 * row}" '
                   f'fill="{colour}" '
                   f'text-anchor="end">{escape(library)}: median {median:.2f} us</text>')
    return out


def main():
    source, target = sys.argv[1:]
    samples = read(source)
    order = [m for m in TITLES if m in samples] + [m for m in samples if m not in TITLES]
    height = PANEL * len(order) + 10
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
             'font-family="sans-serif" font-size="12">',
             f'<rect width="{WIDTH}" height="{height}" fill="white"/>']
    for index, what in enumerate(order):
        lines += panel(index, what, samples[what])
    with open(target, "w", encoding="utf-8") as file:
        file.write("\n".join(lines + ["</svg>", ""]))


if __name__ == "__main__":
    main()
