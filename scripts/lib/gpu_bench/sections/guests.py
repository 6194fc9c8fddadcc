# SPDX-License-Identifier: Apache-2.0
"""Two and four QEMU guests by weight, 2:1 and 4:3:2:1: shares of the launches done, what each
launch took at P99 in each guest, results checked in the guest. Needs QEMU, and a guest image with
bench-tenant in it (--guest-image; --make-guest-image builds one)."""
import concurrent.futures
import json
import os
import shutil
import subprocess
import tempfile
import time

import guest_image
import virt

NAME = "guests"
TITLE = "QEMU guests by weight"
WEIGHTS = ((2, 1), (4, 3, 2, 1))
QUEUED = 3
START_LIMIT_S = 60
GO = "/tmp/go"  # a file in the guest: its program begins


def ways(bench):
    if not bench.guest_image:
        return []
    own = str(bench.guest_image / "bin")  # a bundle's image has QEMU beside it
    if own not in os.environ["PATH"].split(os.pathsep):
        os.environ["PATH"] = own + os.pathsep + os.environ["PATH"]
    if not shutil.which("qemu-system-x86_64"):
        return []
    return bench.those("sluice", "sluice-slices", "sluice-shared")


def make_image(bench, folder):
    """Builds the image: a kernel, the guest package, and bench-tenant."""
    with tempfile.TemporaryDirectory() as work:
        deb = subprocess.run([bench.root / "scripts/build-packages", bench.build, work,
                              "sluice-guest-agent"], check=True, stdout=subprocess.PIPE,
                             text=True).stdout.strip()
        programs = [bench.build / p for p in ("tests/bench/bench-tenant",
                                              "kernels/suite/sluice-suite-probe")]
        vmlinux, _ = guest_image.build(bench.build / "guest-cache", folder, deb, programs)
    shutil.copy(vmlinux, folder / "vmlinux")
    shutil.rmtree(folder / "rootfs", ignore_errors=True)


class Guest:
    def __init__(self, host, bench, name):
        host.sluiced.ctl("create", name, "--weight", 100)
        self.name = name
        self.qemu = virt.Qemu(name, host.work / name, bench.guest_image / "vmlinux",
                              bench.guest_image / "initramfs.cpio",
                              host.sluiced.vgpu_socket(name))
        host.stack.callback(self.qemu.kill)

    def boot(self):
        self.guest = self.qemu.boot()
        end = time.monotonic() + START_LIMIT_S
        while self.guest.run("sluice-suite-probe", 120)[0] != 0:
            if time.monotonic() > end:
                raise OSError(f"{self.name}: no vGPU in the guest")
            time.sleep(0.2)

    def start(self, blocks, steps, seconds):
        """Loads the program, which runs from go() on."""
        first = f"load w work {blocks} {steps}\\n"
        then = f"run w queue:{QUEUED} {seconds} 0\\ncheck w whole\\n"
        wait = f"until [ -e {GO} ]; do sleep 0.01; done"
        job = self.guest.start(["sh", "-c", f"rm -f {GO}; (printf '{first}'; {wait}; "
                                            f"printf '{then}') | bench-tenant"])
        end = time.monotonic() + START_LIMIT_S
        while not any("load_us" in line for line in job.lines):
            if job.done() or time.monotonic() > end:
                raise OSError(f"{self.name}: bench-tenant did not load: {job.lines[-3:]}")
            time.sleep(0.02)
        return job

    def go(self):
        self.guest.run(["touch", GO])


def run(host, bench):
    guests = [Guest(host, bench, f"g{i}") for i in range(len(WEIGHTS[-1]))]
    with concurrent.futures.ThreadPoolExecutor(len(guests)) as pool:
        list(pool.map(lambda g: g.boot(), guests))
    found = {}
    for weights in WEIGHTS:
        team = guests[:len(weights)]
        for guest, weight in zip(team, weights):
            host.sluiced.ctl("set", guest.name, "--weight", weight * 100)
        found[":".join(map(str, weights))] = _measure(host, bench, team, weights)
    return [(host.name, found)]


def _measure(host, bench, team, weights):
    size = bench.blocks["short"]
    seconds = 3 * bench.seconds

    def done():
        vgpus = host.sluiced.stats()["vgpus"]
        return [vgpus[g.name]["launches_done"] for g in team]

    with concurrent.futures.ThreadPoolExecutor(len(team)) as pool:
        jobs = list(pool.map(lambda g: g.start(size["heavy"], size["steps"], seconds + 1), team))
        before = done()
        list(pool.map(lambda g: g.go(), team))
    end = time.monotonic() + START_LIMIT_S
    while min(n - b for n, b in zip(done(), before)) < 5 and time.monotonic() < end:
        time.sleep(0.02)
    first, began = done(), time.monotonic()
    time.sleep(0.6 * seconds)
    last, took = done(), time.monotonic() - began
    launches = [b - a for a, b in zip(first, last)]
    answers = []
    for guest, job in zip(team, jobs):
        if job.wait(300) != 0:
            raise OSError(f"{guest.name}: bench-tenant failed: {job.lines[-3:]}")
        answers.append([json.loads(line) for line in job.lines if line.startswith("{")])
    bench.wrong += [f"{g.name}: {a[-1]['wrong']}" for g, a in zip(team, answers) if a[-1]["wrong"]]
    return {"weights": weights, "launches": launches,
            "of_alone": sum(launches) * size["heavy_us"] / 1e6 / took,
            "p99_us": [a[-2]["p99_us"] for a in answers]}


def rows(measured, results):
    for way, kinds in measured.items():
        for label, m in kinds.items():
            total, owed = max(1, sum(m["launches"])), sum(m["weights"])
            off = [100 * abs(n / total - w / owed) for n, w in zip(m["launches"], m["weights"])]
            results.add(f"{TITLE}: {label}", way, "worst off by", max(off), "points", at_most=1)
            results.add(f"{TITLE}: {label}", way, "work over one alone", m["of_alone"], "")
            for i, us in enumerate(m["p99_us"]):
                results.add(f"{TITLE}: {label}", way, f"P99 of guest {i + 1}", us, "us")
