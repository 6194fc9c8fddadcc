// SPDX-License-Identifier: Apache-2.0
// Workloads from JSON files; the schema is in docs/operating/simulator.md. The file may be hostile:
// every error is an answer that names the place ("programs[3].steps[0].kernel: ..."); unknown keys
// are errors, because a mistyped key would otherwise be a silent default. Pure: takes the text, not
// the path.
#pragma once

#include <string>
#include <string_view>

#include "mediator/base/result.h"
#include "policies/sim/workload.h"

namespace sluice::policy::sim {

// Longer texts are refused: the largest workload that check_workload() allows fits.
inline constexpr size_t kMaxWorkloadBytes = 64u << 20;

struct FileWorkload {
  Workload workload;
  std::string baseline = "fcfs";
};
sluice::Result<FileWorkload> parse_workload(std::string_view json_text);

}  // namespace sluice::policy::sim
