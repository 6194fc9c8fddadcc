// SPDX-License-Identifier: Apache-2.0
// What a log line begins with, up to the first ": ": whose line it is, as "vgpu a". By this the log
// limits lines (log.h) and sluiced keeps events of everybody. What a guest chooses stands behind
// it. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace sluice::log {

inline std::string_view beginning(std::string_view line) {
  constexpr size_t kMostBytes = 128;
  return line.substr(0, std::min(line.find(": "), kMostBytes));
}

}  // namespace sluice::log
