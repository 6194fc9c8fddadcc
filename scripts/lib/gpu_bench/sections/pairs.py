# SPDX-License-Identifier: Apache-2.0
"""FLEP's pairs and triplets with eight of the held-out kernels: a long launch, and a short one of
another program that comes 20 us later; the short one at a high priority, and both at the same.

FLEP reports the short one's turnaround with preemption over that behind the long one (10.1 in the
mean of 28 pairs), and for equal priorities what the mean of normalised turnarounds (ANTT) gains
(8 for pairs, 6.6 for triplets)."""
import itertools
import random
import time

from gpu_bench.results import geometric_mean, percentile
from gpu_bench.tenant import alone, check, load

NAME = "pairs"
TITLE = "pairs of long and short"
PROGRAMS = ("kmeans", "alignment", "attention", "convolution3", "nbody", "mandelbrot", "chacha",
            "asian_option")
LONG_US, SHORT_US, MIDDLE_US = 5000, 500, 1500
REPEATS = 3
LATER_NS = 20_000
LEAD_NS = 4_000_000


def ways(bench):
    return bench.those("slices", "in-turn", "mps", "mps-priority", "sluice", "sluice-slices",
                       "sluice-shared", "sluice-shared-srt")


def teams(bench):
    """Names of programs, the longest first: pairs, then triplets."""
    if not bench.nvidia:
        return [PROGRAMS[:2]], [PROGRAMS[:3]]
    drawn = random.Random(28)
    return (list(itertools.combinations(PROGRAMS, 2)),
            [tuple(drawn.sample(PROGRAMS, 3)) for _ in range(28)])


def sizes(host, bench, tenant, us):
    """Blocks of each program for a launch of about `us`; learnt where it is first asked for."""
    known = bench.memory.setdefault(("pairs", us), {})
    for name in PROGRAMS if bench.nvidia else PROGRAMS[:3]:
        if name in known:
            continue
        blocks = 4000 if bench.nvidia else 8
        for _ in range(4 if bench.nvidia else 0):
            load([(tenant, "size", f"held {name} {blocks}")])
            took = alone(tenant, "size", 0.01)["p50_us"]
            tenant.ask("drop", "size")
            if 0.9 < took / us < 1.1:
                break
            blocks = max(16, min(int(blocks * us / took), 1 << 20))
        known[name] = blocks
    return known


def run(host, bench):
    a, b, c = host.several("a", "b", "c")
    lengths = {b: LONG_US, a: SHORT_US, c: MIDDLE_US}
    names = PROGRAMS if bench.nvidia else PROGRAMS[:3]
    known = {t: sizes(host, bench, a, us) for t, us in lengths.items()}
    load([(t, n, f"held {n} {known[t][n]}") for t in lengths for n in names])
    native = bench.memory.setdefault("pairs alone", {})
    for t, us in lengths.items():
        for n in names:
            # In the first way, which is without Sluice.
            if (us, n) not in native:
                native[us, n] = alone(t, n, 0.02)["p50_us"]
            else:
                t.ask("run", n, "wait:0", 0.01, 0)
    pairs, triplets = teams(bench)
    found = {"high": [], "equal": [], "triplets": []}
    for kind, todo in (("high", pairs), ("equal", pairs), ("triplets", triplets)):
        if kind == "high":
            host.set("a", priority=10)
        elif kind == "equal":
            host.set("a", priority=0)
        for team in todo:
            members = list(zip((b, a) if len(team) == 2 else (b, c, a), team))
            samples = [_sample(host, members) for _ in range(REPEATS)]
            found[kind].append({
                "team": team,
                "alone": [native[lengths[t], n] for t, n in members],
                "us": [percentile([s[0][i] for s in samples], 50) for i in range(len(members))],
                "all_us": percentile([s[1] for s in samples], 50)})
    bench.wrong += check([(t, n) for t in lengths for n in names], "hash")
    for t in lengths:
        for n in names:
            t.ask("drop", n)
    return [(host.name, found)]


def _sample(host, members):
    """Turnarounds, the longest first, and from the first call to the last end; us."""
    at = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + LEAD_NS
    for i, (tenant, key) in enumerate(members):
        tenant.send("run", key, host.waits(), 0, at + i * LATER_NS)
    answers = [tenant.answer() for tenant, _ in members]
    return ([r["p50_us"] for r in answers],
            (max(r["last_end_ns"] for r in answers) - answers[0]["last_begin_ns"]) / 1e3)


def rows(measured, results):
    behind = measured.get("in-turn")
    for way, m in measured.items():
        ours = way.startswith("sluice")
        gains, bounds = [], []
        for pair in m["high"]:
            long_us, short_us = pair["alone"]
            gains.append((long_us + short_us) / pair["us"][1])
            bounds.append((long_us + short_us) / short_us)
        bound = sum(bounds) / len(bounds)
        results.add(f"{TITLE}: the short one at a high priority", way,
                    "times sooner than behind the long one", sum(gains) / len(gains), "", bound,
                    at_least=0.9 * bound if ours else None)
        for kind, flep in (("equal", 8.0), ("triplets", 6.6)):
            if not m[kind]:
                continue
            name = f"{TITLE}: equal priorities, {'pairs' if kind == 'equal' else 'triplets'}"
            antt = [_antt(t) for t in m[kind]]
            stp = [sum(a / u for a, u in zip(t["alone"], t["us"])) for t in m[kind]]
            results.add(name, way, "ANTT", geometric_mean(antt), "")
            results.add(name, way, "STP", geometric_mean(stp), "")
            loss = [100 * (t["all_us"] / sum(t["alone"]) - 1) for t in m[kind]]
            results.add(name, way, "later end of all", sum(loss) / len(loss), "%",
                        at_most=3 if ours else None)
            if behind:
                gain = [_antt(x) / y for x, y in zip(behind[kind], antt)]
                results.add(name, way, "ANTT, times better than one after the other",
                            sum(gain) / len(gain), "", flep)


def _antt(team):
    return sum(u / a for a, u in zip(team["alone"], team["us"])) / len(team["us"])
