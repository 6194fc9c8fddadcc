// SPDX-License-Identifier: Apache-2.0
// CUB's algorithms at sizes for a GPU (tests/cccl/timing), as cases of the benchmark.
//
// Reads files; ends the program where one is missing or malformed. One thread.
#pragma once

#include <string>
#include <vector>

#include "tests/bench/preempt/cases.h"

namespace sluice::bench {

// One for each trace of the folder that `ninja -C BUILD cccl-timing` records (tests/cccl). Results
// of kernels that decide what others compute are not known, so every case is compared with its
// original.
std::vector<CaseMaker> cccl_cases(const std::string& folder);

}  // namespace sluice::bench
