// SPDX-License-Identifier: Apache-2.0
// The host side of mergesort.cu: runs double from a tile to the whole, between two buffers.
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"
#include "kernels/suite/mergesort.ptx.h"

namespace sluice::suite {

namespace {

struct SortedPair {
  std::uint64_t key = 0;
  std::uint32_t value = 0, unused = 0;
};

}  // namespace

Case case_mergesort(const CaseOptions& options) {
  constexpr std::uint32_t threads = 128, tile = threads * 2;
  const std::uint32_t n = scaled(options, 2900, tile), tiles = n / tile;
  // Few different keys beyond 32 bits: their order is the upper half's, and equal ones are many.
  const auto high = uniform_words(n, options.seed, 8), low = uniform_words(n, options.seed + 1, 30);
  std::vector<SortedPair> pairs;
  for (std::uint32_t i = 0; i < n; ++i)
    pairs.push_back({std::uint64_t{high[i]} << 40 | low[i], i, 0});
  CaseBuilder build("mergesort", kMergesortPtx);
  Pointer d_from = build.input("pairs", pairs), d_to = build.input("other", pairs);
  const Pointer d_splits = build.output<std::uint32_t>("splits", tiles + 1);
  const Extent3 grid = {tiles, 1, 1}, block = {threads, 1, 1};
  build.launch("mergesort_tiles", grid, block, 0, d_to, d_from);
  for (std::uint32_t length = tile; length < n; length *= 2) {
    std::swap(d_from, d_to);
    build.launch("mergesort_partition", {blocks(tiles + 1, 128), 1, 1}, {128, 1, 1}, 0, d_splits,
                 d_from, length, n);
    build.launch("mergesort_merge", grid, block, 0, d_to, d_from, d_splits, length, n);
  }
  build.expect_that([=](const Contents& contents) -> std::string {
    std::vector<SortedPair> want = pairs;
    std::stable_sort(want.begin(), want.end(),
                     [](const SortedPair& a, const SortedPair& b) { return a.key < b.key; });
    const auto got = elements_of<SortedPair>(contents.at(d_to.buffer));
    for (std::size_t i = 0; i < n; ++i)
      if (got[i].key != want[i].key || got[i].value != want[i].value)
        return "pairs[" + std::to_string(i) + "] is not the pair that belongs there";
    return {};
  });
  return build.take();
}

}  // namespace sluice::suite
