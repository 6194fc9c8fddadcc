# SPDX-License-Identifier: Apache-2.0
"""What the system tests share: one build, a sluiced per test class, programs, the guest image."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import guest_image
import virt
from host import Sluiced

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = None  # set by run.py, like DEVICE
DEVICE = "soft"
PROGRAMS = ["triad", "matmul", "reduction", "stencil2d", "histogram", "md5"]
TIMEOUT_S = 300
_image = None
_folders = []


def rounds(all_of_them, in_the_gate):
    """How often a test repeats what is random: all of it with `scripts/test --all`."""
    return all_of_them if os.environ.get("SLUICE_ALL_ROUNDS") else in_the_gate


def clean_up():
    for f in _folders:
        shutil.rmtree(f, ignore_errors=True)


def folder():
    d = pathlib.Path(tempfile.mkdtemp(prefix="sluice-test."))
    d.chmod(0o711)  # a sluiced that is not root reaches what it made there
    _folders.append(d)
    return d


def image():
    """(vmlinux, initramfs) with the guest package and the suite's programs; made once."""
    global _image
    if _image is None:
        work = folder()
        deb = subprocess.run([ROOT / "scripts/build-packages", BUILD, work, "sluice-guest-agent"],
                             env={**os.environ, "DPKG_DEB_COMPRESSOR_TYPE": "none"}, check=True,
                             stdout=subprocess.PIPE, text=True).stdout.strip()
        programs = [BUILD / "kernels/suite" / f"sluice-suite-{p}"
                    for p in PROGRAMS + ["probe", "fault"]]
        _image = guest_image.build(BUILD / "guest-cache", BUILD / "test-image", deb, programs)
    return _image


def last_json(lines):
    for line in reversed(lines):
        if line.startswith("{"):
            return json.loads(line)
    return None


class Program:
    """A suite program as a local client of a vGPU."""

    def __init__(self, sluiced, vgpu, name, *args):
        self.name = name
        self.process = subprocess.Popen(
            [BUILD / "kernels/suite" / f"sluice-suite-{name}", *map(str, args)],
            env=sluiced.client_env(vgpu), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True)

    def finish(self, timeout=TIMEOUT_S):
        try:
            text, _ = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            text, _ = self.process.communicate()
            raise AssertionError(f"{self.name} did not end; it printed:\n{text}") from None
        return self.process.returncode, text

    def kill(self):
        self.process.kill()
        self.process.communicate()


class WithSluiced(unittest.TestCase):
    """A fresh sluiced for the class, on the software GPU unless run.py has other options; vGPUs
    `a` and `b` of weight 1."""
    EXTRA = WORKERS = SOFT_GPU = ""
    # Of a program that runs for as long as a test: it has work queued whenever it is kept from the
    # GPU, and else leaves the processors to other tests for most of the time.
    PACE = ("--scale", 0.3, "--pause-ms", 10)

    @classmethod
    def setUpClass(cls):
        cls.work = folder()
        cls.sluiced = Sluiced(BUILD, cls.work, device=DEVICE, extra=cls.SOFT_GPU + cls.EXTRA,
                              workers=cls.WORKERS)
        cls.addClassCleanup(cls.sluiced.stop)
        cls.sluiced.start()
        for name in ("a", "b"):
            cls.sluiced.ctl("create", name, "--weight", 1)

    def __init__(self, *args, **kw):
        super().__init__(*args, **kw)
        self._programs = []

    def ended_programs(self):
        """What the programs printed that have ended and whose output nobody has read."""
        return "".join(f"--- {p.name} has ended with {p.process.returncode}:\n"
                       f"{p.process.stdout.read()[-3000:]}"
                       for p in self._programs
                       if p.process.poll() is not None and not p.process.stdout.closed)

    def program(self, vgpu, name, *args):
        p = Program(self.sluiced, vgpu, name, *args)
        self._programs.append(p)
        self.addCleanup(lambda: p.process.poll() is None and p.kill())
        return p

    def neighbour(self):
        """A program on `b` that computes beside what a test does, until assert_neighbour_right().
        Returns once it has launched."""
        self.eventually(lambda: self.vgpu("b")["sessions"] == 0, "an earlier one has left")
        done = self.vgpu("b")["launches_done"]
        p = self.program("b", "stencil2d", "--seconds", 100000, "--json", *self.PACE)
        self.eventually(lambda: self.vgpu("b")["launches_done"] > done, "the neighbour launches")
        return p

    def assert_neighbour_right(self, neighbour):
        """It still makes progress, and ends in order with right results."""
        done = self.vgpu("b")["launches_done"]
        self.eventually(lambda: neighbour.process.poll() is not None or
                        self.vgpu("b")["launches_done"] > done + 4, "the neighbour makes progress")
        if neighbour.process.poll() is None:
            neighbour.process.send_signal(signal.SIGINT)
        self.assert_right(neighbour.finish(), "the neighbour")

    def assert_right(self, finished, what=""):
        status, text = finished
        self.assertEqual(status, 0, f"{what}: {text}\n--- sluiced:\n{self.sluiced.log()[-3000:]}")
        result = last_json(text.splitlines())
        if result:
            self.assertEqual(result["wrong"], 0, text)
            self.assertGreater(result["right"], 0, text)

    def vgpu(self, name):
        return self.sluiced.stats()["vgpus"][name]

    def sluiced_cpu_s(self):
        """Processor time that sluiced has used so far."""
        stat = pathlib.Path(f"/proc/{self.sluiced.process.pid}/stat").read_text()
        fields = stat.rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def eventually(self, condition, what, timeout=120):
        end = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > end:
                self.fail(f"never: {what}\n{self.ended_programs()}--- sluiced:\n"
                          f"{self.sluiced.log()[-3000:]}")
            time.sleep(0.05)

    def sluiced_use_until(self, condition, what, timeout=TIMEOUT_S):
        """Waits for it, and tells the seconds of a core that sluiced used meanwhile and the seconds
        that passed. The processor's clock is read within those seconds, however late each reading
        is, so a busy machine makes the share smaller, never larger."""
        began = time.monotonic()
        used_s = self.sluiced_cpu_s()
        self.eventually(condition, what, timeout)
        used_s = self.sluiced_cpu_s() - used_s
        return used_s, time.monotonic() - began

    def assert_all_free(self, name):
        """Nothing of the vGPU's sessions is left: no session, no memory."""
        self.eventually(lambda: self.vgpu(name)["sessions"] == 0 and
                        self.vgpu(name)["memory_bytes"] == 0, f"{name} has everything freed")


# What one answer of the admin socket may have to wait for. The goal is 50 ms in all; a host that
# has no processor for its virtual machine adds to the second.
WORKED_MOST_S, SLEPT_MOST_S = 0.05, 0.5


class AdminMonitor:
    """Asks sluiced for its version every 50 ms, as long as it runs (admin_monitor.py).

    `answers` counts, `slowest_s` is the longest wait, `silent` says why it gave up. A sluiced whose
    loop is blocked answers nothing: that is a failure after `patience_s`, long enough for a busy
    machine. `worked_s` and `slept_s` are what the loop did at most while one answer was waited for,
    whatever else the machine had to do; None where its kernel does not count that.
    """

    def __init__(self, path, patience_s=30):
        self.command = [sys.executable, HERE / "admin_monitor.py", str(path), str(patience_s)]
        self.answers, self.slowest_s, self.silent = 0, 0.0, None
        self.worked_s = self.slept_s = None

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.first = self.process.stdout.readline()

    def finish(self):
        rest, _ = self.process.communicate()
        result = json.loads((self.first + rest).splitlines()[-1])
        self.answers, self.slowest_s = result["answers"], result["slowest_s"]
        self.silent = result["silent"]
        self.worked_s, self.slept_s = result["worked_s"], result["slept_s"]

    def waits(self):
        """For people."""
        return ("" if self.worked_s is None else f" ({1000 * self.worked_s:.1f} ms of work, "
                f"{1000 * self.slept_s:.1f} ms asleep at most)")


class WithVictim(WithSluiced):
    """A victim with checked work on vGPU `b`, and a monitor of the admin socket, beside an
    adversary on `a`.

    A test starts its adversary between `self.attack()` and the end of that block. Afterwards the
    victim must have nothing but right results and no error, and sluiced must have answered
    throughout.
    """
    VICTIM = "stencil2d"
    # A kernel that spins until it is ended does so on one core, not on all.
    SOFT_GPU = "soft_threads = 1\n"
    def victim(self, *args):
        """A program on vGPU `b` that checks every result, until it is stopped unless `args` say for
        how long."""
        return self.program("b", self.VICTIM, "--seconds", 100000, "--verify", "every", "--json",
                            *args)

    @contextlib.contextmanager
    def attack(self, pace=WithSluiced.PACE):
        monitor = AdminMonitor(self.sluiced.admin)
        monitor.start()
        # The victim of the test before has left, so that what is counted is this one's.
        self.eventually(lambda: self.vgpu("b")["sessions"] == 0, "an earlier victim has left")
        before = self.vgpu("b")["launches_done"]
        victim = self.victim(*pace)
        try:
            self.eventually(lambda: self.vgpu("b")["launches_done"] > before,
                            "the victim launches")
            yield victim
            # It still makes progress beside what is left of the adversary, or after it.
            done = self.vgpu("b")["launches_done"]
            self.eventually(lambda: self.vgpu("b")["launches_done"] > done + 4,
                            "the victim makes progress")
        finally:
            monitor.finish()
            if victim.process.poll() is None:
                victim.process.send_signal(signal.SIGINT)
        self.assertIsNone(monitor.silent, self.sluiced.log()[-3000:])
        self.assertGreater(monitor.answers, 0)
        if monitor.worked_s is not None:
            self.assertLess(monitor.worked_s, WORKED_MOST_S, "sluiced answers others first")
            self.assertLess(monitor.slept_s, SLEPT_MOST_S, "sluiced sleeps although it was asked")
        loop = self.sluiced.ctl("info")["loop"]
        print(f"admin socket: {monitor.answers} answers, slowest {1000 * monitor.slowest_s:.1f} ms"
              f"{monitor.waits()}; "
              f"longest call of the loop {loop['longest']['ms']:.1f} ms, "
              f"{loop['longest']['cpu_ms']:.1f} of them busy, in {loop['longest']['in']}; "
              f"busiest {loop['busiest']['cpu_ms']:.1f} ms, in {loop['busiest']['in']}", flush=True)
        self.assert_right(victim.finish(), "the victim")

    def adversary(self, name, *args, vgpu="a", env=None):
        """A program of tests/system/adversaries as a client of `vgpu`; ended with the test if it
        still runs."""
        p = subprocess.Popen([BUILD / "tests/system/adversaries" / name, *map(str, args)],
                             env={**self.sluiced.client_env(vgpu), **(env or {})},
                             stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)

        def end():
            if p.poll() is None:
                p.kill()
            p.stdout.close()
            p.wait()

        self.addCleanup(end)
        return p


def boot(test, sluiced, vgpu, name=None, iommu=True, for_class=False):
    """A QEMU guest attached to `vgpu`, whose programs reach the GPU; returns the Qemu. It ends with
    the test, or with its class at the latest."""
    vmlinux, initramfs = image()
    q = virt.Qemu(name or vgpu, folder(), vmlinux, initramfs, sluiced.vgpu_socket(vgpu),
                  iommu=iommu)
    (test.addClassCleanup if for_class else test.addCleanup)(q.kill)
    q.boot()
    wait_for_gpu(test, q)
    return q


def wait_for_gpu(test, q, timeout=120):
    end = time.monotonic() + timeout
    while True:
        status, text = q.guest.run("sluice-suite-probe", 120)
        if status == 0:
            return text
        if time.monotonic() > end:
            test.fail(f"no vGPU in the guest: {text}\n--- console:\n{q.console()[-3000:]}")
        time.sleep(0.5)
