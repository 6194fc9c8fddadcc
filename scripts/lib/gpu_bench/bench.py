# SPDX-License-Identifier: Apache-2.0
"""gpu-bench's own run: what is measured in which order, what is kept, and when it ends."""
import argparse
import json
import pathlib
import signal
import subprocess
import sys
import time
import traceback

from gpu_bench import plots, results, sections, ways
from gpu_bench.tenant import TenantError, alone, load
from host import HostError

ROOT = pathlib.Path(__file__).resolve().parents[3]
# How long a block takes where 16 share an SM. Its steps are found out: they differ from GPU to GPU.
BLOCK_US = {"short": 35, "long": 700}
SOFT_STEPS = {"short": 60}
CHAIN_STEPS = {True: 350, False: 20}
BLOCKS_AN_SM = 16
LIGHT_US, HEAVY_US = 100, 5000
# So many times as long on the software GPU.
SOFT_SCALE = 4


class Bench:
    """The run's settings, what was found out about the GPU, and what went wrong."""

    def __init__(self, arguments):
        self.root = ROOT
        self.build = arguments.build.resolve()
        self.device = arguments.device
        self.nvidia = arguments.device == "nvidia"
        self.seconds = arguments.seconds
        self.guest_image = arguments.guest_image and arguments.guest_image.resolve()
        self.only_ways = arguments.ways.split(",") if arguments.ways else None
        self.limit = arguments.limit
        self.began = time.monotonic()
        self.sms = 132 if self.nvidia else 4
        self.gpu = ""
        self.wrong, self.problems, self.skipped = [], [], []
        self.blocks, self.chain, self.memory = {}, {}, {}
        self.empty_us = 0.0

    def elapsed(self):
        return time.monotonic() - self.began

    def say(self, text):
        print(f"[{self.elapsed():5.0f} s] {text}", file=sys.stderr, flush=True)

    def us(self, us):
        return us if self.nvidia else us * SOFT_SCALE

    def those(self, *names):
        """Of these ways the ones that this run has."""
        return [n for n in names if (not self.only_ways or n in self.only_ways) and
                (self.nvidia or ways.WAYS[n].soft)]

    def calibrate(self):
        """How many blocks take how long, on the driver itself."""
        with ways.Host("slices", self) as host:
            tenant = host.tenant("a").ready()
            self.gpu = tenant.device
            load([(tenant, "empty", "work 1 1")])
            self.empty_us = alone(tenant, "empty", 0.05)["p50_us"]
            for name, steps in self._steps(tenant).items():
                light, light_us = self._blocks_for(tenant, steps, self.us(LIGHT_US))
                heavy, _ = self._blocks_for(tenant, steps, self.us(HEAVY_US))
                load([(tenant, "heavy", f"work {heavy} {steps}")])
                heavy_us = alone(tenant, "heavy", 0.3 * self.seconds)["mean_us"]
                tenant.ask("drop", "heavy")
                self.blocks[name] = {
                    "steps": steps, "light": light, "light_us": light_us, "heavy": heavy,
                    "heavy_us": heavy_us,
                    "block_us": heavy_us * self.sms * BLOCKS_AN_SM / heavy}
            steps = CHAIN_STEPS[self.nvidia]
            blocks, us = self._blocks_for(tenant, steps, self.us(200))
            self.chain = {"steps": steps, "blocks_per_us": blocks / us}
        self.say(f"{self.gpu}: an empty launch {self.empty_us:.1f} us; {self.blocks}")

    def _steps(self, tenant):
        """Steps of a block's threads, by the block's name, for BLOCK_US when all SMs are full."""
        if not self.nvidia:
            return SOFT_STEPS
        found = {}
        for name, us in BLOCK_US.items():
            steps, waves = 50 * us, 20
            for _ in range(3):
                load([(tenant, "size", f"work {waves * self.sms * BLOCKS_AN_SM} {steps}")])
                took = (alone(tenant, "size", 0.05)["p50_us"] - self.empty_us) / waves
                tenant.ask("drop", "size")
                steps = max(1, round(steps * us / took))
            found[name] = steps
        return found

    def _blocks_for(self, tenant, steps, us):
        blocks = 1000 if self.nvidia else 16
        for _ in range(5):
            load([(tenant, "size", f"work {blocks} {steps}")])
            took = alone(tenant, "size", 0.03)["p50_us"]
            tenant.ask("drop", "size")
            if 0.95 < took / us < 1.05:
                break
            blocks = max(8, int(blocks * us / took))
        return blocks, took


class Run:
    def __init__(self, bench, chosen, out):
        self.bench, self.chosen, self.out = bench, chosen, out
        self.measured = {s.NAME: {} for s in chosen}

    def all(self):
        self.bench.calibrate()
        self.bench.skipped += [f"{s.NAME}: this machine lacks what it needs" for s in self.chosen
                               if not s.ways(self.bench) and not self.bench.only_ways]
        for way in ways.WAYS:
            todo = [s for s in self.chosen if way in s.ways(self.bench)]
            while todo:
                todo = self._way(way, todo)
        for section in self.chosen:
            if "alone" in section.ways(self.bench) and not self._late("alone", section):
                self._guarded("alone", section, lambda s=section: s.run(self.bench))
        return self.save()

    def _way(self, way, todo):
        """Measures sections in one way; those that are left where one failed."""
        try:
            with ways.Host(way, self.bench) as host:
                while todo:
                    section, *todo = todo
                    if self._late(way, section):
                        continue
                    self.bench.say(f"{section.NAME}: {way}")
                    if not self._guarded(way, section, lambda: section.run(host, self.bench)):
                        break
            self.bench.problems += [f"{way}: {p}" for p in host.problems]
        except (HostError, OSError, subprocess.SubprocessError) as failed:
            self._failed(f"{way}: {failed}")
            return []
        return todo

    def _late(self, way, section):
        late = self.bench.elapsed() > self.bench.limit
        if late:
            self.bench.skipped.append(f"{section.NAME}: {way}")
        return late

    def _guarded(self, way, section, measure):
        try:
            self.measured[section.NAME].update(measure())
            self.save()
            return True
        except (TenantError, HostError, OSError, ZeroDivisionError, KeyError,
                subprocess.SubprocessError) as failed:
            self._failed(f"{section.NAME}: {way}: {failed!r}")
            traceback.print_exc()
            return False

    def _failed(self, text):
        self.bench.say(text)
        self.bench.problems.append(text)

    def save(self):
        b = self.bench
        found = results.Results(goals=b.nvidia)
        for section in self.chosen:
            if self.measured[section.NAME]:
                section.rows(self.measured[section.NAME], found)
        data = {"gpu": b.gpu, "device": b.device, "seconds": b.seconds,
                "took_s": round(b.elapsed()), "blocks": b.blocks, "empty_us": b.empty_us,
                "rows": found.json(), "wrong": b.wrong, "problems": b.problems,
                "skipped": b.skipped, "measured": self.measured}
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "gpu-bench.json").write_text(json.dumps(data) + "\n")
        return data


def report(path):
    """Table and pictures of a run, beside its JSON."""
    data = results.load(path)
    lines = [f"# gpu-bench: {data['gpu']}", "",
             f"`scripts/gpu-bench --device {data['device']} --seconds {data['seconds']:g}`, one "
             f"run of {data['took_s']} s; wrong results: {len(data['wrong'])}.",
             "`scripts/gpu-bench --list` says what the ways are. *Held out* are programs on which "
             "nothing is", "tuned; *known* ones have been tuned on.", "",
             results.table(data["rows"])]
    if data["skipped"]:
        lines += ["Left out for want of time or means:", ""]
        lines += [f"- {text}" for text in data["skipped"]]
    text = "\n".join(lines) + "\n"
    path.with_suffix(".md").write_text(text)
    drawn = plots.draw(data, path.parent, path.stem)
    return text, drawn


def parse(usage):
    p = argparse.ArgumentParser(prog="gpu-bench", description=usage,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--device", choices=["soft", "nvidia"], default="soft")
    p.add_argument("--only", default="")
    p.add_argument("--ways", default="")
    p.add_argument("--seconds", type=float, default=1.5)
    p.add_argument("--limit", type=float, default=1e9)
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu-bench-out"))
    p.add_argument("--guest-image", type=pathlib.Path)
    p.add_argument("--make-guest-image", type=pathlib.Path)
    p.add_argument("--report", type=pathlib.Path)
    p.add_argument("--list", action="store_true")
    a = p.parse_args()
    names = [s.NAME for s in sections.SECTIONS]
    a.sections = a.only.split(",") if a.only else names
    for chosen, known in ((a.sections, names), (a.ways.split(",") if a.ways else [], ways.WAYS)):
        if unknown := set(chosen) - set(known):
            p.error(f"there is no {', '.join(sorted(unknown))}; --list says what there is")
    return a


def main(usage):
    a = parse(usage)
    if a.list:
        for s in sections.SECTIONS:
            print(f"{s.NAME:10} {s.TITLE}")
        for name, way in ways.WAYS.items():
            print(f"{name:18} {way.title}")
        return 0
    if a.report:
        print(report(a.report)[0])
        return 0
    bench = Bench(a)
    if a.make_guest_image:
        sections.guests.make_image(bench, a.make_guest_image)
        return 0
    chosen = [s for s in sections.SECTIONS if s.NAME in a.sections]
    # What was started ends with it, also where somebody limits its time.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    data = Run(bench, chosen, a.out).all()
    print(report(a.out / "gpu-bench.json")[0])
    for kind in ("wrong", "problems", "skipped"):
        for text in data[kind]:
            print(f"gpu-bench: {kind}: {text}", file=sys.stderr)
    return 1 if data["wrong"] or data["problems"] else 0
