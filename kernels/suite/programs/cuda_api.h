// SPDX-License-Identifier: Apache-2.0
// The CUDA driver API for the suite's programs: our own declarations of it, or, with
// SLUICE_SUITE_REAL_CUDA defined, the CUDA Toolkit's cuda.h. The programs are the same either way,
// which is how they show that they are plain CUDA programs. The only place that chooses.
#pragma once

#ifdef SLUICE_SUITE_REAL_CUDA
#include <cuda.h>
#else
#include "abi/cuda_driver.h"
#endif
