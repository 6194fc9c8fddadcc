# SPDX-License-Identifier: Apache-2.0
"""A virtual machine moves to another host while it runs, with the commands of
docs/operating/daily.md: two hosts with the installed packages, each a container with a libvirtd and
a sluiced of its own. With its vGPU it is refused; without, it moves, and gets a vGPU there. The
guest is small: a kernel, the guest's package, the suite's programs."""
import os
import subprocess
import unittest

import support
import virt
from guest import Guest
from installed_host import WithInstalledHost, packages_and_image


class MovingHost(WithInstalledHost):
    """libvirt moves no domain to the host that it is on, which it knows by the machine's number."""

    @classmethod
    def install_host(cls, debs):
        super().install_host(debs)
        with open(cls.container.root / "etc/libvirt/libvirtd.conf", "a", encoding="utf-8") as f:
            f.write(f'host_uuid = "00000000-0000-4000-8000-00000000000{cls.number}"\n')

    @classmethod
    def uri(cls):
        return f"qemu+unix:///system?socket={cls.container.root}/run/libvirt/libvirt-sock"

    @classmethod
    def vgpus(cls):
        return {v["name"]: (v["state"], v["weight"]) for v in cls.sluiced.ctl("list")}


@unittest.skipUnless(os.geteuid() == 0, "libvirt runs hooks for qemu:///system")
class Move(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = support.folder()
        debs, cls.image = packages_and_image(cls.work)
        cls.hosts = []
        for number in range(2):
            host = type(f"Host{number}", (MovingHost,), {
                "number": number, "work": cls.work / str(number),
                "addClassCleanup": cls.addClassCleanup})
            host.work.mkdir(mode=0o711)
            host.start_host(debs, cls.work)
            cls.hosts.append(host)

    def eventually_runs(self, guest, host):
        for _ in range(support.TIMEOUT_S):
            if guest.run("sluice-suite-probe", support.TIMEOUT_S)[0] == 0:
                return
        self.fail("no program runs\n" + host.sluiced.log()[-3000:])

    def migrate(self, *options):
        here, there = self.hosts
        return subprocess.run(["virsh", "-c", here.uri(), "migrate", *options, "vm1", there.uri(),
                               "--migrateuri", "tcp://127.0.0.1"], capture_output=True, text=True)

    def test_a_machine_moves(self):
        here, there = self.hosts
        jobs, xml = self.work / "vm1.jobs", self.work / "vm1.xml"
        xml.write_text(virt.domain_xml("vm1", *self.image, jobs, self.work / "vm1.console"))
        here.libvirt.define(xml)
        here.ctl("reserve", "vm1")
        guest = here.libvirt.boot("vm1", jobs)
        here.ctl("attach", "vm1", "--live", "--weight", 300)
        self.eventually_runs(guest, here)
        self.assertEqual(here.vgpus(), {"vm1": ("connected", 300)})

        for options in (["--live"], ["--offline", "--persistent"]):
            refused = self.migrate(*options)
            self.assertNotEqual(refused.returncode, 0, refused)
            self.assertTrue(here.libvirt.running("vm1"))
        self.assertIn("Migration is disabled", self.migrate("--live").stderr)

        job = guest.start("sluice-suite-md5 --seconds 100000 --json")
        here.ctl("detach", "vm1", "--live")
        self.assertNotEqual(job.wait(support.TIMEOUT_S), 0)
        self.assertEqual(here.vgpus(), {})
        marked = guest.run("echo moved > /tmp/mark; cat /proc/sys/kernel/random/boot_id",
                           support.TIMEOUT_S)
        guest.close()
        # The end of the first QEMU removes the socket of its serial line.
        moving = here.libvirt.virsh("dumpxml", "vm1", "--migratable").stdout
        xml.write_text(moving.replace(str(jobs), f"{jobs}.moved"))
        self.addCleanup(there.libvirt.destroy, "vm1")
        moved = self.migrate("--live", "--xml", xml)
        self.assertEqual(moved.returncode, 0, moved.stderr)
        self.assertFalse(here.libvirt.running("vm1"))
        self.assertTrue(there.libvirt.running("vm1"))
        there.ctl("attach", "vm1", "--live", "--weight", 200)
        guest = Guest("vm1", f"{jobs}.moved")
        guest.connect(support.TIMEOUT_S, lambda: there.libvirt.running("vm1"), booted=True)
        self.assertEqual(guest.run("cat /tmp/mark /proc/sys/kernel/random/boot_id",
                                   support.TIMEOUT_S)[1], "moved\n" + marked[1])
        self.eventually_runs(guest, there)
        self.assertEqual((here.vgpus(), there.vgpus()), ({}, {"vm1": ("connected", 200)}))
        there.libvirt.destroy("vm1")
        for _ in range(support.TIMEOUT_S * 10):
            if not there.vgpus():
                break
        self.assertEqual(there.vgpus(), {})
