# SPDX-License-Identifier: Apache-2.0
"""EffiSha's eleven programs, each beside a light tenant of a higher priority; FRS' nine in 100
random orders; LoGA's throttle: a cap on a vGPU's load, and the lengths of its kernels."""
import random
import time

from gpu_bench.results import geometric_mean
from gpu_bench.tenant import alone, check, load, together

NAME = "papers"
TITLE = "papers"
EFFISHA = ("triad", "reduction", "stencil2d", "md5", "bfs", "fft", "md", "backprop", "scan", "sort",
           "spmv")
FRS = ("matmul", "vecadd", "histogram", "spmv", "pathfinder", "blackscholes", "convolution",
       "canny", "reduction")
GAP_US = 2000
LEAD_NS = 4_000_000
APART_NS = 20_000
CAPS = (25, 50)
# Of the catalogue's cases: launches of 10 to 50 us on an H100.
SCALE = 128


def ways(bench):
    return bench.those("in-turn", "mps", "mps-priority", "sluice", "sluice-slices",
                       "sluice-shared", "sluice-shared-srt")


def scale(bench):
    return SCALE if bench.nvidia else 1


def run(host, bench):
    found = {"effisha": _effisha(host, bench), "frs": _frs(host, bench)}
    if host.way.mediated:
        found["loga"] = _loga(host, bench)
    return [(host.name, found)]


def _effisha(host, bench):
    size = bench.blocks["short"]
    a, b = host.several("a", "b")
    host.set("a", priority=10)
    load([(a, "light", f"work {size['light']} {size['steps']}")])
    found = {}
    for name in EFFISHA if bench.nvidia else EFFISHA[:1]:
        load([(b, name, f"case {name} {scale(bench)}")])
        own = alone(b, name, 0.2 * bench.seconds)
        light, other = together([(a, "light", host.waits(GAP_US)), (b, name, host.waits())],
                                0.4 * bench.seconds)
        found[name] = {"light_p50_us": light["p50_us"], "light_p99_us": light["p99_us"],
                       "keeps": other["launches"] * own["mean_us"] / max(1, other["took_us"]),
                       "alone_us": own["p50_us"]}
        bench.wrong += check([(b, name)], "hash")
        b.ask("drop", name)
    bench.wrong += check([(a, "light")])
    a.ask("drop", "light")
    host.set("a", priority=0)
    return found


def _frs(host, bench):
    names = FRS if bench.nvidia else FRS[:2]
    team = {n: host.tenant(f"f{i}") for i, n in enumerate(names)}
    load([(t, n, f"case {n} {scale(bench)}") for n, t in team.items()])
    own = {n: alone(t, n, 0.05)["p50_us"] for n, t in team.items()}
    drawn, antt, ends = random.Random(100), [], []
    for _ in range(100 if bench.nvidia else 2):
        order = drawn.sample(names, len(names))
        at = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + LEAD_NS
        for i, n in enumerate(order):
            team[n].send("run", n, host.waits(), 0, at + i * APART_NS)
        answers = {n: team[n].answer() for n in order}
        antt.append(sum(answers[n]["p50_us"] / own[n] for n in names) / len(names))
        ends.append((max(r["last_end_ns"] for r in answers.values()) - at) / 1e3)
    bench.wrong += check([(t, n) for n, t in team.items()], "hash")
    for t in team.values():
        host.end(t.name)
    return {"antt": antt, "ends_us": ends, "alone_us": own}


def _loga(host, bench):
    size = bench.blocks["short"]
    a = host.tenant("a")
    load([(a, "work", f"work {size['heavy'] // 5} {size['steps']}")])
    own = alone(a, "work", 0.3, "queue:2")
    each = own["took_us"] / own["launches"]
    found = {}
    for cap in CAPS if bench.nvidia else CAPS[:1]:
        host.set("a", max=cap)
        before = host.sluiced.stats()["vgpus"]["a"]
        r = alone(a, "work", bench.seconds, "queue:2")
        after = host.sluiced.stats()["vgpus"]["a"]
        done = max(1, after["launches_done"] - before["launches_done"])
        found[str(cap)] = {"load": 100 * r["launches"] * each / r["took_us"],
                           "length": (after["gpu_ns"] - before["gpu_ns"]) / 1e3 / done / each}
    host.set("a", max=0)
    bench.wrong += check([(a, "work")])
    a.ask("drop", "work")
    return found


def rows(measured, results):
    frs_base = measured.get("in-turn")
    for way, m in measured.items():
        name = "EffiSha's programs beside a light tenant of a high priority"
        lights = list(m["effisha"].values())
        results.add(name, way, "P50 of the light one, mean",
                    sum(x["light_p50_us"] for x in lights) / len(lights), "us")
        results.add(name, way, "worst P99", max(x["light_p99_us"] for x in lights), "us")
        results.add(name, way, "the program keeps",
                    sum(x["keeps"] for x in lights) / len(lights), "")
        name = "FRS' programs in random orders"
        antt = geometric_mean(m["frs"]["antt"])
        base = geometric_mean(frs_base["frs"]["antt"]) if frs_base else None
        ours = way.startswith("sluice")
        results.add(name, way, "ANTT", antt, "", base, at_most=base if ours else None)
        results.add(name, way, "end of all over the sum alone",
                    sum(m["frs"]["ends_us"]) / len(m["frs"]["ends_us"]) /
                    sum(m["frs"]["alone_us"].values()), "")
        for cap, x in m.get("loga", {}).items():
            results.add(f"LoGA's throttle at {cap} %", way, "load off by",
                        abs(x["load"] - float(cap)), "points", at_most=1)
            results.add(f"LoGA's throttle at {cap} %", way, "length off by",
                        100 * abs(x["length"] - 1), "%", at_most=2)
