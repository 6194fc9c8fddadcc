// SPDX-License-Identifier: Apache-2.0
// The host side of particlefilter.cu: one frame.
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"
#include "kernels/suite/particlefilter.ptx.h"

namespace sluice::suite {

Case case_particlefilter(const CaseOptions& options) {
  constexpr std::uint32_t threads = 128;
  constexpr std::int32_t width = 64, height = 48;
  const std::uint32_t n = scaled_edge(options, 500, 2), count = blocks(n, threads);
  // A bright spot on a dark ground.
  std::vector<std::uint8_t> image(std::size_t{width} * height);
  Generator random(options.seed);
  for (std::size_t i = 0; i < image.size(); ++i) {
    const auto dx = static_cast<std::int32_t>(i % width) - 30;
    const auto dy = static_cast<std::int32_t>(i / width) - 20;
    image[i] = static_cast<std::uint8_t>((dx * dx + dy * dy < 50 ? 215 : 90) + random.next() % 25);
  }
  std::vector<std::int32_t> particles, disk;
  for (std::uint32_t i = 0; i < n; ++i) {
    particles.push_back(static_cast<std::int32_t>(random.next() % width));
    particles.push_back(static_cast<std::int32_t>(random.next() % height));
  }
  for (std::int32_t y = -4; y <= 4; ++y)
    for (std::int32_t x = -4; x <= 4; ++x)
      if (x * x + y * y <= 16) disk.insert(disk.end(), {x, y});
  const auto points = static_cast<std::uint32_t>(disk.size() / 2);

  CaseBuilder build("particlefilter", kParticlefilterPtx);
  const Pointer d_particles = build.input("particles", particles);
  const Pointer d_disk = build.input("disk", disk), d_image = build.input("image", image);
  const Pointer d_weights =
      build.input("weights", std::vector<float>(n, 1.0f / static_cast<float>(n)));
  const Pointer d_partial = build.output<float>("partial", count + std::size_t{1});
  const Pointer d_cdf = build.output<float>("cdf", n);
  const Pointer d_drawn = build.output<std::int32_t>("drawn", std::size_t{n} * 2);
  const Pointer d_chosen = build.output<std::int32_t>("chosen", n);
  const Extent3 grid = {count, 1, 1}, block = {threads, 1, 1};
  build.launch("particle_likelihood", grid, block, 0, d_particles, d_disk, points, d_image, width,
               height, d_weights, d_partial, n);
  build.launch("particle_sum", {1, 1, 1}, block, 0, d_partial, count);
  build.launch("particle_cdf", grid, block, 0, d_weights, d_cdf, d_partial, count, n);
  build.launch("particle_draw", grid, block, 0, d_cdf, d_particles, d_drawn, d_chosen, 0.5f, n);

  const auto cdf = [=] {
    std::vector<double> sums;
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      double likelihood = 0;
      for (std::size_t p = 0; p < points; ++p) {
        const std::int32_t x = std::clamp(particles[2 * i] + disk[2 * p], 0, width - 1);
        const std::int32_t y = std::clamp(particles[2 * i + 1] + disk[2 * p + 1], 0, height - 1);
        const double value = image[static_cast<std::size_t>(y * width + x)];
        likelihood += ((value - 100) * (value - 100) - (value - 228) * (value - 228)) / 50;
      }
      sums.push_back(sum += std::exp(likelihood / points * 0.01));
    }
    std::vector<float> result;
    for (double each : sums) result.push_back(static_cast<float>(each / sum));
    return result;
  };
  build.expect<float>(d_cdf, 1e-4, cdf);
  // Which particle is drawn follows from the sums that the GPU itself found.
  build.expect_that([=](const Contents& contents) -> std::string {
    const auto sums = elements_of<float>(contents.at(d_cdf.buffer));
    std::vector<std::int32_t> chosen, drawn;
    for (std::uint32_t i = 0; i < n; ++i) {
      const float u = (0.5f + static_cast<float>(i)) / static_cast<float>(n);
      const auto at = std::find_if(sums.begin(), sums.end(), [u](float each) { return each >= u; });
      const std::int64_t k = at == sums.end() ? std::int64_t{n} - 1 : at - sums.begin();
      chosen.push_back(static_cast<std::int32_t>(k));
      drawn.push_back(particles[static_cast<std::size_t>(2 * k)]);
      drawn.push_back(particles[static_cast<std::size_t>(2 * k + 1)]);
    }
    const auto got = elements_of<std::int32_t>(contents.at(d_chosen.buffer));
    if (std::string wrong = difference<std::int32_t>("chosen", got, chosen, 0); !wrong.empty())
      return wrong;
    return difference<std::int32_t>("drawn", elements_of<std::int32_t>(contents.at(d_drawn.buffer)),
                                    drawn, 0);
  });
  return build.take();
}

}  // namespace sluice::suite
