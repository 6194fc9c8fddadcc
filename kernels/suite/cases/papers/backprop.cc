// SPDX-License-Identifier: Apache-2.0
// The host side of backprop.cu: one step, weights and everything between compared.
#include "kernels/suite/backprop.ptx.h"
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"

namespace sluice::suite {

Case case_backprop(const CaseOptions& options) {
  constexpr std::uint32_t edge = 16;
  const std::uint32_t inputs = scaled(options, 512, edge), parts = inputs / edge;
  const auto input = uniform_floats(inputs, options.seed, 0, 1);
  const auto weights = uniform_floats(std::size_t{inputs} * edge, options.seed + 1, -0.1f, 0.1f);
  const auto last = uniform_floats(std::size_t{inputs} * edge, options.seed + 2, -0.1f, 0.1f);
  const auto target = uniform_floats(edge, options.seed + 3, 0, 1);
  CaseBuilder build("backprop", kBackpropPtx);
  const Pointer d_input = build.input("input", input), d_weights = build.input("weights", weights);
  const Pointer d_last = build.input("last", last), d_target = build.input("target", target);
  const Pointer d_partial = build.output<float>("partial", inputs);
  const Pointer d_hidden = build.output<float>("hidden", edge);
  const Pointer d_delta = build.output<float>("delta", edge);
  const Extent3 grid = {1, parts, 1}, block = {edge, edge, 1};
  build.launch("backprop_forward", grid, block, 0, d_input, d_weights, d_partial);
  build.launch("backprop_hidden", {1, 1, 1}, {edge, 1, 1}, 0, d_partial, d_hidden, d_delta,
               d_target, parts);
  build.launch("backprop_adjust", grid, block, 0, d_input, d_delta, d_weights, d_last, 0.3f, 0.3f);
  const auto step = [=](bool want_weights) {
    std::vector<float> result;
    for (std::size_t unit = 0; unit < edge; ++unit) {
      double sum = 0;
      for (std::size_t i = 0; i < inputs; ++i) sum += double{weights[i * edge + unit]} * input[i];
      const double value = 1 / (1 + std::exp(-sum));
      result.push_back(
          static_cast<float>(want_weights ? value * (1 - value) * (target[unit] - value) : value));
    }
    if (!want_weights) return result;
    std::vector<float> adjusted(weights);
    for (std::size_t k = 0; k < adjusted.size(); ++k)
      adjusted[k] += 0.3f * result[k % edge] * input[k / edge] + 0.3f * last[k];
    return adjusted;
  };
  build.expect<float>(d_hidden, 1e-4, [=] { return step(false); });
  build.expect<float>(d_weights, 1e-4, [=] { return step(true); });
  return build.take();
}

}  // namespace sluice::suite
