# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs through the channel: what every call answers, and graphs that are evicted in their
middle."""
import subprocess

import support
from support import WithSluiced

GOLDEN = support.ROOT / "tests/conformance/graphs/h200.txt"


class Graphs(WithSluiced):
    def calls(self, *args):
        p = subprocess.run([support.BUILD / "tests/conformance/graph-calls", *args],
                           env=self.sluiced.client_env("a"),
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           timeout=support.TIMEOUT_S)
        self.assertEqual(p.returncode, 0,
                         f"{p.stdout[-3000:]}\n{p.stderr}\n--- "
                         f"sluiced:\n{self.sluiced.log()[-3000:]}")
        return p.stdout.splitlines()

    def test_calls_answer_as_on_a_gpu(self):
        self.maxDiff = None
        self.assertEqual(self.calls(), GOLDEN.read_text().splitlines())
        self.assert_all_free("a")

    def conditional_nodes(self):
        p = subprocess.run([support.BUILD / "tests/system/conditional-graph"],
                           env=self.sluiced.client_env("a"),
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           timeout=support.TIMEOUT_S)
        self.assertEqual(p.returncode, 0, p.stdout)

    def test_conditional_nodes_run_what_kernels_say(self):
        self.conditional_nodes()
        self.assert_all_free("a")

    def test_graphs_evicted_in_their_middle_compute_the_same(self):
        golden = GOLDEN.read_text().splitlines()
        expected = golden[golden.index("-- chains"):]
        neighbour = self.program("b", "triad", "--seconds", 2, "--json")
        before = self.vgpu("a")["physical_evictions"]
        while neighbour.process.poll() is None:
            self.assertEqual(self.calls("chains"), expected)
            self.conditional_nodes()
        self.assert_right(neighbour.finish(), "the neighbour")
        self.assertGreater(self.vgpu("a")["physical_evictions"], before,
                           "no launch of a graph was put back")
