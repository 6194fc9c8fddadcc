# SPDX-License-Identifier: Apache-2.0
"""A guest like users have: Debian with systemd, our package installed in it with apt, attached
with sluicectl to a libvirt domain, CUDA programs on the software GPU. The host has the host's
packages, installed with apt in a container.

One domain for all cases, which come in the order of their names. Each begins with `programs_run`,
which brings the domain to where a program is right.
"""
import os
import pathlib
import shutil
import subprocess
import time
import unittest

import debian_image
import install_document
import support
import two_versions
import virt
from guest import Guest, GuestError
from installed_host import WithInstalledHost
from two_versions import EPOCH, NEW, OLD

# A boot takes 20 s here; a machine may be busy.
BOOT_TIMEOUT_S = 900
TIMEOUT_S = 600
NAME = "debian"
# C++ with kernels that are registered as nvcc registers them.
CASES = "sluice-cudart-cases --gtest_filter='MemoryCases.BytesInAllDirections:MemoryCases.Symbols'"
# An agent's start whose look for a device lasts until a file is there.
HELD = ('[Service]\\nTimeoutStartSec=infinity\\nExecCondition=\\nExecCondition=/bin/sh -c '
        '"grep -qsx 0x1110 /sys/bus/pci/devices/*/device && exit 0; touch /run/looked; '
        'while [ ! -e /run/go ]; do sleep 0.1; done; exit 1"\\n')
KERNEL_ARGUMENTS = f"console=ttyS0 root=/dev/vda rw intel_iommu=on {virt.UNGUARDED}"


def say(text):
    print(f"\n{time.strftime('%H:%M:%S')}  {text}", flush=True)


def cuda_programs(folder):
    """The guest's programs: of the driver's API, of the runtime's, and compiled by nvcc where it
    is."""
    for name in ("probe", "md5", "triad"):
        shutil.copy(support.BUILD / "kernels/suite" / f"sluice-suite-{name}", folder)
    shutil.copy(support.BUILD / "tests/cudart/cudart_cases_test", folder / "sluice-cudart-cases")
    nvcc = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin/nvcc"
    if not nvcc.exists():
        say(f"{nvcc} is not there: no program that it compiles is tried")
        return False
    subprocess.run([nvcc, "-std=c++17", "-O1", "-cudart", "shared", "-gencode",
                    "arch=compute_75,code=compute_75", "-Xcompiler",
                    "-static-libstdc++,-static-libgcc",
                    support.ROOT / "tests/cudart/programs/kernels/vector_add.cu", "-o",
                    folder / "vector_add"], check=True)
    return True


def domain_xml(image, disk, media, jobs, console):
    """An owner's domain before `sluicectl attach`: one disk, and one with packages and programs."""
    xml = virt.domain_xml(NAME, image[0], image[1], jobs, console, guest_mib=512)
    xml = xml.replace(virt.KERNEL_ARGUMENTS, KERNEL_ARGUMENTS)
    disks = "".join(
        f"<disk type='file' device='disk'><driver name='qemu' type='raw' cache='unsafe'/>"
        f"<source file='{file}'/><target dev='{device}' bus='virtio'/></disk>"
        for file, device in ((disk, "vda"), (media, "vdb")))
    return xml.replace("</emulator>", "</emulator>" + disks)


@unittest.skipUnless(os.geteuid() == 0, "libvirt runs hooks for qemu:///system")
@unittest.skipUnless(shutil.which("mmdebstrap"), "needs mmdebstrap")
class DebianGuest(WithInstalledHost, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.began = time.monotonic()
        cls.work = support.folder()
        say("the image")
        image = debian_image.make(support.BUILD / "guest-cache")
        say("the packages")
        cls.old, cls.new = cls.work / OLD, cls.work / NEW
        two_versions.build(cls.old, two_versions.HOST_AND_GUEST)
        two_versions.later(cls.old, cls.new)
        media = cls.work / "media"
        media.mkdir()
        for folder in (cls.old, cls.new):
            shutil.copy(next(folder.glob("sluice-guest-agent_*.deb")), media)
        cls.has_nvcc = cuda_programs(media)
        debian_image.filesystem(cls.work / "media.ext4", media, 256 << 20)
        subprocess.run(["cp", "--sparse=always", image[2], cls.work / "disk"], check=True)
        cls.jobs, cls.console = cls.work / "jobs", cls.work / "console"

        say("the host")
        cls.start_host(cls.old)
        boot = [shutil.copy(file, cls.work) for file in image[:2]]
        (cls.work / "domain.xml").write_text(
            domain_xml(boot, cls.work / "disk", cls.work / "media.ext4", cls.jobs, cls.console))
        cls.libvirt.define(cls.work / "domain.xml")
        cls.ctl("reserve", NAME)
        cls.ctl("attach", NAME, "--weight", 300, "--memory", "1G")
        cls.guest = None

    # What a case is made of.

    def context(self):
        console = self.console.read_text(errors="replace") if self.console.exists() else ""
        try:
            agent = self.guest.run("journalctl --no-pager -n 30 -o short-monotonic -u "
                                   "sluice-guest-agent", TIMEOUT_S)[1]
        except GuestError as e:
            agent = str(e)
        return (f"--- console:\n{console[-2000:]}\n--- sluiced:\n{self.sluiced.log()[-2000:]}\n"
                f"--- agent:\n{agent}")

    def right(self, command, timeout=TIMEOUT_S):
        """Runs a command in the guest; its text."""
        status, text = self.guest.run(command, timeout)
        self.assertEqual(status, 0, f"{command}: {text}\n{self.context()}")
        return text

    def eventually(self, condition, what):
        end = time.monotonic() + TIMEOUT_S
        while not condition():
            if time.monotonic() > end:
                self.fail(f"never: {what}\n{self.context()}")
            time.sleep(0.2)

    def state(self):
        return self.libvirt.virsh("domstate", NAME).stdout.strip()

    def vgpus(self):
        return {v["name"]: v for v in self.sluiced.ctl("list")}

    def connected(self):
        """The host has an agent in the guest."""
        return NAME in self.vgpus() and self.sluiced.ctl("show", NAME)["agent"]["epoch"] != 0

    def has_booted(self):
        """Systemd has started everything, and nothing of it failed."""
        self.guest.run("systemctl is-system-running --wait", TIMEOUT_S)
        failed = self.right("systemctl --failed --no-legend --plain")
        self.assertEqual(failed, "")
        type(self).boot_id = self.right("cat /proc/sys/kernel/random/boot_id")

    def hear_again(self, **how):
        """The serial line of a QEMU or a kernel that is new."""
        if self.guest:
            self.guest.close()
        type(self).guest = Guest(NAME, self.jobs)
        self.guest.connect(BOOT_TIMEOUT_S, lambda: self.state() == "running", **how)

    def start(self):
        began = time.monotonic()
        type(self).guest = self.libvirt.boot(NAME, self.jobs, BOOT_TIMEOUT_S)
        self.has_booted()
        say(f"booted in {time.monotonic() - began:.0f} s")
        self.right("mkdir -p /media/programs && mount -o ro /dev/vdb /media/programs")

    def programs_run(self):
        """Cold or live, the domain runs with a vGPU and the guest's package is there."""
        if self.state() != "running":
            self.start()
        if self.guest.run("dpkg -s sluice-guest-agent")[0] != 0:
            self.install(OLD)
        if NAME not in self.vgpus():
            self.ctl("attach", NAME, "--live", "--memory", "1G")
        self.eventually(self.connected, "the agent has the vGPU")
        self.results_are_right()

    def install(self, version):
        deb = f"/media/programs/sluice-guest-agent_{version}_amd64.deb"
        text = self.right(f"DEBIAN_FRONTEND=noninteractive apt-get install -y -q {deb}")
        self.assertEqual(self.right("dpkg-query -W -f '${Version}\\n' sluice-guest-agent"),
                         EPOCH + version)
        return text

    def results_are_right(self):
        program = f"/media/programs/{CASES}"
        text = self.right(program)
        self.assertIn("PASSED  ] 2 tests", text)
        if self.has_nvcc:
            self.right("/media/programs/vector_add")

    def long_program(self):
        """A program that launches until it is told to end; it has launched when this returns."""
        done = self.sluiced.stats()["vgpus"][NAME]["launches_done"]
        job = self.guest.start("/media/programs/sluice-suite-md5 --seconds 100000 --json")
        self.eventually(lambda: job.done() or
                        self.sluiced.stats()["vgpus"][NAME]["launches_done"] > done,
                        "the program launches")
        self.assertFalse(job.done(), job.lines)
        return job

    def goes_on(self, job):
        done = self.sluiced.stats()["vgpus"][NAME]["launches_done"]
        self.eventually(lambda: job.done() or
                        self.sluiced.stats()["vgpus"][NAME]["launches_done"] > done + 2,
                        "the program goes on")
        self.assertFalse(job.done(), job.lines)

    def ends_right(self, job):
        self.guest.run("kill -INT $(pidof sluice-suite-md5)")
        status = job.wait(TIMEOUT_S)
        result = support.last_json(job.lines)
        self.assertEqual((status, result and result["wrong"]), (0, 0), job.lines)
        self.assertGreater(result["right"], 0)

    def ends_wrong(self, job, reason):
        """By itself, with a status and a reason, and not by a wrong result."""
        self.assertNotEqual(job.wait(TIMEOUT_S), 0)
        self.assertIn(reason, "\n".join(job.lines))
        result = support.last_json(job.lines)
        self.assertTrue(not result or result["wrong"] == 0, job.lines)

    # The cases.

    def test_01_apt_installs_the_package_and_programs_run(self):
        self.start()
        self.install(OLD)
        # At once: what apt has started is ready.
        self.results_are_right()
        say(f"first half done after {time.monotonic() - self.began:.0f} s")
        text = self.right(install_document.commands("Guest", 0)[1] + " --json")
        checks = {c["name"]: c for c in support.last_json(text.splitlines())["checks"]}
        self.assertEqual(checks["launch"]["state"], "right", text)
        self.assertEqual(self.right("systemctl is-enabled sluice-guest-agent"), "enabled")
        self.kernel_argument()
        self.assertEqual(self.vgpus()[NAME]["weight"], 300)

    def kernel_argument(self):
        """install.md's change of the boot loader's settings: here libvirt loads the kernel."""
        change = install_document.commands("Guest", 1)[0].split(" && ")[0]
        self.right("printf 'GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\\nGRUB_CMDLINE_LINUX=\"x=1\"\\n' "
                   f">/etc/default/grub && {change}")
        self.assertEqual(self.right("cat /etc/default/grub").splitlines(), [
            'GRUB_CMDLINE_LINUX_DEFAULT="quiet"', 'GRUB_CMDLINE_LINUX="intel_iommu=on x=1"'])

    def test_02_a_reboot_during_a_program(self):
        self.programs_run()
        self.long_program()
        before = self.boot_id
        self.guest.reboot(BOOT_TIMEOUT_S)
        self.has_booted()
        self.assertNotEqual(self.boot_id, before)
        self.right("mkdir -p /media/programs && mount -o ro /dev/vdb /media/programs")
        self.results_are_right()

    def test_03_libvirtd_restarts_during_a_program(self):
        self.programs_run()
        job = self.long_program()
        self.libvirt.restart()
        self.goes_on(job)
        self.ends_right(job)
        self.assertEqual(self.state(), "running")

    def test_04_live_detach_and_attach(self):
        self.programs_run()
        for _ in range(2):
            self.ctl("detach", NAME, "--live")
            self.eventually(lambda: NAME not in self.vgpus(), "the vGPU is gone")
            self.eventually(lambda: self.guest.run("lspci -n | grep 1af4:1110")[0] != 0,
                            "the guest's device is gone")
            status, text = self.guest.run(f"/media/programs/{CASES}", TIMEOUT_S)
            self.assertNotEqual(status, 0, text)
            # As at a boot of a machine without a vGPU.
            self.right("systemctl restart sluice-guest-agent")
            self.assertEqual(self.right("systemctl --failed --no-legend --plain"), "")
            self.ctl("attach", NAME, "--live", "--weight", 70, "--memory", "1G")
            # The udev rule starts the agent.
            self.eventually(self.connected, "the agent has the vGPU")
            self.results_are_right()
        self.assertEqual(self.vgpus()[NAME]["weight"], 70)

    def test_04b_attached_while_the_agent_looks_for_a_device(self):
        """After a detach the agent is tried once more, and finds none: held there, until another
        device has come."""
        self.programs_run()
        self.ctl("detach", NAME, "--live")
        self.eventually(lambda: self.guest.run("lspci -n | grep 1af4:1110")[0] != 0,
                        "the guest's device is gone")
        held = "/run/systemd/system/sluice-guest-agent.service.d"
        self.right(f"systemctl stop sluice-guest-agent && mkdir {held} && printf '{HELD}' "
                   f">{held}/held.conf && systemctl daemon-reload && "
                   "systemctl start --no-block sluice-guest-agent && "
                   "until [ -e /run/looked ]; do sleep 0.1; done")
        self.ctl("attach", NAME, "--live", "--weight", 70, "--memory", "1G")
        self.right("until lspci -n | grep 1af4:1110; do sleep 0.1; done; udevadm settle; "
                   f"rm -r {held}; touch /run/go")
        self.eventually(self.connected, "the agent has the vGPU")
        self.right("systemctl daemon-reload && rm /run/looked /run/go")
        self.results_are_right()

    def test_05_managed_save_while_detached(self):
        self.programs_run()
        refused = self.libvirt.virsh("managedsave", NAME, check=False)
        self.assertNotEqual(refused.returncode, 0)
        # As docs/operating/troubleshooting.md has it, by which an owner finds what to do.
        self.assertIn("cannot migrate domain: Migration is disabled when using feature 'peer mode' "
                      "in device 'ivshmem'", refused.stderr)
        self.assertEqual(self.state(), "running")
        self.results_are_right()
        self.ctl("save", NAME)
        self.assertEqual(self.state(), "shut off")
        self.assertEqual(self.vgpus(), {})
        self.ctl("restore", NAME)
        self.hear_again(booted=True)
        self.assertEqual(self.right("cat /proc/sys/kernel/random/boot_id"), self.boot_id,
                         "it goes on where it was saved")
        self.assertEqual(self.vgpus()[NAME]["weight"], 70, "with the settings that it had")
        self.eventually(self.connected, "the agent has the vGPU")
        self.programs_run()

    def test_06_the_guests_package_is_upgraded_during_a_program(self):
        self.programs_run()
        job = self.long_program()
        agent = self.right("pidof sluice-agent")
        self.install(NEW)
        # The new agent has taken over in the old one's process.
        self.eventually(lambda: self.guest.run(f"grep successor /proc/{agent}/cmdline")[0] == 0,
                        "the agent is the new one")
        self.goes_on(job)
        self.results_are_right()
        self.ends_right(job)
        self.right("systemctl is-active sluice-guest-agent")

    def test_06b_an_agent_that_knows_no_reload_is_started_anew(self):
        """One of a package before agents could take over; a program that ends of SIGHUP plays
        it."""
        self.programs_run()
        self.right("mkdir /run/systemd/system/sluice-guest-agent.service.d && printf "
                   "'[Service]\\nType=simple\\nExecStart=\\nExecStart=sleep infinity\\n' "
                   "> /run/systemd/system/sluice-guest-agent.service.d/old.conf && "
                   "systemctl daemon-reload && systemctl restart sluice-guest-agent && "
                   "rm -r /run/systemd/system/sluice-guest-agent.service.d")
        self.right("apt-get install --reinstall -y -q "
                   f"/media/programs/sluice-guest-agent_{NEW}_amd64.deb")
        # systemd waits 2 s (RestartSec) before it starts the one that is installed.
        self.eventually(lambda: self.guest.run(f"/media/programs/{CASES}", TIMEOUT_S)[0] == 0,
                        "an agent of this package is there")

    def test_07_the_hosts_packages_are_upgraded_during_a_program(self):
        self.programs_run()
        job = self.long_program()
        self.install_host(self.new)
        self.assertEqual(self.container.right("dpkg-query -W -f '${Version}' sluice"),
                         EPOCH + NEW)
        # Until sluiced is restarted, what runs goes on, and more programs start.
        self.goes_on(job)
        self.results_are_right()
        self.ends_right(job)

    def test_08_sluiced_restarts_during_a_program(self):
        self.programs_run()
        job = self.long_program()
        self.sluiced.stop()
        self.sluiced.start()
        self.ends_wrong(job, "the GPU session has ended")
        self.assertIn("lost", self.ctl("list"))
        self.ctl("detach", NAME, "--live")
        self.programs_run()

    def test_09_the_package_is_purged_and_installed_again(self):
        self.programs_run()
        self.right("yes | " + install_document.sentence("Remove", 1))
        self.assertEqual(self.right("find /etc /usr /run -xdev -iname '*sluice*' "
                                    "-not -path '/run/systemd/*'; ldconfig -p | grep sluice; true"),
                         "")
        self.assertNotEqual(self.guest.run(f"/media/programs/{CASES}", TIMEOUT_S)[0], 0)
        self.programs_run()

    def test_10_shutdown_leaves_nothing(self):
        self.programs_run()
        self.long_program()
        self.libvirt.virsh("shutdown", NAME)
        self.eventually(lambda: self.state() == "shut off", "the guest shuts down")
        self.eventually(lambda: not self.vgpus(), "the vGPU is gone")
        self.assertEqual(list((self.sluiced.run_dir / "vgpu").iterdir()), [])
