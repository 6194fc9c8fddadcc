#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A virtual machine as a node of KubeVirt has it, with a real libvirt and QEMU: the device plugin
makes the vGPU, the sidecar changes the domain, a guest's program uses the GPU. Only the kubelet and
virt-launcher are fakes. `scripts/test --all` runs it; root only.

    guest_test.py BUILD_DIR
"""
import importlib.util
import os
import subprocess
import sys
import unittest

import fakes
import support
import virt
from host import Sluiced

VM = "default_" + "vm" * 30  # too long a name for a vGPU


def system_support():
    """tests/system's module of the same name: the guest's image."""
    spec = importlib.util.spec_from_file_location(
        "system_support", support.ROOT / "tests/system/support.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.BUILD = support.BUILD
    return module


@unittest.skipUnless(os.geteuid() == 0, "root only: libvirtd in a mount namespace of its own")
class Guest(support.Case):
    def test_a_virtual_machine_of_a_pod(self):
        virt.enter_private_namespace()
        system = system_support()
        self.addCleanup(system.clean_up)
        work = self.folder()
        sluiced = Sluiced(support.BUILD, work)
        self.addCleanup(sluiced.stop)
        sluiced.start()
        (work / "plugins").mkdir()
        kubelet = fakes.Kubelet(work / "plugins", work / "pods.sock").start()
        self.addCleanup(kubelet.stop)
        plugin = support.Running(
            work, "sluice-device-plugin", "--shares", 4, "--no-annotations", "--admin-socket",
            sluiced.admin, "--folder", sluiced.run_dir / "pods", "--kubelet-folder", kubelet.folder,
            "--pod-resources", kubelet.pods_socket, "--grace", 1, "--interval", 0.2)
        self.addCleanup(plugin.stop)
        peer = fakes.PluginPeer(kubelet.folder / kubelet.registrations(1)[0]["endpoint"])
        self.addCleanup(peer.close)
        (answer,) = peer.allocate(["kube-1", "kube-2"])
        kubelet.set_pod("default", "launcher", ["kube-1", "kube-2"])
        peer.start("kube-1", "kube-2")

        self.mount(answer["mounts"][0])
        sidecar = support.Running(work, "sluice-kubevirt-hook", "--socket", work / "hook.sock")
        self.addCleanup(sidecar.stop)
        launcher = fakes.VirtLauncher(work / "hook.sock")
        self.addCleanup(launcher.close)
        vmlinux, initramfs = system.image()
        vmi = {"metadata": {"name": "vm", "namespace": "default", "annotations": {
            "vgpu.sluice.example/weight": "300"}},
            "spec": {"domain": {"resources": {"limits": {"sluice.example/vgpu": "2"}}}}}
        xml = launcher.define(virt.domain_xml(VM, vmlinux, initramfs, work / "job.sock",
                                              work / "console.log"), vmi)
        (work / "domain.xml").write_text(xml)

        libvirt = virt.Libvirt(work / "libvirt")
        self.addCleanup(libvirt.stop)
        libvirt.start()
        libvirt.define(work / "domain.xml")
        # libvirt has kept all of it.
        kept = launcher.define(libvirt.virsh("dumpxml", VM, "--inactive").stdout, vmi)
        self.assertEqual(kept.count("<shmem"), 1)
        self.assertEqual(kept.count("<iommu"), 1)
        guest = libvirt.boot(VM, work / "job.sock")
        self.eventually(lambda: guest.run("sluice-suite-probe", 120)[0] == 0,
                        "a program of the guest reaches the GPU")
        status, text = guest.run("sluice-suite-triad --launches 4 --json", 300)
        self.assertEqual(status, 0, text)
        shown = {v["name"]: (v["state"], v["weight"]) for v in sluiced.ctl("list")}
        self.assertEqual(shown, {"kube-1": ("connected", 200)})
        libvirt.destroy(VM)
        # A program of a container, before and after sluiced has restarted: the mount is the same.
        self.run_program(answer)
        sluiced.stop()
        sluiced.start()
        self.eventually(lambda: sluiced.ctl("list"), "the vGPU is made again")
        self.run_program(answer)
        kubelet.set_pod("default", "launcher", [])
        self.eventually(lambda: not sluiced.ctl("list"), "the vGPU goes with its pod")


    def mount(self, mount):
        """As a container runtime does it, in this process's own namespace."""
        os.makedirs(mount["container_path"], exist_ok=True)
        self.addCleanup(os.rmdir, mount["container_path"])
        for options in ("bind", "remount,bind,ro" if mount["read_only"] else "remount,bind"):
            subprocess.run(["mount", "-o", options, mount["host_path"], mount["container_path"]],
                           check=True)
        self.addCleanup(subprocess.run, ["umount", mount["container_path"]], check=True)
        with self.assertRaises(OSError):
            open(mount["container_path"] + "/file", "w").close()

    def run_program(self, answer):
        p = subprocess.run([support.BUILD / "kernels/suite/sluice-suite-probe"],
                           env={**os.environ, **answer["envs"],
                                "LD_LIBRARY_PATH": str(support.BUILD / "guest-agent/shim")},
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           timeout=support.TIMEOUT_S)
        self.assertEqual(p.returncode, 0, p.stdout)


if __name__ == "__main__":
    if subprocess.call(["sh", "-c", "command -v libvirtd >/dev/null"]) != 0:
        print("needs libvirtd")
        sys.exit(77)
    support.main()
