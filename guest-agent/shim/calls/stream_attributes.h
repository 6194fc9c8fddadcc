// SPDX-License-Identifier: Apache-2.0
// Attributes that programs set on streams (cuStreamSetAttribute). Kept to be asked for: the
// worker's streams order and wait as the program asked when it made them. Any thread.
#pragma once

#include "abi/cuda_driver.h"

namespace sluice::guest {

// The stream is being destroyed.
void forget_attributes(CUstream stream);

}  // namespace sluice::guest
