# SPDX-License-Identifier: Apache-2.0
"""A small grid of a high priority against a full GPU, in space and in time: what the other one
loses beyond what the small one's SMs would have done (FLEP: 31 % less in space)."""
from gpu_bench.tenant import check, load, together

NAME = "spatial"
TITLE = "a small grid beside a full GPU"
PART = 8  # the small one fills an eighth of the GPU
GAP_US = 1000


def ways(bench):
    return bench.those("mps", "mps-priority", "sluice-mps", "sluice-space", "sluice-shared")


def run(host, bench):
    size = bench.blocks["long"] if bench.nvidia else bench.blocks["short"]
    wave = bench.sms * 16 if bench.nvidia else 16
    a, b = host.several("a", "b")
    host.set("a", priority=10)
    small = max(1, wave // PART)
    load([(a, "small", f"work {small} {size['steps']}"),
          (b, "full", f"work {size['heavy']} {size['steps']}")])
    by_itself, = together([(a, "small", host.waits(GAP_US))], 0.5 * bench.seconds)
    beside, other = together([(a, "small", host.waits(GAP_US)),
                              (b, "full", host.saturates(size["heavy"], size["heavy_us"]))],
                             1.5 * bench.seconds)
    kept = other["launches"] * size["heavy_us"] / max(1, other["took_us"])
    used = beside["launches"] * by_itself["p50_us"] / max(1, beside["took_us"]) / PART
    bench.wrong += check([(a, "small"), (b, "full")])
    for t, key in ((a, "small"), (b, "full")):
        t.ask("drop", key)
    host.set("a", priority=0)
    return [(host.name, {"alone": by_itself, "small": beside, "kept": kept, "used": used,
                         "loss": max(0.0, 1 - kept - used)})]


def rows(measured, results):
    in_time = measured.get("sluice-mps")
    for way, m in measured.items():
        results.add(TITLE, way, "P50 of the small one over alone",
                    m["small"]["p50_us"] / m["alone"]["p50_us"], "")
        results.add(TITLE, way, "P99 over alone",
                    m["small"]["p99_us"] / m["alone"]["p50_us"], "")
        results.add(TITLE, way, "the full one keeps", m["kept"], "")
        results.add(TITLE, way, "lost beyond what was used", 100 * m["loss"], "%")
        if in_time and in_time["loss"] > 0 and way in ("sluice-space", "sluice-shared"):
            results.add(TITLE, way, "less overhead than in time",
                        100 * (1 - m["loss"] / in_time["loss"]), "%", at_least=31)
