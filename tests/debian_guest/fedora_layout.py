# SPDX-License-Identifier: Apache-2.0
"""A guest as Fedora lays one out, of Debian 13's programs, most of the versions of Fedora 42:
glibc 2.41, systemd 257, rpm 4.20; a kernel 6.12 with an initramfs by dracut. No repository of
Fedora is needed. What differs from Debian:

- libraries in /usr/lib64 and nothing in /usr/lib/x86_64-linux-gnu, which the loader does not know;
  /usr/sbin is /usr/bin; sh is bash;
- no dpkg, apt, alternatives, adduser, or any of Debian's helpers of packages;
- rpm and dnf, with rpm's database in /usr/lib/sysimage/rpm. It knows one package, which provides
  what the libraries and programs of the tree provide, as rpm computes it: so what our RPM requires
  is looked up;
- systemd's presets disable every unit, as Fedora's do for units that it does not name.

What stays Debian's: the binaries, their paths for plug-ins, the kernel, and that there is no
SELinux.
"""
import hashlib
import os
import pathlib
import shutil
import stat
import subprocess
import tempfile

import debian_image
import guest_image

PACKAGES = ("linux-image-amd64,systemd-sysv,udev,dbus,kmod,passwd,dracut,pciutils,procps,rpm,dnf")
MULTIARCH = "/usr/lib/x86_64-linux-gnu"
LIB64 = "/usr/lib64"
DEBIAN_PROGRAMS = ["add-shell", "addgroup", "adduser", "delgroup", "deluser", "apt*",
                   "deb-systemd-*", "debconf*", "dpkg*", "invoke-rc.d", "remove-shell", "service",
                   "start-stop-daemon", "update-alternatives", "update-passwd", "update-rc.d"]
DEBIAN_FOLDERS = ["etc/apt", "etc/dpkg", "etc/alternatives", "etc/debian_version", "etc/kernel",
                  "usr/lib/apt", "usr/lib/dpkg", "usr/share/debconf", "usr/share/doc",
                  "usr/share/dpkg", "usr/share/locale", "usr/share/man", "var/cache/apt",
                  "var/lib/apt", "var/lib/dpkg"]
OS_RELEASE = """NAME="Fedora's layout"
ID=fedora-layout
VERSION_ID=42
PLATFORM_ID="platform:f42"
"""
# Of rpm's configuration: what Debian's has elsewhere.
RPM_MACROS = f"""%_dbpath /usr/lib/sysimage/rpm
%__plugindir {LIB64}/rpm-plugins
%_libdir {LIB64}
"""
BASE_SPEC = """Name: base
Version: 42
Release: 1
Summary: What a tree provides
License: none
BuildArch: noarch
%description
Provides what the libraries and programs of the tree provide.
%files
"""


def run(*args, **kw):
    p = subprocess.run(list(map(str, args)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True, **kw)
    if p.returncode != 0:
        raise guest_image.ImageError(f"{' '.join(map(str, args))}:\n{p.stdout[-3000:]}")
    return p.stdout


def _inside(root, command):
    return run("chroot", root, "/usr/bin/env", "-i", "PATH=/usr/bin", "LC_ALL=C", "/bin/sh", "-c",
               command)


def _place(path):
    """Where a file of Debian's is afterwards."""
    for old, new in (("/lib64/", "/usr/lib64/"), ("/lib/", "/usr/lib/"), ("/sbin/", "/usr/bin/"),
                     ("/bin/", "/usr/bin/"), ("/usr/sbin/", "/usr/bin/")):
        if path.startswith(old):
            path = new + path[len(old):]
            break
    if path.startswith(MULTIARCH + "/"):
        path = LIB64 + path[len(MULTIARCH):]
    return path


def _target(root, link):
    """What a symbolic link means, by its text alone."""
    text = os.readlink(link)
    folder = "/" + str(link.parent.relative_to(root))
    return os.path.normpath(os.path.join(folder, text))


def _links(root):
    """Those of the tree, each with its place and meaning afterwards."""
    found = []
    for folder, folders, files in os.walk(root / "usr"):
        for name in folders + files:
            link = pathlib.Path(folder) / name
            if not link.is_symlink():
                continue
            meaning = _target(root, link)
            if meaning.startswith("/etc/alternatives/"):
                chosen = root / meaning[1:]
                meaning = _target(root, chosen) if chosen.is_symlink() else meaning
            found.append((link, _place("/" + str(link.relative_to(root))), _place(meaning)))
    return found


def _move_all(old, new):
    """What is in the folder `old` into `new`, and `old` is gone. What is there stays."""
    new.mkdir(exist_ok=True)
    for entry in old.iterdir():
        if not os.path.lexists(new / entry.name):
            entry.rename(new / entry.name)
    shutil.rmtree(old)


def _move_libraries(root):
    links = _links(root)
    for link, _, _ in links:
        link.unlink()
    _move_all(root / MULTIARCH[1:], root / LIB64[1:])
    _move_all(root / "usr/sbin", root / "usr/bin")
    for _, place, meaning in links:
        link = root / place[1:]
        if place != meaning and not os.path.lexists(link) and link.parent.is_dir():
            link.symlink_to(meaning)
    (root / "usr/sbin").symlink_to("bin")
    for name in ("sbin", "bin"):
        (root / name).unlink()
        (root / name).symlink_to("usr/bin")
    (root / "usr/bin/sh").unlink()
    (root / "usr/bin/sh").symlink_to("bash")
    shutil.rmtree(root / "etc/ld.so.conf.d")
    (root / "etc/ld.so.conf.d").mkdir()
    # Fedora's loader has /usr/lib64 built in, behind what these name.
    (root / "etc/ld.so.conf").write_text(
        f"include ld.so.conf.d/*.conf\n{LIB64}\n{LIB64}/systemd\n")
    run("chroot", root, "/usr/bin/ldconfig")


def _remove_debian(root):
    for pattern in DEBIAN_PROGRAMS:
        for program in (root / "usr/bin").glob(pattern):
            program.unlink()
    for name in DEBIAN_FOLDERS:
        path = root / name
        if path.is_symlink() or path.is_file():
            path.unlink()
        else:
            shutil.rmtree(path, ignore_errors=True)


def _provides(root):
    """As an RPM of each library and program would."""
    libraries = [p for p in (root / LIB64[1:]).rglob("*.so*")
                 if stat.S_ISREG(p.lstat().st_mode)]
    words = run("/usr/lib/rpm/elfdeps", "--provides", input="\n".join(map(str, libraries)) + "\n")
    programs = [f"/usr/bin/{p.name}" for p in (root / "usr/bin").iterdir()]
    programs += [f"/usr/sbin/{p.name}" for p in (root / "usr/bin").iterdir()]
    return sorted(set(words.split("\n")) - {""}) + programs + ["/bin/sh", "systemd", "kmod",
                                                            "rtld(GNU_HASH)", "system-release"]


def _rpm_database(root, work):
    (root / "etc/rpm").mkdir(exist_ok=True)
    (root / "etc/rpm/macros").write_text(RPM_MACROS)
    spec = work / "base.spec"
    spec.write_text(BASE_SPEC.replace("%description", "".join(
        f"Provides: {p}\n" for p in _provides(root)) + "%description"))
    run("rpmbuild", "-bb", "--define", f"_topdir {work}/rpm", spec)
    rpm, = (work / "rpm/RPMS").rglob("*.rpm")
    shutil.copy(rpm, root / "base.rpm")
    (root / "usr/lib/sysimage/rpm").mkdir(parents=True)
    _inside(root, "rpm --initdb && rpm --install /base.rpm")
    (root / "base.rpm").unlink()


def _fill(root, work):
    run("mmdebstrap", "--variant=apt", f"--include={PACKAGES}", "trixie", root)
    _move_libraries(root)
    _remove_debian(root)
    (root / "usr/lib/os-release").write_text(OS_RELEASE)
    presets = root / "usr/lib/systemd/system-preset"
    shutil.rmtree(presets, ignore_errors=True)
    presets.mkdir()
    (presets / "99-default-disable.preset").write_text("disable *\n")
    _rpm_database(root, work)
    (root / "etc/hostname").write_text("guest\n")
    (root / "etc/fstab").write_text("/dev/vda / ext4 defaults 0 1\n")
    debian_image.add_job_server(root)


def make(cache):
    """(vmlinux, initrd, disk) in the folder `fedora-layout` of `cache`."""
    stamp = hashlib.sha256(b"".join(pathlib.Path(p).read_bytes() for p in (
        __file__, debian_image.__file__, guest_image.ROOT / "scripts/guest/jobs"))).hexdigest()
    done = pathlib.Path(cache).resolve() / f"fedora-layout-{stamp[:16]}"
    files = done / "vmlinux", done / "initrd", done / "disk"
    if done.is_dir():
        return files
    for old in done.parent.glob("fedora-layout-" + "?" * 16):
        shutil.rmtree(old)
    done.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fedora-layout.", dir=done.parent) as work:
        work = pathlib.Path(work)
        root, result = work / "root", work / "result"
        result.mkdir()
        _fill(root, work)
        vmlinuz, = (root / "boot").glob("vmlinuz-*")
        guest_image.unpack_vmlinux(vmlinuz, result / "vmlinux")
        _inside(root, "dracut --force --no-hostonly --no-early-microcode --gzip --omit 'plymouth "
                      "network nfs lvm mdraid dmraid crypt multipath btrfs' --add-drivers "
                      f"'virtio_pci virtio_blk ext4' /initrd {vmlinuz.name[len('vmlinuz-'):]}")
        (root / "initrd").rename(result / "initrd")
        debian_image.filesystem(result / "disk", root, debian_image.DISK_BYTES)
        result.rename(done)
    return files
