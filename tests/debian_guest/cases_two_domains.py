# SPDX-License-Identifier: Apache-2.0
"""Two domains on a host with the installed packages: attached with sluicectl, started, re-weighted
through their metadata and over the admin socket, their shares measured, detached live, destroyed;
nothing of them is left. Then the packages are removed and purged, and nothing of those is left. The
guests are small: a kernel, the guest's package, the suite's programs.

One host for both cases, which come in the order of their names."""
import os
import re
import subprocess
import time
import unittest

import install_document
import report
import support
import virt
from installed_host import WithInstalledHost, packages_and_image

NAMES = ["vm1", "vm2"]
NAMESPACE = "https://sluice.example/vgpu/1"
SECONDS = 5  # for which both have work, of one measured share
# Two guests under TCG, their workers and the software GPU share two processors.
MOST_OFF = 0.06
# What a host has of removed packages: what apt and dpkg leave of any, users, and what this host's
# libvirt has written.
OF_ALL_PACKAGES = re.compile(
    "/(etc/((passwd|group|g?shadow)-?|[.]pwd[.]lock|ld[.]so[.]cache)|var/(lib/(dpkg|apt)|"
    "cache/(apt|ldconfig|debconf|man)|log)(/.*)?|etc/libvirt(/.*)?|var/(lib|cache)/libvirt(/.*)?)")
PLAIN = """<domain type='qemu'>
  <name>plain</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features>
  <devices><emulator>/usr/bin/qemu-system-x86_64</emulator><memballoon model='none'/></devices>
</domain>"""


def memory(sluiced):
    """Names of the memory that sluiced shares with guests and workers."""
    listed = subprocess.run(["ls", "-l", f"/proc/{sluiced.process.pid}/fd"], capture_output=True,
                            text=True).stdout
    return sorted(re.findall("-> (/memfd:.*)", listed))


@unittest.skipUnless(os.geteuid() == 0, "libvirt runs hooks for qemu:///system")
class TwoDomains(WithInstalledHost, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = support.folder()
        debs, cls.image = packages_and_image(cls.work)
        cls.start_host(debs)

    def eventually(self, condition, what):
        end = time.monotonic() + support.TIMEOUT_S
        while not condition():
            if time.monotonic() > end:
                events = (self.work / "events.log").read_text(errors="replace")
                self.fail(f"never: {what}\n{self.sluiced.log()[-3000:]}\n{events[-1000:]}")
            time.sleep(0.1)

    def start(self, name, weight):
        xml, jobs = self.work / f"{name}.xml", self.work / f"{name}.jobs"
        xml.write_text(virt.domain_xml(name, *self.image, jobs, self.work / f"{name}.console"))
        self.libvirt.define(xml)
        self.ctl("attach", name, "--weight", weight, "--memory", "1G")
        guest = self.libvirt.boot(name, jobs)
        self.eventually(lambda: guest.run("sluice-suite-probe", support.TIMEOUT_S)[0] == 0,
                        f"a program runs in {name}")
        return guest

    def has_share(self, name, wanted):
        """Of the GPU, over an interval in which both had work for SECONDS."""
        first = self.sluiced.stats()
        self.eventually(lambda: self.sluiced.stats()["contended_ns"] - first["contended_ns"] >
                        SECONDS * 1e9, "both have work")
        shares = report.half(None, first, self.sluiced.stats(), NAMES)["shares"]
        print(f"{name}: {shares[NAMES.index(name)]:.3f} of {wanted:.3f}", flush=True)
        self.assertAlmostEqual(shares[NAMES.index(name)], wanted, delta=MOST_OFF)

    def weight(self, name):
        return self.sluiced.ctl("show", name)["weight"]

    def processes(self):
        p = self.sluiced.programs
        return self.container.processes(
            p.sluiced, p.spawner, p.worker, p.hook, p.events,
            self.container.root / "usr/bin/qemu-system-x86_64")

    def test_two_domains(self):
        self.eventually(lambda: "sluice-libvirt-events" in self.processes(), "the service runs")
        before, shared = self.processes(), memory(self.sluiced)
        guests = {"vm1": self.start("vm1", 200), "vm2": self.start("vm2", 100)}
        jobs = {n: [g.start("sluice-suite-md5 --seconds 100000 --json") for _ in range(2)]
                for n, g in guests.items()}
        self.has_share("vm1", 2 / 3)
        self.assertEqual(self.processes().count("sluice-worker"), 4)
        self.libvirt.virsh("metadata", "vm1", "--uri", NAMESPACE, "--key", "sluice", "--live",
                           "--set", "<vgpu weight='100' memory='1G'/>")
        self.eventually(lambda: self.weight("vm1") == 100, "the metadata is followed")
        self.has_share("vm1", 1 / 2)
        self.sluiced.ctl("set", "vm2", "--weight", 300)
        self.has_share("vm2", 3 / 4)

        self.ctl("detach", "vm1", "--live")
        for job in jobs["vm1"]:
            self.assertNotEqual(job.wait(support.TIMEOUT_S), 0)
        self.assertEqual([v["name"] for v in self.sluiced.ctl("list")], ["vm2"])
        guests["vm2"].run("killall -INT sluice-suite-md5", support.TIMEOUT_S)
        for job in jobs["vm2"]:
            self.assertEqual(job.wait(support.TIMEOUT_S), 0, job.lines)
            result = support.last_json(job.lines)
            self.assertTrue(result["wrong"] == 0 and result["right"] > 0, result)
        for name in NAMES:
            self.libvirt.virsh("destroy", name)
        self.eventually(lambda: not self.sluiced.ctl("list"), "no vGPU is left")
        self.eventually(lambda: self.processes() == before, "no process is left")
        self.eventually(lambda: memory(self.sluiced) == shared, "no memory is left")
        self.assertEqual(list((self.sluiced.run_dir / "vgpu").iterdir()), [])

    def test_when_purged_nothing_is_left(self):
        # As the maintainer scripts do where systemd is.
        self.stop_events()
        self.sluiced.stop()
        root = self.container.root
        self.container.right("apt-get remove -y -q sluice")
        self.assertFalse((root / "usr/sbin/sluiced").exists())
        self.assertTrue((root / "etc/sluice/sluice.toml").exists())
        # The hook is a configuration file: it stays, and lets domains start.
        self.assertTrue((root / "etc/libvirt/hooks/qemu.d/sluice").exists())
        self.libvirt.virsh("create", "/dev/stdin", text=PLAIN)
        self.libvirt.virsh("destroy", "plain")
        self.container.right("yes | " + install_document.sentence("Remove", 0))
        left = sorted(path for path in self.container.written() - self.before
                      if "sluice" in path or not OF_ALL_PACKAGES.fullmatch(path))
        self.assertEqual(left, [])
        self.assertEqual(self.container.right("ls -A /run/sluice 2>/dev/null; "
                                              "ldconfig -p | grep sluice; true"), "")
