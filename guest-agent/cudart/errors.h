// SPDX-License-Identifier: Apache-2.0
// cudaError_t. A driver's error has the number of the runtime's error of the same meaning;
// to_runtime() in calls.h knows the few that do not.
#pragma once

#include "abi/cuda_runtime_errors.h"

namespace sluice::cudart {

#define SLUICE_ENUMERATOR(name, value, text) name = value,
enum cudaError_t : int { SLUICE_CUDA_RUNTIME_ERRORS(SLUICE_ENUMERATOR) };
#undef SLUICE_ENUMERATOR

}  // namespace sluice::cudart
