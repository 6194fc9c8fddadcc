#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs launch_overhead with one driver library twice and checks what it leaves.

usage: check_launch_overhead.py LAUNCH_OVERHEAD LIBRARY
"""
import csv
import json
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

MEASUREMENTS = ["launch_call", "launch_and_wait", "back_to_back", "mem_get_info", "stream_query"]


def main():
    program, library = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        samples = pathlib.Path(folder) / "samples.csv"
        plot = pathlib.Path(folder) / "plot.svg"
        done = subprocess.run([program, "--direct", library, "--channel", library, "--rounds", "2",
                               "--launches", "10", "--samples", samples],
                              stdout=subprocess.PIPE, text=True, check=True)
        result = json.loads(done.stdout)
        rows = list(csv.DictReader(samples.open()))
        for what in MEASUREMENTS:
            per_library = 2 if what == "back_to_back" else 20
            for side in ("direct", "channel"):
                found = [float(r["us"]) for r in rows
                         if r["measurement"] == what and r["library"] == side]
                assert len(found) == per_library and min(found) >= 0, (what, side, found)
                assert min(found) - 0.001 <= result[what + "_us"][side]["p50"] <= max(found) + 0.001
            assert set(result[what + "_us"]) == {"direct", "channel", "added"}
        subprocess.run([sys.executable, pathlib.Path(__file__).with_name("plot_launch_overhead.py"),
                        samples, plot], check=True)
        svg = ElementTree.parse(plot).getroot()
        lines = [e for e in svg.iter() if e.tag.endswith("polyline")]
        assert len(lines) == 2 * len(MEASUREMENTS), len(lines)
    missing = subprocess.run([program, "--direct", "/nonexistent/libcuda.so.1"],
                             stderr=subprocess.PIPE, text=True)
    assert missing.returncode == 3 and "nonexistent" in missing.stderr, missing
    assert subprocess.run([program], stderr=subprocess.DEVNULL).returncode == 2


if __name__ == "__main__":
    main()
