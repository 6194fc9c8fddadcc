# SPDX-License-Identifier: Apache-2.0
"""Virtual machines for the demo and the system tests: libvirt domains under a libvirtd of our own,
or QEMU started directly. Both are TCG guests of scripts/lib/guest_image.py.

The system's libvirt is left alone: as root, enter_private_namespace() gives the whole process a
mount namespace in which libvirt's folders are empty tmpfs, and a libvirtd is started there; any
other user gets libvirt's session mode with private XDG folders.
"""
import ctypes
import os
import pathlib
import shutil
import subprocess
import time
import xml.sax.saxutils as saxutils

from guest import Guest, GuestError

CLONE_NEWNS = 0x00020000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
LIBVIRT_FOLDERS = ["/run/libvirt", "/etc/libvirt", "/var/lib/libvirt", "/var/log/libvirt",
                   "/var/cache/libvirt"]
# Under TCG a kernel boots in three quarters of the time without its guards against other programs
# of the same processor, of which there are none.
UNGUARDED = "mitigations=off"
KERNEL_ARGUMENTS = f"console=ttyS0 quiet panic=-1 intel_iommu=on {UNGUARDED}"
# A guest's boot may be retried (TCG on a loaded machine), a wrong result never. Beside twenty busy
# processes on two processors it takes more than two minutes, and a retry begins anew.
BOOT_TIMEOUT_S = 300
BOOT_TRIES = 3


class VirtError(Exception):
    pass


def enter_private_namespace():
    """Root only: from here on, this process and its children have libvirt folders of their own."""
    libc = ctypes.CDLL(None, use_errno=True)

    def check(rc, what):
        if rc != 0:
            raise VirtError(f"{what}: {os.strerror(ctypes.get_errno())}")
    check(libc.unshare(CLONE_NEWNS), "unshare of the mount namespace")
    if libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) != 0:
        # In a chroot "/" may be no mount point: then every mount point that can be seen.
        for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
            libc.mount(b"none", line.split()[1].encode(), None, MS_PRIVATE, None)
    for folder in LIBVIRT_FOLDERS:
        os.makedirs(folder, exist_ok=True)
        check(libc.mount(b"tmpfs", folder.encode(), b"tmpfs", 0, b"mode=0755"),
              f"a private {folder}")


def install_hook(program, settings):
    """Where libvirtd looks for it, with `settings`: libvirt passes no variables of its own on."""
    hook = pathlib.Path("/etc/libvirt/hooks/qemu")
    hook.parent.mkdir(exist_ok=True)
    settings = " ".join(f"{k}='{v}'" for k, v in settings.items())
    hook.write_text(f"#!/bin/sh\n{settings} exec '{program}' \"$@\"\n")
    hook.chmod(0o755)


class Libvirt:
    """A libvirtd of our own, in `work`; domains defined here end with it. As root, `sluiced`
    (host.py) has its vGPUs made and removed by Sluice's hook."""

    def __init__(self, work, sluiced=None):
        self.work = pathlib.Path(work)
        self.work.mkdir(parents=True, exist_ok=True)
        self.root = os.geteuid() == 0
        self.env = dict(os.environ)
        self.uri = "qemu:///system" if self.root else "qemu:///session"
        if not self.root:
            for name in ("RUNTIME_DIR", "CONFIG_HOME", "CACHE_HOME", "DATA_HOME"):
                folder = self.work / name.lower()
                folder.mkdir(mode=0o700, exist_ok=True)
                self.env["XDG_" + name] = str(folder)
        self.hook_env = {}
        if sluiced and self.root:
            self.hook_env = {"SLUICE_ADMIN_SOCKET": sluiced.admin,
                             "SLUICE_VGPU_SOCKETS": sluiced.run_dir / "vgpu"}
            self.hook = sluiced.programs.hook
        self.enter = []  # what runs a command where this libvirtd is
        self._daemon = None
        self._domains = []

    def start(self):
        if self.root:
            # QEMU as root and without virtlogd, cgroups and security drivers: this libvirtd serves
            # throw-away guests in a namespace of its own and must not touch the host's settings.
            pathlib.Path("/etc/libvirt/qemu.conf").write_text(
                'user = "root"\ngroup = "root"\ndynamic_ownership = 0\nremember_owner = 0\n'
                'security_driver = "none"\nnamespaces = []\ncgroup_controllers = []\n'
                'stdio_handler = "file"\n')
            pathlib.Path("/etc/libvirt/libvirtd.conf").write_text(
                'unix_sock_ro_perms = "0700"\nauth_unix_rw = "none"\nauth_unix_ro = "none"\n')
        if self.hook_env:
            install_hook(self.hook, self.hook_env)
        self._start_daemon()

    def restart(self):
        """Ends libvirtd and starts it again; its domains go on."""
        self._stop_daemon()
        self._start_daemon()

    def crash(self):
        """libvirtd is killed; restart() has it again."""
        self._daemon.kill()
        self._daemon.wait()

    def _start_daemon(self):
        log = open(self.work / "libvirtd.log", "ab")
        args = [*self.enter, shutil.which("libvirtd") or "/usr/sbin/libvirtd"]
        if self.root:
            args += ["--pid-file", str(self.work / "libvirtd.pid")]
        self._daemon = subprocess.Popen(args, stdout=log, stderr=log, env=self.env,
                                        start_new_session=True)
        end = time.monotonic() + 60
        while self.virsh("version", check=False).returncode != 0:
            if self._daemon.poll() is not None or time.monotonic() > end:
                raise VirtError("libvirtd did not start; see " + str(self.work / "libvirtd.log"))
            time.sleep(0.1)

    def virsh(self, *args, check=True, text=None):
        p = subprocess.run([*self.enter, "virsh", "-q", "-c", self.uri, *map(str, args)],
                           env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           input=text)
        if check and p.returncode != 0:
            raise VirtError(f"virsh {' '.join(map(str, args))}: {p.stderr.strip()}")
        return p

    def define(self, xml_file):
        self.virsh("define", xml_file)

    def attach(self, sluiced, name, *settings):
        """`sluicectl attach`; in session mode, where libvirt runs no hook, makes the vGPU too."""
        sluiced.run("attach", name, "--connect", self.uri, *settings, env=self.env)
        if not self.hook_env:
            xml = self.work / f"{name}.attached.xml"
            xml.write_text(self.virsh("dumpxml", name).stdout)
            sluiced.run("create", "--domain-xml", xml)

    def boot(self, name, job_socket, timeout=BOOT_TIMEOUT_S):
        """Starts a defined domain and waits for its job server; returns the Guest."""
        self._domains.append(name)
        for attempt in range(1, BOOT_TRIES + 1):
            self.virsh("start", name)
            guest = Guest(name, job_socket)
            try:
                guest.connect(timeout, lambda: self.running(name))
                return guest
            except GuestError:
                self.destroy(name)
                if attempt == BOOT_TRIES:
                    raise
        raise AssertionError("unreachable")

    def running(self, name):
        return self.virsh("domstate", name, check=False).stdout.strip() == "running"

    def destroy(self, name):
        self.virsh("destroy", name, check=False)

    def stop(self):
        for name in self._domains:
            self.destroy(name)
            self.virsh("undefine", name, check=False)
        if self._daemon:
            self._stop_daemon()

    def _stop_daemon(self):
        self._daemon.terminate()
        try:
            self._daemon.wait(20)
        except subprocess.TimeoutExpired:
            self._daemon.kill()
            self._daemon.wait()


def domain_xml(name, vmlinux, initramfs, job_socket, console_log, guest_mib=256):
    """A domain as an owner has it before `sluicectl attach`."""
    q = {k: saxutils.escape(str(v), {"'": "&apos;"}) for k, v in locals().items()}
    return f"""<domain type='qemu'>
  <name>{q['name']}</name>
  <memory unit='MiB'>{q['guest_mib']}</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>{q['vmlinux']}</kernel>
    <initrd>{q['initramfs']}</initrd>
    <cmdline>{KERNEL_ARGUMENTS}</cmdline>
  </os>
  <features><acpi/></features>
  <cpu mode='maximum'/>
  <on_poweroff>destroy</on_poweroff>
  <on_reboot>restart</on_reboot>
  <on_crash>destroy</on_crash>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <serial type='file'><source path='{q['console_log']}'/><target port='0'/></serial>
    <serial type='unix'><source mode='bind' path='{q['job_socket']}'/><target port='1'/></serial>
    <memballoon model='none'/>
  </devices>
</domain>
"""


class Qemu:
    """One guest by QEMU's command line, for tests that need no libvirt. `vgpu_socket` None: no
    vGPU. Without an `iommu` the guest has no VFIO."""

    def __init__(self, name, work, vmlinux, initramfs, vgpu_socket=None, vectors=17, guest_mib=256,
                 iommu=True):
        self.name = name
        self.work = pathlib.Path(work)
        self.work.mkdir(parents=True, exist_ok=True)
        self.job_socket = self.work / f"{name}.jobs"
        self.console_log = self.work / f"{name}.console"
        self.args = ["qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi",
                     "-cpu", "max", "-m", str(guest_mib), "-smp", "1", "-nodefaults",
                     "-no-user-config", "-display", "none", "-serial", f"file:{self.console_log}",
                     "-serial", f"unix:{self.job_socket},server=on,wait=off",
                     "-kernel", str(vmlinux), "-initrd", str(initramfs),
                     "-append", KERNEL_ARGUMENTS]
        if iommu:
            self.args += ["-device", "intel-iommu,intremap=on"]
        if vgpu_socket:
            self.args += ["-chardev", f"socket,path={vgpu_socket},id=vgpu0",
                          "-device", f"ivshmem-doorbell,chardev=vgpu0,vectors={vectors}"]
        self.process = None
        self.guest = None

    def boot(self, timeout=BOOT_TIMEOUT_S):
        for attempt in range(1, BOOT_TRIES + 1):
            for f in (self.job_socket, self.console_log):
                f.unlink(missing_ok=True)
            self.process = subprocess.Popen(self.args, stdin=subprocess.DEVNULL)
            self.guest = Guest(self.name, self.job_socket)
            try:
                self.guest.connect(timeout, lambda: self.process.poll() is None)
                return self.guest
            except GuestError:
                self.kill()
                if attempt == BOOT_TRIES:
                    raise
        raise AssertionError("unreachable")

    def reconnect(self):
        """After a reboot inside the same QEMU: a new Guest on the same serial line."""
        self.guest.close()
        self.guest = Guest(self.name, self.job_socket)
        self.guest.connect(BOOT_TIMEOUT_S, lambda: self.process.poll() is None)
        return self.guest

    def console(self):
        return self.console_log.read_text(errors="replace") if self.console_log.exists() else ""

    def kill(self):
        if self.guest:
            self.guest.close()
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
