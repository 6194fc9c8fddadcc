// SPDX-License-Identifier: Apache-2.0
// Do the workers' contexts run side by side on this GPU? They do under MPS, and on the software GPU
// in mode "mps"; elsewhere they take turns. Asked once, when sluiced starts.
#pragma once

#include <string>
#include <vector>

#include "mediator/base/result.h"
#include "mediator/daemon/setup/config.h"

namespace sluice {

// Why not, and what to do; empty: they do. `environment`: the workers', NAME=value each.
std::string not_side_by_side(const Config& config, bool nvidia,
                             const std::vector<std::string>& environment);

// scheduler.turns = "priority": an error says why it cannot be and what to do.
Result<void> check_turns(const Config& config, bool nvidia,
                         const std::vector<std::string>& environment);

// What a hand-over costs there: the next vGPU's blocks start as those of the one before end, so
// next to nothing (an H100: no loss that could be measured). And how soon after a turn's begin it
// may end; at most scheduler.quantum_min_us. Larger: who comes in the first moments of another's
// turn waits for so long.
inline constexpr uint64_t kTurnHandoverNs = 4'000, kTurnLeastNs = 100'000;

}  // namespace sluice
