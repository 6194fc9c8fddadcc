# SPDX-License-Identifier: Apache-2.0
"""A guest that breaks no rule and takes what it can (programs/hog.cc): what is no launch asks
for the GPU as launches do, and is charged."""
from support import WithVictim


class AdversaryHog(WithVictim):
    def charged_ns(self):
        return self.vgpu("a")["usage"]["charged_sm_ns"]

    def check(self, what):
        with self.attack():
            before = self.charged_ns()
            hog = self.adversary("hog", what)
            self.assertEqual(hog.stdout.readline(), "ready\n")
            self.eventually(lambda: self.charged_ns() > before + 100_000_000, f"{what} are charged")
            self.assertIsNone(hog.poll())
            hog.kill()
        self.assert_all_free("a")

    def test_contexts_without_end_leave_a_neighbour_some(self):
        """The GPU has 64 places for all; a program opens 8 contexts at most."""
        with self.attack():
            hogs = [self.adversary("hog", "contexts") for _ in range(9)]
            for hog in hogs:
                self.assertEqual(hog.stdout.readline(), "ready\n")
            newcomer = self.program("b", "triad", "--seconds", 0.1)
            self.assert_right(newcomer.finish(), "a new program")
            for hog in hogs:
                hog.kill()
        self.assert_all_free("a")

    def test_fills_wait_for_the_gpu(self):
        self.check("fills")

    def test_copies_on_the_device_wait_for_the_gpu(self):
        self.check("copies")
