// SPDX-License-Identifier: Apache-2.0
// Fluid reference: what generalised processor sharing would give the same programs: each vGPU's
// entitlement (policy.h) over a time. Pure; one thread; called once a simulation has ended. Times
// in ns, work and service in SM-ns.
//
// Rules
//   capacity   all SMs times `capacity`, the part of the time that the simulation did work in while
//              there was some: what hand-overs cost is nobody's share, and would otherwise be taken
//              off the few that always have work. Divided by weight at every instant
//   backlogged a vGPU with work queued in the fluid system; one without is entitled to nothing
//   width      in space, a vGPU is given no more SMs than its launches can use
//   open       runs arrive when they did in the simulation
//   closed     a run arrives when it did in the simulation. At its own pace (Loops::kOwnPace), if
//              sooner, its pause after the fluid system ended the run before: a vGPU that is
//              starved still asks for what it would use
//   backlog    always has work
//
// As they came, the difference to what was held is bounded by theory: by the longest packet, here a
// turn and a hand-over (Parekh and Gallager 1993). At their own pace it has no bound that is less
// than the delay of each run, added up: a loop that waits for half a turn of somebody else comes
// back later by that, each time.
// Priorities, groups, limits and latency classes are not considered.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "policies/sim/workload.h"

namespace sluice::policy::sim {

// What one program asked for in a simulation.
struct Offered {
  std::vector<uint64_t> arrivals_ns;  // of its runs
  std::vector<uint64_t> thinks_ns;    // closed: the pause after each run
  std::vector<double> works;          // of its launches; empty where none varies
};

struct Fluid {
  bool complete = false;                     // false: it took more than max_steps; the rest is 0
  std::vector<double> served;                // to each vGPU
  std::vector<std::vector<double>> at_mark;  // the same up to each multiple of mark_ns
};

// When runs of closed loops arrive.
enum class Loops : uint8_t { kAsTheyCame, kOwnPace };

// `mean_work(program, kernel, run)`: for launches that the simulation did not come to or that do
// not vary. `mark_ns` 0: no marks.
Fluid fluid_reference(const Workload& w, const std::vector<Offered>& offered,
                      const std::function<double(uint32_t, uint32_t, uint64_t)>& mean_work,
                      Loops loops, double capacity, uint64_t end_ns, uint64_t mark_ns,
                      uint64_t max_steps);

}  // namespace sluice::policy::sim
