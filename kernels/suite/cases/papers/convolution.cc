// SPDX-License-Identifier: Apache-2.0
// The host side of convolution.cu.
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"
#include "kernels/suite/convolution.ptx.h"

namespace sluice::suite {

Case case_convolution(const CaseOptions& options) {
  constexpr std::int32_t radius = 8;
  const auto width = static_cast<std::int32_t>(scaled_edge(options, 90, 2));
  const std::int32_t height = width * 2 / 3 + 1;
  const auto size = static_cast<std::size_t>(width) * static_cast<std::size_t>(height);
  const auto in = uniform_floats(size, options.seed, 0, 16);
  const auto taps = uniform_floats(2 * radius + 1, options.seed + 1, -1, 1);
  CaseBuilder build("convolution", kConvolutionPtx);
  const Pointer d_in = build.input("in", in);
  const Pointer d_rows = build.output<float>("rows", size),
                d_out = build.output<float>("out", size);
  build.symbol("convolution_taps", bytes_of(taps));
  const auto w = static_cast<std::uint32_t>(width), h = static_cast<std::uint32_t>(height);
  build.launch("convolution_rows", {blocks(w, 64), blocks(h, 4), 1}, {16, 4, 1}, 0, d_rows, d_in,
               width, height);
  build.launch("convolution_columns", {blocks(w, 16), blocks(h, 32), 1}, {16, 8, 1}, 0, d_out,
               d_rows, width, height);
  build.expect<float>(d_out, 1e-4, [=] {
    // Along the rows, or along the columns; zero outside.
    const auto lines = [&](const std::vector<double>& from, bool across) {
      std::vector<double> to(from.size());
      for (std::int32_t y = 0; y < height; ++y)
        for (std::int32_t x = 0; x < width; ++x) {
          double sum = 0;
          for (std::int32_t k = -radius; k <= radius; ++k) {
            const std::int32_t u = across ? x + k : x, v = across ? y : y + k;
            if (u < 0 || v < 0 || u >= width || v >= height) continue;
            sum += double{taps[static_cast<std::size_t>(radius - k)]} *
                   from[static_cast<std::size_t>(v * width + u)];
          }
          to[static_cast<std::size_t>(y * width + x)] = sum;
        }
      return to;
    };
    const std::vector<double> result = lines(lines({in.begin(), in.end()}, true), false);
    return std::vector<float>(result.begin(), result.end());
  });
  return build.take();
}

}  // namespace sluice::suite
