#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The images of packaging/kubernetes, built by podman with the commands of
docs/operating/kubernetes.md and run between the fakes: the plugin under the restrictions of
device-plugin.yaml, the sidecar under KubeVirt's. `scripts/test --all` runs it; root only. Exit 77:
skipped, the line says why.

    images_test.py BUILD_DIR [unittest's arguments]

No registry is asked: debian:12-slim is what mmdebstrap makes of Debian's archive, in
BUILD_DIR/chroot-cache, which tests/packages/releases_test shares.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import hook_test
import plugin_test
import support
import virt

FOLDER = support.ROOT / "packaging/kubernetes"
BASE = "docker.io/library/debian:12-slim"
NAMES = ("device-plugin", "kubevirt-hook")
# What podman asks for by default is more than root may have in some containers.
LIMITS = ("--ulimit", "nofile=1000:1000", "--ulimit", "nproc=1000:1000")


def skip(why):
    print("images_test: skipped:", why)
    sys.exit(77)


class Images:
    """podman with a storage of its own. `folders`: those that its containers have."""

    def __init__(self, work):
        self.work, self.folders = work, []
        runtime = next(filter(shutil.which, ("runc", "crun")), None) or skip("needs runc or crun")
        self.podman = ["podman", "--root", work + "/storage", "--runroot", work + "/run",
                       "--cgroup-manager", "cgroupfs", "--runtime", runtime]

    def call(self, *args):
        p = subprocess.run([*self.podman, *map(str, args)], stdout=subprocess.PIPE, cwd=FOLDER,
                           stderr=subprocess.STDOUT, text=True)
        if p.returncode != 0:
            raise AssertionError(f"podman {' '.join(map(str, args))}:\n{p.stdout[-5000:]}")
        return p.stdout

    def build(self):
        cache = support.BUILD / "chroot-cache"
        base = cache / "bookworm.tar"
        if not base.exists():
            cache.mkdir(exist_ok=True)
            part = cache / "part.tar"
            if subprocess.call(["mmdebstrap", "--quiet", "--variant=apt", "bookworm", part]) != 0:
                skip("Debian 12 cannot be fetched")
            part.rename(base)
        self.call("import", base, BASE)
        subprocess.run([support.ROOT / "scripts/build-packages", support.BUILD,
                        self.work + "/packages", "sluice-kubernetes"], check=True)
        # All lines of the document, so that none is wrong.
        text = (support.ROOT / "docs/operating/kubernetes.md").read_text().replace("\\\n", "")
        commands = re.findall(r"(?m)^podman build (.*)$", text)
        assert len(commands) == len(NAMES), commands
        for command in commands:
            *options, folder = command.split()
            assert folder == "../../out/packages", command
            self.call("build", "--isolation", "chroot", "--network", "host", "--pull=never",
                      *options, self.work + "/packages")

    def command(self, program, *args):
        """The command that runs a program's image, in the place of support.program()."""
        name = program.removeprefix("sluice-")
        mounts = [f"--volume={f}:{f}" for f in self.folders if f.exists()]
        return [*self.podman, "run", "--rm", "--network", "host", *LIMITS, *mounts,
                *RESTRICTIONS[name](), f"registry.example/{program}:0.1.0", *map(str, args)]


def of_the_manifest():
    """podman's options for the securityContext of device-plugin.yaml."""
    text = (FOLDER / "device-plugin.yaml").read_text()
    (context,) = re.findall(r"(?s)securityContext:\n(.*?)\n        resources:", text)
    lines = {line.strip() for line in context.splitlines() if not line.strip().startswith("#")}
    options = {"runAsUser: 0": ["--user=0"], "readOnlyRootFilesystem: true": [
        "--read-only", "--read-only-tmpfs=false"],
               "allowPrivilegeEscalation: false": ["--security-opt=no-new-privileges"],
               "capabilities:": [], "drop: [ALL]": ["--cap-drop=ALL"],
               "add: [DAC_OVERRIDE, FOWNER]": ["--cap-add=DAC_OVERRIDE,FOWNER"]}
    assert lines == set(options), lines
    return sum(options.values(), [])


RESTRICTIONS = {
    "device-plugin": of_the_manifest,
    # The image says which user.
    "kubevirt-hook": lambda: ["--cap-drop=ALL", "--security-opt=no-new-privileges"]}
IMAGES = None


class InImages:
    @classmethod
    def folder(cls):
        folder = super().folder()
        IMAGES.folders.append(folder)
        folder.chmod(0o777)  # the sidecar's user makes its socket there
        return folder


class DevicePlugin(InImages, plugin_test.WithPlugin):
    OPTIONS = plugin_test.Plugin.OPTIONS
    test_registration = plugin_test.Plugin.test_registration
    test_a_pod = plugin_test.Plugin.test_a_pod_from_its_beginning_to_its_end
    test_annotations = plugin_test.Plugin.test_annotations


class KubevirtHook(InImages, hook_test.Hook):
    """All cases of the sidecar."""


def load_tests(loader, _, __):
    """Not the other cases of the modules that are imported."""
    return unittest.TestSuite(map(loader.loadTestsFromTestCase, (DevicePlugin, KubevirtHook)))


def main():
    global IMAGES
    support.BUILD = pathlib.Path(sys.argv[1]).resolve()
    if os.geteuid() != 0:
        skip("needs root")
    for tool in ("podman", "mmdebstrap"):
        if not shutil.which(tool):
            skip(f"needs {tool}")
    virt.enter_private_namespace()
    with tempfile.TemporaryDirectory(prefix="sluice-images.", ignore_cleanup_errors=True) as work:
        IMAGES = Images(work)
        IMAGES.build()
        support.program = IMAGES.command
        try:
            support.main()
        finally:
            IMAGES.call("rmi", "--all", "--force")


if __name__ == "__main__":
    main()
