// SPDX-License-Identifier: Apache-2.0
// The host side of blackscholes.cu; the reference uses the error function.
#include "kernels/suite/blackscholes.ptx.h"
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"

namespace sluice::suite {

Case case_blackscholes(const CaseOptions& options) {
  const std::uint32_t n = scaled(options, 3000);
  const auto price = uniform_floats(n, options.seed, 5, 30);
  const auto strike = uniform_floats(n, options.seed + 1, 1, 100);
  const auto years = uniform_floats(n, options.seed + 2, 0.25f, 10);
  constexpr float rate = 0.02f, volatility = 0.3f;
  CaseBuilder build("blackscholes", kBlackscholesPtx);
  const Pointer d_price = build.input("price", price), d_strike = build.input("strike", strike);
  const Pointer d_years = build.input("years", years);
  const Pointer d_call = build.output<float>("call", n), d_put = build.output<float>("put", n);
  build.launch("blackscholes", {blocks(n, 128), 1, 1}, {128, 1, 1}, 0, d_call, d_put, d_price,
               d_strike, d_years, rate, volatility, n);
  const auto prices = [=](bool call) {
    std::vector<float> result;
    for (std::size_t i = 0; i < n; ++i) {
      const double s = price[i], x = strike[i], t = years[i], v = volatility, r = rate;
      const double d1 = (std::log(s / x) + (r + v * v / 2) * t) / (v * std::sqrt(t));
      const double d2 = d1 - v * std::sqrt(t), discount = std::exp(-r * t);
      const auto cdf = [](double d) { return std::erfc(-d / std::sqrt(2.0)) / 2; };
      result.push_back(static_cast<float>(call ? s * cdf(d1) - x * discount * cdf(d2)
                                               : x * discount * cdf(-d2) - s * cdf(-d1)));
    }
    return result;
  };
  build.expect<float>(d_call, 3e-5, [=] { return prices(true); });
  build.expect<float>(d_put, 3e-5, [=] { return prices(false); });
  return build.take();
}

}  // namespace sluice::suite
