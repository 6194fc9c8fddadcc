# SPDX-License-Identifier: Apache-2.0
"""A host with the installed packages: sluiced, a libvirt of its own, and the service that follows
its domains."""
import subprocess

import support
import two_versions
import virt
from host import Installed, Sluiced


class WithInstalledHost:
    """A class of cases has `host` (the packages' programs), `sluiced` and `libvirt` after
    `start_host`, until all its cases are over."""

    @classmethod
    def start_host(cls, debs):
        """With the packages of the folder `debs`; in `cls.work`."""
        cls.host = cls.work / "host"
        two_versions.unpack(debs, cls.host)
        cls.sluiced = Sluiced(support.BUILD, cls.work, programs=Installed(cls.host))
        cls.addClassCleanup(cls.sluiced.stop)
        cls.sluiced.start()
        cls.libvirt = virt.Libvirt(cls.work / "libvirt", cls.sluiced)
        cls.addClassCleanup(cls.libvirt.stop)
        cls.libvirt.start()
        events = subprocess.Popen(
            [cls.sluiced.programs.events], stdin=subprocess.DEVNULL,
            stderr=open(cls.work / "events.log", "ab"),
            env={**cls.libvirt.env, **{k: str(v) for k, v in cls.libvirt.hook_env.items()}})
        cls.addClassCleanup(events.wait, support.TIMEOUT_S)
        cls.addClassCleanup(events.kill)

    @classmethod
    def ctl(cls, *arguments):
        """sluicectl, with this host's libvirt."""
        return cls.sluiced.run(*arguments, "--connect", cls.libvirt.uri, env=cls.libvirt.env)
