// SPDX-License-Identifier: Apache-2.0
// Units of time for the tests of policies/, in nanoseconds.
#pragma once

#include <cstdint>

namespace sluice {

constexpr std::uint64_t kUs = 1'000, kMs = 1'000'000, kSecond = 1'000'000'000;

}  // namespace sluice
