// SPDX-License-Identifier: Apache-2.0
// KnownWork: what a vGPU has said of its queued work, and what it has used since it became
// backlogged. Predictions rest on a guest's word, so they order work and never change a share.
// Pure; owned by a form of wfq. Units: SM-ns; 0 means that nothing is known.
#pragma once

#include <algorithm>
#include <cstdint>

#include "policies/policy.h"
#include "policies/wfq/fair_clock.h"

namespace sluice::policy {

struct KnownWork {
  uint64_t rest = 0;      // predicted remainder of the launches reported
  uint64_t used = 0;      // since it became backlogged
  uint64_t total = 0;     // both, when the last launch was reported
  uint64_t reported = 0;  // what was left then

  void report(const Launch& launch) {
    const uint64_t run = std::min(launch.run_predicted_sm_ns, FairClock::kMaxUsage);
    if (launch.id == 0)
      rest = run;  // all that is queued: replaces what was known
    else
      rest = run ? std::max(rest, run)  // this launch and what is known to follow it
                 : std::min(rest + launch.predicted_sm_ns, FairClock::kMaxUsage);
    total = used + rest;
    reported = rest;
  }
  void use(uint64_t sm_ns) {
    rest -= std::min(rest, sm_ns);
    used = std::min(used + std::min(sm_ns, FairClock::kMaxUsage), FairClock::kMaxUsage);
  }
};

}  // namespace sluice::policy
