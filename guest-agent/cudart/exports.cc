// SPDX-License-Identifier: Apache-2.0
// Every export of the table that is not defined by hand. The symbols' version is in libcudart.map.
#include "guest-agent/cudart/calls.h"

using namespace sluice::cudart;

#define SLUICE_EXPORT extern "C" __attribute__((visibility("default")))

#define SLUICE_F(symbol, need, parameters, arguments)                \
  SLUICE_EXPORT cudaError_t symbol parameters {                      \
    return call(Need::need, [&] { return impl::symbol arguments; }); \
  }
#define SLUICE_S(symbol, suffix, need, parameters, arguments)        \
  SLUICE_EXPORT cudaError_t symbol parameters {                      \
    constexpr DefaultStream mode = DefaultStream::kLegacy;           \
    return call(Need::need, [&] { return impl::symbol arguments; }); \
  }                                                                  \
  SLUICE_EXPORT cudaError_t symbol##_##suffix parameters {           \
    constexpr DefaultStream mode = DefaultStream::kPerThread;        \
    return call(Need::need, [&] { return impl::symbol arguments; }); \
  }

// forward(symbol of the driver, arguments) with the arguments in brackets.
#define SLUICE_FORWARD(...) forward(driver_function __VA_OPT__(, ) __VA_ARGS__)
#define SLUICE_FORWARD_FOR(...) forward_for(driver_function, mode, __VA_ARGS__)
#define SLUICE_D(symbol, need, parameters, arguments, driver_name)     \
  SLUICE_EXPORT cudaError_t symbol parameters {                        \
    static constinit DriverSymbol driver_function(#driver_name);       \
    return call(Need::need, [&] { return SLUICE_FORWARD arguments; }); \
  }
#define SLUICE_T(symbol, suffix, need, parameters, arguments, driver_name) \
  SLUICE_EXPORT cudaError_t symbol parameters {                            \
    static constinit DriverSymbol driver_function(#driver_name);           \
    constexpr DefaultStream mode = DefaultStream::kLegacy;                 \
    return call(Need::need, [&] { return SLUICE_FORWARD_FOR arguments; }); \
  }                                                                        \
  SLUICE_EXPORT cudaError_t symbol##_##suffix parameters {                 \
    static constinit DriverSymbol driver_function(#driver_name);           \
    constexpr DefaultStream mode = DefaultStream::kPerThread;              \
    return call(Need::need, [&] { return SLUICE_FORWARD_FOR arguments; }); \
  }
#define SLUICE_A(symbol, parameters) \
  SLUICE_EXPORT cudaError_t symbol parameters { return record(cudaErrorNotSupported); }
#define SLUICE_P(symbol, suffix, parameters)                                            \
  SLUICE_EXPORT cudaError_t symbol parameters { return record(cudaErrorNotSupported); } \
  SLUICE_EXPORT cudaError_t symbol##_##suffix parameters { return record(cudaErrorNotSupported); }
#define SLUICE_H(symbol, result, parameters) SLUICE_EXPORT result symbol parameters;

SLUICE_CUDART_FUNCTIONS(SLUICE_F, SLUICE_S, SLUICE_D, SLUICE_T, SLUICE_A, SLUICE_P, SLUICE_H)
