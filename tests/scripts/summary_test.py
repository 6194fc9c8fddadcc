#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/lib/summary.py: what it counts, and that a run which lacks a suite fails."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "scripts/lib/summary.py"


class Summary(unittest.TestCase):
    def setUp(self):
        self.results = pathlib.Path(tempfile.mkdtemp(prefix="sluice-summary."))
        self.addCleanup(shutil.rmtree, self.results)

    def meson(self, run, *tests):
        """Each test: (suite, name, result)."""
        with open(self.results / f"{run}.json", "w") as f:
            for suite, name, result in tests:
                f.write(json.dumps({"name": f"sluice:{suite} / {name}", "result": result,
                                    "duration": 1.5, "command": [f"/b/{name}_test"]}) + "\n")

    def cases(self, run, name, cases):
        folder = self.results / f"{run}.cases"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}_test.xml").write_text("<testsuites><testsuite>" + "".join(
            f'<testcase classname="C" name="{c}">{inside}</testcase>' for c, inside in cases) +
            "</testsuite></testsuites>")

    def run_summary(self, *require):
        done = subprocess.run([sys.executable, PROGRAM, self.results, "--require", *require],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout, done.stdout.splitlines()[-1]

    def test_each_suite_has_a_line_with_its_count(self):
        self.meson("release", ("unit", "ring", "OK"), ("unit", "wire", "OK"), ("sim", "wfq", "OK"))
        self.meson("asan", ("unit", "ring", "OK"))
        (self.results / "system.xml").write_text(
            '<testsuite><testcase name="boots" time="2"/>'
            '<testcase name="b"><skipped/></testcase></testsuite>')
        self.cases("release", "ring", [("a", ""), ("b", ""), ("c", "<skipped/>")])
        status, text, last = self.run_summary("unit", "sim", "asan", "system")
        self.assertEqual((status, last), (0, "6 passed, 0 failed, 2 skipped"))
        counts = {line.split()[0]: line.split()[1:5] for line in text.splitlines()[1:-1]}
        self.assertEqual(counts, {"unit": ["2", "3", "0", "1"], "sim": ["1", "1", "0", "0"],
                                  "asan": ["1", "1", "0", "0"], "system": ["2", "1", "0", "1"]})

    def test_a_missing_suite_fails_with_a_sentence(self):
        self.meson("release", ("conformance", "probe", "OK"))
        status, text, last = self.run_summary("conformance", "unit")
        self.assertEqual((status, last), (1, "1 passed, 1 failed, 0 skipped"))
        self.assertIn("the suite 'unit' is missing", text)

    def test_a_suite_of_which_nothing_passed_fails(self):
        self.meson("release", ("unit", "ring", "OK"), ("golden", "regenerate", "SKIP"))
        status, text, _ = self.run_summary("unit", "golden")
        self.assertEqual(status, 1)
        self.assertIn("no test of the suite 'golden' passed", text)

    def test_nothing_at_all_fails(self):
        status, _, last = self.run_summary()
        self.assertEqual((status, last), (1, "0 passed, 0 failed, 0 skipped"))

    def test_a_skipped_suite_that_is_not_required_says_why(self):
        self.meson("release", ("unit", "ring", "OK"), ("cccl", "cccl", "OK"))
        self.cases("release", "cccl", [("a", '<skipped message="x.cc:1&#x0A;no recordings"/>')])
        status, text, last = self.run_summary("unit")
        self.assertEqual((status, last), (0, "1 passed, 0 failed, 1 skipped"))
        self.assertIn("SKIPPED  cccl: no recordings", text)

    def test_failed_cases_are_named(self):
        self.meson("release", ("unit", "ring", "FAIL"))
        self.cases("release", "ring", [("good", ""), ("bad", "<failure/>")])
        status, text, last = self.run_summary("unit")
        self.assertEqual((status, last), (1, "1 passed, 1 failed, 0 skipped"))
        self.assertIn("C.bad", text)

    def test_a_program_that_died_counts_as_failed(self):
        for result in ("FAIL", "TIMEOUT", "ERROR", "INTERRUPT"):
            with self.subTest(result):
                self.meson("release", ("unit", "ring", result), ("unit", "wire", "OK"))
                self.cases("release", "ring", [("before", "")])
                status, _, last = self.run_summary("unit")
                self.assertEqual((status, last), (1, "2 passed, 1 failed, 0 skipped"))

    def test_a_program_that_ran_no_case_fails(self):
        self.meson("release", ("unit", "ring", "OK"), ("unit", "wire", "OK"))
        self.cases("release", "ring", [])
        status, text, _ = self.run_summary("unit")
        self.assertEqual(status, 1)
        self.assertIn("ring (it ran no case)", text)

    def test_half_a_file_of_cases(self):
        self.meson("release", ("unit", "ring", "FAIL"), ("unit", "wire", "OK"))
        self.cases("release", "ring", [])
        (self.results / "release.cases/ring_test.xml").write_text("<testsuites><testsu")
        status, _, last = self.run_summary("unit")
        self.assertEqual((status, last), (1, "1 passed, 1 failed, 0 skipped"))

    def failed(self):
        return subprocess.run([sys.executable, PROGRAM, self.results, "--failed"], check=True,
                              stdout=subprocess.PIPE, text=True).stdout.splitlines()

    def system(self, folder, *cases):
        """Each case: (class, name, what is inside)."""
        folder.mkdir(exist_ok=True)
        (folder / "system.xml").write_text("<testsuite>" + "".join(
            f'<testcase classname="{c}" name="{n}">{inside}</testcase>'
            for c, n, inside in cases) + "</testsuite>")

    def test_a_test_that_passes_alone_counts_and_is_named_unstable(self):
        self.meson("release", ("unit", "ring", "FAIL"), ("unit", "wire", "OK"))
        self.cases("release", "ring", [("good", ""), ("bad", "<failure/>")])
        self.system(self.results, ("m.C", "test_a", "<failure/>"), ("m.C", "test_b", ""))
        self.assertEqual(self.failed(), ["release ring", "system m.C.test_a"])
        self.results /= "again"
        self.system(self.results, ("m.C", "test_a", ""))
        self.meson("release", ("unit", "ring", "OK"))
        self.cases("release", "ring", [("good", ""), ("bad", "")])
        self.results = self.results.parent
        status, text, last = self.run_summary("unit", "system")
        self.assertEqual((status, last), (0, "5 passed, 0 failed, 0 skipped"))
        self.assertIn("UNSTABLE  unit  ring", text)
        self.assertIn("UNSTABLE  system  m.C.test_a", text)

    def test_a_test_that_fails_again_has_failed(self):
        self.meson("release", ("unit", "ring", "TIMEOUT"))
        self.system(self.results, ("m.C", "test_a", "<error/>"))
        self.results /= "again"
        self.system(self.results, ("m.C", "test_a", "<failure/>"))
        self.meson("release", ("unit", "ring", "FAIL"))
        self.results = self.results.parent
        status, text, last = self.run_summary("unit", "system")
        self.assertEqual((status, last), (1, "0 passed, 4 failed, 0 skipped"))
        self.assertNotIn("UNSTABLE", text)

    def test_a_class_that_could_not_be_set_up_is_repeated_as_a_whole(self):
        self.system(self.results, ("setUpClass (m", "C)", "<error/>"), ("m.CD", "test_x", ""))
        for run in ("guests", "debian_guest"):
            (self.results / f"{run}.xml").write_text((self.results / "system.xml").read_text())
        self.assertEqual(self.failed(), ["system m.C", "guests m.C", "debian_guest m.C"])
        for run in ("guests", "debian_guest"):
            (self.results / f"{run}.xml").unlink()
        again = self.results / "again"
        self.system(again, ("m.CD", "test_x", ""))
        self.assertEqual(self.run_summary("system")[0], 1, "none of its own ran")
        self.system(again, ("m.C", "test_a", ""), ("m.C", "test_b", "<failure/>"))
        self.assertEqual(self.run_summary("system")[0], 1)
        self.system(again, ("m.C", "test_a", ""), ("m.C", "test_b", ""))
        self.assertEqual(self.run_summary("system")[0], 0)


if __name__ == "__main__":
    unittest.main()
