// Functions of the program in a stream's order, for other files of this library. Any thread.
#pragma once

#include "abi/cuda_driver.h"

namespace sluice::guest {

// As cuLaunchHostFunc, also in a stream that captures: it is queued, not captured.
CUresult host_func_beside_captures(CUstream stream, CUhostFn function, void* data);

}  // namespace sluice::guest
