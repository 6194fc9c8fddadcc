// SPDX-License-Identifier: Apache-2.0
// The six workloads that have programs of their own (workloads.h), as cases of the catalogue.
#include "kernels/suite/catalog/catalog_rows.h"

#include <memory>

#include "kernels/suite/cases/case_builder.h"
#include "kernels/suite/workloads/workloads.h"

namespace sluice::suite {

namespace {

// The programs' default sizes are for thousands of blocks; the catalogue's scale 1 is for tests.
constexpr double kShareOfDefault = 1.0 / 64;
// Stand for device addresses while the arguments are asked for.
constexpr std::uint64_t kFirstMarker = 0xfeed'0000'0000'0000;
constexpr std::uint64_t kMarkerStep = 0x0000'0001'0000'0000;

Case case_of(std::unique_ptr<Workload> owned) {
  const std::shared_ptr<Workload> work = std::move(owned);
  Case result;
  result.name = work->name();
  result.ptx = work->ptx();
  std::vector<std::byte> out(work->output_bytes(),
                             work->accumulates() ? std::byte{0} : std::byte{0xbe});
  result.buffers.push_back({"out", out});
  std::vector<std::uint64_t> markers;
  for (const std::span<const std::byte> input : work->inputs()) {
    markers.push_back(kFirstMarker + kMarkerStep * result.buffers.size());
    result.buffers.push_back({"in", {input.begin(), input.end()}});
  }
  // Two launches of those that add: what one of them left out shows in the sum.
  const std::uint64_t launches = work->accumulates() ? 2 : 1;
  const LaunchShape shape = work->shape();
  for (std::uint64_t number = 0; number < launches; ++number) {
    Arguments arguments;
    work->arguments(arguments, kFirstMarker, markers, number);
    Launch launch;
    launch.kernel = work->name();
    launch.grid = {shape.grid_x, shape.grid_y, 1};
    launch.block = {shape.block_x, shape.block_y, 1};
    for (std::size_t i = 0; i < arguments.count(); ++i) {
      const std::size_t bytes = arguments.size(i);
      const std::size_t at = (launch.params.size() + bytes - 1) / bytes * bytes;
      launch.params.resize(at + bytes);
      launch.param_offsets.push_back(static_cast<std::uint32_t>(at));
      const std::uint64_t value = arguments.value(i);
      if (bytes == 8 && value >= kFirstMarker && (value - kFirstMarker) % kMarkerStep == 0) {
        launch.pointers.push_back({static_cast<std::uint32_t>(at),
                                   static_cast<std::uint32_t>((value - kFirstMarker) / kMarkerStep),
                                   0});
      } else {
        std::memcpy(&launch.params[at], &value, bytes);
      }
    }
    result.steps.push_back(std::move(launch));
  }
  result.check = [work, out, launches](const Contents& contents) -> std::string {
    std::vector<std::byte> want = out;
    for (std::uint64_t number = 0; number < launches; ++number) work->advance(want, number, 1);
    const Verdict verdict = work->compare(want, contents.at(0));
    return verdict.wrong_elements == 0 ? "" : "out:" + verdict.first;
  };
  return result;
}

template <std::unique_ptr<Workload> (*Make)(const Options&)>
Case adapt(const CaseOptions& options) {
  Options program;
  program.scale = options.scale * kShareOfDefault;
  program.seed = options.seed;
  return case_of(Make(program));
}

}  // namespace

Case case_triad(const CaseOptions& options) { return adapt<make_triad>(options); }
Case case_matmul(const CaseOptions& options) { return adapt<make_matmul>(options); }
Case case_reduction(const CaseOptions& options) { return adapt<make_reduction>(options); }
Case case_stencil2d(const CaseOptions& options) { return adapt<make_stencil2d>(options); }
Case case_histogram(const CaseOptions& options) { return adapt<make_histogram>(options); }
Case case_md5(const CaseOptions& options) { return adapt<make_md5>(options); }

}  // namespace sluice::suite
