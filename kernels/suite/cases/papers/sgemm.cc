// SPDX-License-Identifier: Apache-2.0
// The host side of sgemm.cu.
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"
#include "kernels/suite/sgemm.ptx.h"

namespace sluice::suite {

Case case_sgemm(const CaseOptions& options) {
  const std::uint32_t m = scaled_edge(options, 128, 3, 64), n = scaled_edge(options, 48, 3, 16);
  const std::uint32_t k = scaled_edge(options, 36, 3, 4);
  const auto a = uniform_floats(std::size_t{m} * k, options.seed, -1, 1);
  const auto b = uniform_floats(std::size_t{k} * n, options.seed + 1, -1, 1);
  const auto c = uniform_floats(std::size_t{m} * n, options.seed + 2, -1, 1);
  constexpr float alpha = 1.5f, beta = 0.5f;
  CaseBuilder build("sgemm", kSgemmPtx);
  const Pointer d_a = build.input("a", a), d_b = build.input("b", b), d_c = build.input("c", c);
  const auto as_int = [](std::uint32_t value) { return static_cast<std::int32_t>(value); };
  build.launch("sgemm", {m / 64, n / 16, 1}, {16, 4, 1}, 0, d_a, as_int(m), d_b, as_int(n), d_c,
               as_int(m), as_int(k), alpha, beta);
  build.expect<float>(d_c, 1e-4, [=] {
    std::vector<float> want;
    for (std::size_t col = 0; col < n; ++col)
      for (std::size_t row = 0; row < m; ++row) {
        double sum = 0;
        for (std::size_t i = 0; i < k; ++i) sum += double{a[row + i * m]} * b[i * n + col];
        want.push_back(static_cast<float>(alpha * sum + beta * c[row + col * m]));
      }
    return want;
  });
  return build.take();
}

}  // namespace sluice::suite
