# SPDX-License-Identifier: Apache-2.0
"""Builds the guest image of the demo and the system tests: Debian's kernel unpacked to vmlinux, and
an initramfs with busybox, libc, the sluice-guest-agent package (installed with dpkg) and the
CUDA programs of kernels/suite.

Nothing is installed on the host: the packages are downloaded with apt-get and unpacked in a cache
folder, which is reused while their versions stay the same. An unpacked vmlinux boots in 2-3 s under
TCG, three times as quickly as the compressed image (its own decompressor would be emulated).
"""
import functools
import hashlib
import lzma
import os
import pathlib
import re
import shutil
import struct
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGES = ("linux-image-amd64", "busybox-static", "libc6", "libc-bin")
# In the order of their dependencies: the guest has insmod only.
MODULES = ["virt/lib/irqbypass", "drivers/vfio/vfio_virqfd", "drivers/vfio/vfio",
           "drivers/vfio/vfio_iommu_type1", "drivers/vfio/pci/vfio-pci-core",
           "drivers/vfio/pci/vfio-pci"]
LIBC_FILES = ["libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1",
              "ld-linux-x86-64.so.2"]


class ImageError(Exception):
    """What is missing for the image, and what to do."""


def _run(args, **kw):
    p = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kw)
    if p.returncode != 0:
        raise ImageError(f"{' '.join(map(str, args))} failed:\n{p.stdout}")
    return p.stdout


@functools.cache
def _shown(*packages):
    """What apt shows of each of them. It may take seconds a call, whatever it is asked."""
    text = _run(["apt-cache", "show", "--no-all-versions", *packages])
    return {re.match(r"Package: (\S+)", shown).group(1): shown for shown in text.split("\n\n")
            if shown.strip()}


def _kernel_package():
    """The versioned package behind linux-image-amd64, for example linux-image-6.1.0-56-amd64."""
    shown = _shown(*PACKAGES)["linux-image-amd64"]
    m = re.search(r"^Depends: (linux-image-\S+-amd64)", shown, re.M)
    if not m:
        raise ImageError("apt knows no linux-image-amd64; run 'apt-get update' as root first")
    return m.group(1)


def _fetch(package, cache):
    """Downloads and unpacks a Debian package into cache/PACKAGE_VERSION; returns that folder."""
    shown = _shown(*PACKAGES) if package in PACKAGES else _shown(package)
    version = re.search(r"^Version: (\S+)", shown[package], re.M).group(1)
    folder = cache / f"{package}_{version.replace(':', '%3a')}"
    if folder.is_dir():
        return folder
    work = cache / (folder.name + ".part")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    _run(["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", package], cwd=work)
    deb = next(work.glob("*.deb"))
    _run(["dpkg-deb", "-x", deb, work / "x"])
    (work / "x").rename(folder)
    shutil.rmtree(work)
    return folder


def unpack_vmlinux(vmlinuz, vmlinux):
    """The ELF image inside a bzImage, whose header says where its payload is (Linux's boot
    protocol, 2.08). Debian 12 packs it with XZ, 13 with Zstandard, for which `zstd` is needed."""
    data = vmlinuz.read_bytes()
    offset, size = struct.unpack_from("<II", data, 0x248)
    start = ((data[0x1f1] or 4) + 1) * 512 + offset
    payload = data[start:start + size]
    if payload.startswith(b"\xfd7zXZ\x00"):
        elf = lzma.LZMADecompressor().decompress(payload)
    elif payload.startswith(b"\x28\xb5\x2f\xfd"):
        # The last four bytes are the length of what comes out.
        elf = subprocess.run(["zstd", "-dc"], input=payload[:-4], stdout=subprocess.PIPE,
                             check=True).stdout
    else:
        raise ImageError(f"{vmlinuz}: its payload is neither of XZ nor of Zstandard")
    if not elf.startswith(b"\x7fELF"):
        raise ImageError(f"the payload of {vmlinuz} is no ELF image")
    vmlinux.write_bytes(elf)


def kernel(cache):
    """Returns (vmlinux, folder with the kernel's modules)."""
    folder = _fetch(_kernel_package(), cache)
    vmlinux = folder / "vmlinux"
    if not vmlinux.exists():
        part = folder / "vmlinux.part"
        unpack_vmlinux(next((folder / "boot").glob("vmlinuz-*")), part)
        part.rename(vmlinux)
    return vmlinux, next((folder / "lib/modules").iterdir()) / "kernel"


def _install_package(root, deb):
    """dpkg's own database inside the image knows the package, as it would in any guest."""
    for d in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log", "etc"):
        (root / d).mkdir(parents=True, exist_ok=True)
    (root / "var/lib/dpkg/status").touch()
    args = ["dpkg", f"--root={root}", "--force-depends", "--force-not-root",
            "--force-script-chrootless", "--install", deb]
    _run(args)


def _root_folder(root, cache, modules, deb, programs):
    """The guest's files below `root`, made anew."""
    shutil.rmtree(root, ignore_errors=True)
    for d in ("bin", "dev", "proc", "sys", "run", "tmp", "lib/modules", "lib64", "usr/bin",
              "usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "etc"):
        (root / d).mkdir(parents=True, exist_ok=True)
    busybox = _fetch("busybox-static", cache)
    shutil.copy(next(p for p in (busybox / "bin/busybox", busybox / "usr/bin/busybox")
                     if p.exists()), root / "bin/busybox")
    (root / "bin/sh").symlink_to("busybox")
    libc = _fetch("libc6", cache)
    for name in LIBC_FILES:
        src = next(p for d in ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu")
                   if (p := libc / d / name).exists())
        shutil.copy(src, root / "lib/x86_64-linux-gnu" / name)
    (root / "lib64/ld-linux-x86-64.so.2").symlink_to("/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
    (root / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    for i, m in enumerate(MODULES):
        shutil.copy(modules / (m + ".ko"), root / f"lib/modules/{i:02}-{pathlib.Path(m).name}.ko")
    # The loader's configuration as Debian has it. The guest's init makes the loader's cache, as
    # dpkg's trigger of libc-bin would.
    libc_bin = _fetch("libc-bin", cache)
    shutil.copy(libc_bin / "etc/ld.so.conf", root / "etc/ld.so.conf")
    shutil.copytree(libc / "etc/ld.so.conf.d", root / "etc/ld.so.conf.d")
    (root / "sbin").mkdir(exist_ok=True)
    shutil.copy(next(p for p in (libc_bin / "sbin/ldconfig", libc_bin / "usr/sbin/ldconfig")
                     if p.exists()), root / "sbin/ldconfig")
    _install_package(root, deb)
    for p in programs:
        shutil.copy(p, root / "usr/bin" / pathlib.Path(p).name)
        os.chmod(root / "usr/bin" / pathlib.Path(p).name, 0o755)
    shutil.copy(ROOT / "scripts/guest/jobs", root / "usr/bin/guest-jobs")
    shutil.copy(ROOT / "scripts/guest/init", root / "init")
    os.chmod(root / "init", 0o755)


def build(cache, out, deb, programs):
    """Makes out/vmlinux and out/initramfs.cpio from the package `deb` and a list of program files
    (they land in /usr/bin). Returns (vmlinux, initramfs)."""
    cache, out = pathlib.Path(cache).resolve(), pathlib.Path(out).resolve()
    cache.mkdir(parents=True, exist_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    vmlinux, modules = kernel(cache)
    inputs = [pathlib.Path(deb), ROOT / "scripts/guest/init", ROOT / "scripts/guest/jobs",
              pathlib.Path(__file__),
              *map(pathlib.Path, programs)]
    stamp = hashlib.sha256(str(vmlinux).encode())
    for f in inputs:
        stamp.update(f.read_bytes())
    initramfs, stamp_file = out / "initramfs.cpio", out / "initramfs.stamp"
    if initramfs.exists() and stamp_file.exists() and stamp_file.read_text() == stamp.hexdigest():
        return vmlinux, initramfs

    root = out / "rootfs"
    _root_folder(root, cache, modules, deb, programs)
    files = sorted(p.relative_to(root) for p in root.rglob("*"))
    part = out / "initramfs.part"
    with open(part, "wb") as f:
        p = subprocess.run(["cpio", "-o", "-H", "newc", "--owner=0:0", "--quiet"], cwd=root,
                           input="\n".join(map(str, files)).encode(), stdout=f,
                           stderr=subprocess.PIPE)
    if p.returncode != 0:
        raise ImageError("cpio failed: " + p.stderr.decode())
    part.rename(initramfs)
    stamp_file.write_text(stamp.hexdigest())
    shutil.rmtree(root)
    return vmlinux, initramfs
