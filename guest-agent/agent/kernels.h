// SPDX-License-Identifier: Apache-2.0
// `sluice-agent kernels PROGRAM`: which kernels of a program can be evicted, which are opaque, why,
// and what to do. The program runs as it would, and the guest's libcuda in it writes its log
// (SLUICE_LOG) to a file that is read afterwards. Where kernels' clones are made at their first
// launch, only kernels that were launched are known.
//
// One thread. The log is the program's own: what is not a line of a kernel in it is skipped.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "mediator/base/result.h"

namespace sluice::guest {

struct KernelRow {
  bool evictable = false;
  std::string how;   // the rewriter's tier (docs/internals/rewriter.md), or "opaque"
  std::string why;   // of an opaque one: one sentence
  std::string mend;  // what to do; empty: nothing is known
};
// By name. Of several lines about a kernel the last counts.
std::map<std::string, KernelRow> kernels_of_log(std::string_view log);
std::string as_text(const std::map<std::string, KernelRow>& kernels);
// {"kernels": [{"name", "evictable", "how", "why", "mend"}]}
std::string as_json(const std::map<std::string, KernelRow>& kernels);

struct ProgramKernels {
  std::map<std::string, KernelRow> kernels;
  int status = 0;  // the program's, as a shell has it
};
Result<ProgramKernels> run_for_kernels(const std::vector<std::string>& command);

}  // namespace sluice::guest
