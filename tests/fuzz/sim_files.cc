// SPDX-License-Identifier: Apache-2.0
// What sluice-sim reads, and what it does with it: the engine and the policies meet machines, times
// and shares that nobody would write.
#include <cmath>
#include <functional>

#include "policies/sim/files/json_workload.h"
#include "policies/sim/files/trace.h"
#include "policies/sim/metrics.h"
#include "tests/fuzz/targets.h"

namespace sluice::fuzz {
namespace {

// Its first events, under the default policy and one by the text.
void simulate_some(const policy::sim::Workload& w, std::string_view text) {
  constexpr size_t kMany = 64;  // their set-up alone would take too long for so many inputs
  if (w.programs.size() > kMany || w.vgpus.size() > kMany || w.kernels.size() > kMany) return;
  const auto& rows = policy::registry();
  for (const size_t i : {size_t{0}, std::hash<std::string_view>{}(text) % rows.size()}) {
    const policy::Registration& row = rows[i];
    if (w.gpu.preemptor == policy::PreemptorKind::kExclusive ? !row.exclusive : !row.proportional)
      continue;
    const auto policy = row.make(policy::sim::engine_config(w));
    const auto r =
        policy::sim::simulate(w, *policy, {.seed = 1, .preempts = row.preempts, .max_events = 500});
    require(r.violations == 0, "a policy keeps the contract",
            std::string(row.name) + ": " + r.violation);
    const auto m = policy::sim::measure(w, r, std::vector<double>(w.programs.size(), 1e6));
    require(
        std::isfinite(m.antt) && std::isfinite(m.throughput) && std::isfinite(m.share_error.max),
        "figures are numbers", row.name);
  }
}

}  // namespace

bool check_workload(std::string_view text) {
  auto file = policy::sim::parse_workload(text);
  if (!file) return refused(file.error());
  require(policy::sim::check_workload(file->workload).empty(), "a workload that is read is sound",
          "");
  simulate_some(file->workload, text);
  return true;
}

bool check_trace(std::string_view text) {
  auto workload = policy::sim::parse_trace(text);
  if (!workload) return refused(workload.error());
  require(policy::sim::check_workload(*workload).empty(), "a trace that is read is sound", "");
  simulate_some(*workload, text);
  return true;
}

}  // namespace sluice::fuzz
