# SPDX-License-Identifier: Apache-2.0
"""Inference beside training: chains of dependent kernels of 5 to 200 us at random times, beside one
and three tenants that launch 5 ms without a pause. They come whether those before have ended or
not, so one that has no right to what they need falls behind for ever: beside three its weight is
3."""
import random

from gpu_bench.tenant import check, load, together

NAME = "chains"
TITLE = "inference beside training"
LENGTHS = (20, 100)
MEAN_US = {20: 6000, 100: 16000}
OTHERS = ("b", "c", "d")
# Label: how many others, and the chain's weight over theirs.
CASES = {"1": (1, 1), "3, weight 3": (3, 3)}


def ways(bench):
    return bench.those("slices", "mps", "mps-priority", "sluice-slices", "sluice-shared")


def sizes(bench, length):
    """Blocks of each launch: times between 5 and 200 us, their logarithms even; the same always."""
    drawn = random.Random(length)
    return [max(1, int(5 * 40 ** drawn.random() * bench.chain["blocks_per_us"]))
            for _ in range(length)]


def run(host, bench):
    found = {}
    a, *others = host.several("a", *OTHERS)
    size = bench.blocks["short"]
    load([(t, "train", f"work {size['heavy']} {size['steps']}") for t in others])
    host.set("a", latency="low")
    for length in LENGTHS if bench.nvidia else LENGTHS[:1]:
        blocks = ",".join(map(str, sizes(bench, length)))
        load([(a, "chain", f"chain {blocks} {bench.chain['steps']}")])
        chain = (a, "chain", f"poisson:{bench.us(MEAN_US[length])}:{length}")
        # As long as beside others: the same chains come at the same times.
        by_itself = together([chain], 2 * bench.seconds)[0]
        row = {"alone": by_itself}
        for label, (count, weight) in CASES.items():
            host.set("a", weight=100 * weight)
            answers = together([chain] + [(t, "train", host.saturates(size["heavy"],
                                                                      size["heavy_us"]))
                                          for t in others[:count]], 2 * bench.seconds)
            busy = answers[0]["launches"] * by_itself["p50_us"] / max(1, answers[0]["took_us"])
            kept = sum(r["launches"] * size["heavy_us"] / max(1, r["took_us"])
                       for r in answers[1:])
            row[label] = {"chain": answers[0], "kept": kept / max(0.01, 1 - busy)}
        host.set("a", weight=100)
        found[str(length)] = row
        bench.wrong += check([(a, "chain")])
        a.ask("drop", "chain")
    bench.wrong += check([(t, "train") for t in others])
    for t in others:
        t.ask("drop", "train")
    host.set("a", latency="normal")
    return [(host.name, found)]


def rows(measured, results):
    for length in next(iter(measured.values())):
        for label in CASES:
            name = f"{TITLE}: {length} kernels, beside {label}"
            first = measured.get("slices") or next(iter(measured.values()))
            alone = first[length]["alone"]
            for way, m in measured.items():
                got = m[length][label]
                shared = way.startswith("sluice-shared")
                results.add(name, way, "alone P99", m[length]["alone"]["p99_us"], "us",
                            alone["p99_us"])
                results.add(name, way, "P50 over alone",
                            got["chain"]["p50_us"] / alone["p50_us"], "", 1.0)
                results.add(name, way, "P99 over alone",
                            got["chain"]["p99_us"] / alone["p99_us"], "", 1.0,
                            at_most=1.07 if shared else None)
                results.add(name, way, "others keep of the rest", got["kept"], "", 1.0,
                            at_least=0.95 if shared else None)
