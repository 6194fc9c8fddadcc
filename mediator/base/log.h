// SPDX-License-Identifier: Apache-2.0
// Log lines of the host programs, to stderr in the way systemd wants it: no time stamps when stderr
// is the journal (it adds its own), a "<priority>" prefix that it strips. An observer may also see
// each line (sluiced keeps the last ones for `sluicectl events`).
// Any thread. Formats with fmt; a broken format string does not compile.
//
// A write to stderr waits where it is a pipe that nobody reads. sluiced calls
// write_in_background(): from then on lines go through a bounded queue to a thread, the oldest are
// dropped when it is full, and what begins alike (up to the first ": ", as "vgpu a") may be
// limits::kLogBurst lines at once and limits::kLogPerSecond on average, so that no guest floods the
// log. Both are counted and said.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace sluice::log {

enum class Level { kDebug, kInfo, kWarning, kError };

// Sets the program's name and the least level that is written. Call once, first.
void init(std::string_view program, Level least);
// As above; once, after init().
void write_in_background();
// Waits until what is queued is written, but no longer than `ms`. True: all of it is.
bool finish(uint64_t ms);
// "debug", "info", "warning", "error"; false: none of these.
bool parse_level(std::string_view text, Level& level);
std::string_view level_name(Level level);

// Called with every line at or above the least level, in the thread that logs, after it is written.
using Observer = std::function<void(Level, std::string_view)>;
void set_observer(Observer observer);

void write(Level level, std::string_view line);
bool enabled(Level level);
// Used by what follows: fmt's formatting itself is compiled once.
void format(Level level, fmt::string_view f, fmt::format_args args);

template <class... Args>
void debug(fmt::format_string<Args...> f, Args&&... args) {
  if (enabled(Level::kDebug)) format(Level::kDebug, f, fmt::make_format_args(args...));
}
template <class... Args>
void info(fmt::format_string<Args...> f, Args&&... args) {
  if (enabled(Level::kInfo)) format(Level::kInfo, f, fmt::make_format_args(args...));
}
template <class... Args>
void warning(fmt::format_string<Args...> f, Args&&... args) {
  if (enabled(Level::kWarning)) format(Level::kWarning, f, fmt::make_format_args(args...));
}
template <class... Args>
void error(fmt::format_string<Args...> f, Args&&... args) {
  if (enabled(Level::kError)) format(Level::kError, f, fmt::make_format_args(args...));
}

}  // namespace sluice::log
