// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/memory/tensor_map.h"

#include <algorithm>

namespace sluice::exec {

uint32_t element_bytes(TensorElement element) {
  switch (element) {
    case TensorElement::kU8:
      return 1;
    case TensorElement::kU16:
    case TensorElement::kF16:
    case TensorElement::kBf16:
      return 2;
    case TensorElement::kU64:
    case TensorElement::kS64:
    case TensorElement::kF64:
      return 8;
    default:
      return 4;
  }
}

bool is_float(TensorElement element) { return element >= TensorElement::kF16; }

uint32_t swizzle_width(TensorSwizzle swizzle) {
  return swizzle == TensorSwizzle::kNone ? 0 : 16u << static_cast<uint32_t>(swizzle);
}

uint32_t TensorMap::row_bytes() const {
  const uint32_t side = kind == TensorKind::kIm2col ? channels : box[0];
  return std::max(side * element_bytes(element), swizzle_width(swizzle));
}

bool TensorMap::valid() const {
  if (mark != kTensorMapMark || rank < 1 || rank > kMaxTensorRank || interleave != 0 ||
      element >= TensorElement::kCount || swizzle >= TensorSwizzle::kCount ||
      kind >= TensorKind::kCount || nan_fill > 1 || (address & 15) != 0)
    return false;
  for (uint32_t k = 0; k + 1 < rank; ++k)
    if ((strides[k] & 15) != 0 || strides[k] >> 40 != 0) return false;
  for (uint32_t k = 0; k < rank; ++k)
    if (steps[k] < 1 || steps[k] > kMaxTensorStep) return false;
  if (kind == TensorKind::kIm2col) {
    if (rank < 3 || channels < 1 || channels > kMaxTensorBox || pixels < 1 ||
        pixels > kMaxTensorPixels)
      return false;
  } else {
    for (uint32_t k = 0; k < rank; ++k)
      if (box[k] < 1 || box[k] > kMaxTensorBox) return false;
  }
  const uint32_t side = (kind == TensorKind::kIm2col ? channels : box[0]) * element_bytes(element);
  return (side & 15) == 0 && (swizzle == TensorSwizzle::kNone || side <= swizzle_width(swizzle));
}

}  // namespace sluice::exec
