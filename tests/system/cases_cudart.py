# SPDX-License-Identifier: Apache-2.0
"""Programs of the CUDA runtime API through the channel, with our libcudart."""
import json
import os
import subprocess
import tempfile
import unittest

import support
from support import WithSluiced

# Compiled programs, where nvcc is: ninja -C BUILD cudart-programs.
PROGRAMS = ("tests/cudart", "native", "ptx")
# A fault ends the session of a guest's program, as NVIDIA's manual has it for the process. A reset
# does not give it another one; on NVIDIA's driver and the software GPU alone it does.
NOT_AFTER_A_FAULT = "-Runtime.AFaultStaysUntilTheReset"


# The software GPU in the place of the guest's library.
ALONE = {**os.environ,
         "LD_PRELOAD": str(support.BUILD / "mediator/softgpu/libsluice-softcuda.so")}


class Cudart(WithSluiced):
    def run_program(self, vgpu, path, *args):
        env = self.sluiced.client_env(vgpu)
        env["GTEST_FILTER"] = NOT_AFTER_A_FAULT
        env["LD_LIBRARY_PATH"] = os.pathsep.join(
            [str(support.BUILD / "guest-agent/cudart"), env["LD_LIBRARY_PATH"]])
        p = subprocess.run([path, *args], env=env, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, timeout=support.TIMEOUT_S)
        self.assertEqual(p.returncode, 0, f"{path.name}: {p.stdout[-3000:]}\n"
                         f"--- sluiced:\n{self.sluiced.log()[-3000:]}")

    def test_management_library_finds_the_vgpu(self):
        env = self.sluiced.client_env("a")
        env["LD_LIBRARY_PATH"] = os.pathsep.join(
            [str(support.BUILD / "guest-agent/nvml"), env["LD_LIBRARY_PATH"]])
        p = subprocess.run([support.BUILD / "tests/unit/nvml/nvml_test"], env=env,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           timeout=support.TIMEOUT_S)
        self.assertEqual(p.returncode, 0, f"{p.stdout}\n{self.sluiced.log()[-3000:]}")
        self.assert_all_free("a")

    def test_the_doctor_finds_all_right_or_says_what_to_do(self):
        def ask(command, **more):
            env = {**self.sluiced.client_env("a"), **more}
            p = subprocess.run(
                [support.BUILD / "guest-agent/agent/sluice-agent", command, "--json"], env=env,
                stdout=subprocess.PIPE, text=True, timeout=support.TIMEOUT_S)
            checks = json.loads(p.stdout)["checks"]
            return p.returncode, {c["name"]: c for c in checks}
        shim = self.sluiced.client_env("a")["LD_LIBRARY_PATH"]
        ours = os.pathsep.join([str(support.BUILD / "guest-agent/cudart"), shim])
        status, checks = ask("doctor", LD_LIBRARY_PATH=ours)
        self.assertEqual((status, list(checks)), (0, ["device", "agent", "host", "transport",
                                                      "libcuda", "driver", "channel", "runtime",
                                                      "launch"]),
                         checks)
        for check in checks.values():
            self.assertEqual((check["state"], check["mend"]), ("right", ""), checks)
        self.assertEqual(checks["launch"]["fact"], "a kernel of 1024 threads is right")
        self.assertIn("libcudart.so.13", checks["runtime"]["fact"])
        status, checks = ask("status", LD_LIBRARY_PATH=ours)
        self.assertEqual((status, "launch" in checks), (0, False), checks)
        self.assert_all_free("a")
        # A vGPU that is not there.
        status, checks = ask("doctor", LD_LIBRARY_PATH=ours, SLUICE_SOCKET="/no/such/socket")
        self.assertEqual(status, 1)
        self.assertEqual({n for n, c in checks.items() if c["state"] == "wrong"},
                         {"device", "agent", "driver"}, checks)
        self.assertIn("systemctl start sluice-guest-agent", checks["agent"]["mend"])
        self.assertIn("CUDA_ERROR_NO_DEVICE", checks["driver"]["fact"])

    def test_a_trace_has_each_call_with_its_result(self):
        env = {**self.sluiced.client_env("a"), "SLUICE_TRACE": "calls"}
        program = [support.BUILD / "tests/system" / "texture-calls"]
        p = subprocess.run(program, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True, timeout=support.TIMEOUT_S)
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr[-3000:])
        for line in (r"cuMemAlloc_v2\(0x[0-9a-f]+, 4096\) = CUDA_SUCCESS, [0-9.]+ us",
                     r"launch\(sample, 1, 1, 1, 4, 1, 1\) = queued, [0-9.]+ us",
                     r"cuArray3DCreate_v2\(.*\) = CUDA_ERROR_INVALID_VALUE, [0-9.]+ us",
                     r"copy\(0x[0-9a-f]+, 0x[0-9a-f]+, \d+, 1\) = (CUDA_SUCCESS|queued), "):
            self.assertRegex(p.stderr, line)
        del env["SLUICE_TRACE"]
        p = subprocess.run(program, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True, timeout=support.TIMEOUT_S)
        self.assertNotIn("cuMemAlloc", p.stderr)

    def test_registered_kernels_run_as_on_the_software_gpu(self):
        for name in ("cudart_runtime_test", "cudart_runtime_12_test"):
            with self.subTest(name):
                self.run_program("a", support.BUILD / "tests/cudart" / name)
        self.assert_all_free("a")

    def test_cases_of_each_function_are_right(self):
        for name in ("cudart_cases_test", "cudart_cases_12_test"):
            with self.subTest(name):
                self.run_program("a", support.BUILD / "tests/cudart" / name)
        self.assert_all_free("a")

    def test_cases_of_the_driver_api_are_right(self):
        self.run_program("a", support.BUILD / "tests/conformance/driver_cases_test")
        self.assert_all_free("a")

    def right_both_ways(self, name, *args):
        for how, env in (("channel", self.sluiced.client_env("a")), ("software GPU", ALONE)):
            with self.subTest(how):
                p = subprocess.run([support.BUILD / "tests/system" / name, *args], env=env,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   timeout=support.TIMEOUT_S)
                self.assertEqual(p.returncode, 0, f"{p.stdout}\n{self.sluiced.log()[-3000:]}")
        self.assert_all_free("a")

    def test_arrays_and_textures_answer_alike_here_and_on_the_software_gpu(self):
        self.right_both_ways("texture-calls")

    def test_driver_calls_answer_alike_here_and_on_the_software_gpu(self):
        with tempfile.NamedTemporaryFile(suffix=".ptx") as file:
            self.right_both_ways("driver-calls", file.name)

    def test_compiled_programs_are_right(self):
        folder = support.BUILD.joinpath(*PROGRAMS)
        if not folder.is_dir():
            raise unittest.SkipTest("no compiled programs: ninja cudart-programs, where nvcc is")
        for path in sorted(folder.iterdir()):
            with self.subTest(path.name):
                self.run_program("a", path)
        self.assert_all_free("a")
