# SPDX-License-Identifier: Apache-2.0
"""A container for packages: this machine's own files below an overlay that keeps in memory what is
written. apt and maintainer scripts do in it what they do on a host, and `written()` says what is
left of that. /proc, /sys, /dev, /run and /tmp are its own; there is no systemd, so that scripts
start nothing, and no security file system, so that they load no AppArmor profile.

Root only, in a mount namespace of the test's (virt.enter_private_namespace). The test starts
programs in it by `enter`; they are its children and see its network.
"""
import os
import pathlib
import stat
import subprocess
import tempfile
import unittest

DEVICES = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9}  # of major number 1
LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2",
         "ptmx": "pts/ptmx"}
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/root",
               "DEBIAN_FRONTEND": "noninteractive"}


def _mount(kind, target, options="defaults"):
    subprocess.run(["mount", "-t", kind, "-o", options, kind, target], check=True)


class Container:
    """`shared`: a folder that has the same path inside. `close()` ends it, not its programs."""

    def __init__(self, shared):
        self._holder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-container."))
        self.root = self._holder / "root"
        self._upper = self._holder / "upper"
        try:
            self._make(shared)
        except BaseException:
            self.close()
            raise

    def _make(self, shared):
        _mount("tmpfs", self._holder, "mode=0755")
        work = self._holder / "work"
        for folder in (self.root, self._upper, work):
            folder.mkdir()
        try:
            _mount("overlay", self.root, f"lowerdir=/,upperdir={self._upper},workdir={work}")
        except subprocess.CalledProcessError:
            raise unittest.SkipTest("this kernel mounts no overlay of /") from None
        _mount("proc", self.root / "proc")
        _mount("sysfs", self.root / "sys", "ro")
        for name in ("dev", "run", "tmp"):
            _mount("tmpfs", self.root / name, f"mode={'1777' if name == 'tmp' else '0755'}")
        dev = self.root / "dev"
        for name, minor in DEVICES.items():
            os.mknod(dev / name, stat.S_IFCHR, os.makedev(1, minor))
            os.chmod(dev / name, 0o666)
        for name, target in LINKS.items():
            (dev / name).symlink_to(target)
        for name, kind, options in (("pts", "devpts", "newinstance,ptmxmode=0666"),
                                    ("shm", "tmpfs", "mode=1777")):
            (dev / name).mkdir()
            _mount(kind, dev / name, options)
        inside = self.root / str(shared)[1:]
        inside.mkdir(parents=True)
        subprocess.run(["mount", "--bind", shared, inside], check=True)

    def close(self):
        """Its files are gone, also where something still runs in it."""
        if os.path.ismount(self._holder):
            subprocess.run(["umount", "--recursive", "--lazy", self._holder], check=True)
        self._holder.rmdir()

    def enter(self, *command):
        """The command that runs `command` inside."""
        return ["chroot", str(self.root), *map(str, command)]

    def run(self, command):
        """(status, text) of a shell's command inside."""
        p = subprocess.run(self.enter("/bin/sh", "-c", command), env=ENVIRONMENT, text=True,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT)
        return p.returncode, p.stdout

    def right(self, command):
        status, text = self.run(command)
        if status != 0:
            raise AssertionError(f"{command}:\n{text}")
        return text

    def written(self):
        """Paths inside of what differs from this machine's files: written, made or deleted."""
        found = set()
        for folder, folders, files in os.walk(self._upper):
            inside = pathlib.Path("/", os.path.relpath(folder, self._upper))
            found |= {str(inside / name) for name in files}
            # A folder is in the overlay as soon as something below it is.
            found |= {str(inside / name) for name in folders
                      if not os.path.isdir(f"/{inside}/{name}")}
        return found

    def processes(self, *programs):
        """Names of those of these programs that run, one for each process. Workers, which have a
        root folder of their own, are found by their program's file."""
        files = {}
        for program in programs:
            s = os.stat(program)
            files[s.st_dev, s.st_ino] = pathlib.Path(program).name
        found = []
        for exe in pathlib.Path("/proc").glob("[0-9]*/exe"):
            try:
                s = os.stat(exe)
            except OSError:
                continue
            if name := files.get((s.st_dev, s.st_ino)):
                found.append(name)
        return sorted(found)
