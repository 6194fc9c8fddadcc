# SPDX-License-Identifier: Apache-2.0
"""Workers' cgroups by a kernel that has them: a host of the gate may have the controllers in
hierarchies of cgroup v1, or delegate none, and skips the same tests in tests/unit/spawner."""
import pathlib
import shutil
import subprocess
import unittest

import support
import virt


def with_program(initramfs, program, work):
    """A copy of `initramfs` in which the root folder has the program as well: the kernel reads one
    archive behind the other."""
    shutil.copy(program, work)
    archive = subprocess.run(["cpio", "-o", "-H", "newc", "--owner=0:0", "--quiet"], cwd=work,
                             input=program.name.encode(), stdout=subprocess.PIPE, check=True).stdout
    both = work / "initramfs.cpio"
    both.write_bytes(pathlib.Path(initramfs).read_bytes() + archive)
    return both


class LimitsInAGuest(unittest.TestCase):
    def test_a_kernel_enforces_them(self):
        work = support.folder()
        vmlinux, initramfs = support.image()
        program = support.BUILD / "tests/system/cgroups-here"
        q = virt.Qemu("limits", work, vmlinux, with_program(initramfs, program, work))
        self.addCleanup(q.kill)
        q.boot()
        status, text = q.guest.run("mount -t cgroup2 cgroup2 /sys/fs/cgroup && /cgroups-here",
                                   support.TIMEOUT_S)
        self.assertEqual(status, 0, f"{text}\n--- console:\n{q.console()[-3000:]}")
        self.assertNotIn("SKIPPED", text)
        self.assertRegex(text, r"PASSED\D*[1-9]")
