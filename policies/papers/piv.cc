// SPDX-License-Identifier: Apache-2.0
// piv: priority-based immediate eviction (Chen et al., "EffiSha", section 7). Kernels wait in one
// queue by their initial priority; when the GPU becomes available its head runs. "If a new coming
// kernel has a higher priority than a currently running kernel, the scheduler immediately has the
// current kernel evicted"; otherwise the running one runs to completion. Equals go in order of
// arrival (the paper leaves it open). "Leaves low-priority kernels facing the risk of starvation",
// as the paper says.
//
// It decides as ppq does; the two papers arrived at the same rule. They differ in the machine
// below: EffiSha evicts at the end of a block-task, in software.
#include "policies/parts/kernel_queue.h"

namespace sluice::policy {
namespace {

class Piv final : public PriorityQueue</*kPreempts=*/true> {
 public:
  using PriorityQueue::PriorityQueue;
  std::string_view name() const override { return "piv"; }
};

}  // namespace

std::unique_ptr<Policy> make_piv(const Config& config) { return std::make_unique<Piv>(config); }

}  // namespace sluice::policy
