# SPDX-License-Identifier: Apache-2.0
"""Pictures of a run, as SVG, written by hand: no program is needed to draw them."""
import math
from xml.sax.saxutils import escape

# Of sluiced's trace; its other events are what workers reported.
DECISIONS = ("grant", "evict")
COLOURS = ("#2c7a4b", "#b5651d", "#35609e", "#7a2c6b", "#777777")


class Svg:
    def __init__(self, width, height):
        self.width, self.height, self.parts = width, height, []

    def text(self, x, y, text, anchor="start", size=12, colour="#222", more=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
                          f'font-size="{size}" fill="{colour}"{more}>{escape(str(text))}</text>')

    def line(self, x1, y1, x2, y2, colour="#ccc", more=""):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
                          f'stroke="{colour}"{more}/>')

    def box(self, x, y, width, height, colour):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" '
                          f'height="{max(height, 0):.1f}" fill="{colour}"/>')

    def steps(self, x, y, step, heights, colour):
        """An area of steps upon a line."""
        path, before = f"M{x:.1f},{y:.1f}", 0.0
        for k, tall in enumerate([*heights, 0.0]):
            if abs(tall - before) > 0.2 or tall == 0.0 != before:
                path += f"H{x + k * step:.1f}V{y - tall:.1f}"
                before = tall
        self.parts.append(f'<path d="{path}Z" fill="{colour}"/>')

    def save(self, path):
        path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" '
                        f'height="{self.height}" font-family="sans-serif">'
                        '<rect width="100%" height="100%" fill="white"/>' + "\n".join(self.parts) +
                        "</svg>\n", encoding="utf-8")


def draw(data, folder, stem):
    """Those pictures for which something was measured; their paths."""
    drawn = []
    for name, picture, section in (("light", _light, "light"), ("alone", _alone, "alone"),
                                   ("timeline", _timeline, "handover")):
        measured = data["measured"].get(section)
        if measured and any(measured.values()):
            path = folder / f"{stem}-{name}.svg"
            picture(measured).save(path)
            drawn.append(path)
    return drawn


def _light(measured):
    """P50 to P99 of the light tenant, and what the heavy one keeps, for each way."""
    kinds = list(next(iter(measured.values())))
    left, row, width = 190, 22, 520
    svg = Svg(left + width + 110, 60 + len(kinds) * (len(measured) * row + 50))
    most = max(m[k]["light"]["p99_us"] for m in measured.values() for k in kinds)
    least = min(m[k]["alone"]["p50_us"] for m in measured.values() for k in kinds) / 1.5
    span = math.log(most * 1.2 / least)

    def at(us):
        return left + width * math.log(max(us, least) / least) / span

    svg.text(10, 24, "A light tenant beside a heavy one: P50 (left end) to P99 (right end), us; "
             "and what the heavy one keeps", size=14)
    y = 50
    for kind in kinds:
        svg.text(10, y, f"blocks: {kind}", size=13)
        top = y + 6
        for way, m in measured.items():
            y += row
            p50, p99 = m[kind]["light"]["p50_us"], m[kind]["light"]["p99_us"]
            colour = COLOURS[0] if way.startswith("sluice") else COLOURS[4]
            svg.text(left - 8, y + 4, way, "end")
            svg.box(at(p50), y - 6, at(p99) - at(p50), 12, colour)
            svg.text(at(p99) + 5, y + 4, f"{p50:.0f} / {p99:.0f}", size=11)
            svg.text(left + width + 70, y + 4, f"{m[kind]['heavy_keeps']:.3f}", size=11)
        base = next(iter(measured.values()))[kind]["alone"]
        svg.line(at(base["p50_us"]), top, at(base["p50_us"]), y + 8, "#c00",
                 ' stroke-dasharray="3 3"')
        svg.text(at(base["p50_us"]), y + 20, "alone, P50", "middle", 10, "#c00")
        y += 46
    return svg


def _alone(measured):
    """Each program's time over native, in each of Sluice's ways."""
    programs = measured["alone"]
    known = [w for w in programs[0]["us"] if w != "native"]
    left, row, width, low, high = 190, 15, 480, 0.9, 1.5
    svg = Svg(left + width + 40, 90 + row * len(programs))

    def at(ratio):
        return left + width * (min(max(ratio, low), high) - low) / (high - low)

    svg.text(10, 22, "A program alone over the same natively (launch and wait, medians)", size=14)
    for i, way in enumerate(known):
        svg.text(left + 150 * i, 44, "● " + way, colour=COLOURS[i])
    bottom = 62 + row * len(programs)
    for ratio in (0.9, 1.0, 1.08, 1.2, 1.3, 1.4, 1.5):
        svg.line(at(ratio), 54, at(ratio), bottom, "#999" if ratio == 1 else "#ddd")
        svg.text(at(ratio), bottom + 14, f"{ratio:g}", "middle", 10)
    ordered = sorted(programs, key=lambda p: (p["half"], p["us"]["native"]))
    for i, p in enumerate(ordered):
        y = 66 + row * i
        mark = "" if p["half"] == "held out" else " (known)"
        svg.text(left - 8, y + 4, f"{p['name']}{mark}, {p['us']['native']:.0f} us", "end", 10)
        for k, way in enumerate(known):
            x = at(p["us"][way] / p["us"]["native"])
            svg.parts.append(f'<circle cx="{x:.1f}" cy="{y}" r="3.5" fill="{COLOURS[k]}"/>')
    return svg


def _timeline(measured):
    """One visit in each way: the visitor's call, sluiced's decisions, and whose blocks ran."""
    left, width, height = 190, 760, 160
    svg = Svg(left + width + 30, 60 + height * len(measured))
    svg.text(10, 24, "A light tenant's launch beside a heavy one: calls, decisions and blocks on "
             "the GPU, one axis of time (us from the call)", size=14)
    for i, (way, m) in enumerate(measured.items()):
        _one_visit(svg, m["timeline"], way, left, 60 + height * i, width)
    return svg


def _one_visit(svg, t, way, left, top, width):
    bins = len(t["blocks"]["a"])
    begin, end = t["from_ns"], t["from_ns"] + bins * t["bin_ns"]

    def at(ns):
        return left + width * (min(max(ns, begin), end) - begin) / (end - begin)

    svg.text(10, top, way, size=13)
    lanes = ("the programs' calls", "the workers' messages", "sluiced's decisions",
             "blocks of the light one", "blocks of the heavy one")
    tops = dict(zip(lanes, (top + 4, top + 22, top + 38, top + 54, top + 84)))
    for name in lanes if t["decisions"] else lanes[:1] + lanes[3:]:
        svg.text(left - 8, tops[name] + 11, name, "end", 10)
    svg.box(at(t["heavy"][0]), top + 4, at(t["heavy"][1]) - at(t["heavy"][0]), 5, COLOURS[1])
    svg.box(at(t["call_ns"]), top + 10, at(t["end_ns"]) - at(t["call_ns"]), 5, COLOURS[0])
    for event in t["decisions"]:
        if begin < event["ns"] < end:
            x, y = at(event["ns"]), tops[lanes[2 if event["event"] in DECISIONS else 1]]
            colour = COLOURS[0] if event["vgpu"] == "a" else COLOURS[1]
            svg.line(x, y, x, y + 12, colour)
            svg.text(x + 2, y + 9, event["event"], size=8, colour=colour)
    for name, y, colour in (("a", top + 54, COLOURS[0]), ("b", top + 84, COLOURS[1])):
        most = max(max(t["blocks"][n]) for n in ("a", "b")) or 1
        svg.steps(left, y + 26, width / bins, [24 * blocks / most for blocks in t["blocks"][name]],
                  colour)
        svg.line(left, y + 26, left + width, y + 26)
    step = 10 ** math.floor(math.log10((end - begin) / 1e3 / 4))
    tick = math.ceil((begin - t["call_ns"]) / 1e3 / step) * step
    while tick * 1e3 + t["call_ns"] < end:
        x = at(tick * 1e3 + t["call_ns"])
        svg.line(x, top + 112, x, top + 116, "#555")
        if round(tick / step) % 2 == 0:
            svg.text(x, top + 127, f"{tick:.0f}", "middle", 9)
        tick += step
