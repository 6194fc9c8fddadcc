// SPDX-License-Identifier: Apache-2.0
// sjf: preemptive shortest job first (FRS paper, section IV-A): a job's priority is its total
// duration, the sum over its kernels; an arrival with a shorter job displaces the holder
// (shortest_first.h).
#include "policies/parts/shortest_first.h"

namespace sluice::policy {
namespace {

class ShortestJobFirst final : public ShortestFirst {
 public:
  using ShortestFirst::ShortestFirst;
  std::string_view name() const override { return "sjf"; }

 private:
  uint64_t length_ns(const Job& job) const override { return total_ns(job); }
};

}  // namespace

std::unique_ptr<Policy> make_sjf(const Config& config) {
  return std::make_unique<ShortestJobFirst>(config);
}

}  // namespace sluice::policy
