// SPDX-License-Identifier: Apache-2.0
// Do the workers' contexts run side by side on this GPU? They do under MPS, and on the software GPU
// in mode "mps"; elsewhere they take turns. Asked when sluiced starts, and of MPS before each
// worker: one that found no server would take turns with all others.
#pragma once

#include <string>
#include <vector>

#include "mediator/base/result.h"
#include "mediator/daemon/setup/config.h"

namespace sluice {

// Why not, and what to do; empty: they do. `environment`: the workers', NAME=value each.
std::string not_side_by_side(const Config& config, bool nvidia,
                             const std::vector<std::string>& environment);

// The variable by which NVIDIA's driver finds the MPS server.
inline constexpr char kMpsPipes[] = "CUDA_MPS_PIPE_DIRECTORY";
// No server listens in the folder `pipes`: what to do. Empty: one does.
std::string mps_missing(const std::string& pipes);

// scheduler.turns = "priority": an error says why it cannot be and what to do.
Result<void> check_turns(const Config& config, bool nvidia,
                         const std::vector<std::string>& environment);

// What a hand-over costs there until one was measured: the next vGPU's blocks start as those of the
// one before end (an H100: no loss that could be measured). It sets how soon a turn may end, 1 ms:
// with 4 us and 0.1 ms launches of 100 us lost their turn in their middle, and waited 3 ms (an
// H200).
inline constexpr uint64_t kTurnHandoverNs = 40'000;
// What a visit costs in the middle of a turn, of which short launches may cause so many that they
// cost scheduler.handover_loss_percent: 8,000 a second. With kTurnHandoverNs a program of launches
// of 20 us and pauses of 10 us had one launch in a millisecond (an H200).
inline constexpr uint64_t kTurnVisitNs = 5'000;

}  // namespace sluice
