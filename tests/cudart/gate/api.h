// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime API for tests that are built without a toolkit: the table's functions, declared
// in our own types.
#pragma once

#include "guest-agent/cudart/functions.h"
#include "guest-agent/cudart/properties.h"
#include "guest-agent/cudart/types.h"

namespace sluice::cudart {

#define SLUICE_DECLARE(symbol, parameters) extern "C" cudaError_t symbol parameters;
#define SLUICE_F(symbol, need, parameters, arguments) SLUICE_DECLARE(symbol, parameters)
#define SLUICE_S(symbol, suffix, need, parameters, arguments) \
  SLUICE_DECLARE(symbol, parameters) SLUICE_DECLARE(symbol##_##suffix, parameters)
#define SLUICE_D(symbol, need, parameters, arguments, driver) SLUICE_DECLARE(symbol, parameters)
#define SLUICE_T(symbol, suffix, need, parameters, arguments, driver) \
  SLUICE_DECLARE(symbol, parameters) SLUICE_DECLARE(symbol##_##suffix, parameters)
#define SLUICE_P(symbol, suffix, parameters) SLUICE_DECLARE(symbol, parameters)
#define SLUICE_H(symbol, result, parameters) extern "C" result symbol parameters;
SLUICE_CUDART_FUNCTIONS(SLUICE_F, SLUICE_S, SLUICE_D, SLUICE_T, SLUICE_DECLARE, SLUICE_P, SLUICE_H)
#undef SLUICE_DECLARE
#undef SLUICE_F
#undef SLUICE_S
#undef SLUICE_D
#undef SLUICE_T
#undef SLUICE_P
#undef SLUICE_H

}  // namespace sluice::cudart
