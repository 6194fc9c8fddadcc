// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress and the symbols of older API versions, both from the lists in
// abi/cuda_driver_functions.h, cuda_green.h and cuda_texture.h, and a few more. The private tables
// behind cuGetExportTable are NVIDIA's: refused.
#include <cstring>

#include "abi/cuda_graph.h"
#include "abi/cuda_green.h"
#include "abi/cuda_texture.h"

namespace {

struct Row {
  const char* symbol;
  const char* name;
  int since;
  void* function;
};

const Row kRows[] = {
#define SLUICE_ROW(symbol, name, since, parameters) \
  {#symbol, #name, since, reinterpret_cast<void*>(&::symbol)},
    SLUICE_CUDA_DRIVER_FUNCTIONS(SLUICE_ROW) SLUICE_CUDA_GREEN_FUNCTIONS(SLUICE_ROW)
#undef SLUICE_ROW
#define SLUICE_ROW(symbol, target, name, since) \
  {symbol, name, since, reinterpret_cast<void*>(&::target)},
        SLUICE_CUDA_DRIVER_ALIASES(SLUICE_ROW)
#undef SLUICE_ROW
#define SLUICE_ROW(symbol, name, since, parameters) \
  {#symbol, #name, since, reinterpret_cast<void*>(&::symbol)},
            SLUICE_CUDA_TEXTURE_FUNCTIONS(SLUICE_ROW)
#undef SLUICE_ROW
                {"cuStreamSetAttribute", "cuStreamSetAttribute", 11000,
                 reinterpret_cast<void*>(&::cuStreamSetAttribute)},
    {"cuStreamGetAttribute", "cuStreamGetAttribute", 11000,
     reinterpret_cast<void*>(&::cuStreamGetAttribute)},
    {"cuStreamCopyAttributes", "cuStreamCopyAttributes", 11000,
     reinterpret_cast<void*>(&::cuStreamCopyAttributes)},
};

}  // namespace

// `flags` may ask for the per-thread default stream: functions that take NULL then still mean the
// legacy stream, which orders more than was asked for, never less.
CUresult cuGetProcAddress_v2(const char* name, void** function, int cuda_version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  constexpr cuuint64_t kFlags =
      CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (name == nullptr || function == nullptr || (flags & ~kFlags) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const Row* newest = nullptr;
  bool known = false;
  for (const Row& row : kRows) {
    if (std::strcmp(row.name, name) != 0) continue;
    known = true;
    if (row.since <= cuda_version && (newest == nullptr || row.since > newest->since))
      newest = &row;
  }
  *function = newest == nullptr ? nullptr : newest->function;
  if (status != nullptr) {
    *status = newest != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : known           ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return CUDA_SUCCESS;  // also when there is none: that is what `status` and the null pointer say
}

CUresult cuGetExportTable(const void**, const CUuuid*) { return CUDA_ERROR_NOT_SUPPORTED; }
