# SPDX-License-Identifier: Apache-2.0
"""A host like owners have: Debian with systemd, AppArmor and libvirt, in a virtual machine, our
packages installed in it with apt. Its domains have no disk: what counts is who may do what, and
what is left of a vGPU when sluiced restarts, is upgraded, or goes.

One machine for all cases, which come in the order of their names.
"""
import json
import os
import re
import shutil
import subprocess
import time
import unittest

import debian_image
import install_document
import support
import two_versions
import virt
from two_versions import EPOCH, NEW, OLD
from two_versions import HOST as PACKAGES

BOOT_TIMEOUT_S = 900
TIMEOUT_S = 900
KERNEL_ARGUMENTS = f"console=ttyS0 root=/dev/vda rw {virt.UNGUARDED}"
# A CUDA program on the vGPU of vm1.
PROGRAM = ("SLUICE_SOCKET=/run/sluice/vgpu/vm1.local LD_LIBRARY_PATH=/media/lib "
           "/media/sluice-suite-")
DOMAIN = """<domain type='qemu'>
  <name>NAME</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features>
  <devices><emulator>/usr/bin/qemu-system-x86_64</emulator><memballoon model='none'/></devices>
</domain>"""


def say(text):
    print(f"\n{time.strftime('%H:%M:%S')}  {text}", flush=True)


@unittest.skipUnless(os.geteuid() == 0, "makes an image")
@unittest.skipUnless(shutil.which("mmdebstrap"), "needs mmdebstrap")
class DebianHost(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = support.folder()
        say("the image of a host")
        vmlinux, initrd, disk = debian_image.make(support.BUILD / "guest-cache", "host",
                                                  debian_image.HOST_PACKAGES)
        media = cls.work / "media"
        two_versions.build(media, PACKAGES)
        two_versions.later(media, media)
        for name in ("probe", "md5"):
            shutil.copy(support.BUILD / "kernels/suite" / f"sluice-suite-{name}", media)
        (media / "lib").mkdir()
        shutil.copy(support.BUILD / "guest-agent/shim/libcuda.so.1", media / "lib")
        for name in ("vm1", "vm2", "vm4", "plain"):
            (media / f"{name}.xml").write_text(DOMAIN.replace("NAME", name))
        debian_image.filesystem(cls.work / "media.ext4", media, 256 << 20)
        subprocess.run(["cp", "--sparse=always", disk, cls.work / "disk"], check=True)
        cls.machine = virt.Qemu("host", cls.work, vmlinux, initrd, guest_mib=1536, iommu=False)
        append = cls.machine.args.index("-append") + 1
        cls.machine.args[append] = KERNEL_ARGUMENTS
        for file in (cls.work / "disk", cls.work / "media.ext4"):
            cls.machine.args += ["-drive", f"file={file},format=raw,if=virtio,cache=unsafe"]
        cls.addClassCleanup(cls.machine.kill)
        began = time.monotonic()
        cls.guest = cls.machine.boot(BOOT_TIMEOUT_S)
        say(f"booted in {time.monotonic() - began:.0f} s")

    def run_inside(self, command):
        return self.guest.run(command, TIMEOUT_S)

    def right(self, command):
        status, text = self.run_inside(command)
        self.assertEqual(status, 0, f"{command}: {text}\n{self.journal()}")
        return text

    def journal(self):
        return self.guest.run("journalctl --no-pager -n 40 -o cat", TIMEOUT_S)[1]

    def eventually(self, condition, what):
        end = time.monotonic() + TIMEOUT_S
        while not condition():
            if time.monotonic() > end:
                self.fail(f"never: {what}\n{self.journal()}")
            time.sleep(0.5)

    def vgpus(self):
        status, text = self.run_inside("sluicectl --json list")
        return {v["name"]: v for v in json.loads(text)} if status == 0 else {}

    def state(self, name="vm1"):
        return self.vgpus().get(name, {}).get("state")

    def checks(self):
        _, text = self.run_inside("sluicectl doctor --json")
        return {c["name"]: c for c in json.loads(text)["checks"]}

    def denials(self):
        return self.run_inside("journalctl -k -o cat --no-pager | grep 'apparmor=\"DENIED\"' | "
                               "grep -i sluice")[1]

    def as_documented(self, number):
        """A block of install.md's commands."""
        for command in install_document.commands("Host", number):
            self.right(f"cd /root; export DEBIAN_FRONTEND=noninteractive; {command}")

    def install(self, version):
        debs = " ".join(f"/media/{p}_{version}_amd64.deb" for p in PACKAGES)
        self.right(f"DEBIAN_FRONTEND=noninteractive apt-get install -y -q {debs}")

    def test_01_the_packages_are_installed_and_nothing_else_is_done(self):
        self.right("mount -o ro /dev/vdb /media && mkdir -p /root/out/packages && "
                   f"cp /media/*_{OLD}_*.deb /root/out/packages")
        self.as_documented(0)
        self.right("systemctl is-active sluiced sluice-libvirt-events")
        self.assertEqual(self.run_inside("systemctl is-enabled sluice-mps"), (1, "disabled"))
        self.assertEqual(self.right("cat /proc/$(pidof sluiced)/attr/current"),
                         "sluiced (enforce)")
        self.assertEqual(self.right("systemctl --failed --no-legend --plain"), "")
        self.right("useradd --groups sluice owner && setpriv --reuid=owner --regid=owner "
                   "--init-groups sluicectl list")
        self.right("virsh define /media/plain.xml && virsh start plain && virsh destroy plain")
        self.assertEqual(self.denials(), "")

    def policy_of_the_loop(self):
        return self.right("chrt -p $(pidof sluiced)").split("policy: ")[1].splitlines()[0]

    def restarted(self):
        before = self.right("pidof sluiced")
        self.right("systemctl daemon-reload && systemctl restart sluiced")
        self.eventually(lambda: self.run_inside("pidof sluiced")[1] not in ("", before) and
                        self.run_inside("sluicectl list")[0] == 0, "sluiced answers")

    def test_01b_the_loop_has_real_time_or_its_refusal_is_said(self):
        real_time = "SCHED_RR|SCHED_RESET_ON_FORK"
        self.assertEqual(self.policy_of_the_loop(), real_time)
        self.assertEqual(self.checks()["real-time"]["state"], "right")
        self.assertEqual(self.right("for p in $(pidof sluice-spawner); do chrt -p $p; done | "
                                    "grep policy | grep -v SCHED_OTHER; true"), "")
        forbidden = "/run/systemd/system/sluiced.service.d"
        self.right(f"mkdir {forbidden} && printf '[Service]\\nRestrictRealtime=yes\\n' "
                   f"> {forbidden}/real-time.conf")
        self.restarted()
        self.assertEqual(self.right("ps -o ni= -p $(pidof sluiced)").strip(), "-10")
        self.assertIn("real-time scheduling: Operation not permitted; sluiced goes by `nice`: "
                      "sluicectl doctor says", self.journal())
        check = self.checks()["real-time"]
        self.assertEqual(check["state"], "wrong", check)
        self.assertIn("RestrictRealtime=no", check["mend"])
        self.right(f"rm -r {forbidden}")
        self.restarted()
        self.assertEqual(self.policy_of_the_loop(), real_time)

    def test_01c_the_profile_lets_sluiced_see_its_threads(self):
        """It looks whether one that is late could run, which on an idle host is never. The kernel
        says what a profile allows: here of files of somebody else, as sluiced's own in /proc are
        root's."""
        query = "label\\0sluiced\\0\\002/proc/1/task/1/stat"  # \\2: a file
        text = self.right("setpriv --reuid=65534 --clear-groups sh -c 'exec "
                          "3<>/sys/kernel/security/apparmor/.access && "
                          f"printf \"{query}\" >&3 && cat <&3'")
        self.assertTrue(int(text.split("allow 0x")[1].split()[0], 16) & 4, text)  # to read

    def test_02_a_domain_under_apparmor_has_its_vgpu(self):
        self.right("virsh define /media/vm1.xml")
        self.as_documented(2)
        self.assertEqual((self.vgpus()["vm1"]["weight"], self.vgpus()["vm1"]["memory_bytes"]),
                         (200, 8 << 30))
        self.eventually(lambda: self.state() == "connected", "QEMU is connected")
        label = self.right("cat /proc/$(pidof qemu-system-x86_64)/attr/current")
        self.assertRegex(label, r"^libvirt-.* \(enforce\)")
        self.assertEqual(self.allowed("vm1"), ["rw"])
        self.right("virsh metadata vm1 --live --uri https://sluice.example/vgpu/1 --key sluice "
                   "--set \"<vgpu weight='120'/>\"")
        self.eventually(lambda: self.vgpus()["vm1"]["weight"] == 120, "the metadata is followed")
        self.assertEqual(self.denials(), "")
        checks = self.checks()
        for name in ("sluiced", "version", "admin-socket", "vgpu-sockets", "libvirtd", "hook",
                     "events", "apparmor", "domains", "save", "walls", "real-time"):
            self.assertEqual(checks[name]["state"], "right", checks[name])

    def allowed(self, name):
        """What libvirt lets the QEMU of a domain that it has started with a vGPU do with its
        socket."""
        uuid = self.right(f"virsh domuuid {name}").strip()
        text = self.right(f"cat /etc/apparmor.d/libvirt/libvirt-{uuid}.files")
        return re.findall(f'"/run/sluice/vgpu/{name}[.]sock" ([a-z]+),', text)

    def test_03_a_program_runs(self):
        text = self.right(PROGRAM + "probe")
        self.assertIn("Sluice", text)
        self.assertEqual(self.denials(), "")

    def test_04_a_vgpu_outlives_restarts_of_sluiced(self):
        self.right("sluicectl group tenant --weight 7 && sluicectl set vm1 --group tenant")
        qemu = self.right("pidof qemu-system-x86_64")
        time.sleep(2)  # a crash may forget what a beat of a second has not stored yet
        for end in ("systemctl restart sluiced", "kill -KILL $(pidof sluiced)"):
            before = self.right("pidof sluiced")
            self.right(end)
            self.eventually(lambda: self.run_inside("pidof sluiced")[1] not in ("", before) and
                            self.state() == "connected", "the vGPU is there after " + end)
            v = self.vgpus()["vm1"]
            self.assertEqual((v["weight"], v["group"]), (120, "tenant"))
            self.assertEqual(self.right("pidof qemu-system-x86_64"), qemu)
            self.right(PROGRAM + "probe")
        self.assertEqual(self.checks()["domains"]["state"], "right")
        self.assertEqual(self.denials(), "")

    def test_04b_removed_cgroups_are_made_again(self):
        self.eventually(lambda: self.run_inside("rmdir /sys/fs/cgroup/system.slice/sluiced.service/"
                                                "sluice-workers.*")[0] == 0, "no worker is left")
        self.right(PROGRAM + "probe")
        self.assertRegex(self.journal(), "sluice-workers.* was removed, and is made again")
        self.assertEqual(self.denials(), "")

    def test_04c_a_wrong_configuration_costs_no_vgpu(self):
        def policy(name):
            self.right(f"sed -i 's/^policy = .*/policy = \"{name}\"/' /etc/sluice/sluice.toml")
        policy("nobodys")
        self.assertNotEqual(self.run_inside("systemctl reload sluiced")[0], 0)
        self.assertEqual(self.state(), "connected")
        self.assertNotEqual(self.run_inside("systemctl restart sluiced")[0], 0)
        self.assertIn("there is no such policy", self.journal())
        # systemd gives up after five of them, if it is not told otherwise.
        self.eventually(lambda: int(self.right("systemctl show -P NRestarts sluiced")) > 6,
                        "it is tried again and again")
        policy("wfq")
        self.right("systemctl start sluiced")
        self.eventually(lambda: self.state() == "connected", "the vGPU is there")
        self.right(PROGRAM + "probe")

    def launches(self):
        vgpus = json.loads(self.right("sluicectl --json stats"))["vgpus"]
        return next(v["launches_done"] for v in vgpus if v["name"] == "vm1")

    def test_05_programs_outlive_an_upgrade(self):
        job = self.guest.start(PROGRAM + "md5 --seconds 100000 --json")
        done = self.launches()
        self.eventually(lambda: job.done() or self.launches() > done, "the program launches")
        before = self.right("pidof sluiced")
        self.install(NEW)
        self.assertTrue(json.loads(self.right("sluicectl --json info"))["ends_when_idle"])
        done = self.launches()
        self.eventually(lambda: job.done() or self.launches() > done, "the program goes on")
        self.right(PROGRAM + "probe")
        self.assertEqual(self.right("pidof sluiced"), before)
        self.right("kill -INT $(pidof sluice-suite-md5)")
        self.assertEqual(job.wait(TIMEOUT_S), 0, job.lines)
        self.eventually(lambda: self.run_inside("pidof sluiced")[1] not in ("", before) and
                        self.state() == "connected", "the new sluiced has the vGPU")
        self.right(PROGRAM + "probe")
        self.assertEqual(self.right("dpkg-query -W -f '${Version}\\n' sluice"), EPOCH + NEW)
        self.assertEqual(self.vgpus()["vm1"]["weight"], 120)

    def test_06_live_under_apparmor(self):
        self.right("virsh define /media/vm2.xml && sluicectl reserve vm2 && virsh start vm2")
        self.right("sluicectl attach vm2 --live")
        self.eventually(lambda: self.state("vm2") == "connected", "QEMU is connected")
        self.assertEqual(self.denials(), "")
        # Nobody in this domain could release the device: it has no system.
        status, text = self.run_inside("sluicectl detach vm2 --live")
        self.assertEqual(status, 1, text)
        self.assertIn("the guest still has the device", text)
        self.assertNotIn("vm2", self.vgpus())
        self.assertEqual(self.denials(), "")

    def test_07_ends_leave_nothing(self):
        self.right("virsh destroy vm1")
        self.eventually(lambda: "vm1" not in self.vgpus(), "destroyed")
        self.right("virsh domrename vm1 vm3")
        self.right("sluicectl attach vm3")
        self.right("virsh start vm3 && virsh destroy vm2")
        self.eventually(lambda: self.state("vm3") == "connected", "the renamed one has its vGPU")
        self.right("kill -KILL $(pidof qemu-system-x86_64)")
        self.eventually(lambda: not self.vgpus(), "crashed")
        self.assertEqual(self.right("ls /run/sluice/vgpu"), "")
        self.eventually(lambda: self.run_inside("pidof sluice-worker")[0] != 0, "no worker is left")

    def test_08_mode_shared(self):
        self.right("virsh define /media/vm4.xml && sluicectl attach vm4 && virsh start vm4")
        self.eventually(lambda: self.state("vm4") == "connected", "QEMU is connected")
        time.sleep(2)  # as before: sluiced is to have stored it
        self.as_documented(1)
        self.eventually(lambda: self.state("vm4") == "connected", "the vGPU is there")
        info = json.loads(self.right("sluicectl --json info"))
        self.assertEqual(info["mode"], "shared", info)
        self.right("virsh destroy vm4")
        self.eventually(lambda: not self.vgpus(), "destroyed")

    def test_08b_removed_under_a_running_domain(self):
        self.right("virsh start vm4")
        self.eventually(lambda: self.state("vm4") == "connected", "QEMU is connected")
        self.right("DEBIAN_FRONTEND=noninteractive apt-get remove -y -q sluice sluice-softgpu")
        self.assertNotEqual(self.run_inside("pidof sluiced sluice-spawner sluice-worker")[0], 0)
        self.assertIn("running", self.right("virsh domstate vm4"))
        self.right("virsh start plain && virsh destroy plain")
        self.install(NEW)
        self.eventually(lambda: self.run_inside("sluicectl list")[0] == 0, "sluiced answers")
        self.assertRegex(self.right("sluicectl list"), r"(?m)^vm4 +running .*lost")
        check = self.checks()["domains"]
        self.assertEqual(check["state"], "wrong", check)
        self.assertIn("vm4", check["fact"])
        self.right("virsh destroy vm4 && virsh start vm4")
        self.eventually(lambda: self.state("vm4") == "connected", "the vGPU is there")
        self.right("virsh destroy vm4")
        self.eventually(lambda: not self.vgpus(), "destroyed")
        self.assertEqual(self.denials(), "")

    def test_09_purged(self):
        self.right("yes | " + install_document.sentence("Remove", 0))
        self.assertNotEqual(self.run_inside("pidof sluiced sluice-spawner")[0], 0)
        left = self.run_inside("find /etc /usr /var/lib /run -xdev -iname '*sluice*' -not -path "
                               "'/var/lib/systemd/*' -not -path '/var/lib/dpkg/*'")[1]
        self.assertEqual(left, "")
        self.right("virsh start plain && virsh destroy plain")
