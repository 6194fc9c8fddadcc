// SPDX-License-Identifier: Apache-2.0
// npq: nonpreemptive priority queues (Tanasic et al., "Enabling Preemptive Multiprogramming on
// GPUs", section 4.2): when the GPU becomes free, the kernel of the highest priority runs; among
// equals the first to come. Nobody is evicted, so the highest priority waits for at most one kernel
// of another's, however long that is. Low priorities may starve.
#include "policies/parts/kernel_queue.h"

namespace sluice::policy {
namespace {

class Npq final : public PriorityQueue</*kPreempts=*/false> {
 public:
  using PriorityQueue::PriorityQueue;
  std::string_view name() const override { return "npq"; }
};

}  // namespace

std::unique_ptr<Policy> make_npq(const Config& config) { return std::make_unique<Npq>(config); }

}  // namespace sluice::policy
