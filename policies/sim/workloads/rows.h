// SPDX-License-Identifier: Apache-2.0
// The built-in workloads' makers, one file each; registry.cc lists them.
#pragma once

#include "policies/sim/workload.h"

namespace sluice::policy::sim {

// Each file defines one function that returns its rows (static storage), e.g.
//   const std::vector<WorkloadRow>& effisha_workloads();   // effisha.cc
const std::vector<WorkloadRow>& basic_workloads();
const std::vector<WorkloadRow>& effisha_workloads();     // effisha.cc
const std::vector<WorkloadRow>& flep_workloads();        // flep.cc
const std::vector<WorkloadRow>& preemptive_workloads();  // preemptive.cc
const std::vector<WorkloadRow>& frs_workloads();         // frs.cc
const std::vector<WorkloadRow>& loga_workloads();        // loga.cc
const std::vector<WorkloadRow>& our_workloads();         // ours.cc
const std::vector<WorkloadRow>& tenant_workloads();      // tenants.cc

}  // namespace sluice::policy::sim
