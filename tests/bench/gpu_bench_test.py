#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpu-bench on the software GPU: it runs, results are right, what it leaves has the shape that is
promised, and a wrong result or a missed goal is not hidden. No time is looked at.

usage: gpu_bench_test.py SOURCE_ROOT BUILD
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT, BUILD = (pathlib.Path(p).resolve() for p in sys.argv[1:3])
sys.path.insert(0, str(ROOT / "scripts/lib"))
from gpu_bench import results, sections, tenant, ways  # noqa: E402

SECTIONS = {"light", "handover", "shares"}
WAYS = {"slices", "sluice-slices", "sluice-shared"}


class OnTheSoftwareGpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.out = pathlib.Path(cls.folder.name)
        cls.done = subprocess.run(
            [ROOT / "scripts/gpu-bench", "--build", BUILD, "--device", "soft", "--seconds", "0.05",
             "--only", ",".join(sorted(SECTIONS)), "--ways", ",".join(sorted(WAYS)),
             "--out", cls.out], capture_output=True, text=True, timeout=500)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_ends_well(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr[-3000:])

    def test_rows_have_the_promised_keys(self):
        data = json.loads((self.out / "gpu-bench.json").read_text())
        self.assertEqual(data["wrong"], [])
        self.assertEqual(set(data["measured"]), SECTIONS)
        self.assertGreater(len(data["rows"]), 30)
        for row in data["rows"]:
            self.assertEqual(list(row), ["experiment", "way", "metric", "value", "unit",
                                         "baseline", "goal", "met"])
            self.assertIsInstance(row["value"], (int, float))
            self.assertIn(row["way"].split("/")[0], WAYS)

    def test_table_and_pictures(self):
        table = (self.out / "gpu-bench.md").read_text()
        self.assertIn("| sluice-shared |", table)
        for name in ("light", "timeline"):
            self.assertIn("</svg>", (self.out / f"gpu-bench-{name}.svg").read_text())

    def test_visitor_and_sluiced_are_on_one_axis(self):
        data = json.loads((self.out / "gpu-bench.json").read_text())
        line = data["measured"]["handover"]["sluice-shared"]["timeline"]
        self.assertGreater(sum(line["blocks"]["a"]), 0)
        self.assertIn("a", {e["vgpu"] for e in line["decisions"]})


class OwedToThoseThatComeAndGo(unittest.TestCase):
    def test_all_of_it_runs(self):
        with tempfile.TemporaryDirectory() as out:
            done = subprocess.run(
                [ROOT / "scripts/gpu-bench", "--build", BUILD, "--device", "soft", "--seconds",
                 "0.05", "--only", "lag", "--ways", "sluice-shared", "--out", out],
                capture_output=True, text=True, timeout=500)
            self.assertEqual(done.returncode, 0, done.stderr[-3000:])
            data = json.loads((pathlib.Path(out) / "gpu-bench.json").read_text())
        self.assertEqual(data["wrong"], [])
        measured = data["measured"]["lag"]["sluice-shared"]
        self.assertEqual(len(measured["light"]["16"]), 17)
        for kind in ("crowd", "naps"):
            self.assertGreater(sum(a["charged_us"] for a in measured[kind]["beside"]), 0)


class FluidGpu(unittest.TestCase):
    def parts(self, work_us, pauses_us, weights):
        return sections.shares.of_a_fluid_gpu(work_us, pauses_us, weights)

    def test_those_that_always_have_work_have_their_weights(self):
        self.assertAlmostEqual(self.parts((20, 5000), (0, 0), (1, 2))[1], 2 / 3, 3)

    def test_one_alone_has_all_while_the_other_pauses(self):
        # It works for 15 ms of each 30 at half the speed: 7.5 ms.
        self.assertAlmostEqual(self.parts((7500, 100), (15000, 0), (1, 1))[0], 0.25, 2)

    def test_pauses_of_the_heavier_one_cost_it_more(self):
        self.assertAlmostEqual(self.parts((300, 300), (38, 38), (1, 2))[1], 0.63, 2)


class Tenants(unittest.TestCase):
    def setUp(self):
        env = {"LD_LIBRARY_PATH": str(BUILD / "kernels/suite/soft")}
        self.tenant = tenant.Tenant("a", BUILD / "tests/bench/bench-tenant", env)
        self.addCleanup(self.tenant.end)

    def test_units_are_counted_and_checked(self):
        tenant.load([(self.tenant, "w", "work 40 3")])
        for pattern in ("wait:0", "queue:3", "slices:7", "poisson:500:1"):
            self.assertGreater(tenant.alone(self.tenant, "w", 0.01, pattern)["launches"], 0)
        self.assertEqual(tenant.check([(self.tenant, "w")]), [])

    def test_hashes_tell_programs_apart(self):
        tenant.load([(self.tenant, "p", "held gelu 3"), (self.tenant, "q", "held adam 3")])
        first, again, other = (self.tenant.ask("check", k, "hash")["hash"] for k in "ppq")
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)

    def test_a_command_that_fails_is_an_error(self):
        for command in (("load", "k", "held nothing 3"), ("run", "none", "wait:0", 1, 0)):
            with self.assertRaises(tenant.TenantError):
                self.tenant.ask(*command)
            self.tenant.end()
            self.setUp()


class Goals(unittest.TestCase):
    def test_missed_goals_are_said(self):
        r = results.Results(goals=True)
        r.add("e", "way", "m", 5.0, "us", at_most=4)
        r.add("e", "way", "n", 0.96, "", at_least=0.95)
        self.assertEqual([x.met for x in r.rows], [False, True])
        self.assertIn("5 (goal 4: **missed**)", results.table(r.json()))

    def met(self, section, measured):
        """Of each row with a goal: (way, metric) and whether it is met."""
        r = results.Results(goals=True)
        section.rows(measured, r)
        return {(x.way, x.metric): x.met for x in r.rows if x.goal is not None}

    def test_shares_are_held_to_one_point_and_to_their_loss(self):
        ours = {"sluice-shared": {"2:1": {"a": 0.33, "b": 0.665, "ratio": 2}},
                "sluice-slices": {"2:1": {"a": 0.45, "b": 0.45, "ratio": 2}},
                "mps": {"2:1": {"a": 0.5, "b": 0.5, "ratio": 2}}}
        self.assertEqual(self.met(sections.shares, ours), {
            ("sluice-shared", "off by"): True, ("sluice-shared", "loss"): True,
            ("sluice-slices", "off by"): False, ("sluice-slices", "loss"): False})

    def test_programs_alone_are_held_to_mean_p95_and_worst(self):
        found = [{"name": str(i), "half": "held out",
                  "us": {"native": 100, "sluice-shared": 100 if i else 120}} for i in range(20)]
        met = self.met(sections.alone, {"alone": found})
        self.assertEqual(met, {("sluice-shared", "mean"): True, ("sluice-shared", "p95"): True,
                               ("sluice-shared", "worst"): False})

    def test_the_short_one_of_a_pair_is_held_to_the_bound(self):
        # Alone 500 us: with 520 it has 0.96 of the bound, with 600 0.83.
        pair = {"team": ["x", "y"], "alone": [5000, 500], "all_us": 5600}
        measured = {way: {"high": [{**pair, "us": [5600, us]}], "equal": [], "triplets": []}
                    for way, us in (("sluice-shared", 520), ("sluice", 600))}
        metric = "times sooner than behind the long one"
        self.assertEqual(self.met(sections.pairs, measured),
                         {("sluice-shared", metric): True, ("sluice", metric): False})

    def test_what_is_owed_to_those_that_saturate(self):
        lag = sections.lag
        # The one that sleeps wants no more; then it wants more than an equal part.
        self.assertAlmostEqual(lag.level([0.5, 0.3, 0.2], 2), 0.4)
        self.assertAlmostEqual(lag.level([0.2, 0.2, 0.6], 2), 1 / 3)
        answers = [{"got_us": [10, 20, 30, 40]}, {"got_us": [20, 20, 20, 0]}]
        self.assertEqual(lag.windows(answers, 3), [[60, 90], [60, 40]])
        self.assertAlmostEqual(lag.least_of_owed(answers, 2, 3, 1), 41 / 65)
        # 10 that work for 1 and sleep for 9 beside one that saturates.
        each = lag.in_a_fluid(1, 9, 10, 1)
        self.assertAlmostEqual(10 * each + 1 / (1 / each - 9), 1)

    def test_percentiles(self):
        self.assertEqual(results.percentile(range(1, 101), 99), 99)
        self.assertEqual(results.percentile([7], 50), 7)
        self.assertAlmostEqual(results.geometric_mean([1, 4]), 2)

    def test_every_way_is_of_the_softwares_modes_or_left_out(self):
        for way in ways.WAYS.values():
            self.assertIn(way.soft, ("", "fcfs", "timeslice", "mps"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
