# SPDX-License-Identifier: Apache-2.0
"""Two tenants by weight: 2:1, 3:1, 10:1; programs that wait after each launch and that queue two,
kernels that can be evicted and kernels that run as they are, of equal and of unequal lengths.

A program that waits for each launch does not want the GPU between two of them. So what it is owed
is what a fluid GPU would give it, which is divided by weight at each moment among those that have
work. How long its pauses are is measured alone.
"""
from gpu_bench.tenant import check, load, own_us, together

NAME = "shares"
TITLE = "shares by weight"
# Label: weight of b over a; pattern, or those of a and b; launches of a and b as parts of 5 ms;
# original kernels.
CASES = {
    "2:1, waiting": (2, "wait", 1, 1, False),
    "2:1, queued": (2, "queue:2", 1, 1, False),
    "2:1, waiting, 300 us": (2, "wait", 0.06, 0.06, False),
    "2:1, a waits, b queues": (2, ("wait", "queue:2"), 1, 1, False),
    "2:1, b waits, a queues": (2, ("queue:2", "wait"), 1, 1, False),
    "3:1, queued": (3, "queue:2", 1, 1, False),
    "10:1, queued": (10, "queue:2", 1, 1, False),
    "2:1, 20 ms to 0.2 ms": (2, "queue:4", 0.04, 4, False),
    "2:1, opaque": (2, "queue:2", 1, 1, True),
    "2:1, 20 us": (2, "queue:64", 0.004, 0.004, False),
}
# A turn is 5 ms and more: of shorter runs it is a point by itself. On the software GPU no figure
# is worth that.
LEAST_S = 2
QUICK = ("2:1, waiting", "2:1, queued")


def ways(bench):
    return bench.those("slices", "mps", "mps-percent", "sluice", "sluice-slices", "sluice-shared")


def run(host, bench):
    found = {}
    size = bench.blocks["short"]
    cases = CASES if bench.nvidia else {k: CASES[k] for k in QUICK}
    for label, (ratio, pattern, of_a, of_b, original) in cases.items():
        if original and not host.way.mediated:
            continue
        names = ("oa", "ob") if original else ("a", "b")
        a, b = host.several(*names, original=original)
        host.set(names[0], weight=100)
        host.set(names[1], weight=100 * ratio)
        blocks = [max(64, int(size["heavy"] * part)) for part in (of_a, of_b)]
        load([(a, "work", f"work {blocks[0]} {size['steps']}"),
              (b, "work", f"work {blocks[1]} {size['steps']}")])
        both = (pattern, pattern) if isinstance(pattern, str) else pattern
        how = [host.waits() if p == "wait" else p for p in both]
        # What a launch takes when nobody else is there and several are queued.
        own = [own_us(t, "work", "queue:4") for t in (a, b)]
        answers = together([(a, "work", how[0]), (b, "work", how[1])],
                           max(LEAST_S if bench.nvidia else 0, 3 * bench.seconds))
        parts = [r["launches"] * us / max(1, r["took_us"]) for r, us in zip(answers, own)]
        pauses = [max(0, own_us(t, "work", how[i]) - own[i]) if both[i] == "wait" else 0
                  for i, t in enumerate((a, b))]
        found[label] = {"a": parts[0], "b": parts[1], "ratio": ratio, "own_us": own,
                        "pauses_us": pauses,
                        "left_us": [r["left_us"] for r in answers]}
        bench.wrong += check([(a, "work"), (b, "work")])
        for t in (a, b):
            t.ask("drop", "work")
    host.set("b", weight=100)
    return [(host.name, found)]


def of_a_fluid_gpu(work_us, pauses_us, weights):
    """The parts that programs have of a GPU that is divided by weight at each moment among those
    with work, if each pauses so long after each launch."""
    count = range(len(work_us))
    left_us = 300 * (max(work_us) * sum(weights) / min(weights) + max(pauses_us))
    # Of their first launches not all is left, so that they do not begin and end together.
    rest = [work * (i + 1) / len(work_us) for i, work in enumerate(work_us)]
    pause = [0.0] * len(work_us)
    got = [0.0] * len(work_us)
    while left_us > 0:
        busy = [i for i in count if rest[i] > 0]
        total = sum(weights[i] for i in busy)
        speed = [weights[i] / total if rest[i] > 0 else 0 for i in count]
        step = min(rest[i] / speed[i] if rest[i] > 0 else pause[i] for i in count)
        left_us -= step
        for i in count:
            if rest[i] <= 0:
                pause[i] -= step
                if pause[i] <= 1e-9:
                    rest[i] = work_us[i]
                continue
            got[i] += step * speed[i]
            rest[i] -= step * speed[i]
            if rest[i] <= 1e-9:
                rest[i], pause[i] = (0, pauses_us[i]) if pauses_us[i] > 0 else (work_us[i], 0)
    return [g / sum(got) for g in got]


def rows(measured, results):
    for way, cases in measured.items():
        for label, m in cases.items():
            total = m["a"] + m["b"]
            asked = m["ratio"] / (m["ratio"] + 1)
            off = 100 * abs(m["b"] / total - asked)
            sluice = way.startswith("sluice")
            loss = {"sluice-shared": 1.5, "sluice-slices": 4}.get(way)
            results.add(f"{TITLE}: {label}", way, "share of b", m["b"] / total, "", asked)
            waits = any(m.get("pauses_us", [0]))
            results.add(f"{TITLE}: {label}", way, "off by", off, "points",
                        at_most=1 if sluice and not waits else None)
            if waits:
                owed = of_a_fluid_gpu(m["own_us"], m["pauses_us"], (1, m["ratio"]))[1]
                results.add(f"{TITLE}: {label}", way, "off a fluid GPU's by",
                            100 * abs(m["b"] / total - owed), "points",
                            at_most=1 if sluice else None)
            results.add(f"{TITLE}: {label}", way, "loss", 100 * (1 - total), "%", 0, at_most=loss)
