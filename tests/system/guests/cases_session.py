# SPDX-License-Identifier: Apache-2.0
"""qemu:///session: a libvirtd of a user who is in sluiced's group. It runs the system's hook, with
the user's rights."""
import os
import shutil
import subprocess
import unittest

import support
import virt

USER, GROUP = 65534, 64132  # libvirtd needs a user with a name: nobody
DOMAIN = """<domain type='qemu'><name>s1</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features>
  <devices><emulator>/usr/bin/qemu-system-x86_64</emulator></devices></domain>"""
URI = "qemu:///session"


@unittest.skipUnless(os.geteuid() == 0, "becomes another user")
class Session(support.WithSluiced):
    EXTRA = (f'[daemon]\nuser = "{GROUP}"\ngroup = "{GROUP}"\n'
             f'[vgpu]\nsocket_group = "{GROUP}"\n')

    def setUp(self):
        home = support.folder() / "home"
        self.env = {"PATH": os.environ["PATH"], "HOME": str(home)}
        for name in ("RUNTIME_DIR", "CONFIG_HOME", "CACHE_HOME", "DATA_HOME"):
            folder = home / name.lower()
            folder.mkdir(parents=True)
            self.env["XDG_" + name] = str(folder)
        for path in (home, *home.iterdir()):
            path.chmod(0o700)
            os.chown(path, USER, USER)
        virt.install_hook(self.sluiced.programs.hook, {
            "SLUICE_ADMIN_SOCKET": self.sluiced.admin,
            "SLUICE_VGPU_SOCKETS": self.sluiced.run_dir / "vgpu"})
        daemon = subprocess.Popen(
            self.words(shutil.which("libvirtd") or "/usr/sbin/libvirtd"), env=self.env, cwd="/",
            stderr=open(self.work / "libvirtd.log", "wb"))
        self.addCleanup(daemon.wait, support.TIMEOUT_S)
        self.addCleanup(daemon.terminate)
        self.eventually(lambda: self.virsh("version").returncode == 0, "libvirtd answers")

    def words(self, *command):
        return ["setpriv", f"--reuid={USER}", f"--regid={USER}", f"--groups={GROUP}",
                *map(str, command)]

    def run_as_user(self, *command):
        return subprocess.run(self.words(*command), env=self.env, cwd="/", text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=support.TIMEOUT_S)

    def virsh(self, *arguments):
        return self.run_as_user("virsh", "-q", "-c", URI, *arguments)

    def ctl(self, *arguments):
        done = self.run_as_user(self.sluiced.programs.sluicectl, "--socket", self.sluiced.admin,
                                *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def state(self):
        return self.sluiced.ctl("show", "s1")["state"]

    def test_a_libvirtd_that_does_not_answer_is_named_with_its_mend(self):
        folder = self.work / "of-root"
        folder.mkdir(mode=0o700)
        for path, mend in ((self.work / "nowhere", "'systemctl start libvirtd'"),
                           (folder / "socket", "'adduser YOU libvirt'")):
            done = self.run_as_user(self.sluiced.programs.sluicectl, "--socket",
                                    self.sluiced.admin, "attach", "s1", "--connect",
                                    f"qemu+unix:///system?socket={path}")
            self.assertEqual(done.returncode, 1)
            self.assertIn(str(path), done.stderr)
            self.assertIn(mend, done.stderr)

    def test_a_domain_of_a_session(self):
        (self.work / "s1.xml").write_text(DOMAIN)
        self.assertEqual(self.virsh("define", self.work / "s1.xml").returncode, 0)
        self.ctl("attach", "s1", "--connect", URI, "--weight", 70)
        for _ in range(2):
            started = self.virsh("start", "s1")
            self.assertEqual(started.returncode, 0, started.stderr)
            self.eventually(lambda: self.state() == "connected", "QEMU has the vGPU")
            self.assertEqual(self.sluiced.ctl("show", "s1")["weight"], 70)
            self.assertRegex(self.ctl("list", "--connect", URI), r"(?m)^s1 +running +s1 +connected")
            self.virsh("destroy", "s1")
            self.assertNotIn("s1", [v["name"] for v in self.sluiced.ctl("list")])
        self.ctl("detach", "s1", "--connect", URI)
        self.assertEqual(self.virsh("start", "s1").returncode, 0)
        self.virsh("destroy", "s1")
