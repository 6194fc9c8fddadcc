// SPDX-License-Identifier: Apache-2.0
// The host side of lookback.cu.
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"
#include "kernels/suite/lookback.ptx.h"

namespace sluice::suite {

Case case_lookback(const CaseOptions& options) {
  constexpr std::uint32_t threads = 128, tile = threads * 4;
  const std::uint32_t n = scaled(options, 20000), count = blocks(n, tile);
  const auto in = uniform_words(n, options.seed, 1ull << 32);
  CaseBuilder build("lookback", kLookbackPtx);
  const Pointer d_in = build.input("in", in), d_out = build.output<std::uint32_t>("out", n);
  const Pointer d_states = build.output<std::uint64_t>("states", count);
  build.fill(d_states, 0, std::uint64_t{count} * 8);
  build.launch("lookback_scan", {count, 1, 1}, {threads, 1, 1}, 0, d_out, d_states, d_in, n);
  build.expect<std::uint32_t>(d_out, 0, [in] {
    std::vector<std::uint32_t> out;
    std::uint32_t sum = 0;
    for (std::uint32_t value : in) {
      out.push_back(sum);
      sum += value;
    }
    return out;
  });
  return build.take();
}

}  // namespace sluice::suite
