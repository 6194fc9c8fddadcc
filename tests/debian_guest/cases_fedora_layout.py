# SPDX-License-Identifier: Apache-2.0
"""The guest's RPM in a virtual machine with rpm, dnf, systemd and Fedora's folders
(fedora_layout.py): installed by dnf with its requirements looked up, CUDA programs, a reboot, an
upgrade under a program, removed.

One machine for all cases, which come in the order of their names.
"""
import os
import shutil
import subprocess
import time
import unittest

import debian_image
import fedora_layout
import support
import virt
from cases_debian_guest import BOOT_TIMEOUT_S, CASES, TIMEOUT_S, cuda_programs, say
from host import Sluiced

PROGRAMS = "/media/"
VGPU = "fedora"
LIBDIR = "/usr/lib64/sluice-guest"


def rpms(folder, release):
    """The guest's RPM, of that release, in `folder`."""
    home = folder / f"home{release}"
    home.mkdir()
    (home / ".rpmmacros").write_text(f"%sluice_release {release}\n")
    subprocess.run([support.ROOT / "scripts/build-packages", "--rpm", support.BUILD, home / "out"],
                   env={**os.environ, "HOME": str(home)}, check=True, stdout=subprocess.DEVNULL)
    found, = (home / "out").glob("sluice-guest-agent-*.rpm")
    return found


@unittest.skipUnless(os.geteuid() == 0, "makes an image")
@unittest.skipUnless(shutil.which("mmdebstrap") and shutil.which("rpmbuild"),
                     "needs mmdebstrap and rpmbuild")
class FedoraLayout(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = support.folder()
        say("the image")
        vmlinux, initrd, disk = fedora_layout.make(support.BUILD / "guest-cache")
        media = cls.work / "media"
        media.mkdir()
        for release in (1, 2):
            shutil.copy(rpms(cls.work, release), media / f"agent-{release}.rpm")
        cls.has_nvcc = cuda_programs(media)
        debian_image.filesystem(cls.work / "media.ext4", media, 256 << 20)
        subprocess.run(["cp", "--sparse=always", disk, cls.work / "disk"], check=True)
        cls.sluiced = Sluiced(support.BUILD, cls.work)
        cls.addClassCleanup(cls.sluiced.stop)
        cls.sluiced.start()
        cls.sluiced.ctl("create", VGPU, "--memory", "1G")
        cls.machine = virt.Qemu("guest", cls.work, vmlinux, initrd, cls.sluiced.vgpu_socket(VGPU),
                                guest_mib=768)
        append = cls.machine.args.index("-append") + 1
        cls.machine.args[append] = (
            # A busy host is late for the check of the timer, which no real one fails.
            "console=ttyS0 root=/dev/vda rw intel_iommu=on no_timer_check panic=-1")
        for file in (cls.work / "disk", cls.work / "media.ext4"):
            cls.machine.args += ["-drive", f"file={file},format=raw,if=virtio,cache=unsafe"]
        cls.addClassCleanup(cls.machine.kill)
        cls.guest = cls.machine.boot(BOOT_TIMEOUT_S)
        say("booted")

    def right(self, command):
        status, text = self.guest.run(command, TIMEOUT_S)
        self.assertEqual(status, 0, f"{command}: {text}\n{self.machine.console()[-2000:]}\n"
                                    f"{self.sluiced.log()[-2000:]}")
        return text

    def results_are_right(self):
        self.assertIn("PASSED  ] 2 tests", self.right(PROGRAMS + CASES))
        if self.has_nvcc:
            self.right(PROGRAMS + "vector_add")

    def first_library(self):
        return self.right("ldconfig -p | grep -m1 libcuda.so.1 || true")

    def test_01_it_is_fedoras_layout(self):
        self.right("mkdir -p /media && mount -o ro /dev/vdb /media")
        self.assertEqual(self.right("ls /usr/lib | grep -c x86_64-linux-gnu || true").strip(), "0")
        self.assertNotEqual(self.guest.run("command -v dpkg apt-get update-alternatives",
                                           TIMEOUT_S)[0], 0)
        self.guest.run("systemctl is-system-running --wait", TIMEOUT_S)
        self.assertEqual(self.right("systemctl --failed --no-legend --plain"), "")

    def test_02_dnf_installs_it_and_programs_run(self):
        missing, text = self.guest.run("rpm --erase --test base", TIMEOUT_S)
        self.assertEqual(missing, 0, text)
        self.right(f"dnf --assumeyes install {PROGRAMS}agent-1.rpm")
        # What it requires came from the tree's package.
        self.assertNotEqual(self.guest.run("rpm --erase --test base", TIMEOUT_S)[0], 0)
        self.right("rpm --verify sluice-guest-agent")
        self.assertIn(LIBDIR, self.first_library())
        self.results_are_right()
        self.right("sluice-agent doctor")
        self.assertIn("vfio", self.right("sluice-agent doctor --json"))

    def test_03_it_is_there_after_a_reboot(self):
        self.guest.reboot(BOOT_TIMEOUT_S)
        self.right("mount -o ro /dev/vdb /media")
        self.right("systemctl is-active --wait sluice-guest-agent")
        self.results_are_right()

    def test_04_an_upgrade_under_a_program(self):
        job = self.guest.start(PROGRAMS + "sluice-suite-md5 --seconds 100000 --json")
        self.eventually(lambda: job.done() or self.launches() > 0)
        agent = self.right("pidof sluice-agent")
        self.right(f"rpm --upgrade {PROGRAMS}agent-2.rpm")
        self.assertIn("-2", self.right("rpm -q sluice-guest-agent"))
        self.eventually(lambda: self.guest.run(f"grep successor /proc/{agent}/cmdline")[0] == 0)
        done = self.launches()
        self.eventually(lambda: job.done() or self.launches() > done + 2)
        self.results_are_right()
        self.guest.run("kill -INT $(pidof sluice-suite-md5)")
        status = job.wait(TIMEOUT_S)
        result = support.last_json(job.lines)
        self.assertEqual((status, result and result["wrong"]), (0, 0), job.lines)

    def test_05_removed(self):
        self.right("dnf --assumeyes remove sluice-guest-agent")
        self.assertEqual(self.first_library(), "")
        self.assertEqual(self.right("find /etc /usr /run -xdev -iname '*sluice*' -not -path "
                                    "'/run/systemd/*' -not -path '/usr/share/licenses'; true"), "")
        self.assertNotEqual(self.guest.run(PROGRAMS + CASES, TIMEOUT_S)[0], 0)

    def launches(self):
        return self.sluiced.stats()["vgpus"][VGPU]["launches_done"]

    def eventually(self, condition):
        end = time.monotonic() + TIMEOUT_S
        while not condition():
            if time.monotonic() > end:
                self.fail(self.sluiced.log()[-3000:])
            time.sleep(0.2)
