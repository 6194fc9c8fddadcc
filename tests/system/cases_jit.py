# SPDX-License-Identifier: Apache-2.0
"""Programs that compile their kernels at run time, with libsluice-jit.so in front (sluice-run)."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import support
from support import WithSluiced

# NVIDIA's compilers, where they are installed; the fakes of tests/jit are always there.
TOOLKIT = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))


class Jit(WithSluiced):
    def run_program(self, *args, jit="on"):
        env = self.sluiced.client_env("a")
        env["LD_PRELOAD"] = str(support.BUILD / "guest-agent/jit/libsluice-jit.so")
        env["SLUICE_JIT"] = jit
        return subprocess.run([support.BUILD / "tests/system/jit-program", *args], env=env,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=support.TIMEOUT_S)

    def launches(self):
        vgpu = self.vgpu("a")
        return vgpu["launches_done"], vgpu["opaque_launches"]

    def assert_evictable(self, *args):
        before = self.launches()
        p = self.run_program(*args)
        self.assertEqual(p.returncode, 0, f"{p.stdout}\n{self.sluiced.log()[-3000:]}")
        self.assertNotIn("not supported", p.stdout, "nothing is wrong")
        self.eventually(lambda: self.launches()[0] == before[0] + 20, "all launches are counted")
        self.assertEqual(self.launches()[1], before[1], "none of them is opaque")
        self.assert_all_free("a")

    def test_what_nvrtc_compiles_is_evictable(self):
        self.assert_evictable("nvrtc", support.BUILD / "tests/jit/libnvrtc.so.13")

    def test_what_ptxas_assembles_is_evictable(self):
        with tempfile.TemporaryDirectory() as work:
            self.assert_evictable("ptxas", support.BUILD / "tests/jit/ptxas", work)

    def test_off_it_is_machine_code_alone(self):
        # The software GPU does not run that.
        p = self.run_program("nvrtc", support.BUILD / "tests/jit/libnvrtc.so.13", jit="off")
        self.assertEqual(p.returncode, 4, p.stdout)
        self.assertIn("cuModuleLoadData: 209", p.stdout)  # no binary for this GPU
        self.assert_all_free("a")

    def test_the_agent_says_which_kernels_are_opaque_and_what_to_do(self):
        library = support.BUILD / "tests/jit/libnvrtc.so.13"
        for jit, evictable in (("on", True), ("off", False)):
            env = {**self.sluiced.client_env("a"), "SLUICE_JIT": jit}
            env["LD_PRELOAD"] = str(support.BUILD / "guest-agent/jit/libsluice-jit.so")
            p = subprocess.run(
                [support.BUILD / "guest-agent/agent/sluice-agent", "kernels", "--json",
                 support.BUILD / "tests/system/jit-program", "nvrtc", library], env=env,
                stdout=subprocess.PIPE, text=True, timeout=support.TIMEOUT_S)
            self.assertEqual(p.returncode, 0 if evictable else 4, p.stdout)
            kernel, = json.loads(p.stdout)["kernels"]
            self.assertEqual((kernel["name"], kernel["evictable"]), ("scale", evictable))
            self.assertEqual("sluice-run" in kernel["mend"], not evictable, kernel)
        self.assert_all_free("a")

    def test_nvidias_compilers(self):
        library, ptxas = TOOLKIT / "lib64/libnvrtc.so.13", TOOLKIT / "bin/ptxas"
        if not library.exists() or not ptxas.exists():
            raise unittest.SkipTest("no toolkit")
        self.assert_evictable("nvrtc", library)
        with tempfile.TemporaryDirectory() as work:
            self.assert_evictable("ptxas", ptxas, work)


class JitOfAllClones(Jit):
    """Each kernel's clones are in the text of its module."""
    EXTRA = 'clones = "eager"\n'
