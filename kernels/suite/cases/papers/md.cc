// SPDX-License-Identifier: Apache-2.0
// The host side of md.cu: atoms on a disturbed grid, each with all that are near.
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"
#include "kernels/suite/md.ptx.h"

namespace sluice::suite {

Case case_md(const CaseOptions& options) {
  constexpr float cutoff2 = 4, lj1 = 1.5f, lj2 = 2.0f;
  constexpr std::int32_t per_atom = 40;
  const std::uint32_t edge = scaled_edge(options, 8, 3);
  const std::uint32_t atoms = edge * edge * edge;
  const auto shake = uniform_floats(atoms * 3ull, options.seed, -0.1f, 0.1f);
  std::vector<float> position(atoms * 4ull);
  std::vector<std::int32_t> neighbours(std::size_t{per_atom} * atoms, -1);
  const auto at = [&](std::uint32_t x, std::uint32_t y, std::uint32_t z) {
    return x + edge * (y + edge * z);
  };
  for (std::uint32_t i = 0; i < atoms; ++i) {
    const std::uint32_t cell[3] = {i % edge, i / edge % edge, i / edge / edge};
    for (std::uint32_t d = 0; d < 3; ++d)
      position[4 * i + d] = 1.1f * static_cast<float>(cell[d]) + shake[3 * i + d];
    std::uint32_t count = 0;
    for (std::int32_t step = 0; step < 125 && count < per_atom; ++step) {
      const std::int32_t x = static_cast<std::int32_t>(cell[0]) + step % 5 - 2;
      const std::int32_t y = static_cast<std::int32_t>(cell[1]) + step / 5 % 5 - 2;
      const std::int32_t z = static_cast<std::int32_t>(cell[2]) + step / 25 - 2;
      const auto limit = static_cast<std::int32_t>(edge);
      if (x < 0 || y < 0 || z < 0 || x >= limit || y >= limit || z >= limit || step == 62) continue;
      neighbours[std::size_t{count++} * atoms + i] =
          static_cast<std::int32_t>(at(static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(y),
                                       static_cast<std::uint32_t>(z)));
    }
  }
  CaseBuilder build("md", kMdPtx);
  const Pointer d_position = build.input("position", position);
  const Pointer d_neighbours = build.input("neighbours", neighbours);
  const Pointer d_force = build.output<float>("force", position.size());
  build.launch("md", {blocks(atoms, 128), 1, 1}, {128, 1, 1}, 0, d_force, d_position, d_neighbours,
               per_atom, cutoff2, lj1, lj2, static_cast<std::int32_t>(atoms));
  build.expect<float>(d_force, 1e-4, [=] {
    std::vector<float> force(position.size());
    for (std::size_t i = 0; i < atoms; ++i) {
      double sum[3] = {0, 0, 0};
      for (std::size_t j = 0; j < per_atom; ++j) {
        const std::int32_t other = neighbours[j * atoms + i];
        if (other < 0) break;
        float d[3];
        for (std::size_t k = 0; k < 3; ++k)
          d[k] = position[4 * i + k] - position[4 * static_cast<std::size_t>(other) + k];
        // As the kernel rounds it, so that both decide alike about the cut-off.
        const float r2 = std::fma(d[2], d[2], std::fma(d[1], d[1], d[0] * d[0]));
        if (r2 >= cutoff2) continue;
        const double inverse = 1.0 / r2, r6 = inverse * inverse * inverse;
        for (std::size_t k = 0; k < 3; ++k) sum[k] += d[k] * inverse * r6 * (lj1 * r6 - lj2);
      }
      for (std::size_t k = 0; k < 3; ++k) force[4 * i + k] = static_cast<float>(sum[k]);
    }
    return force;
  });
  return build.take();
}

}  // namespace sluice::suite
