// SPDX-License-Identifier: Apache-2.0
// The host side of pathfinder.cu: several launches of a few rows each.
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"
#include "kernels/suite/pathfinder.ptx.h"

namespace sluice::suite {

Case case_pathfinder(const CaseOptions& options) {
  constexpr std::uint32_t threads = 128;
  constexpr std::int32_t rows = 48, step = 20;
  const auto cols = static_cast<std::int32_t>(scaled(options, 1000));
  const auto words = uniform_words(static_cast<std::size_t>(cols) * rows, options.seed, 10);
  const std::vector<std::int32_t> wall(words.begin(), words.end());
  CaseBuilder build("pathfinder", kPathfinderPtx);
  const Pointer d_wall = build.input("wall", wall);
  Pointer d_from =
      build.input("first", std::vector<std::int32_t>(wall.begin(), wall.begin() + cols));
  Pointer d_to = build.output<std::int32_t>("second", static_cast<std::size_t>(cols));
  for (std::int32_t row = 1; row < rows; row += step) {
    const std::int32_t now = std::min(step, rows - row);
    const std::uint32_t useful = threads - 2 * static_cast<std::uint32_t>(now);
    build.launch("pathfinder", {blocks(static_cast<std::uint32_t>(cols), useful), 1, 1},
                 {threads, 1, 1}, 0, d_wall, d_from, d_to, cols, row, now);
    std::swap(d_from, d_to);
  }
  build.expect<std::int32_t>(d_from, 0, [=] {
    std::vector<std::int32_t> best(wall.begin(), wall.begin() + cols), next(best);
    for (std::int32_t row = 1; row < rows; ++row) {
      for (std::int32_t c = 0; c < cols; ++c) {
        std::int32_t least = best[static_cast<std::size_t>(c)];
        if (c > 0) least = std::min(least, best[static_cast<std::size_t>(c - 1)]);
        if (c < cols - 1) least = std::min(least, best[static_cast<std::size_t>(c + 1)]);
        next[static_cast<std::size_t>(c)] =
            least + wall[static_cast<std::size_t>(row) * static_cast<std::size_t>(cols) +
                         static_cast<std::size_t>(c)];
      }
      best.swap(next);
    }
    return best;
  });
  return build.take();
}

}  // namespace sluice::suite
