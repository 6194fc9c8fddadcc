// SPDX-License-Identifier: Apache-2.0
// The host side of cutcp.cu: atoms dealt into bins with a border of empty ones.
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"
#include "kernels/suite/cutcp.ptx.h"

namespace sluice::suite {

namespace {

constexpr std::uint32_t kRoom = 8, kEdge = 8, kSlab = 2;
constexpr float kSpacing = 0.5f;
constexpr float kLength = kEdge * kSpacing;  // of a bin
constexpr float kCutoff2 = kLength * kLength;

// What the atoms of the bins around add at lattice point (x, y, z). bx, by: bins of a row, rows.
double potential(const std::vector<float>& bins, std::uint32_t bx, std::uint32_t by,
                 std::uint32_t x, std::uint32_t y, std::uint32_t z) {
  double sum = 0;
  for (std::uint32_t i = 0; i < 27; ++i) {
    const std::size_t bin =
        x / kEdge + i % 3 +
        std::size_t{bx} * (y / kEdge + i / 3 % 3 + std::size_t{by} * (z / kEdge + i / 9));
    for (std::size_t k = 0; k < kRoom; ++k) {
      const float* const atom = &bins[(bin * kRoom + k) * 4];
      if (atom[3] == 0) break;
      const float dx = atom[0] - static_cast<float>(x) * kSpacing;
      const float dy = atom[1] - static_cast<float>(y) * kSpacing;
      const float dz = atom[2] - static_cast<float>(z) * kSpacing;
      // As the kernel rounds it, so that both decide alike about the cut-off.
      const float r2 = std::fma(dz, dz, std::fma(dy, dy, dx * dx));
      if (r2 >= kCutoff2) continue;
      const double s = 1 - double{r2} / kCutoff2;
      sum += atom[3] / std::sqrt(double{r2}) * s * s;
    }
  }
  return sum;
}

}  // namespace

Case case_cutcp(const CaseOptions& options) {
  const std::uint32_t nx = scaled_edge(options, 2, 3), ny = nx,
                      nz = nx;  // bins with lattice points
  const std::uint32_t bx = nx + 2, by = ny + 2, bz = nz + 2;
  std::vector<float> bins(std::size_t{bx} * by * bz * kRoom * 4);
  Generator random(options.seed);
  for (std::uint32_t z = 0; z < nz; ++z)
    for (std::uint32_t y = 0; y < ny; ++y)
      for (std::uint32_t x = 0; x < nx; ++x) {
        const std::size_t bin = x + 1 + std::size_t{bx} * (y + 1 + std::size_t{by} * (z + 1));
        const std::uint64_t count = random.next() % (kRoom + 1);
        for (std::uint64_t k = 0; k < count; ++k) {
          float* const atom = &bins[(bin * kRoom + k) * 4];
          const std::uint32_t cell[3] = {x, y, z};
          for (std::size_t d = 0; d < 3; ++d)
            atom[d] =
                kLength * (static_cast<float>(cell[d]) + (random.next_float() + 1) / 2) + 0.01f;
          atom[3] = random.next_float() + 1.5f;
        }
      }
  std::vector<std::int32_t> offsets;
  for (std::int32_t i = 0; i < 27; ++i)
    offsets.insert(offsets.end(), {i % 3 - 1, i / 3 % 3 - 1, i / 9 - 1});
  const std::size_t points = std::size_t{nx} * ny * nz * kEdge * kEdge * kEdge;
  CaseBuilder build("cutcp", kCutcpPtx);
  build.symbol("cutcp_offsets", bytes_of(offsets));
  const Pointer d_bins = build.input("bins", bins);
  const Pointer d_potential = build.output<float>("potential", points);
  build.launch("cutcp", {nx, ny, nz * kEdge / kSlab}, {kEdge, kEdge, kSlab}, 0, d_potential, d_bins,
               static_cast<std::int32_t>(bx), static_cast<std::int32_t>(by), kSpacing, kCutoff2);
  build.expect<float>(d_potential, 1e-4, [=] {
    std::vector<float> want;
    for (std::uint32_t z = 0; z < nz * kEdge; ++z)
      for (std::uint32_t y = 0; y < ny * kEdge; ++y)
        for (std::uint32_t x = 0; x < nx * kEdge; ++x)
          want.push_back(static_cast<float>(potential(bins, bx, by, x, y, z)));
    return want;
  });
  return build.take();
}

}  // namespace sluice::suite
