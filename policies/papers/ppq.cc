// SPDX-License-Identifier: Apache-2.0
// ppq: preemptive priority queues (Tanasic et al., "Enabling Preemptive Multiprogramming on GPUs",
// section 4.2), with exclusive access (section 4.3, figure 6a): the kernel of the highest priority
// runs, and one that comes with a higher priority than the running one's has it evicted at once; no
// kernel of a lower priority runs beside it on what it leaves free, which the paper measured to
// cost more than it gains (figure 6b). An evicted kernel keeps its place among its equals. How SMs
// are emptied, by draining or by saving the context (section 3.2), is the preemptor's. Low
// priorities may starve.
#include "policies/parts/kernel_queue.h"

namespace sluice::policy {
namespace {

class Ppq final : public PriorityQueue</*kPreempts=*/true> {
 public:
  using PriorityQueue::PriorityQueue;
  std::string_view name() const override { return "ppq"; }
};

}  // namespace

std::unique_ptr<Policy> make_ppq(const Config& config) { return std::make_unique<Ppq>(config); }

}  // namespace sluice::policy
