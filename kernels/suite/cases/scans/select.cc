// SPDX-License-Identifier: Apache-2.0
// The host side of select.cu.
#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/catalog/catalog_rows.h"
#include "kernels/suite/select.ptx.h"

namespace sluice::suite {

Case case_select(const CaseOptions& options) {
  constexpr std::uint32_t threads = 128;
  const std::uint32_t n = scaled(options, 6000), count = blocks(n, threads);
  const auto in = uniform_words(n, options.seed, 1ull << 32);
  CaseBuilder build("select", kSelectPtx);
  const Pointer d_in = build.input("in", in), d_out = build.output<std::uint32_t>("out", n);
  const Pointer d_selected = build.output<std::uint32_t>("selected", 1);
  const Pointer d_states = build.output<std::uint64_t>("states", count);
  const Pointer d_next = build.zeros<std::uint32_t>("next_tile", 1);
  build.fill(d_states, 0, std::uint64_t{count} * 8);
  build.launch("select_multiples", {count, 1, 1}, {threads, 1, 1}, 0, d_out, d_selected, d_states,
               d_next, d_in, n);
  const auto multiple = [](std::uint32_t value) { return value % 3 == 0; };
  build.expect<std::uint32_t>(d_selected, 0, [=] {
    const auto found = std::count_if(in.begin(), in.end(), multiple);
    return std::vector<std::uint32_t>{static_cast<std::uint32_t>(found)};
  });
  build.expect<std::uint32_t>(d_out, 0, [=] {
    std::vector<std::uint32_t> out = in;
    std::reverse(std::stable_partition(out.begin(), out.end(), multiple), out.end());
    return out;
  });
  return build.take();
}

}  // namespace sluice::suite
