// SPDX-License-Identifier: Apache-2.0
// The host side of lbm.cu: three steps of a fluid among obstacles.
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"
#include "kernels/suite/lbm.ptx.h"

namespace sluice::suite {

namespace {

constexpr std::size_t kDirections = 19;

// The kernel's directions, by a rule instead of a table: at rest, along the axes, and along the
// diagonals of the xy, xz and yz planes; opposite ones follow each other.
constexpr std::int32_t kAlong[kDirections][3] = {
    {0, 0, 0},  {1, 0, 0},   {-1, 0, 0},  {0, 1, 0},  {0, -1, 0}, {0, 0, 1},   {0, 0, -1},
    {1, 1, 0},  {-1, -1, 0}, {1, -1, 0},  {-1, 1, 0}, {1, 0, 1},  {-1, 0, -1}, {1, 0, -1},
    {-1, 0, 1}, {0, 1, 1},   {0, -1, -1}, {0, 1, -1}, {0, -1, 1}};

struct Lattice {
  std::size_t nx, ny, nz;
  std::vector<std::uint8_t> obstacle;
  double omega;

  std::size_t neighbour(std::size_t cell, const std::int32_t (&d)[3]) const {
    const auto wrap = [](std::size_t at, std::int32_t by, std::size_t n) {
      return (at + n + static_cast<std::size_t>(static_cast<std::int64_t>(by))) % n;
    };
    return wrap(cell % nx, d[0], nx) +
           nx * (wrap(cell / nx % ny, d[1], ny) + ny * wrap(cell / nx / ny, d[2], nz));
  }

  std::vector<double> step(const std::vector<double>& in) const {
    const std::size_t cells = nx * ny * nz;
    std::vector<double> out(in.size());
    for (std::size_t cell = 0; cell < cells; ++cell) {
      double density = 0, u[3] = {0, 0, 0};
      for (std::size_t d = 0; d < kDirections; ++d) {
        density += in[d * cells + cell];
        for (std::size_t k = 0; k < 3; ++k) u[k] += kAlong[d][k] * in[d * cells + cell];
      }
      double speed2 = 0;
      for (double& each : u) {
        each /= density;
        speed2 += each * each;
      }
      for (std::size_t d = 0; d < kDirections; ++d) {
        double value = in[(d == 0 ? 0 : ((d - 1) ^ 1) + 1) * cells + cell];
        if (obstacle[cell] == 0) {
          double along = 0;
          std::int32_t length2 = 0;
          for (std::size_t k = 0; k < 3; ++k) {
            along += kAlong[d][k] * u[k];
            length2 += kAlong[d][k] * kAlong[d][k];
          }
          const double weight = length2 == 0 ? 1.0 / 3 : length2 == 1 ? 1.0 / 18 : 1.0 / 36;
          const double equal =
              weight * density * (1 + 3 * along + 4.5 * along * along - 1.5 * speed2);
          value = in[d * cells + cell] * (1 - omega) + omega * equal;
        }
        out[d * cells + neighbour(cell, kAlong[d])] = value;
      }
    }
    return out;
  }
};

}  // namespace

Case case_lbm(const CaseOptions& options) {
  constexpr int steps = 3;
  constexpr float omega = 1.85f;
  const std::uint32_t nx = std::min(scaled_edge(options, 16, 3, 8), 512u);
  const std::uint32_t ny = scaled_edge(options, 8, 3), nz = scaled_edge(options, 6, 3);
  const std::size_t cells = std::size_t{nx} * ny * nz;
  Lattice lattice{nx, ny, nz, std::vector<std::uint8_t>(cells), omega};
  Generator random(options.seed);
  for (std::uint8_t& each : lattice.obstacle) each = random.next() % 8 == 0 ? 1 : 0;
  auto start = uniform_floats(cells * kDirections, options.seed + 1, 0.03f, 0.08f);
  CaseBuilder build("lbm", kLbmPtx);
  const Pointer d_obstacle = build.input("obstacle", lattice.obstacle);
  Pointer d_from = build.input("first", start), d_to = build.output<float>("second", start.size());
  for (int step = 0; step < steps; ++step) {
    build.launch("lbm", {ny, nz, 1}, {nx, 1, 1}, 0, d_to, d_from, d_obstacle,
                 static_cast<std::int32_t>(nx), static_cast<std::int32_t>(ny),
                 static_cast<std::int32_t>(nz), omega);
    std::swap(d_from, d_to);
  }
  build.expect<float>(d_from, 1e-5, [=] {
    std::vector<double> now(start.begin(), start.end());
    for (int step = 0; step < steps; ++step) now = lattice.step(now);
    return std::vector<float>(now.begin(), now.end());
  });
  return build.take();
}

}  // namespace sluice::suite
