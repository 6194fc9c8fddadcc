// What sluice-sim reads.
#include "policies/sim/json_workload.h"
#include "policies/sim/trace.h"
#include "tests/fuzz/targets.h"

namespace sluice::fuzz {

bool check_workload(std::string_view text) {
  auto file = policy::sim::parse_workload(text);
  if (!file) return refused(file.error());
  require(policy::sim::check_workload(file->workload).empty(), "a workload that is read is sound", "");
  return true;
}

bool check_trace(std::string_view text) {
  auto workload = policy::sim::parse_trace(text);
  if (!workload) return refused(workload.error());
  require(policy::sim::check_workload(*workload).empty(), "a trace that is read is sound", "");
  return true;
}

}  // namespace sluice::fuzz
