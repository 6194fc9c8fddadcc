// SPDX-License-Identifier: Apache-2.0
// The host side of scan.cu.
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"
#include "kernels/suite/scan.ptx.h"

namespace sluice::suite {

Case case_scan(const CaseOptions& options) {
  constexpr std::uint32_t threads = 256;
  const std::uint32_t n = scaled(options, 8000), count = blocks(n, threads);
  const auto in = uniform_words(n, options.seed, 1ull << 32);
  CaseBuilder build("scan", kScanPtx);
  const Pointer d_in = build.input("in", in), d_out = build.output<std::uint32_t>("out", n);
  const Pointer d_sums = build.output<std::uint32_t>("sums", count);
  const Extent3 block = {threads, 1, 1};
  build.launch("scan_blocks", {count, 1, 1}, block, 0, d_out, d_sums, d_in, n);
  build.launch("scan_sums", {1, 1, 1}, block, 0, d_sums, count);
  build.launch("scan_add", {count, 1, 1}, block, 0, d_out, d_sums, n);
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
