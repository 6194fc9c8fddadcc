// SPDX-License-Identifier: Apache-2.0
// All built-in workloads: to add a file, declare its function in rows.h, list it here and in
// meson.build.
#include "policies/sim/workloads/rows.h"

namespace sluice::policy::sim {

const std::vector<WorkloadRow>& workloads() {
  static const std::vector<WorkloadRow> rows = [] {
    std::vector<WorkloadRow> all;
    for (const auto* file : {
             &basic_workloads(),
             &effisha_workloads(),
             &flep_workloads(),
             &preemptive_workloads(),
             &frs_workloads(),
             &loga_workloads(),
             &our_workloads(),
             &tenant_workloads(),
         })
      all.insert(all.end(), file->begin(), file->end());
    return all;
  }();
  return rows;
}

const WorkloadRow* find_workload(std::string_view name) {
  for (const WorkloadRow& row : workloads())
    if (row.name == name) return &row;
  return nullptr;
}

}  // namespace sluice::policy::sim
