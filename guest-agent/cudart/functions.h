// Every symbol that libcudart.so.13 exports, one row each. Facts from CUDA 13.0's runtime (its list
// of symbols, its headers' signatures); tests/cudart compares all of it with the toolkit where that
// is installed. No state.
//
//   F(symbol, need, (parameters), (arguments))             implemented
//   S(symbol, suffix, need, (parameters), (arguments))     implemented, and has a form with
//   `suffix` for programs
//                                                          that are compiled with a default stream
//                                                          per thread
//   D(symbol, need, (parameters), (arguments), driver)     forwarded to the driver's function of
//   this symbol, which takes
//                                                          the same arguments
//   T(symbol, suffix, need, (parameters), (arguments), driver)     forwarded, with a form for such
//   programs A(symbol, (parameters))                                absent: answers
//   cudaErrorNotSupported P(symbol, suffix, (parameters))                        absent, with such
//   a form H(symbol, result, (parameters))                        defined by hand: does not report
//   errors as the others do
//
// `need` is what has to be there before the call: see Need in calls.h. The body of an F or S row is
// the function of the same name in namespace impl; an S row's takes the default stream's meaning
// first.
#ifndef SLUICE_GUEST_AGENT_CUDART_FUNCTIONS_H
#define SLUICE_GUEST_AGENT_CUDART_FUNCTIONS_H

#include "guest-agent/cudart/functions/absent.h"
#include "guest-agent/cudart/functions/arrays.h"
#include "guest-agent/cudart/functions/device.h"
#include "guest-agent/cudart/functions/execution.h"
#include "guest-agent/cudart/functions/graphics.h"
#include "guest-agent/cudart/functions/graphs.h"
#include "guest-agent/cudart/functions/memory.h"
#include "guest-agent/cudart/functions/registration.h"
#include "guest-agent/cudart/functions/streams.h"

// Those whose types are declared here, so that they can be compared with the toolkit's header.
#define SLUICE_CUDART_TYPED(F, S, D, T, A, P, H) \
  SLUICE_CUDART_DEVICE(F, S, D, T, A, P, H)      \
  SLUICE_CUDART_EXECUTION(F, S, D, T, A, P, H)   \
  SLUICE_CUDART_MEMORY(F, S, D, T, A, P, H)      \
  SLUICE_CUDART_STREAMS(F, S, D, T, A, P, H)     \
  SLUICE_CUDART_GRAPHS(F, S, D, T, A, P, H)      \
  SLUICE_CUDART_ARRAYS(F, S, D, T, A, P, H)      \
  SLUICE_CUDART_ABSENT(F, S, D, T, A, P, H)

#define SLUICE_CUDART_FUNCTIONS(F, S, D, T, A, P, H) \
  SLUICE_CUDART_TYPED(F, S, D, T, A, P, H)           \
  SLUICE_CUDART_REGISTRATION(F, S, D, T, A, P, H)    \
  SLUICE_CUDART_GRAPHICS(F, S, D, T, A, P, H)

#endif  // SLUICE_GUEST_AGENT_CUDART_FUNCTIONS_H
