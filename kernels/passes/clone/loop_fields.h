// SPDX-License-Identifier: Apache-2.0
// Names of the fields of abi/preempt.h in a clone's PTX, and the layout of its shared memory: what
// the loop_*.cc have in common, and nobody else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "abi/preempt.h"

namespace sluice::passes {

inline std::string field(const char* kind, std::size_t offset) {
  return std::string("[~") + kind + "+" + std::to_string(offset) + "]";
}
#define PARAM(name) field("launch", offsetof(sluice_preempt_params, name))
#define CONTROL(reg, name) \
  std::string("[%~" reg "+") + std::to_string(offsetof(sluice_launch_control, name)) + "]"
#define RECORD(reg, name) \
  std::string("[%~" reg "+") + std::to_string(offsetof(sluice_launch_record, name)) + "]"

// The block's shared memory beyond the original's: the slots of both batches, then the leader's
// state, which nobody else touches.
inline constexpr unsigned kRange =
    32;  // {next, end, chunk, count}: tickets in hand [next, end), tickets
         // that would take the target time, tasks given to the block so far
inline constexpr unsigned kMeasured =
    48;                                 // {%clock, count: when the tasks' length was last measured}
inline constexpr unsigned kPlace = 56;  // SPATIAL: SM + 1, with kEvicted; 0: not counted
inline constexpr unsigned kEvicted = 0x80000000u;
static_assert(kPlace + 8 <= SLUICE_PREEMPT_SHARED_BYTES);
static_assert(SLUICE_LEFT_SMS == 256);

// What a thread keeps in %~rem: the slot of its batch (bit 0), whether its warp leads, and the
// tasks of the batch that it has not finished.
inline constexpr unsigned kSecondSlot = 1, kLeads = 2, kTaskLeft = 4;

// A progress report every so many reads of host memory (some 2 us each).
inline constexpr unsigned kReportInterval = 64;

inline std::string number(std::uint64_t n) { return std::to_string(n); }

}  // namespace sluice::passes
