#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The example manifests and the documents say the names and options that the programs have; the
hookscript for Proxmox does what its page says.

    manifests_test.py BUILD_DIR
"""
import re
import subprocess
import unittest

import support
from host import Sluiced

FOLDER = support.ROOT / "packaging/kubernetes"
DOCUMENT = support.ROOT / "docs/operating/kubernetes.md"
NAMES = {"sluice.example/vgpu", "sluice.example/gpu"}


def texts():
    return [p for p in [*FOLDER.glob("*.yaml"), DOCUMENT]]


class Proxmox(support.Case):
    def test_the_hookscript_of_the_document(self):
        text = (DOCUMENT.parent / "other-engines.md").read_text()
        (script,) = re.findall(r"(?s)```\n(#!/bin/sh\n.*?)```", text)
        work = self.folder()
        sluiced = Sluiced(support.BUILD, work)
        self.addCleanup(sluiced.stop)
        sluiced.start()
        ctl = work / "sluicectl"
        ctl.write_text(f'#!/bin/sh\nexec {sluiced.programs.sluicectl} --socket {sluiced.admin} '
                       '"$@"\n')
        ctl.chmod(0o755)
        hook = work / "hook"
        hook.write_text(script)
        hook.chmod(0o755)

        def phase(name):
            return subprocess.run([hook, "100", name], stdout=subprocess.PIPE, text=True,
                                  stderr=subprocess.STDOUT, timeout=support.TIMEOUT_S,
                                  env={"PATH": f"{work}:/usr/bin:/bin"})

        for name in ("pre-start", "post-start", "pre-stop"):
            done = phase(name)
            self.assertEqual(done.returncode, 0, done.stdout)
            (vgpu,) = sluiced.ctl("list")
            # As the line of arguments has it.
            self.assertIn(f"path=/run/sluice/vgpu/{vgpu['name']}.sock", text)
            self.assertIn(f"vectors={vgpu['slots'] + 1}'", text)
        # A host that went down with the machine.
        self.assertEqual(phase("pre-start").returncode, 0)
        self.assertEqual(phase("post-stop").returncode, 0)
        self.assertEqual(sluiced.ctl("list"), [])
        sluiced.stop()
        done = phase("pre-start")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("sluiced", done.stdout)


class Manifests(unittest.TestCase):
    def help_of(self, program):
        return subprocess.run(support.program(program, "--help"), check=True, text=True,
                              stdout=subprocess.PIPE, env=support.environment()).stdout

    def test_options(self):
        known = set(re.findall(r"--[a-z-]+", self.help_of("sluice-device-plugin")))
        used = re.findall(r"(?m)^ +- (--[a-z-]+)=", (FOLDER / "device-plugin.yaml").read_text())
        self.assertTrue(used)
        self.assertLessEqual(set(used), known)
        rows = re.findall(r"(?m)^\| `(--[a-z-]+)", DOCUMENT.read_text())
        self.assertEqual(set(rows) | {"--help"}, known)

    def test_names(self):
        for path in texts():
            text = path.read_text()
            found = set(re.findall(r"(?<![\w./])sluice\.example/\w+", text))
            self.assertLessEqual(found, NAMES, path)
            self.assertNotRegex(text, r"vgpu\.sluice/")

    def test_annotations(self):
        """Each that is mentioned is one that sluice-domain-attach or the device knows."""
        examples = {"weight": "300", "memory": "8G", "priority": "3", "latency": "low", "min": "1",
                    "max": "50", "group": "a"}
        device = {"iommu", "slots"}
        tool = support.environment()["SLUICE_DOMAIN_ATTACH"]
        subprocess.run([tool, "settings", *(f"{k}={v}" for k, v in examples.items())], check=True,
                       stdout=subprocess.DEVNULL)
        for path in texts():
            said = set(re.findall(r"vgpu\.sluice\.example/([a-z]+)", path.read_text()))
            self.assertLessEqual(said, {*examples, *device}, path)
        rows = set(re.findall(r"(?m)^\| `([a-z]+)` \| .*\| (?:vGPU|device) \|$",
                              DOCUMENT.read_text()))
        self.assertEqual(rows, {*examples, *device})

    def test_paths(self):
        text = (FOLDER / "device-plugin.yaml").read_text()
        for path in ("/var/lib/kubelet/device-plugins", "/var/lib/kubelet/pod-resources",
                     "/run/sluice"):
            self.assertIn(f"mountPath: {path}", text)
            self.assertIn(f"hostPath: {{path: {path},", text)
            self.assertIn(path, self.help_of("sluice-device-plugin"))
        for name in ("device-plugin", "kubevirt-hook"):
            text = (FOLDER / f"Containerfile.{name}").read_text()
            self.assertIn(f'ENTRYPOINT ["/usr/libexec/sluice/sluice-{name}"]', text)


if __name__ == "__main__":
    support.main()
