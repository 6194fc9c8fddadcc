// SPDX-License-Identifier: Apache-2.0
// Attributes that programs set on streams (cuStreamSetAttribute). Kept to be asked for: the
// worker's streams order and wait, and have the priority, as the program asked when it made them.
// Any thread.
#pragma once

#include <optional>

#include "abi/cuda_driver.h"

namespace sluice::guest {

// The priority that it was given after it was made.
std::optional<int> later_priority(CUstream stream);
// Beyond the range that streams of the current context may have it is the range's end.
CUresult clamp_priority(int& priority);
// The stream is being destroyed.
void forget_attributes(CUstream stream);

}  // namespace sluice::guest
