// SPDX-License-Identifier: Apache-2.0
// Every symbol that libcudart.so.13 exports, one row each, and those of libcudart.so.12. Facts from
// CUDA 13.0's runtime (its list of symbols, its headers' signatures); tests/cudart compares all of
// it with the toolkit where that is installed. No state.
//
// clang-format off
//   F(symbol, need, (parameters), (arguments))                  implemented here
//   S(symbol, suffix, need, (parameters), (arguments))          the same with two forms
//   D(symbol, need, (parameters), (arguments), driver)          forwarded to the driver's function
//                                                               `driver` with the same arguments
//   T(symbol, suffix, need, (parameters), (arguments), driver)  the same with two forms
//   A(symbol, (parameters))                                     absent: cudaErrorNotSupported
//   P(symbol, suffix, (parameters))                             the same with two forms
//   H(symbol, result, (parameters))                             defined by hand (by_hand.cc): does
//                                                               not report errors as others do
// clang-format on
//
// The second form, symbol_suffix, is for programs that are compiled with a default stream per
// thread. `need` is what has to be there before the call: see Need in calls.h. The body of an F or
// S row is the function of the same name in namespace impl; an S row's takes the default stream's
// meaning first.
#pragma once

#include "guest-agent/cudart/functions/absent.h"
#include "guest-agent/cudart/functions/arrays.h"
#include "guest-agent/cudart/functions/device.h"
#include "guest-agent/cudart/functions/execution.h"
#include "guest-agent/cudart/functions/graphics.h"
#include "guest-agent/cudart/functions/graphs.h"
#include "guest-agent/cudart/functions/memory.h"
#include "guest-agent/cudart/functions/registration.h"
#include "guest-agent/cudart/functions/streams.h"
#include "guest-agent/cudart/functions/thirteen.h"
#include "guest-agent/cudart/functions/twelve.h"
#include "guest-agent/cudart/version.h"

#if SLUICE_CUDART_MAJOR == 12
#define SLUICE_CUDART_OF_VERSION SLUICE_CUDART_TWELVE
#else
#define SLUICE_CUDART_OF_VERSION SLUICE_CUDART_THIRTEEN
#endif

// Those whose types are declared here, so that they can be compared with the toolkit's header.
#define SLUICE_CUDART_TYPED(F, S, D, T, A, P, H) \
  SLUICE_CUDART_DEVICE(F, S, D, T, A, P, H)      \
  SLUICE_CUDART_EXECUTION(F, S, D, T, A, P, H)   \
  SLUICE_CUDART_MEMORY(F, S, D, T, A, P, H)      \
  SLUICE_CUDART_STREAMS(F, S, D, T, A, P, H)     \
  SLUICE_CUDART_GRAPHS(F, S, D, T, A, P, H)      \
  SLUICE_CUDART_ARRAYS(F, S, D, T, A, P, H)      \
  SLUICE_CUDART_ABSENT(F, S, D, T, A, P, H)      \
  SLUICE_CUDART_OF_VERSION(F, S, D, T, A, P, H)

#define SLUICE_CUDART_FUNCTIONS(F, S, D, T, A, P, H) \
  SLUICE_CUDART_TYPED(F, S, D, T, A, P, H)           \
  SLUICE_CUDART_REGISTRATION(F, S, D, T, A, P, H)    \
  SLUICE_CUDART_GRAPHICS(F, S, D, T, A, P, H)
