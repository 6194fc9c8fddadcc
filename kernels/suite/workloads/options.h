// SPDX-License-Identifier: Apache-2.0
// Command line of the suite's programs: what each option means stands in README.md beside this.
// Pure parsing; no I/O, no driver.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

namespace sluice::suite {

// Beyond these the programs would be wrong or absurd, not merely slow.
inline constexpr std::uint64_t kMaxDepth = 64;  // units queued: each has buffers of its own
inline constexpr std::uint64_t kMaxStreams = 16;
inline constexpr std::uint64_t kMaxChain = 64;      // matmul's values stay far from overflow
inline constexpr std::uint64_t kMaxPauseMs = 1000;  // a signal is answered after it
inline constexpr std::uint64_t kDefaultLaunches = 64;

struct Options {
  std::uint64_t size = 0;      // 0: the workload's default
  double scale = 1;            // of the default size, in work; only where size is 0
  std::uint64_t inner = 0;     // matmul only; 0: default
  std::uint64_t launches = 0;  // 0: no limit (then seconds > 0)
  double seconds = 0;          // 0: no limit (then launches > 0)
  std::uint64_t depth = 4;
  std::uint64_t streams = 1;
  std::uint64_t chain = 1;          // launches per unit; 1: independent launches
  std::uint64_t verify_every = 16;  // 1: every unit; 0: only the last ones
  std::uint64_t pause_ms = 0;       // after each unit is queued
  std::uint64_t seed = 1;
  bool pageable = false;  // read results back into ordinary instead of pinned memory
  bool json = false;
  bool progress = false;
  bool help = false;
};

// A message for the person who typed it; exit code 2.
class UsageError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// `arguments` without the program's name. Throws UsageError.
Options parse_options(std::span<const char* const> arguments);
// The size that the options ask for: --size, or the workload's default times --scale, of a size
// that grows with the work to the power of 1 / `dimensions` (2: the edge of a square); at least 1.
std::uint64_t size_of(const Options& options, std::uint64_t default_size, int dimensions = 1);
// The text of --help.
std::string usage(const std::string& program);

}  // namespace sluice::suite
