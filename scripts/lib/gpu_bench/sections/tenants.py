# SPDX-License-Identifier: Apache-2.0
"""8 and 32 tenants of random weights from 1 to 10, with kernels of 20 us to 20 ms, queued; half of
them run their kernels as they are."""
import random

from gpu_bench.tenant import check, load, own_us, together

NAME = "tenants"
TITLE = "many tenants of random weights"
LENGTHS_US = (20, 200, 2000, 20000)
# Seconds for 8 and for 32: the lightest of 32 has some 5 ms of the GPU in a second.
LEAST_S = (4, 8)
# Work queued, at most so many launches. Of 20 us with 64 of them a tenant's queue was dry in each
# turn of more than 1.3 ms before its program had been woken.
QUEUED_US, MOST_QUEUED = 10000, 512


def ways(bench):
    return bench.those("slices", "mps", "sluice-slices", "sluice-shared")


def run(host, bench):
    size = bench.blocks["short"]
    per_us = size["heavy"] / size["heavy_us"]
    found = {}
    for count in (8, 32) if bench.nvidia else (3,):
        if count > 8 and not host.way.mediated:
            continue
        drawn = random.Random(count)
        team = []
        for i in range(count):
            original = i % 2 == 1
            tenant = host.tenant(f"t{count}-{i}", original)
            us = LENGTHS_US[i // 2 % len(LENGTHS_US)] if bench.nvidia else 2000
            team.append((tenant, drawn.randint(1, 10), us))
        for tenant, weight, _ in team:
            host.set(tenant.name, weight=weight * 10)
        load([(t, "work", f"work {max(32, int(us * per_us))} {size['steps']}")
              for t, _, us in team])
        # What a launch takes when nobody else is there, queued: of each length once as it is, and
        # once as Sluice would have it. (A clone of 20 ms takes 17.4 ms on an H200.)
        own = {}
        for i, (tenant, _, us) in enumerate(team):
            if (us, i % 2) not in own:
                own[us, i % 2] = own_us(tenant, "work", _pattern(us))
        own_of = [own[us, i % 2] for i, (_, _, us) in enumerate(team)]
        seconds = (max(LEAST_S[count > 8], 3 * bench.seconds) if bench.nvidia
                   else 2 * bench.seconds)
        before = held(host, team)
        after = []
        answers = together([(t, "work", _pattern(us)) for t, _, us in team], seconds,
                           when_over=lambda: after.extend(held(host, team)))
        charged = [a - b for a, b in zip(after, before)]
        # Of the same time for all: the last launch of one that has two may end early in it.
        parts = [r["launches"] * us / (1e6 * seconds) for r, us in zip(answers, own_of)]
        weights = [w for _, w, _ in team]
        found[str(count)] = {"parts": parts, "weights": weights, "us": [us for _, _, us in team],
                             "launch": [us / (1e6 * seconds) for us in own_of],
                             "charged": charged}
        bench.wrong += check([(t, "work") for t, _, _ in team])
        for tenant, _, _ in team:
            host.end(tenant.name)
    return [(host.name, found)]


def held(host, team):
    """GPU time that sluiced has counted for each while others had work; nothing without Sluice."""
    if not host.sluiced:
        return []
    vgpus = host.sluiced.stats()["vgpus"]
    return [vgpus[t.name]["own_contended_gpu_ns"] for t, _, _ in team]


def _pattern(us):
    return f"queue:{int(min(MOST_QUEUED, max(2, QUEUED_US / us)))}"


def rows(measured, results):
    for way, counts in measured.items():
        for count, m in counts.items():
            total, owed = sum(m["parts"]), sum(m["weights"])
            errors = [abs(p / total / (w / owed) - 1) for p, w in zip(m["parts"], m["weights"])]
            sluice = way.startswith("sluice")
            name = f"{TITLE}: {count}"
            results.add(name, way, "worst error of a share", 100 * max(errors), "%",
                        at_most=2 if sluice else None)
            # A launch more or less cannot be helped: the lightest has a few in all that time.
            beyond = [max(0, e - one * owed / w / total) for e, one, w in
                      zip(errors, m.get("launch", [0] * len(errors)), m["weights"])]
            results.add(name, way, "worst error beyond one launch", 100 * max(beyond), "%")
            results.add(name, way, "mean error", 100 * sum(errors) / len(errors), "%")
            if sum(m.get("charged", [])):
                off = [abs(c / sum(m["charged"]) / (w / owed) - 1)
                       for c, w in zip(m["charged"], m["weights"])]
                results.add(name, way, "worst error of what was charged", 100 * max(off), "%")
            loss = {"sluice-shared": 1.5, "sluice-slices": 4}.get(way)
            # At the end each has half a launch behind it, on average.
            begun = sum(m.get("launch", [])) / 2
            results.add(name, way, "loss", 100 * (1 - total - begun), "%", 0, at_most=loss)
