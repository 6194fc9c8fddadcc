// SPDX-License-Identifier: Apache-2.0
// The host side of nn.cu.
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"
#include "kernels/suite/nn.ptx.h"

namespace sluice::suite {

Case case_nn(const CaseOptions& options) {
  const std::uint32_t records = scaled(options, 9000);
  const auto places = uniform_floats(std::size_t{records} * 2, options.seed, -90, 90);
  constexpr float latitude = 30, longitude = -60;
  CaseBuilder build("nn", kNnPtx);
  const Pointer d_places = build.input("places", places);
  const Pointer d_distances = build.output<float>("distances", records);
  const std::uint32_t count = blocks(records, 256), across = std::min(count, 64u);
  build.launch("nn", {across, (count + across - 1) / across, 1}, {256, 1, 1}, 0, d_places,
               d_distances, records, latitude, longitude);
  build.expect<float>(d_distances, 1e-6, [=] {
    std::vector<float> distances;
    for (std::size_t i = 0; i < records; ++i)
      distances.push_back(static_cast<float>(
          std::hypot(double{latitude} - places[2 * i], double{longitude} - places[2 * i + 1])));
    return distances;
  });
  return build.take();
}

}  // namespace sluice::suite
