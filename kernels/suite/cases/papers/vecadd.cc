// SPDX-License-Identifier: Apache-2.0
// The host side of vecadd.cu.
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"
#include "kernels/suite/vecadd.ptx.h"

namespace sluice::suite {

Case case_vecadd(const CaseOptions& options) {
  const std::uint32_t n = scaled(options, 10'000);
  const auto a = uniform_floats(n, options.seed, -1, 1);
  const auto b = uniform_floats(n, options.seed + 1, -1, 1);
  CaseBuilder build("vecadd", kVecaddPtx);
  const Pointer d_a = build.input("a", a), d_b = build.input("b", b);
  const Pointer d_c = build.output<float>("c", n);
  build.launch("vecadd", {blocks(n, 256), 1, 1}, {256, 1, 1}, 0, d_c, d_a, d_b, n);
  build.expect<float>(d_c, 0, [a, b] {
    std::vector<float> c(a.size());
    for (std::size_t i = 0; i < c.size(); ++i) c[i] = a[i] + b[i];
    return c;
  });
  return build.take();
}

}  // namespace sluice::suite
