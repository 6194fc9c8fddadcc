# SPDX-License-Identifier: Apache-2.0
"""A host with our packages, which apt has installed in a container: sluiced, libvirtd with the
hook, and the service that follows domains, all as the packages configure them. There is no systemd:
the test starts what the units would."""
import pathlib
import re
import shutil
import subprocess

import guest_image
import install_document
import support
import two_versions
import virt
from container import ENVIRONMENT, Container
from host import Installed, Sluiced

# Of libvirt's own configuration what needs more of a host than a container has: cgroups, a /dev for
# each domain, a system bus, over which polkit says who may read.
LIBVIRT_CONF = {"qemu.conf": "namespaces = []\ncgroup_controllers = []\n",
                "libvirtd.conf": 'auth_unix_ro = "none"\n'}
EVENTS_UNIT = "sluice-libvirt-events.service"


def command_of(container, unit):
    """What the installed unit starts."""
    text = (container.root / "lib/systemd/system" / unit).read_text()
    return re.search("(?m)^ExecStart=(.*)$", text)[1].split()


def packages_and_image(work):
    """The folder of this version's packages, and kernel and initramfs of a small guest: with the
    guest's package and two of the suite's programs. Both are made in `work`."""
    debs = work / "debs"
    two_versions.build(debs, two_versions.HOST_AND_GUEST)
    programs = [support.BUILD / "kernels/suite" / f"sluice-suite-{p}" for p in ("probe", "md5")]
    agent, = debs.glob("sluice-guest-agent_*.deb")
    vmlinux, initramfs = guest_image.build(support.BUILD / "guest-cache", work / "image", agent,
                                           programs)
    return debs, (shutil.copy(vmlinux, work), initramfs)


class InstalledSluiced(Sluiced):
    """sluiced as the package configures it."""

    def __init__(self, container, work):
        self.container = container
        self.programs = Installed(container.root)
        self.work = pathlib.Path(work)
        self.run_dir = container.root / "run/sluice"
        self.admin = self.run_dir / "admin.sock"
        self.log_path = self.work / "sluiced.log"
        self.process = None
        self.env = ENVIRONMENT
        self.daemon_command = container.enter(*command_of(container, "sluiced.service"))
        self.ctl_command = container.enter("sluicectl")


class InstalledLibvirt(virt.Libvirt):
    """The container's libvirtd: QEMU runs as Debian's user for it, the hook is the package's."""

    def __init__(self, container, work):
        super().__init__(work)
        self.container = container
        self.enter = container.enter()
        self.env = ENVIRONMENT
        self._virtlogd = None

    def start(self):
        etc = self.container.root / "etc/libvirt"
        for name, lines in LIBVIRT_CONF.items():
            with open(etc / name, "a", encoding="utf-8") as f:
                f.write(lines)
        # Its bridge would be this machine's.
        for network in (etc / "qemu/networks/autostart").glob("*"):
            network.unlink()
        self._virtlogd = subprocess.Popen(self.container.enter("virtlogd"), env=self.env,
                                          stdin=subprocess.DEVNULL, start_new_session=True)
        self._start_daemon()

    def stop(self):
        super().stop()
        if self._virtlogd:
            self._virtlogd.kill()
            self._virtlogd.wait()


class WithInstalledHost:
    """A class of cases has `container`, `sluiced` and `libvirt` after `start_host`, until all its
    cases are over."""

    @classmethod
    def start_host(cls, debs, shared=None):
        """Makes the container and installs the host's packages of the folder `debs`; in
        `cls.work`. The container has the folder `shared`, otherwise `cls.work`."""
        cls.container = Container(shared or cls.work)
        cls.addClassCleanup(cls.container.close)
        cls.before = cls.container.written()
        cls.install_host(debs)
        cls.sluiced = InstalledSluiced(cls.container, cls.work)
        cls.addClassCleanup(cls.sluiced.stop)
        cls.sluiced.start()
        cls.libvirt = InstalledLibvirt(cls.container, cls.work / "libvirt")
        cls.addClassCleanup(cls.libvirt.stop)
        cls.libvirt.start()
        cls.events = subprocess.Popen(
            cls.container.enter("setpriv", "--reuid=sluice", "--regid=sluice", "--init-groups",
                                "--no-new-privs", *command_of(cls.container, EVENTS_UNIT)),
            env=ENVIRONMENT, stdin=subprocess.DEVNULL, stderr=open(cls.work / "events.log", "ab"))
        cls.addClassCleanup(cls.stop_events)

    @classmethod
    def stop_events(cls):
        cls.events.kill()
        cls.events.wait(support.TIMEOUT_S)

    @classmethod
    def install_host(cls, debs):
        """The packages of the folder `debs`, by install.md's command, also as an upgrade."""
        folder = cls.container.root / "root/out/packages"
        folder.mkdir(parents=True)
        for name in two_versions.HOST:
            deb, = debs.glob(f"{name}_*.deb")
            shutil.copy(deb, folder)
        cls.container.right(f"cd /root && {install_document.commands('Host', 0)[0]}")
        shutil.rmtree(folder.parent)

    @classmethod
    def ctl(cls, *arguments):
        """sluicectl, with this host's libvirt."""
        return cls.sluiced.run(*arguments, env=cls.libvirt.env)
