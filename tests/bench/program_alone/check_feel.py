#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs feel with one driver library twice and checks what it prints, and what feel.py makes of it.

usage: check_feel.py FEEL LIBRARY
"""
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import feel  # noqa: E402


def main():
    program, library = sys.argv[1:]
    command = [program, "--direct", library, "--channel", library, "--rounds", "2", "--samples",
               "8", "--rest-us", "100"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    run = json.loads(done.stdout)
    assert {k for k, v in run.items() if isinstance(v, dict)} == set(feel.GOALS)
    for name in feel.GOALS:
        counts = {len(run[name][side]) for side in ("direct", "channel")}
        assert len(counts) == 1 and counts.pop() >= 2, name
        assert min(run[name]["direct"] + run[name]["channel"]) >= 0, name
    # One library in both places is as quick as itself; one that is slow in one run of three is not.
    rows = feel.judge([{"upload_4k": {"direct": [7.0] * 9, "channel": us}}
                       for us in ([9.0] * 9, [9.5] * 9, [80.0] * 9)])
    (row,) = rows
    assert (row["direct_p50_us"], row["channel_p50_us"]) == (7.0, 9.5), row
    assert row["slow_runs"] == 1 and row["direct_slow_runs"] == 0 and not row["met"], row
    (row,) = feel.judge([{"upload_1m": {"direct": [80.0], "channel": [83.0]}}] * 5)
    assert row["met"] and row["slow_runs"] == 0, row
    (row,) = feel.judge([{"upload_1m": {"direct": [80.0], "channel": [85.0]}}] * 5)
    assert not row["met"], row
    assert feel.geometric_mean([0.5, 2.0]) == 1.0
    table = feel.table({"modes": {"default": {"rows": rows}}})
    assert "upload_4k" in table and "9.5" in table, table
    few = subprocess.run(command + ["--only", "empty_call"], stdout=subprocess.PIPE, text=True,
                         check=True)
    assert {k for k, v in json.loads(few.stdout).items() if isinstance(v, dict)} == {"empty_call"}
    missing = subprocess.run([program, "--direct", "/nonexistent/libcuda.so.1", "--channel",
                              library], stderr=subprocess.PIPE, text=True)
    assert missing.returncode == 3 and "nonexistent" in missing.stderr, missing
    assert subprocess.run([program], stderr=subprocess.DEVNULL).returncode == 2


if __name__ == "__main__":
    main()
