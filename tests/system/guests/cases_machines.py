# SPDX-License-Identifier: Apache-2.0
"""Domains as owners have them: other machines, UEFI, shared memory, many PCI devices. Each is
attached with sluicectl, runs a CUDA program, and leaves nothing; live where it has room for
that."""
import os
import pathlib
import unittest

import guest_image
import support
import virt
from host import HostError

OVMF = pathlib.Path("/usr/share/OVMF/OVMF_CODE_4M.fd")
DEVICES = "".join(f"<rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>"
                  for _ in range(24))


def with_many_devices(xml):
    return xml.replace("<memballoon", DEVICES + "<memballoon")


def of_pc(xml):
    return xml.replace("machine='q35'", "machine='pc'")


def with_shared_memory(xml):
    return xml.replace("<vcpu>", "<memoryBacking><source type='memfd'/><access mode='shared'/>"
                                 "</memoryBacking><vcpu>")


def with_uefi(xml):
    vmlinuz, = (support.BUILD / "guest-cache").glob("linux-image-*/boot/vmlinuz-*")
    kernel = xml.split("<kernel>")[1].split("</kernel>")[0]
    return xml.replace("<os>", "<os firmware='efi'>").replace(kernel, str(vmlinuz)).replace(
        "</type>", "</type><firmware><feature enabled='no' name='secure-boot'/></firmware>")


@unittest.skipUnless(os.geteuid() == 0, "libvirt runs hooks for qemu:///system")
@unittest.skipUnless(support.rounds(True, False), "with scripts/test --all")
class Machines(support.WithSluiced):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.libvirt = virt.Libvirt(cls.work / "libvirt", cls.sluiced)
        cls.addClassCleanup(cls.libvirt.stop)
        cls.libvirt.start()

    def ctl(self, *arguments):
        return self.sluiced.run(*arguments, "--connect", self.libvirt.uri, env=self.libvirt.env)

    def has_its_vgpu(self, name):
        try:
            return self.sluiced.ctl("show", name)["agent"]["epoch"] != 0
        except HostError:
            return False

    def runs(self, name, change, live=False, timeout=virt.BOOT_TIMEOUT_S):
        jobs = self.work / f"{name}.jobs"
        xml = self.work / f"{name}.xml"
        xml.write_text(change(virt.domain_xml(name, *support.image(), jobs,
                                              self.work / f"{name}.console")))
        self.libvirt.define(xml)
        if live:
            self.ctl("reserve", name)
        shown = self.ctl("attach", name)
        with self.assertRaisesRegex(HostError, "it has a vGPU"):
            self.ctl("attach", name)
        guest = self.libvirt.boot(name, jobs, timeout)

        def a_program_runs():
            self.eventually(lambda: guest.run("sluice-suite-probe", support.TIMEOUT_S)[0] == 0,
                            f"a program runs in {name}", support.TIMEOUT_S)
        a_program_runs()
        if live:
            self.ctl("detach", name, "--live")
            self.ctl("attach", name, "--live")
            self.eventually(lambda: self.has_its_vgpu(name), "the agent has it", support.TIMEOUT_S)
            a_program_runs()
        self.libvirt.destroy(name)
        self.eventually(lambda: name not in {v["name"] for v in self.sluiced.ctl("list")},
                        "nothing is left")
        self.libvirt.virsh("undefine", name, "--nvram")
        return shown

    def test_pc(self):
        self.assertIn("only machine='q35'", self.runs("pc", of_pc))

    def test_many_devices(self):
        self.runs("many", with_many_devices, live=True)

    def test_many_devices_of_pc(self):
        self.runs("many-pc", lambda xml: with_many_devices(of_pc(xml)))

    def test_shared_memory(self):
        self.runs("memfd", with_shared_memory)

    @unittest.skipUnless(OVMF.exists(), "needs ovmf")
    def test_uefi(self):
        guest_image.kernel(support.BUILD / "guest-cache")
        self.runs("uefi", with_uefi, live=True, timeout=600)
