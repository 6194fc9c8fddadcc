// SPDX-License-Identifier: Apache-2.0
// TensorMap: what the 128 bytes of a tensor map hold on the software GPU (CUDA driver API,
// "Tensor Map Object Management"; PTX ISA, "Tensor-map"). They are opaque to programs, which pass
// them to kernels; a kernel may change fields by tensormap.replace, or copy them about. So they may
// hold anything: whoever reads one asks valid() first. Plain data; any thread.
//
// Numbers of the fields are those of tensormap.replace. Dimension 0 is the innermost.
#pragma once

#include <cstdint>

namespace sluice::exec {

enum class TensorElement : uint8_t {
  kU8,
  kU16,
  kU32,
  kS32,
  kU64,
  kS64,
  kF16,
  kF32,
  kF32Ftz,
  kF64,
  kBf16,
  kTf32,
  kTf32Ftz,
  kCount,
};
enum class TensorSwizzle : uint8_t { kNone, k32, k64, k128, kCount };
enum class TensorKind : uint8_t { kTiled, kIm2col, kCount };

inline constexpr uint32_t kTensorMapBytes = 128;
inline constexpr uint32_t kTensorMapAlign = 64;
inline constexpr uint32_t kMaxTensorRank = 5;
inline constexpr uint32_t kMaxTensorBox = 256;  // elements of a side of a box
inline constexpr uint32_t kMaxTensorStep = 8;   // element stride
inline constexpr uint32_t kMaxTensorPixels = 1024;

struct TensorMap {
  uint64_t address = 0;
  uint64_t strides[kMaxTensorRank - 1] = {};  // bytes, of dimensions 1 and on
  uint32_t last[kMaxTensorRank] = {};         // sizes in elements, less one
  uint16_t box[kMaxTensorRank] = {};
  int16_t lower[3] = {}, upper[3] = {};  // im2col: corners of the box of pixels
  uint16_t channels = 0, pixels = 0;     // im2col: what one copy takes
  uint8_t steps[kMaxTensorRank] = {};    // every how many elements, by dimension
  uint8_t rank = 0;
  TensorElement element = TensorElement::kU8;
  TensorSwizzle swizzle = TensorSwizzle::kNone;
  TensorKind kind = TensorKind::kTiled;
  uint8_t nan_fill = 0;    // 1: what is outside the tensor reads as NaN, otherwise as zero
  uint8_t interleave = 0;  // not carried out: valid only as 0
  uint8_t mark = 0;        // kTensorMapMark
  uint8_t reserved[30] = {};

  // It is a map and each field has a value that a copy may be made by.
  bool valid() const;
  // Shared memory that a row of a box takes: the innermost side, or the swizzle's width where that
  // is more.
  uint32_t row_bytes() const;
};
static_assert(sizeof(TensorMap) == kTensorMapBytes);
inline constexpr uint8_t kTensorMapMark = 0x5a;

uint32_t element_bytes(TensorElement element);
bool is_float(TensorElement element);
// Bytes of a swizzle's pattern: rows of 32, 64 or 128. 0: none.
uint32_t swizzle_width(TensorSwizzle swizzle);
// Where the byte at `offset` of shared memory lies under a swizzle: chunks of 16 bytes within a row
// of the pattern change places, by the row (bits 7 to 9 of the address).
inline uint32_t swizzled(TensorSwizzle swizzle, uint32_t offset) {
  const uint32_t mask = (1u << static_cast<uint32_t>(swizzle)) - 1;  // 0, 1, 3, 7
  return offset ^ ((offset >> 7 & mask) << 4);
}

}  // namespace sluice::exec
