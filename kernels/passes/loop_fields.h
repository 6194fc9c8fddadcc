// Names of the fields of abi/preempt.h in a clone's PTX, and the layout of its shared memory: what
// loop_head.cc and loop_exit.cc have in common, and nobody else.
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
inline constexpr unsigned kRange = 32;  // {next, end, chunk, count}: tickets in hand [next, end), tickets
                                 // that would take the target time, tasks given to the block so far
inline constexpr unsigned kFetched = 48;  // {%clock when the newest chunk was fetched, tickets in it}
inline constexpr unsigned kPlace = 56;    // SPATIAL: SM + 1, with kEvicted; 0: not counted
inline constexpr unsigned kWord = 64;     // the evict word as it was when the batch began, by cp.async
inline constexpr unsigned kEvicted = 0x80000000u;
static_assert(kWord + 16 <= SLUICE_PREEMPT_SHARED_BYTES);
static_assert(SLUICE_LEFT_SMS == 256);

// See write_short_test: threads of a block, and tickets that would take the target time.
inline constexpr unsigned kSmallBlock = 64;
inline constexpr unsigned kShortTasks = 4;

// A progress report every so many looks at host memory (some 2 us each).
inline constexpr unsigned kReportInterval = 64;

inline std::string number(std::uint64_t n) { return std::to_string(n); }

}  // namespace sluice::passes
