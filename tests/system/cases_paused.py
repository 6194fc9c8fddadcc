# SPDX-License-Identifier: Apache-2.0
"""A vGPU whose virtual machine is suspended while its kernels run: it gives the GPU to whoever else
has work, and goes on where it was."""
import signal

from support import WithSluiced


class Paused(WithSluiced):
    def test_it_gives_the_gpu_away_and_goes_on(self):
        running = [self.program(v, "triad", "--seconds", 100000, "--json") for v in "ab"]

        def launches_of_a(of_b):
            """Those of `a` while `b` does so many."""
            a, b = (self.vgpu(v)["launches_done"] for v in "ab")
            self.eventually(lambda: self.vgpu("b")["launches_done"] >= b + of_b, "b goes on")
            return self.vgpu("a")["launches_done"] - a
        self.eventually(lambda: launches_of_a(5) > 0, "both launch")
        self.sluiced.request("vgpu.set", name="a", paused=1)
        # The first time some that had begun may end.
        self.eventually(lambda: launches_of_a(60) == 0, "a has no turn")
        self.sluiced.request("vgpu.set", name="a", paused=0)
        self.eventually(lambda: launches_of_a(5) > 0, "a goes on")
        for p in running:
            p.process.send_signal(signal.SIGINT)
            self.assert_right(p.finish())


class PausedOnSlices(Paused):
    EXTRA = '[scheduler]\nslices = true\n'


class PausedInTurns(Paused):
    EXTRA = '[scheduler]\nturns = "priority"\n'


class PausedInSpace(Paused):
    EXTRA = '[scheduler]\nspatial = true\n'
