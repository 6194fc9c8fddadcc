#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long an owner waits: `sluicectl attach` and `detach`, and `virsh start` of a domain with a
vGPU beside the same domain without one, in alternating rounds.

usage: libvirt_times.py [--build DIR] [--rounds N] [--require]

As root, with a libvirtd of its own. The domains have no disk. Prints an object of JSON: medians and
maxima in milliseconds, and `start_adds_ms`, the difference of the medians.
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/lib"))
import virt  # noqa: E402
from host import Sluiced  # noqa: E402

MOST_ATTACH_MS, MOST_START_ADDS_MS = 1000, 200
DOMAIN = """<domain type='qemu'><name>NAME</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features>
  <devices><emulator>/usr/bin/qemu-system-x86_64</emulator></devices></domain>"""


def timed(times, action, *arguments, **options):
    began = time.monotonic()
    action(*arguments, **options)
    times.append((time.monotonic() - began) * 1000)


def measure(libvirt, sluiced, rounds):
    times = {"attach": [], "detach": [], "start_with": [], "start_without": []}
    for name in ("with", "without"):
        (libvirt.work / name).write_text(DOMAIN.replace("NAME", name))
        libvirt.define(libvirt.work / name)
    for _ in range(rounds):
        timed(times["attach"], sluiced.run, "attach", "with", "--connect", libvirt.uri)
        for name in ("without", "with"):
            timed(times["start_" + name], libvirt.virsh, "start", name)
            libvirt.virsh("destroy", name)
        timed(times["detach"], sluiced.run, "detach", "with", "--connect", libvirt.uri)
    result = {k: {"median_ms": round(statistics.median(v), 1), "most_ms": round(max(v), 1)}
              for k, v in times.items()}
    result["start_adds_ms"] = round(result["start_with"]["median_ms"]
                                    - result["start_without"]["median_ms"], 1)
    return result


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--rounds", type=int, default=20)
    p.add_argument("--require", action="store_true", help="fail where a goal is missed")
    a = p.parse_args()
    virt.enter_private_namespace()
    with tempfile.TemporaryDirectory(prefix="sluice-times.") as work:
        pathlib.Path(work).chmod(0o711)
        sluiced = Sluiced(a.build, work)
        libvirt = virt.Libvirt(pathlib.Path(work) / "libvirt", sluiced)
        try:
            sluiced.start()
            libvirt.start()
            result = measure(libvirt, sluiced, a.rounds)
        finally:
            libvirt.stop()
            sluiced.stop()
    print(json.dumps(result, indent=1))
    met = (result["attach"]["most_ms"] < MOST_ATTACH_MS
           and result["start_adds_ms"] < MOST_START_ADDS_MS)
    return 0 if met or not a.require else 1


if __name__ == "__main__":
    sys.exit(main())
