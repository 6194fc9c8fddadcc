// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/tensor/tensor_cases.h"

#include <dlfcn.h>

#include "tensor_copies.ptx.h"

namespace sluice::tensor {

namespace {
// CUDA driver API, "Tensor Map Object Management": the enumerators are numbers here.
constexpr int kFloat32 = 7, kNone = 0;
constexpr std::size_t kMapBytes = 128, kMapAlign = 64;
using Encode = int (*)(void* map, int type, std::uint32_t rank, void* address,
                       const std::uint64_t* dimensions, const std::uint64_t* strides,
                       const std::uint32_t* box, const std::uint32_t* element_strides,
                       int interleave, int swizzle, int promotion, int fill);
}  // namespace

const std::string& text() {
  static const std::string kText(suite::kTensorCopiesPtx);
  return kText;
}

std::optional<std::vector<std::byte>> make_map(void* library, std::uint64_t address,
                                               std::uint32_t width, std::uint32_t height) {
  const auto encode = reinterpret_cast<Encode>(::dlsym(library, "cuTensorMapEncodeTiled"));
  if (encode == nullptr) return std::nullopt;
  struct alignas(kMapAlign) Map {
    std::byte bytes[kMapBytes];
  } map{};
  const std::uint64_t dimensions[2] = {width, height}, strides[1] = {std::uint64_t{width} * 4};
  const std::uint32_t box[2] = {kWidth, kHeight}, ones[2] = {1, 1};
  if (encode(&map, kFloat32, 2, reinterpret_cast<void*>(address), dimensions, strides, box, ones,
             kNone, kNone, kNone, kNone) != 0)
    return std::nullopt;
  return std::vector<std::byte>(map.bytes, map.bytes + kMapBytes);
}

}  // namespace sluice::tensor
