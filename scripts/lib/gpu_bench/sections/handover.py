# SPDX-License-Identifier: Apache-2.0
"""From a tenant's call to its first block on the GPU while another one's work of 5 ms runs, less
the same alone; and what happens meanwhile, for the picture of it (timeline)."""
import json
import time

from gpu_bench.results import percentile
from gpu_bench.tenant import check, load

NAME = "handover"
TITLE = "hand-over"
VISITS = 150
GAP_US = 2000
TIMELINE_LEAD_NS = 1_000_000
BIN_NS = 5000
# Beyond a block for those who wait for one.
GOALS = {"sluice-shared": (10, 25), "sluice-slices": (165, 200)}


def ways(bench):
    return bench.those("slices", "mps", "mps-priority", "sluice", "sluice-slices",
                       "sluice-shared")


def run(host, bench):
    size = bench.blocks["short"]
    a, b = host.several("a", "b")
    if host.name == "sluice-slices":
        host.set("a", latency="low")
    load([(a, "light", f"stamped {size['light']} {size['steps']}"),
          (b, "heavy", f"stamped {size['heavy']} {size['steps']}")])
    clock = a.ask("clock", "light")
    offset = (clock["low_ns"] + clock["high_ns"]) / 2
    visits = VISITS if bench.nvidia else 8
    waits = [_waits(a.ask("visits", "light", visits, GAP_US, 0), offset)]
    seconds = visits * (GAP_US + 1000) / 1e6
    b.send("run", "heavy", "wait:0", seconds, 0)
    waits.append(_waits(a.ask("visits", "light", visits, GAP_US, 0), offset))
    b.answer()
    found = {"alone_us": waits[0], "beside_us": waits[1], "block_us": size["block_us"],
             "clock_ns": clock}
    found["timeline"] = _timeline(host, bench, a, b, offset)
    bench.wrong += check([(a, "light"), (b, "heavy")])
    for tenant, key in ((a, "light"), (b, "heavy")):
        tenant.ask("drop", key)
    if host.name == "sluice-slices":
        host.set("a", latency="normal")
    return [(host.name, found)]


def _waits(answer, offset):
    """us from each call to its first block."""
    return [round((first - offset - call) / 1e3, 2) for call, first, _, _ in answer["visits"]]


def _timeline(host, bench, a, b, offset):
    """One visit in the middle of one launch of the other: calls, blocks, decisions; us from the
    visitor's call on."""
    seen = None
    for _ in range(3):
        at = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + 50_000_000
        b.send("run", "heavy", "wait:0", 0, at)
        a.send("visits", "light", 1, 0, at + int(TIMELINE_LEAD_NS * bench.us(1)))
        heavy, visit = b.answer(), a.answer()["visits"][0]
        seen = heavy, visit
    heavy, (call, _, _, end) = seen
    span = [offset + t for t in (call - 400_000 * bench.us(1), end + 400_000 * bench.us(1))]
    lanes = {t.name: t.ask("activity", key, int(span[0]), int(span[1]), BIN_NS * int(bench.us(1)))
             for t, key in ((a, "light"), (b, "heavy"))}
    return {"call_ns": call, "end_ns": end, "heavy": [heavy["last_begin_ns"], heavy["last_end_ns"]],
            "from_ns": span[0] - offset, "bin_ns": BIN_NS * int(bench.us(1)),
            "blocks": {n: lane["blocks"] for n, lane in lanes.items()},
            "decisions": _decisions(host, call, end)}


def _decisions(host, call, end):
    """What sluiced wrote down of that time."""
    if not host.sluiced:
        return []
    time.sleep(0.3)  # the trace is written at each heartbeat
    events, begin = [], None
    for line in host.trace.read_text().splitlines():
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            break  # the last line is still being written
        if "trace" in event:
            begin = event.get("begin_ns")
        elif begin is not None and call - 2_000_000 < begin + event["t"] < end + 2_000_000:
            events.append({"ns": begin + event["t"], "event": event["event"],
                           "vgpu": event["vgpu"]})
    return events


def rows(measured, results):
    for way, m in measured.items():
        alone = percentile(m["alone_us"], 50)
        more = m["block_us"] if "slices" not in way and way != "sluice" else 0
        goal = GOALS.get(way)
        for percent, index in ((50, 0), (99, 1)):
            results.add(TITLE, way, f"P{percent} beyond alone",
                        percentile(m["beside_us"], percent) - alone, "us", alone,
                        at_most=goal[index] + more if goal else None)
