// SPDX-License-Identifier: Apache-2.0
// Functions of the program in a stream's order, for other files of this library. Any thread.
#pragma once

#include "abi/cuda_driver.h"

namespace sluice::guest {

// As cuStreamAddCallback, also in a stream that captures: it is queued, not captured. Once queued
// it is called whatever becomes of the work before it and of the session; the error the callback
// gets.
CUresult callback_beside_captures(CUstream stream, CUstreamCallback callback, void* data);

}  // namespace sluice::guest
