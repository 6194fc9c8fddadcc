// SPDX-License-Identifier: Apache-2.0
// JSON from people: what is wrong is answered with its line and column, and a key that stands twice
// in an object is an error (Boost.JSON would keep the last one and say nothing). Pure; any thread.
// The text may be hostile: nesting is bounded.
#pragma once

#include <boost/json/value.hpp>

#include <string_view>

#include "mediator/base/result.h"

namespace sluice::policy::sim {

// Deeper nesting is refused; a workload needs 7.
inline constexpr size_t kMaxJsonDepth = 16;

// Errors: "not JSON: ..." or a key that is there twice, with "line L, column C" (from 1; columns in
// bytes).
sluice::Result<boost::json::value> parse_strict(std::string_view text);

}  // namespace sluice::policy::sim
