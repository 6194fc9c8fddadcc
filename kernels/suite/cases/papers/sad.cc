// SPDX-License-Identifier: Apache-2.0
// The host side of sad.cu: a picture and the same one moved and disturbed.
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"
#include "kernels/suite/sad.ptx.h"

namespace sluice::suite {

Case case_sad(const CaseOptions& options) {
  constexpr std::int32_t range = 4, window = 2 * range + 1, places = window * window;
  const auto width = static_cast<std::int32_t>(scaled_edge(options, 40, 2, 8));
  const auto height = static_cast<std::int32_t>(scaled_edge(options, 24, 2, 8));
  const auto size = static_cast<std::size_t>(width) * static_cast<std::size_t>(height);
  const auto noise = uniform_words(2 * size, options.seed, 256);
  std::vector<std::uint8_t> frame(size), reference(size);
  for (std::size_t i = 0; i < size; ++i) {
    frame[i] = static_cast<std::uint8_t>(noise[i]);
    reference[i] = static_cast<std::uint8_t>((noise[(i + 3) % size] + noise[size + i] % 16) & 0xff);
  }
  CaseBuilder build("sad", kSadPtx);
  const Pointer d_frame = build.input("frame", frame),
                d_reference = build.input("reference", reference);
  const auto across = static_cast<std::uint32_t>(width) / 4,
             down = static_cast<std::uint32_t>(height) / 4;
  const Pointer d_small =
      build.output<std::uint16_t>("sad_4x4", std::size_t{across} * down * places);
  const Pointer d_large =
      build.output<std::uint16_t>("sad_8x8", std::size_t{across} * down * places / 4);
  build.launch("sad_4x4", {across, down, 1}, {96, 1, 1}, 0, d_small, d_frame, d_reference, width,
               height);
  build.launch("sad_8x8", {across / 2, down / 2, 1}, {96, 1, 1}, 0, d_large, d_small);
  const auto sums = [=](std::int32_t edge) {
    std::vector<std::uint16_t> result;
    for (std::int32_t y0 = 0; y0 < height; y0 += edge)
      for (std::int32_t x0 = 0; x0 < width; x0 += edge)
        for (std::int32_t place = 0; place < places; ++place) {
          std::int32_t sum = 0;
          for (std::int32_t y = y0; y < y0 + edge; ++y)
            for (std::int32_t x = x0; x < x0 + edge; ++x) {
              const std::int32_t u = std::clamp(x + place % window - range, 0, width - 1);
              const std::int32_t v = std::clamp(y + place / window - range, 0, height - 1);
              sum += std::abs(frame[static_cast<std::size_t>(y * width + x)] -
                              reference[static_cast<std::size_t>(v * width + u)]);
            }
          result.push_back(static_cast<std::uint16_t>(sum));
        }
    return result;
  };
  build.expect<std::uint16_t>(d_small, 0, [=] { return sums(4); });
  build.expect<std::uint16_t>(d_large, 0, [=] { return sums(8); });
  return build.take();
}

}  // namespace sluice::suite
