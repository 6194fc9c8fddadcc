// SPDX-License-Identifier: Apache-2.0
// The host side of particlefilter.cu: one frame.
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"
#include "kernels/suite/particlefilter.ptx.h"

namespace sluice::suite {

namespace {

constexpr std::int32_t kWidth = 64, kHeight = 48;

// A bright spot on a dark ground.
std::vector<std::uint8_t> noisy_image(Generator& random) {
  std::vector<std::uint8_t> image(std::size_t{kWidth} * kHeight);
  for (std::size_t i = 0; i < image.size(); ++i) {
    const auto dx = static_cast<std::int32_t>(i % kWidth) - 30;
    const auto dy = static_cast<std::int32_t>(i / kWidth) - 20;
    image[i] = static_cast<std::uint8_t>((dx * dx + dy * dy < 50 ? 215 : 90) + random.next() % 25);
  }
  return image;
}

// How likely a particle's place is, by the pixels in the disk around it.
double likelihood(const std::vector<std::uint8_t>& image, const std::int32_t* particle,
                  const std::vector<std::int32_t>& disk) {
  double sum = 0;
  for (std::size_t p = 0; p < disk.size(); p += 2) {
    const std::int32_t x = std::clamp(particle[0] + disk[p], 0, kWidth - 1);
    const std::int32_t y = std::clamp(particle[1] + disk[p + 1], 0, kHeight - 1);
    const double value = image[static_cast<std::size_t>(y * kWidth + x)];
    sum += ((value - 100) * (value - 100) - (value - 228) * (value - 228)) / 50;
  }
  return sum;
}

// Which particles are drawn, by the sums that the GPU itself found.
std::string difference_of_draw(const std::vector<float>& sums,
                               const std::vector<std::int32_t>& particles,
                               const std::vector<std::int32_t>& got_chosen,
                               const std::vector<std::int32_t>& got_drawn) {
  std::vector<std::int32_t> chosen, drawn;
  const auto n = static_cast<std::uint32_t>(got_chosen.size());
  for (std::uint32_t i = 0; i < n; ++i) {
    const float u = (0.5f + static_cast<float>(i)) / static_cast<float>(n);
    const auto at = std::find_if(sums.begin(), sums.end(), [u](float each) { return each >= u; });
    const std::int64_t k = at == sums.end() ? std::int64_t{n} - 1 : at - sums.begin();
    chosen.push_back(static_cast<std::int32_t>(k));
    drawn.push_back(particles[static_cast<std::size_t>(2 * k)]);
    drawn.push_back(particles[static_cast<std::size_t>(2 * k + 1)]);
  }
  std::string wrong = difference<std::int32_t>("chosen", got_chosen, chosen, 0);
  return wrong.empty() ? difference<std::int32_t>("drawn", got_drawn, drawn, 0) : wrong;
}

}  // namespace

Case case_particlefilter(const CaseOptions& options) {
  constexpr std::uint32_t threads = 128;
  const std::uint32_t n = scaled_edge(options, 500, 2), count = blocks(n, threads);
  Generator random(options.seed);
  const std::vector<std::uint8_t> image = noisy_image(random);
  std::vector<std::int32_t> particles, disk;
  for (std::uint32_t i = 0; i < n; ++i) {
    particles.push_back(static_cast<std::int32_t>(random.next() % kWidth));
    particles.push_back(static_cast<std::int32_t>(random.next() % kHeight));
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
  build.launch("particle_likelihood", grid, block, 0, d_particles, d_disk, points, d_image, kWidth,
               kHeight, d_weights, d_partial, n);
  build.launch("particle_sum", {1, 1, 1}, block, 0, d_partial, count);
  build.launch("particle_cdf", grid, block, 0, d_weights, d_cdf, d_partial, count, n);
  build.launch("particle_draw", grid, block, 0, d_cdf, d_particles, d_drawn, d_chosen, 0.5f, n);

  const auto cdf = [=] {
    std::vector<double> sums;
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double of_it = likelihood(image, &particles[2 * i], disk);
      sums.push_back(sum += std::exp(of_it / points * 0.01));
    }
    std::vector<float> result;
    for (double each : sums) result.push_back(static_cast<float>(each / sum));
    return result;
  };
  build.expect<float>(d_cdf, 1e-4, cdf);
  build.expect_that([=](const Contents& contents) -> std::string {
    return difference_of_draw(elements_of<float>(contents.at(d_cdf.buffer)), particles,
                              elements_of<std::int32_t>(contents.at(d_chosen.buffer)),
                              elements_of<std::int32_t>(contents.at(d_drawn.buffer)));
  });
  return build.take();
}

}  // namespace sluice::suite
