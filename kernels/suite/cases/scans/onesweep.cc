// SPDX-License-Identifier: Apache-2.0
// The host side of onesweep.cu: four passes over 32-bit keys and their values, between two buffers.
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"
#include "kernels/suite/onesweep.ptx.h"

namespace sluice::suite {

Case case_onesweep(const CaseOptions& options) {
  constexpr std::uint32_t threads = 256, digits = 256, passes = 4;
  const std::uint32_t n = scaled(options, 3000, threads), tiles = n / threads;
  // Some keys occur often, so that being stable shows in the values.
  auto keys = uniform_words(n, options.seed, 1ull << 32);
  for (std::size_t i = 0; i < n; i += 3) keys[i] %= 40;
  std::vector<std::uint32_t> values;
  for (std::uint32_t i = 0; i < n; ++i) values.push_back(i);
  CaseBuilder build("onesweep", kOnesweepPtx);
  Pointer d_keys = build.input("keys", keys), d_values = build.input("values", values);
  Pointer d_other_keys = build.output<std::uint32_t>("other_keys", n);
  Pointer d_other_values = build.output<std::uint32_t>("other_values", n);
  const Pointer d_counts = build.zeros<std::uint32_t>("counts", passes * digits);
  const std::size_t states = std::size_t{tiles} * digits;
  const Pointer d_states = build.output<std::uint32_t>("states", states);
  const Pointer d_next = build.output<std::uint32_t>("next_tile", 1);
  const Extent3 block = {threads, 1, 1};
  build.launch("onesweep_count", {blocks(tiles, 4), 1, 1}, block, 0, d_counts, d_keys, n);
  build.launch("onesweep_starts", {passes, 1, 1}, block, 0, d_counts);
  for (std::uint32_t pass = 0; pass < passes; ++pass) {
    build.fill(d_states, 0, states * 4);
    build.fill(d_next, 0, 4);
    build.launch("onesweep_pass", {tiles, 1, 1}, block, 0, d_other_keys, d_other_values, d_keys,
                 d_values, Pointer{d_counts.buffer, std::uint64_t{pass} * digits * 4}, d_states,
                 d_next, pass * 8);
    std::swap(d_keys, d_other_keys);
    std::swap(d_values, d_other_values);
  }
  const auto order = [=] {
    std::vector<std::uint32_t> sorted = values;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return keys[a] < keys[b]; });
    return sorted;
  };
  build.expect<std::uint32_t>(d_values, 0, order);
  build.expect<std::uint32_t>(d_keys, 0, [=] {
    std::vector<std::uint32_t> sorted;
    for (std::uint32_t i : order()) sorted.push_back(keys[i]);
    return sorted;
  });
  return build.take();
}

}  // namespace sluice::suite
