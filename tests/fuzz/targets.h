// SPDX-License-Identifier: Apache-2.0
// Everything in Sluice that reads bytes from somebody else, as a table: what to feed, and what must
// hold whatever is fed. A fuzz program is built for each row (fuzz_main.cc), and regression_test.cc
// replays and mutates each row's inputs in every build, so that both ask the same questions. What
// is no text or image (rings, records, sockets) has hostile tests of its own: README.md lists them.
//
// Pure; any thread. A broken property ends the process with a message (a fuzzer's way to fail).
#pragma once

#include <string>
#include <string_view>

#include "mediator/base/result.h"

// X(name): of the fuzz program, fuzz_<name>, of the folder in regressions/, and of check_<name>.
#define SLUICE_FUZZ_TARGETS(X) \
  X(ptx)                       \
  X(link) X(fat_binary) X(cubin) X(domain_xml) X(config) X(rpc) X(workload) X(trace) X(recording)

namespace sluice::fuzz {

// True: the input was taken, not refused.
#define SLUICE_FUZZ_DECLARE(name) bool check_##name(std::string_view input);
SLUICE_FUZZ_TARGETS(SLUICE_FUZZ_DECLARE)
#undef SLUICE_FUZZ_DECLARE

// Ends the process with `what` and `detail` unless it holds.
void require(bool holds, const char* what, std::string_view detail);

// A refused input needs a reason.
inline bool refused(const Error& error) {
  require(!error.message.empty(), "a refusal has a reason", "");
  return false;
}

}  // namespace sluice::fuzz
