// SPDX-License-Identifier: Apache-2.0
// How an exported function runs: what has to be there first, what its error does to the thread, and
// how it reaches the driver. exports.cc makes every export of these. Any thread; no state of its
// own.
#pragma once

#include <atomic>

#include "guest-agent/cudart/runtime.h"
#include "guest-agent/cudart/types.h"

namespace sluice::cudart {

inline CUdeviceptr device_address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

// What has to be there before a call: nothing, an initialised driver, or a context that is current
// to the thread.
enum class Need { kNone, kDriver, kContext };

// What a null stream means: the legacy stream, or the calling thread's own. Programs choose when
// they are compiled.
enum class DefaultStream { kLegacy, kPerThread };

inline cudaStream_t stream_for(DefaultStream mode, cudaStream_t stream) {
  return stream == nullptr && mode == DefaultStream::kPerThread ? kPerThreadStream : stream;
}

// Runs `body` when `need` is met; the error of either becomes the thread's last one.
template <class Body>
cudaError_t call(Need need, Body body) {
  cudaError_t error = need == Need::kNone     ? cudaSuccess
                      : need == Need::kDriver ? ensure_driver()
                                              : ensure_context();
  if (error == cudaSuccess) error = body();
  return error == cudaSuccess ? error : record(error);
}

// A forwarded function's address in the driver, found once.
class DriverSymbol {
 public:
  constexpr explicit DriverSymbol(const char* name) : name_(name) {}
  void* get() {
    void* known = address_.load(std::memory_order_relaxed);
    if (known == nullptr) address_.store(known = driver_symbol(name_), std::memory_order_relaxed);
    return known;
  }

 private:
  const char* name_;
  std::atomic<void*> address_{nullptr};
};

// The runtime's and the driver's parameters are the same words: handles, addresses, numbers,
// structures of one layout.
template <class... Args>
cudaError_t forward(DriverSymbol& symbol, Args... args) {
  void* function = symbol.get();
  if (function == nullptr) return cudaErrorNotSupported;
  return to_runtime(static_cast<CUresult>(reinterpret_cast<int (*)(Args...)>(function)(args...)));
}

template <class T>
T argument_for(DefaultStream, T value) {
  return value;
}
inline cudaStream_t argument_for(DefaultStream mode, cudaStream_t stream) {
  return stream_for(mode, stream);
}

template <class... Args>
cudaError_t forward_for(DriverSymbol& symbol, DefaultStream mode, Args... args) {
  return forward(symbol, argument_for(mode, args)...);
}

// The bodies of F and S rows.
namespace impl {
#define SLUICE_FIRST_PARAMETER(...) (DefaultStream mode __VA_OPT__(, ) __VA_ARGS__)
#define SLUICE_F(symbol, need, parameters, arguments) cudaError_t symbol parameters;
#define SLUICE_S(symbol, suffix, need, parameters, arguments) \
  cudaError_t symbol SLUICE_FIRST_PARAMETER parameters;
#define SLUICE_NONE(...)
SLUICE_CUDART_FUNCTIONS(SLUICE_F, SLUICE_S, SLUICE_NONE, SLUICE_NONE, SLUICE_NONE, SLUICE_NONE,
                        SLUICE_NONE)
#undef SLUICE_F
#undef SLUICE_S
#undef SLUICE_NONE
#undef SLUICE_FIRST_PARAMETER
}  // namespace impl

}  // namespace sluice::cudart
