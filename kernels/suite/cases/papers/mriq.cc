// SPDX-License-Identifier: Apache-2.0
// The host side of mriq.cu: k-space in pieces of constant memory.
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"
#include "kernels/suite/mriq.ptx.h"

namespace sluice::suite {

namespace {

// Each voxel's sum over all points of k-space, its real or its imaginary part.
std::vector<float> q_of(const std::vector<float>& weight, const std::vector<float>& k_space,
                        const std::vector<float>& place, std::size_t voxels, bool want_real) {
  std::vector<float> result;
  for (std::size_t i = 0; i < voxels; ++i) {
    double sum = 0;
    for (std::size_t k = 0; k < weight.size(); ++k) {
      double phase = 0;
      for (std::size_t a = 0; a < 3; ++a)
        phase += double{k_space[3 * k + a]} * place[a * voxels + i];
      const double angle = 2 * 3.14159265358979323846 * phase;
      sum += weight[k] * (want_real ? std::cos(angle) : std::sin(angle));
    }
    result.push_back(static_cast<float>(sum));
  }
  return result;
}

}  // namespace

Case case_mriq(const CaseOptions& options) {
  constexpr std::uint32_t piece = 256, threads = 128;
  constexpr std::uint32_t points = 300;  // more than one piece, the last one shorter
  const std::uint32_t voxels = scaled(options, 256, threads);
  const auto place = uniform_floats(std::size_t{voxels} * 3, options.seed, -1, 1);
  const auto k_space = uniform_floats(points * 3, options.seed + 1, -20, 20);
  const auto real = uniform_floats(points, options.seed + 2, -0.5f, 0.5f);
  const auto imaginary = uniform_floats(points, options.seed + 3, -0.5f, 0.5f);
  CaseBuilder build("mriq", kMriqPtx);
  const Pointer d_real = build.input("phi_real", real),
                d_imaginary = build.input("phi_imaginary", imaginary);
  const Pointer d_magnitude = build.output<float>("magnitude", points);
  const auto axis = [&](std::size_t a) {
    return std::vector<float>(place.begin() + static_cast<std::ptrdiff_t>(a * voxels),
                              place.begin() + static_cast<std::ptrdiff_t>((a + 1) * voxels));
  };
  const Pointer d_x = build.input("x", axis(0)), d_y = build.input("y", axis(1));
  const Pointer d_z = build.input("z", axis(2));
  const Pointer d_q_real = build.zeros<float>("q_real", voxels);
  const Pointer d_q_imaginary = build.zeros<float>("q_imaginary", voxels);
  build.launch("mriq_magnitude", {blocks(points, 512), 1, 1}, {512, 1, 1}, 0, d_real, d_imaginary,
               d_magnitude, points);
  for (std::uint32_t first = 0; first < points; first += piece) {
    const std::uint32_t now = std::min(piece, points - first);
    std::vector<float> table;
    for (std::size_t k = first; k < first + now; ++k)
      table.insert(table.end(), {k_space[3 * k], k_space[3 * k + 1], k_space[3 * k + 2],
                                 real[k] * real[k] + imaginary[k] * imaginary[k]});
    build.symbol("mriq_points", bytes_of(table));
    build.launch("mriq", {voxels / threads, 1, 1}, {threads, 1, 1}, 0, now, d_x, d_y, d_z, d_q_real,
                 d_q_imaginary);
  }
  const auto magnitude = [=] {
    std::vector<float> result;
    for (std::size_t k = 0; k < points; ++k)
      result.push_back(real[k] * real[k] + imaginary[k] * imaginary[k]);
    return result;
  };
  const auto q = [=](bool want_real) {
    return q_of(magnitude(), k_space, place, voxels, want_real);
  };
  build.expect<float>(d_magnitude, 1e-6, magnitude);
  // An angle of some hundred has an error of some 1e-5 in single precision.
  build.expect<float>(d_q_real, 1e-3, [=] { return q(true); });
  build.expect<float>(d_q_imaginary, 1e-3, [=] { return q(false); });
  return build.take();
}

}  // namespace sluice::suite
