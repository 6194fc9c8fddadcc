// SPDX-License-Identifier: Apache-2.0
#include "kernels/suite/catalog/catalog.h"

#include <cstring>

#include "kernels/suite/catalog/catalog_rows.h"

namespace sluice::suite {

std::span<const Row> catalog() {
#define SLUICE_SUITE_ROW(name, papers, gpu_scale) {#name, papers, gpu_scale, case_##name},
  static constexpr Row kRows[] = {SLUICE_SUITE_ROWS(SLUICE_SUITE_ROW)};
#undef SLUICE_SUITE_ROW
  return kRows;
}

const Row* find_row(std::string_view name) {
  for (const Row& row : catalog())
    if (name == row.name) return &row;
  return nullptr;
}

std::vector<std::byte> parameters(const Launch& launch, std::span<const std::uint64_t> addresses) {
  std::vector<std::byte> block = launch.params;
  for (const PointerAt& pointer : launch.pointers) {
    const std::uint64_t address = addresses[pointer.buffer] + pointer.addend;
    std::memcpy(block.data() + pointer.offset, &address, sizeof(address));
  }
  return block;
}

std::string describe(const Launch& launch) {
  const auto text = [](const Extent3& e) {
    return "(" + std::to_string(e[0]) + "," + std::to_string(e[1]) + "," + std::to_string(e[2]) +
           ")";
  };
  return launch.kernel + "<<<" + text(launch.grid) + ", " + text(launch.block) + ", " +
         std::to_string(launch.dynamic_shared) + ">>>";
}

}  // namespace sluice::suite
