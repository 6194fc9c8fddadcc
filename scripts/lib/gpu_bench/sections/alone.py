# SPDX-License-Identifier: Apache-2.0
"""A program alone over the same natively: the forty of tests/bench/tenant/programs.toml, launch and
wait. The driver itself and Sluice's ways are there at the same time and take turns, program by
program, so that a clock that changes meets all of them."""
import sys
import tomllib

from gpu_bench.results import geometric_mean, percentile
from gpu_bench.tenant import alone, load
from gpu_bench.ways import Host

NAME = "alone"
TITLE = "a program alone over native"
ROUNDS = 3
MEDIATED = ("sluice", "sluice-slices", "sluice-shared")
QUICK = 6
HALVES = ("held out", "known")
GOALS = {"mean": 1.01, "p95": 1.03, "worst": 1.08}


def ways(bench):
    return ["alone"]


def programs(bench):
    path = bench.root / "tests/bench/tenant/programs.toml"
    rows = tomllib.loads(path.read_text())["program"]
    halves = [[r for r in rows if r["half"] == half] for half in HALVES]
    in_turn = [r for both in zip(*halves) for r in both]
    return in_turn if bench.nvidia else in_turn[:QUICK]


def run(bench):
    native = Host("slices", bench)
    hosts = {"native": native, **{w: Host(w, bench) for w in bench.those(*MEDIATED)}}
    entered = []
    found = []
    try:
        for host in hosts.values():
            entered.append(host.__enter__())
        for host in hosts.values():
            host.tenant("a")
        for row in programs(bench):
            if bench.elapsed() > bench.limit:
                bench.skipped.append(f"alone: {row['name']}")
                continue
            found.append(_program(bench, hosts, row))
            bench.say(f"alone: {row['name']}: " + ", ".join(
                f"{w} {found[-1]['us'][w] / found[-1]['us']['native']:.3f}"
                for w in hosts if w != "native"))
    finally:
        for host in reversed(entered):
            host.__exit__(sys.exc_info()[0], None, None)
    return [("alone", found)]


def _program(bench, hosts, row):
    tenants = {way: host.tenant("a") for way, host in hosts.items()}
    if row["half"] == "held out":
        blocks = _blocks_for(bench, tenants["native"], row)
        words = f"held {row['name']} {blocks}"
    else:
        words = f"case {row['name']} {row['scale'] if bench.nvidia else 1}"
    load([(t, "p", words) for t in tenants.values()])
    each = max(0.02, 0.08 * bench.seconds / ROUNDS)
    medians = {way: [] for way in tenants}
    for _ in range(ROUNDS):
        for way, tenant in tenants.items():
            tenant.ask("run", "p", "wait:0", each / 4, 0)  # the context is on the GPU now
            medians[way].append(alone(tenant, "p", each)["p50_us"])
    verdicts = {way: t.ask("check", "p", "whole" if way == "native" else "hash")
                for way, t in tenants.items()}
    for way, v in verdicts.items():
        differs = (v["comparable"] and verdicts["native"]["comparable"] and
                   v["hash"] != verdicts["native"]["hash"])
        if v["wrong"] or differs:
            bench.wrong.append(f"{way}: {row['name']}: {v['wrong'] or 'not what native computed'}")
    for t in tenants.values():
        t.ask("drop", "p")
    return {"name": row["name"], "half": row["half"],
            "us": {way: percentile(m, 50) for way, m in medians.items()}, "words": words}


def _blocks_for(bench, tenant, row):
    """Blocks with which it takes about row["us"] natively."""
    if not bench.nvidia:
        return 8
    blocks = 2000
    for _ in range(5):
        load([(tenant, "size", f"held {row['name']} {blocks}")])
        us = max(1.0, alone(tenant, "size", 0.01)["p50_us"] - bench.empty_us)
        tenant.ask("drop", "size")
        if 0.9 < us / row["us"] < 1.1:
            break
        blocks = max(16, min(int(blocks * min(50, row["us"] / us)), 1 << 20))
    return blocks


def rows(measured, results):
    found = measured["alone"]
    for half in HALVES:
        mine = [p for p in found if p["half"] == half]
        for way in (w for w in (mine[0]["us"] if mine else ()) if w != "native"):
            ratios = [p["us"][way] / p["us"]["native"] for p in mine]
            figures = {"mean": geometric_mean(ratios), "p95": percentile(ratios, 95),
                       "worst": max(ratios)}
            for metric, value in figures.items():
                results.add(f"{TITLE}: {half} ({len(mine)})", way, metric, value, "", 1.0,
                            at_most=GOALS[metric])
