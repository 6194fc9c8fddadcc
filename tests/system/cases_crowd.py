# SPDX-License-Identifier: Apache-2.0
"""More programs of one vGPU than may launch at once beside a neighbour with work: all of them end
with right results, and so does the neighbour's."""
from support import WithSluiced


class Crowd(WithSluiced):
    PROGRAMS = 6

    def test_all_end_with_right_results(self):
        beside = self.program("b", "stencil2d", "--seconds", 1000, "--json")
        done = self.vgpu("b")["launches_done"]
        self.eventually(lambda: self.vgpu("b")["launches_done"] > done, "the neighbour launches")
        crowd = [self.program("a", "triad", "--launches", 5, "--verify", "every", "--json")
                 for _ in range(self.PROGRAMS)]
        for program in crowd:
            self.assert_right(program.finish(), "one of the crowd")
        done = self.vgpu("b")["launches_done"]
        self.eventually(lambda: self.vgpu("b")["launches_done"] > done, "the neighbour goes on")
        beside.kill()
        self.assert_all_free("a")


class CrowdInSpace(Crowd):
    EXTRA = 'sm_unit = 1\n[scheduler]\nspatial = true\n'


class CrowdOnSlices(Crowd):
    EXTRA = '[scheduler]\nslices = true\n'


class CrowdInTurns(Crowd):
    EXTRA = '[scheduler]\nturns = "priority"\n'
