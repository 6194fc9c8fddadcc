// SPDX-License-Identifier: Apache-2.0
// The host side of reducebykey.cu: runs of one to some hundred, so that some are longer than a
// tile.
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"
#include "kernels/suite/reducebykey.ptx.h"

namespace sluice::suite {

Case case_reducebykey(const CaseOptions& options) {
  constexpr std::uint32_t threads = 128;
  const std::uint32_t n = scaled(options, 6000), count = blocks(n, threads);
  const auto values = uniform_words(n, options.seed, 1ull << 32);
  std::vector<std::uint32_t> keys;
  Generator generator(options.seed + 1);
  for (std::uint32_t key = 0; keys.size() < n; ++key) {
    const std::uint64_t length = 1 + generator.next() % (key % 8 == 7 ? 600 : 20);
    keys.insert(keys.end(), std::min<std::uint64_t>(length, n - keys.size()), key * 2654435761u);
  }
  CaseBuilder build("reducebykey", kReducebykeyPtx);
  const Pointer d_keys = build.input("keys", keys), d_values = build.input("values", values);
  const Pointer d_keys_out = build.output<std::uint32_t>("keys_out", n);
  const Pointer d_sums_out = build.output<std::uint32_t>("sums_out", n);
  const Pointer d_runs_out = build.output<std::uint32_t>("runs_out", 1);
  const Pointer d_flags = build.zeros<std::uint32_t>("flags", count);
  const Pointer d_own = build.output<std::uint64_t>("own", count);
  const Pointer d_prefix = build.output<std::uint64_t>("prefix", count);
  build.launch("reducebykey", {count, 1, 1}, {threads, 1, 1}, 0, d_keys_out, d_sums_out, d_runs_out,
               d_flags, d_own, d_prefix, d_keys, d_values, n);
  const auto runs = [=](bool want_sums) {
    std::vector<std::uint32_t> found, sums;
    for (std::size_t i = 0; i < n; ++i) {
      if (i == 0 || keys[i] != keys[i - 1]) {
        found.push_back(keys[i]);
        sums.push_back(0);
      }
      sums.back() += values[i];
    }
    return want_sums ? sums : found;
  };
  build.expect<std::uint32_t>(d_keys_out, 0, [=] { return runs(false); });
  build.expect<std::uint32_t>(d_sums_out, 0, [=] { return runs(true); });
  build.expect<std::uint32_t>(d_runs_out, 0, [=] {
    return std::vector<std::uint32_t>{static_cast<std::uint32_t>(runs(false).size())};
  });
  return build.take();
}

}  // namespace sluice::suite
