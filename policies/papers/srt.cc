// SPDX-License-Identifier: Apache-2.0
// srt: shortest remaining time (FRS paper, section IV-B): as sjf, but the priority is what remains
// of the job; "when a new kernel arrives, the remaining time of each kernel/application is
// estimated and a new priority is assigned". Only the holder's remaining time shrinks meanwhile, so
// only arrivals and ends can change who is first (shortest_first.h).
#include "policies/parts/shortest_first.h"

namespace sluice::policy {
namespace {

class ShortestRemainingTime final : public ShortestFirst {
 public:
  using ShortestFirst::ShortestFirst;
  std::string_view name() const override { return "srt"; }

 private:
  uint64_t length_ns(const Job& job) const override { return remaining_ns(job); }
};

}  // namespace

std::unique_ptr<Policy> make_srt(const Config& config) {
  return std::make_unique<ShortestRemainingTime>(config);
}

}  // namespace sluice::policy
