// SPDX-License-Identifier: Apache-2.0
// Tensor maps: made by the worker's driver, since their form is its own. An address in one is the
// worker's, which is the program's: device memory has the same addresses on both sides. Any thread;
// no state.
#include <cstdint>

#include "guest-agent/shim/state/api.h"

using namespace sluice::guest;

namespace {
// The driver's limit. Checked here because this many elements are read from the program's arrays.
constexpr cuuint32_t kMostRank = 5;

// What the driver asks for; CUDA 13's header says 128, older ones 64.
constexpr std::uintptr_t kAlign = 64;

CUresult check(const CUtensorMap* map, cuuint32_t rank) {
  const bool good = map != nullptr && reinterpret_cast<std::uintptr_t>(map) % kAlign == 0 &&
                    rank != 0 && rank <= kMostRank;
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
}  // namespace

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* address, const cuuint64_t* dimensions,
                                const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (const CUresult r = check(map, rank); r != CUDA_SUCCESS) return r;
  return SLUICE_CALL(cuTensorMapEncodeTiled, *e.link, e.context, map, type, rank, address,
                     dimensions, strides, box, element_strides, interleave, swizzle, promotion,
                     fill);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                 void* address, const cuuint64_t* dimensions,
                                 const cuuint64_t* strides, const int* lower_corner,
                                 const int* upper_corner, cuuint32_t channels, cuuint32_t pixels,
                                 const cuuint32_t* element_strides,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (const CUresult r = check(map, rank); r != CUDA_SUCCESS) return r;
  return SLUICE_CALL(cuTensorMapEncodeIm2col, *e.link, e.context, map, type, rank, address,
                     dimensions, strides, lower_corner, upper_corner, channels, pixels,
                     element_strides, interleave, swizzle, promotion, fill);
}

CUresult cuTensorMapEncodeIm2colWide(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                     void* address, const cuuint64_t* dimensions,
                                     const cuuint64_t* strides, int lower_corner_width,
                                     int upper_corner_width, cuuint32_t channels, cuuint32_t pixels,
                                     const cuuint32_t* element_strides,
                                     CUtensorMapInterleave interleave,
                                     CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle,
                                     CUtensorMapL2promotion promotion,
                                     CUtensorMapFloatOOBfill fill) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (const CUresult r = check(map, rank); r != CUDA_SUCCESS) return r;
  return SLUICE_CALL(cuTensorMapEncodeIm2colWide, *e.link, e.context, map, type, rank, address,
                     dimensions, strides, lower_corner_width, upper_corner_width, channels, pixels,
                     element_strides, interleave, mode, swizzle, promotion, fill);
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* address) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (const CUresult r = check(map, 1); r != CUDA_SUCCESS) return r;
  return SLUICE_CALL(cuTensorMapReplaceAddress, *e.link, e.context, map, address);
}
