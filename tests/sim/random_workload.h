// SPDX-License-Identifier: Apache-2.0
// Random small workloads for the property tests: every habit, cost and shape that the simulator
// knows. One seed, one workload.
#pragma once

#include "policies/sim/workload.h"

namespace sluice::policy::sim {

enum class Shape { kFinite, kBacklogged };
// kFinite: every program ends after some runs. kBacklogged: some vGPUs are busy from beginning to
// end, the others come and go; the horizon ends it.
Workload random_workload(uint64_t seed, Shape shape, PreemptorKind preemptor);

}  // namespace sluice::policy::sim
