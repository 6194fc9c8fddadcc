// SPDX-License-Identifier: Apache-2.0
// Recorded programs as cases of the catalogue: reads the traces of tests/cccl (its README.md has
// the format). The module's text is not in the trace, which only names its file.
//
// Pure; any thread. Does not open files; does not trust the text: a malformed one is an error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/suite/catalog/catalog.h"

namespace sluice::suite {

struct Trace {
  std::string module;  // name of the PTX file, beside the trace
  Case work;           // work.ptx is empty: for the caller to fill
};

// Of all buffers of one recording: far above any recorded program; a typing error must not ask for
// all memory. Programs of a GPU's sizes (tests/cccl/timing) say more.
inline constexpr std::uint64_t kMaxTraceBytes = 256ull << 20;

// Throws std::runtime_error with the line's number. Where a program read memory back stands an
// Expect step; check() has nothing further to compare.
Trace parse_trace(std::string_view text, std::uint64_t max_bytes = kMaxTraceBytes);

}  // namespace sluice::suite
