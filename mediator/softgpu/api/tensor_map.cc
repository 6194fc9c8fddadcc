// SPDX-License-Identifier: Apache-2.0
// The driver API's tensor maps. A map is plain bytes in the software GPU's own form
// (kernels/exec/memory/tensor_map.h); nothing here remembers it.
#include <algorithm>
#include <cstring>

#include "kernels/exec/memory/tensor_map.h"
#include "mediator/softgpu/state/state.h"

using namespace sluice;
using namespace sluice::softgpu;

namespace {

// By CUtensorMapDataType. Those behind are of later GPUs.
constexpr exec::TensorElement kElements[] = {
    exec::TensorElement::kU8,     exec::TensorElement::kU16,    exec::TensorElement::kU32,
    exec::TensorElement::kS32,    exec::TensorElement::kU64,    exec::TensorElement::kS64,
    exec::TensorElement::kF16,    exec::TensorElement::kF32,    exec::TensorElement::kF64,
    exec::TensorElement::kBf16,   exec::TensorElement::kF32Ftz, exec::TensorElement::kTf32,
    exec::TensorElement::kTf32Ftz};
constexpr uint64_t kMaxSize = 1ull << 32;

// What both kinds of maps have.
struct Common {
  CUtensorMapDataType type;
  cuuint32_t rank;
  void* address;
  const cuuint64_t* sizes;
  const cuuint64_t* strides;
  const cuuint32_t* steps;
  CUtensorMapInterleave interleave;
  CUtensorMapSwizzle swizzle;
  CUtensorMapL2promotion promotion;
  CUtensorMapFloatOOBfill fill;
};

// The parts of `out` that it tells. False: an argument is out of its range.
bool take_common(const Common& in, exec::TensorMap& out) {
  const auto number = [](auto e) { return static_cast<uint32_t>(e); };
  if (number(in.type) >= std::size(kElements) || in.rank < 1 || in.rank > exec::kMaxTensorRank ||
      in.sizes == nullptr || in.steps == nullptr || (in.rank > 1 && in.strides == nullptr) ||
      number(in.interleave) > CU_TENSOR_MAP_INTERLEAVE_32B ||
      number(in.swizzle) > CU_TENSOR_MAP_SWIZZLE_128B ||
      number(in.promotion) > CU_TENSOR_MAP_L2_PROMOTION_L2_256B ||
      number(in.fill) > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA)
    return false;
  out.element = kElements[number(in.type)];
  out.rank = static_cast<uint8_t>(in.rank);
  out.address = reinterpret_cast<uint64_t>(in.address);
  out.swizzle = static_cast<exec::TensorSwizzle>(number(in.swizzle));
  out.nan_fill = static_cast<uint8_t>(number(in.fill));
  out.mark = exec::kTensorMapMark;
  if (out.nan_fill != 0 && !exec::is_float(out.element)) return false;
  for (cuuint32_t k = 0; k < in.rank; ++k) {
    if (in.sizes[k] < 1 || in.sizes[k] > kMaxSize || in.steps[k] < 1 ||
        in.steps[k] > exec::kMaxTensorStep)
      return false;
    out.last[k] = static_cast<uint32_t>(in.sizes[k] - 1);
    out.steps[k] = static_cast<uint8_t>(in.steps[k]);
    if (k + 1 < in.rank) out.strides[k] = in.strides[k];
  }
  return true;
}

// The map, if all of it is in its range. Layouts in channels of 16 or 32 bytes are not there.
// NVIDIA's driver makes none without a current context either.
CUresult give(const exec::TensorMap& map, CUtensorMapInterleave interleave, CUtensorMap* out) {
  return with_context([&](State&, Context&) -> CUresult {
    if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
    if (!map.valid()) return CUDA_ERROR_INVALID_VALUE;
    static_assert(sizeof *out == sizeof map);
    std::memcpy(static_cast<void*>(out), &map, sizeof map);
    return CUDA_SUCCESS;
  });
}

bool is_place(const CUtensorMap* out) {
  return out != nullptr && reinterpret_cast<uintptr_t>(out) % exec::kTensorMapAlign == 0;
}

}  // namespace

CUresult cuTensorMapEncodeTiled(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank,
                                void* address, const cuuint64_t* sizes, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* steps,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  exec::TensorMap map;
  if (!is_place(out) || box == nullptr ||
      !take_common(
          {type, rank, address, sizes, strides, steps, interleave, swizzle, promotion, fill}, map))
    return CUDA_ERROR_INVALID_VALUE;
  for (cuuint32_t k = 0; k < rank; ++k) {
    if (box[k] > exec::kMaxTensorBox) return CUDA_ERROR_INVALID_VALUE;
    map.box[k] = static_cast<uint16_t>(box[k]);
  }
  return give(map, interleave, out);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank,
                                 void* address, const cuuint64_t* sizes, const cuuint64_t* strides,
                                 const int* lower, const int* upper, cuuint32_t channels,
                                 cuuint32_t pixels, const cuuint32_t* steps,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  exec::TensorMap map;
  map.kind = exec::TensorKind::kIm2col;
  if (!is_place(out) || lower == nullptr || upper == nullptr || rank < 3 ||
      channels > exec::kMaxTensorBox || pixels > exec::kMaxTensorPixels ||
      !take_common(
          {type, rank, address, sizes, strides, steps, interleave, swizzle, promotion, fill}, map))
    return CUDA_ERROR_INVALID_VALUE;
  // 16 bits in all for the corners of one pixel's dimensions.
  const int limit = 1 << (16 / (rank - 2) - 1);
  for (cuuint32_t k = 0; k + 2 < rank; ++k) {
    for (const int corner : {lower[k], upper[k]})
      if (corner < -limit || corner >= limit) return CUDA_ERROR_INVALID_VALUE;
    map.lower[k] = static_cast<int16_t>(lower[k]);
    map.upper[k] = static_cast<int16_t>(upper[k]);
  }
  map.channels = static_cast<uint16_t>(channels);
  map.pixels = static_cast<uint16_t>(pixels);
  return give(map, interleave, out);
}

// For GPUs of compute capability 10.0 and later.
CUresult cuTensorMapEncodeIm2colWide(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                     const cuuint64_t*, const cuuint64_t*, int, int, cuuint32_t,
                                     cuuint32_t, const cuuint32_t*, CUtensorMapInterleave,
                                     CUtensorMapIm2ColWideMode, CUtensorMapSwizzle,
                                     CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* address) {
  if (!is_place(map)) return CUDA_ERROR_INVALID_VALUE;
  exec::TensorMap changed;
  std::memcpy(static_cast<void*>(&changed), map, sizeof changed);
  changed.address = reinterpret_cast<uint64_t>(address);
  if (!changed.valid()) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(static_cast<void*>(map), &changed, sizeof changed);
  return CUDA_SUCCESS;
}
