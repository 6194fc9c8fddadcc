// SPDX-License-Identifier: Apache-2.0
// The host side of canny.cu: a picture with shapes and noise; every stage compared.
#include "kernels/suite/canny.ptx.h"
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"

namespace sluice::suite {

namespace {

const std::vector<std::int32_t> kWeights = {2,  4, 5, 4, 2,  4, 9, 12, 9, 4, 5, 12, 15,
                                            12, 5, 4, 9, 12, 9, 4, 2,  4, 5, 4, 2};
constexpr std::int32_t kLow = 60, kHigh = 180, kRounds = 4;

// The stages one after the other; which of them is wanted back.
struct Stages {
  std::int32_t width, height;
  std::vector<std::uint8_t> smooth, edges;
  std::vector<std::int16_t> strength;

  std::size_t at(std::int32_t x, std::int32_t y) const {
    return static_cast<std::size_t>(std::clamp(y, 0, height - 1)) *
               static_cast<std::size_t>(width) +
           static_cast<std::size_t>(std::clamp(x, 0, width - 1));
  }
  bool border(std::int32_t x, std::int32_t y) const {
    return x == 0 || y == 0 || x == width - 1 || y == height - 1;
  }
  template <class F>
  void each(F f) const {
    for (std::int32_t y = 0; y < height; ++y)
      for (std::int32_t x = 0; x < width; ++x) f(x, y);
  }

  void run(const std::vector<std::uint8_t>& in) {
    smooth.resize(in.size());
    strength.resize(in.size());
    std::vector<std::int32_t> gx(in.size()), gy(in.size());
    each([&](std::int32_t x, std::int32_t y) {
      std::int32_t sum = 0;
      for (std::int32_t i = 0; i < 25; ++i)
        sum += kWeights[static_cast<std::size_t>(i)] * in[at(x + i % 5 - 2, y + i / 5 - 2)];
      smooth[at(x, y)] = static_cast<std::uint8_t>(sum / 159);
    });
    each([&](std::int32_t x, std::int32_t y) {
      if (border(x, y)) return;
      for (std::int32_t k = -1; k <= 1; ++k) {
        const std::int32_t weight = k == 0 ? 2 : 1;
        gx[at(x, y)] += weight * (smooth[at(x + 1, y + k)] - smooth[at(x - 1, y + k)]);
        gy[at(x, y)] += weight * (smooth[at(x + k, y + 1)] - smooth[at(x + k, y - 1)]);
      }
      strength[at(x, y)] =
          static_cast<std::int16_t>(std::abs(gx[at(x, y)]) + std::abs(gy[at(x, y)]));
    });
    edges.assign(in.size(), 0);
    each([&](std::int32_t x, std::int32_t y) {
      if (border(x, y)) return;
      const std::int32_t h = gx[at(x, y)], v = gy[at(x, y)];
      std::int32_t dx = 1, dy = 0;
      if (std::abs(v) * 256 >= std::abs(h) * 106) {
        const bool steep = std::abs(h) * 256 < std::abs(v) * 106;
        dy = 1;
        dx = steep ? 0 : (h ^ v) >= 0 ? 1 : -1;
      }
      const std::int16_t s = strength[at(x, y)];
      if (s > strength[at(x - dx, y - dy)] && s >= strength[at(x + dx, y + dy)])
        edges[at(x, y)] = s >= kHigh ? 2 : s >= kLow ? 1 : 0;
    });
    for (std::int32_t round = 0; round < kRounds; ++round) {
      const std::vector<std::uint8_t> before = edges;
      each([&](std::int32_t x, std::int32_t y) {
        if (before[at(x, y)] != 1) return;
        for (std::int32_t k = 0; k < 9; ++k)
          if (before[at(x + k % 3 - 1, y + k / 3 - 1)] == 2) edges[at(x, y)] = 2;
      });
    }
    for (std::uint8_t& edge : edges) edge = edge == 2 ? 255 : 0;
  }
};

}  // namespace

Case case_canny(const CaseOptions& options) {
  const auto width = static_cast<std::int32_t>(scaled_edge(options, 72, 2));
  const std::int32_t height = width * 3 / 4 + 1;
  std::vector<std::uint8_t> in;
  Generator random(options.seed);
  for (std::int32_t y = 0; y < height; ++y)
    for (std::int32_t x = 0; x < width; ++x) {
      const std::int32_t dx = x % 40 - 20, dy = y % 40 - 20;
      const std::int32_t base = dx * dx + dy * dy < 150 ? 170 : (x + 2 * y) % 50 < 20 ? 95 : 60;
      in.push_back(static_cast<std::uint8_t>(base + static_cast<std::int32_t>(random.next() % 12)));
    }
  CaseBuilder build("canny", kCannyPtx);
  build.symbol("canny_weights", bytes_of(kWeights));
  const Pointer d_in = build.input("in", in);
  const Pointer d_smooth = build.output<std::uint8_t>("smooth", in.size());
  const Pointer d_strength = build.output<std::int16_t>("strength", in.size());
  const Pointer d_direction = build.output<std::uint8_t>("direction", in.size());
  Pointer d_from = build.output<std::uint8_t>("edges", in.size());
  Pointer d_to = build.output<std::uint8_t>("other", in.size());
  const Extent3 block = {16, 16, 1};
  const Extent3 grid = {blocks(static_cast<std::uint32_t>(width), 16),
                        blocks(static_cast<std::uint32_t>(height), 16), 1};
  build.launch("canny_gauss", grid, block, 0, d_smooth, d_in, width, height);
  build.launch("canny_sobel", grid, block, 0, d_strength, d_direction, d_smooth, width, height);
  build.launch("canny_thin", grid, block, 0, d_from, d_strength, d_direction, kLow, kHigh, width,
               height);
  for (std::int32_t round = 0; round < kRounds; ++round) {
    const std::int32_t last = round == kRounds - 1 ? 1 : 0;
    build.launch("canny_grow", grid, block, 0, d_to, d_from, width, height, last);
    std::swap(d_from, d_to);
  }
  const auto stages = [=] {
    Stages result{width, height, {}, {}, {}};
    result.run(in);
    return result;
  };
  build.expect<std::uint8_t>(d_smooth, 0, [=] { return stages().smooth; });
  build.expect<std::int16_t>(d_strength, 0, [=] { return stages().strength; });
  build.expect<std::uint8_t>(d_from, 0, [=] { return stages().edges; });
  return build.take();
}

}  // namespace sluice::suite
