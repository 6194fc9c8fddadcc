// SPDX-License-Identifier: Apache-2.0
// The kernels that the benchmark times: its own (kernels.cu) and the suite's.
//
// Pure; sizes are for a GPU (`scale` 1: 100 us and more on an H200), tiny scales for the software
// GPU.
#pragma once

#include <vector>

#include "kernels/suite/catalog/catalog.h"

namespace sluice::bench {

// Each is made when it is asked for: together they do not fit into memory.
struct CaseMaker {
  std::string name;
  std::function<suite::Case()> make;
};
std::vector<CaseMaker> all_cases(double scale);
// The kernel `spin`: `tasks` blocks of `threads` threads that take `clocks` SM clocks each.
suite::Case spin_case(std::uint32_t tasks, std::uint32_t threads, std::uint64_t clocks);

}  // namespace sluice::bench
