# SPDX-License-Identifier: Apache-2.0
"""A Debian guest as users have it: debootstrapped packages, Debian's kernel and initramfs,
systemd and apt, on an ext4 disk. It is made once and kept in the build folder's guest-cache; a test
starts from a copy. DEBIAN_RELEASE says which: bookworm (12, the default), trixie (13), or noble,
which is Ubuntu 24.04 and needs its keyring: of the package ubuntu-archive-keyring, or what
tests/packages/releases_test has fetched into the build folder.

Two things differ from an installation by Debian's installer: there is no boot loader (libvirt gives
QEMU the kernel, unpacked, which saves its decompressor under TCG), and a unit runs the job server
of scripts/guest/jobs.
"""
import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import guest_image

RELEASE = os.environ.get("DEBIAN_RELEASE", "bookworm")
UBUNTU = RELEASE == "noble"
UBUNTU_KEYS = "ubuntu-archive-keyring.gpg"
# With what has priority `required` and is not essential (passwd).
PACKAGES = ("linux-image-virtual" if UBUNTU else "linux-image-amd64") + (
    ",systemd-sysv,udev,dbus,kmod,passwd,initramfs-tools,pciutils")
# What our host packages want, and AppArmor as Debian's installer has it.
HOST_PACKAGES = (PACKAGES + ",apparmor,libvirt-daemon-system,libvirt-clients,qemu-system-x86,"
                 "procps,libseccomp2,libstdc++6,binutils")
DISK_BYTES = 2 << 30
INITRAMFS_MODULES = "virtio_pci\nvirtio_blk\next4\n"
JOBS_UNIT = """[Unit]
Description=Job server of the tests
[Service]
ExecStart=/usr/local/sbin/guest-jobs
StandardInput=null
[Install]
WantedBy=multi-user.target
"""


def _run(*args):
    p = subprocess.run(list(map(str, args)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True)
    if p.returncode != 0:
        raise guest_image.ImageError(f"{args[0]} failed:\n{p.stdout[-3000:]}")


def _ubuntu_keys(cache):
    for folder in (pathlib.Path("/usr/share/keyrings"), cache.parent / "chroot-cache"):
        if (folder / UBUNTU_KEYS).exists():
            return folder / UBUNTU_KEYS
    raise unittest.SkipTest(f"no {UBUNTU_KEYS}: tests/packages/releases_test fetches it")


def _fill(root, work, packages, cache):
    """Debian's packages into the folder `root`, and the job server."""
    source = ["--components=main,universe", f"--keyring={_ubuntu_keys(cache)}"] if UBUNTU else []
    conf = work / "initramfs"
    conf.mkdir()
    (conf / "modules").write_text(INITRAMFS_MODULES)
    (conf / "list").write_text("MODULES=list\nCOMPRESS=gzip\n")
    _run("mmdebstrap", "--variant=apt", f"--include={packages}",
         '--setup-hook=mkdir -p "$1/etc/initramfs-tools/conf.d"',
         f'--setup-hook=cp {conf}/modules "$1/etc/initramfs-tools/modules"',
         f'--setup-hook=cp {conf}/list "$1/etc/initramfs-tools/conf.d/list"',
         "--dpkgopt=force-confold", *source, RELEASE, root,
         *(["http://archive.ubuntu.com/ubuntu"] if UBUNTU else []))
    (root / "etc/hostname").write_text("guest\n")
    (root / "etc/fstab").write_text("/dev/vda / ext4 defaults 0 1\n")
    add_job_server(root)


def add_job_server(root):
    """scripts/guest/jobs, started by systemd."""
    jobs = root / "usr/local/sbin/guest-jobs"
    shutil.copy(guest_image.ROOT / "scripts/guest/jobs", jobs)
    jobs.chmod(0o755)
    units = root / "etc/systemd/system"
    (units / "guest-jobs.service").write_text(JOBS_UNIT)
    (units / "multi-user.target.wants").mkdir(exist_ok=True)
    (units / "multi-user.target.wants/guest-jobs.service").symlink_to("../guest-jobs.service")


def filesystem(path, folder, size):
    """A sparse ext4 image with what is in `folder`."""
    with open(path, "wb") as f:
        f.truncate(size)
    _run("mkfs.ext4", "-q", "-F", "-d", folder, path)


def make(cache, name="guest", packages=PACKAGES):
    """(vmlinux, initrd, disk) in the folder RELEASE-`name` of `cache`."""
    name = f"{RELEASE}-{name}"
    stamp = hashlib.sha256(pathlib.Path(__file__).read_bytes()
                           + (guest_image.ROOT / "scripts/guest/jobs").read_bytes()).hexdigest()
    done = pathlib.Path(cache).resolve() / f"{name}-{stamp[:16]}"
    files = done / "vmlinux", done / "initrd", done / "disk"
    if done.is_dir():
        return files
    for old in done.parent.glob(f"{name}-" + "?" * 16):
        shutil.rmtree(old)
    done.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{name}.", dir=done.parent) as work:
        work = pathlib.Path(work)
        root, result = work / "root", work / "result"
        result.mkdir()
        _fill(root, work, packages, done.parent)
        guest_image.unpack_vmlinux(next((root / "boot").glob("vmlinuz-*")), result / "vmlinux")
        shutil.copy(next((root / "boot").glob("initrd.img-*")), result / "initrd")
        filesystem(result / "disk", root, DISK_BYTES)
        result.rename(done)
    return files
