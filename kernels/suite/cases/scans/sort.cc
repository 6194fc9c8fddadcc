// SPDX-License-Identifier: Apache-2.0
// The host side of sort.cu: eight passes over 32-bit keys, between two buffers.
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"
#include "kernels/suite/sort.ptx.h"

namespace sluice::suite {

Case case_sort(const CaseOptions& options) {
  constexpr std::uint32_t threads = 256, digits = 16;
  const std::uint32_t n = scaled(options, 3000, threads), count = n / threads;
  const auto keys = uniform_words(n, options.seed, 1ull << 32);
  CaseBuilder build("sort", kSortPtx);
  Pointer d_from = build.input("keys", keys), d_to = build.output<std::uint32_t>("other", n);
  const Pointer d_counts = build.output<std::uint32_t>("counts", std::size_t{count} * digits);
  const Extent3 grid = {count, 1, 1}, block = {threads, 1, 1};
  for (std::uint32_t shift = 0; shift < 32; shift += 4) {
    build.launch("sort_count", grid, block, 0, d_from, d_counts, shift);
    build.launch("sort_offsets", {1, 1, 1}, block, 0, d_counts, count * digits);
    build.launch("sort_place", grid, block, 0, d_to, d_from, d_counts, shift);
    std::swap(d_from, d_to);
  }
  build.expect<std::uint32_t>(d_from, 0, [keys] {
    std::vector<std::uint32_t> sorted = keys;
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  });
  return build.take();
}

}  // namespace sluice::suite
