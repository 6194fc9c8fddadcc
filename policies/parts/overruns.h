// SPDX-License-Identifier: Apache-2.0
// Overruns: how much longer a vGPU's jobs are than what they were chosen for, remembered from job
// to job. Pure; owned by a policy that goes by announced lengths. Units: SM-ns.
//
// A job is announced as a whole (Launch::id 0), again and again, by a guest's word. Within a job
// the policy expects what has run beyond its announcements to run as long again. That forgets each
// job at its end: one that called bursts of 16 ms 16 us had 0.9 of the GPU beside an honest one, in
// place of a half; one whose announcements were true as soon as it ran, 0.67. So a new job is
// expected to exceed what is announced of it as its predecessors did: as the last one at once, and
// half as much after each that keeps its word. A stream that is refilled all the time outlives its
// announcements too, although they are true: what is remembered has a bound, beyond which the
// policy's own rule for the job that runs takes over.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace sluice::policy {

class Overruns {
 public:
  // The job gets the GPU. It is `claimed_sm_ns` long, from its begin, by what was announced last.
  void chosen(uint64_t claimed_sm_ns) { claimed_sm_ns_ = std::min(claimed_sm_ns_, claimed_sm_ns); }
  // The job has ended, and used so much.
  void end(uint64_t used_sm_ns, uint64_t most_sm_ns) {
    const uint64_t beyond_sm_ns = used_sm_ns - std::min(claimed_sm_ns_, used_sm_ns);
    usual_sm_ns_ = std::min(std::max(beyond_sm_ns, usual_sm_ns_ / 2), most_sm_ns);
    claimed_sm_ns_ = kNotChosen;
  }
  // What remains at least of a job of which something is announced.
  uint64_t least_sm_ns(uint64_t used_sm_ns) const {
    return usual_sm_ns_ - std::min(usual_sm_ns_, used_sm_ns);
  }

 private:
  static constexpr uint64_t kNotChosen = std::numeric_limits<uint64_t>::max();
  uint64_t claimed_sm_ns_ = kNotChosen;  // of the job at hand: the least it was chosen for
  uint64_t usual_sm_ns_ = 0;
};

}  // namespace sluice::policy
