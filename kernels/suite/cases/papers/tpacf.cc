// SPDX-License-Identifier: Apache-2.0
// The host side of tpacf.cu: one set of points against itself and three others.
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"
#include "kernels/suite/tpacf.ptx.h"

namespace sluice::suite {

Case case_tpacf(const CaseOptions& options) {
  constexpr std::uint32_t threads = 128, bins = 20, sets = 4;
  const std::uint32_t per_set = scaled_edge(options, 200, 2);
  std::vector<float> x, y, z, bounds;
  Generator random(options.seed);
  while (x.size() < std::size_t{per_set} * sets) {
    const double a = random.next_double(), b = random.next_double(), c = random.next_double();
    const double length = std::sqrt(a * a + b * b + c * c);
    if (length > 1 || length < 1e-3) continue;
    x.push_back(static_cast<float>(a / length));
    y.push_back(static_cast<float>(b / length));
    z.push_back(static_cast<float>(c / length));
  }
  // Angles that grow by a constant factor.
  for (std::uint32_t i = 0; i + 1 < bins; ++i)
    bounds.push_back(static_cast<float>(std::cos(0.02 * std::pow(1.3, i))));
  CaseBuilder build("tpacf", kTpacfPtx);
  build.symbol("tpacf_bounds", bytes_of(bounds));
  const Pointer d_x = build.input("x", x), d_y = build.input("y", y), d_z = build.input("z", z);
  const Pointer d_counts = build.zeros<std::uint64_t>("counts", std::size_t{bins} * sets);
  build.launch("tpacf", {blocks(per_set, threads), sets, 1}, {threads, 1, 1}, 0, d_counts, d_x, d_y,
               d_z, per_set);
  build.expect<std::uint64_t>(d_counts, 0, [=] {
    std::vector<std::uint64_t> counts(std::size_t{bins} * sets);
    for (std::size_t set = 0; set < sets; ++set)
      for (std::size_t i = 0; i < per_set; ++i)
        for (std::size_t j = set == 0 ? i + 1 : 0; j < per_set; ++j) {
          const std::size_t other = set * per_set + j;
          const float dot = std::fma(z[i], z[other], std::fma(y[i], y[other], x[i] * x[other]));
          std::size_t bin = 0;
          while (bin + 1 < bins && dot < bounds[bin]) ++bin;
          ++counts[set * bins + bin];
        }
    return counts;
  });
  return build.take();
}

}  // namespace sluice::suite
