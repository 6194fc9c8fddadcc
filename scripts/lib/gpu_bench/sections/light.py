# SPDX-License-Identifier: Apache-2.0
"""A light tenant (100 us of work, then 2 ms of rest) beside one that launches 5 ms without a pause:
with blocks of 35 us and of 700 us."""
from gpu_bench.tenant import alone, check, load, together

NAME = "light"
TITLE = "light beside heavy"
GAP_US = 2000
CLASSES = ("low", "normal", "batch")
STRICT_GOALS = {"low": (320, 520, 0.80), "normal": (None, 1300, 0.82), "batch": (None, None, 0.93)}


def ways(bench):
    return bench.those("slices", "mps", "mps-priority", "mps-percent", "in-turn", "slicing",
                       "sluice", "sluice-slices", "sluice-shared")


def run(host, bench):
    found = {}
    for block, size in bench.blocks.items():
        a, b = host.several("a", "b")
        load([(a, "light", f"work {size['light']} {size['steps']}"),
              (b, "heavy", f"work {size['heavy']} {size['steps']}")])
        classes = CLASSES if host.name == "sluice-slices" else ("",)
        for latency in classes:
            if latency:
                host.set("a", latency=latency)
            key = f"{host.name}/{latency}" if latency else host.name
            found.setdefault(key, {})[block] = _measure(host, bench, a, b, size)
        if host.name == "sluice-slices":
            host.set("a", latency="normal")
        bench.wrong += check([(a, "light"), (b, "heavy")])
        for tenant, name in ((a, "light"), (b, "heavy")):
            tenant.ask("drop", name)
    return list(found.items())


def _measure(host, bench, a, b, size):
    light = (a, "light", host.waits(GAP_US))
    heavy = (b, "heavy", host.saturates(size["heavy"], size["heavy_us"]))
    by_itself = together([light], bench.seconds)[0]
    beside, other = together([light, heavy], 1.5 * bench.seconds)
    return {"alone": by_itself, "light": beside, "heavy": other,
            "heavy_keeps": other["launches"] * size["heavy_us"] / max(1, other["took_us"]),
            "block_us": size["block_us"]}


def rows(measured, results):
    for block in next(iter(measured.values())):
        name = f"{TITLE}, blocks of {block}"
        here = {way: m[block] for way, m in measured.items()}
        native = here.get("slices") or next(iter(here.values()))
        p50, p99 = native["alone"]["p50_us"], native["alone"]["p99_us"]
        for way, m in here.items():
            goals = _goals(way, block, m, p50, p99)
            results.add(name, way, "alone P50", m["alone"]["p50_us"], "us", p50)
            results.add(name, way, "alone P99", m["alone"]["p99_us"], "us", p99)
            results.add(name, way, "P50", m["light"]["p50_us"], "us", p50, at_most=goals[0])
            results.add(name, way, "P99", m["light"]["p99_us"], "us", p99, at_most=goals[1])
            results.add(name, way, "heavy keeps", m["heavy_keeps"], "", 1.0, at_least=goals[2])


def _goals(way, block, m, p50, p99):
    """P50 and P99 at most, what heavy keeps at least."""
    if way == "sluice-shared":
        more = m["block_us"] if block == "long" else 0
        return p50 + 35 + more, p99 + 60 + more, 0.95
    if way.startswith("sluice-slices/"):
        return STRICT_GOALS[way.split("/")[1]]
    return None, None, None
