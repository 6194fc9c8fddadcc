// SPDX-License-Identifier: Apache-2.0
// Kernel slicing, the baseline of the papers (PKM; Basaran and Kang 2012, Zhong and He 2014): the
// grid is cut into launches of some blocks each, and the GPU can change hands between two of them.
//
// Pure.
#pragma once

#include <string>

#include "mediator/base/result.h"

namespace sluice::bench {

// Behind each entry a kernel `<entry>__slice` that takes struct SliceParams behind the original's
// parameters: block i of a slice runs task first + i. An entry that it cannot cut is left out.
struct SliceParams {
  std::uint32_t grid[3];
  std::uint32_t first;
};
inline constexpr const char* kSliceSuffix = "__slice";
Result<std::string> add_slices(const std::string& ptx);

}  // namespace sluice::bench
