// SPDX-License-Identifier: Apache-2.0
// Launches of the kernels in tensor_copies.cu, for clone_gpu: they need a driver that makes tensor
// maps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sluice::tensor {

const std::string& text();  // tensor_copies.ptx

// A map over `height` rows of `width` floats at a device address, in tiles of 64 by 16; made by the
// driver whose dlopen handle this is. Nothing: it cannot.
std::optional<std::vector<std::byte>> make_map(void* library, std::uint64_t address,
                                               std::uint32_t width, std::uint32_t height);
inline constexpr std::uint32_t kWidth = 64, kHeight = 16;  // of a tile

}  // namespace sluice::tensor
