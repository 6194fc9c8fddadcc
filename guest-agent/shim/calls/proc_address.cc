// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress: functions by name and version, from the table of abi/cuda_driver_functions.h.
#include <cstring>

#include "abi/cuda_graph.h"
#include "guest-agent/shim/calls/per_thread.h"
#include "guest-agent/shim/state/api.h"

using namespace sluice::guest;

// The first version of cuGetProcAddress, of CUDA 11.3; cuda_driver.h turns the plain name into _v2.
extern "C" __attribute__((visibility("default"))) CUresult sluice_get_proc_address_v1(
    const char* symbol, void** pfn, int cuda_version, cuuint64_t flags) __asm__("cuGetProcAddress");

// By this the worker sees that it was given the guest's library in place of a driver
// (mediator/gpu/driver_api.cc): it would talk to itself.
extern "C" __attribute__((visibility("default"))) const int sluice_guest_shim;
const int sluice_guest_shim = 1;

namespace {

struct Symbol {
  const char* name;
  int since;
  void* function;
};

#define SLUICE_SYMBOL(symbol, name, since, parameters) \
  {#name, since, reinterpret_cast<void*>(&symbol)},
#define SLUICE_ALIAS(old, symbol, name, since) {name, since, reinterpret_cast<void*>(&symbol)},
#define SLUICE_GRAPH_ALIAS(symbol, name, since) {name, since, reinterpret_cast<void*>(&symbol)},
#define SLUICE_GRAPH_OLD(function, symbol, name, since, parameters) \
  {#name, since, reinterpret_cast<void*>(&function)},
const Symbol kSymbols[] = {
    SLUICE_CUDA_DRIVER_FUNCTIONS(SLUICE_SYMBOL) SLUICE_CUDA_DRIVER_ALIASES(SLUICE_ALIAS)
        SLUICE_CUDA_GRAPH_FUNCTIONS(SLUICE_SYMBOL) SLUICE_CUDA_GUEST_FUNCTIONS(SLUICE_SYMBOL)
            SLUICE_CUDA_GREEN_FUNCTIONS(SLUICE_SYMBOL) SLUICE_CUDA_TEXTURE_FUNCTIONS(SLUICE_SYMBOL)
                SLUICE_CUDA_GRAPH_ALIASES(SLUICE_GRAPH_ALIAS) SLUICE_CUDA_GRAPH_OLD_FUNCTIONS(
                    SLUICE_GRAPH_OLD){"cuGetProcAddress", 11030,
                                      reinterpret_cast<void*>(&sluice_get_proc_address_v1)}};
#undef SLUICE_SYMBOL
#undef SLUICE_ALIAS
#undef SLUICE_GRAPH_ALIAS
#undef SLUICE_GRAPH_OLD

// The forms for a default stream per thread; other calls have one form.
struct PerThreadForm {
  void* legacy;
  void* per_thread;
};
#define SLUICE_FORM(symbol, function) \
  {reinterpret_cast<void*>(&function), reinterpret_cast<void*>(&PerThread<&function>::call)},
const PerThreadForm kPerThreadForms[] = {SLUICE_CUDA_PER_THREAD_FUNCTIONS(SLUICE_FORM)};
#undef SLUICE_FORM

CUresult look_up(const char* name, void** pfn, int cuda_version, cuuint64_t flags,
                 CUdriverProcAddressQueryResult* status) {
  if (name == nullptr || pfn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pfn = nullptr;
  const Symbol* best = nullptr;
  bool newer = false;
  for (const Symbol& symbol : kSymbols) {
    if (std::strcmp(symbol.name, name) != 0) continue;
    if (symbol.since > cuda_version)
      newer = true;
    else if (best == nullptr || symbol.since > best->since)
      best = &symbol;
  }
  if (best != nullptr) *pfn = best->function;
  if (best != nullptr && (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0)
    for (const PerThreadForm& form : kPerThreadForms)
      if (form.legacy == best->function) *pfn = form.per_thread;
  if (status != nullptr)
    *status = best != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : newer         ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                              : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (best == nullptr) log_line("cuGetProcAddress: no %s for CUDA %d", name, cuda_version);
  return CUDA_SUCCESS;  // also for what is not there, as NVIDIA's driver 580 does: *pfn and *status
                        // say it
}

}  // namespace

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cuda_version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbol_status) {
  return look_up(symbol, pfn, cuda_version, flags, symbol_status);
}

CUresult sluice_get_proc_address_v1(const char* symbol, void** pfn, int cuda_version,
                                    cuuint64_t flags) {
  return look_up(symbol, pfn, cuda_version, flags, nullptr);
}
