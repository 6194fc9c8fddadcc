# SPDX-License-Identifier: Apache-2.0
"""Two domains on the installed packages: attached with sluicectl, started, re-weighted through
their metadata and over the admin socket, their shares measured, detached live, destroyed; nothing
of them is left. The guests are small: a kernel, the guest's package, the suite's programs."""
import os
import pathlib
import re
import subprocess
import time
import unittest

import guest_image
import report
import support
import two_versions
import virt
from installed_host import WithInstalledHost

NAMES = ["vm1", "vm2"]
NAMESPACE = "https://sluice.example/vgpu/1"
SECONDS = 5  # for which both have work, of one measured share
# Two guests under TCG, their workers and the software GPU share two processors.
MOST_OFF = 0.06


def processes(folder):
    """Names of those whose program is in the folder."""
    found = []
    for exe in pathlib.Path("/proc").glob("[0-9]*/exe"):
        try:
            if os.readlink(exe).startswith(f"{folder}/"):
                found.append(pathlib.Path(os.readlink(exe)).name)
        except OSError:
            pass
    return sorted(found)


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
        debs = cls.work / "debs"
        two_versions.build(debs, two_versions.HOST_AND_GUEST)
        programs = [support.BUILD / "kernels/suite" / f"sluice-suite-{p}" for p in ("probe", "md5")]
        agent, = debs.glob("sluice-guest-agent_*.deb")
        cls.image = guest_image.build(support.BUILD / "guest-cache", cls.work / "image", agent,
                                      programs)
        cls.start_host(debs)

    def eventually(self, condition, what):
        end = time.monotonic() + support.TIMEOUT_S
        while not condition():
            if time.monotonic() > end:
                self.fail(f"never: {what}\n{self.sluiced.log()[-3000:]}")
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

    def test_two_domains(self):
        before, shared = processes(self.host), memory(self.sluiced)
        guests = {"vm1": self.start("vm1", 200), "vm2": self.start("vm2", 100)}
        jobs = {n: [g.start("sluice-suite-md5 --seconds 100000 --json") for _ in range(2)]
                for n, g in guests.items()}
        self.has_share("vm1", 2 / 3)
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
        self.eventually(lambda: processes(self.host) == before, "no process is left")
        self.eventually(lambda: memory(self.sluiced) == shared, "no memory is left")
        self.assertEqual(list((self.sluiced.run_dir / "vgpu").iterdir()), [])
