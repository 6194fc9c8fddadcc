// SPDX-License-Identifier: Apache-2.0
// rr: round robin with a fixed quantum (FRS paper, section IV-C): all have the same priority; who
// has not finished at the end of its quantum goes to the end of the waiting queue. The quantum is
// the 1 ms of that paper's experiments (section VI-C), or the hand-over's cost where that is
// longer, so that no more time goes into hand-overs than into work. Weights and priorities mean
// nothing to it.
#include "policies/parts/turns.h"

namespace sluice::policy {
namespace {

constexpr uint64_t kQuantumNs = 1'000'000;

class RoundRobin final : public Turns {
 public:
  using Turns::Turns;
  std::string_view name() const override { return "rr"; }
  uint64_t quantum_ns() const override {
    return std::max(config_.quantum_ns ? config_.quantum_ns : kQuantumNs,
                    config_.machine.handover_ns);
  }

 private:
  uint64_t key(VgpuId) override { return ++arrivals_; }
  VgpuId choose(uint64_t, bool turn_over) override {
    const bool stays = holder_ != kNoVgpu && jobs_[holder_].busy && !turn_over;
    return stays || waiting_.empty() ? holder_ : waiting_.top();
  }
  uint64_t turn_ns(uint64_t, VgpuId) override { return quantum_ns(); }

  uint64_t arrivals_ = 0;
};

}  // namespace

std::unique_ptr<Policy> make_rr(const Config& config) {
  return std::make_unique<RoundRobin>(config);
}

}  // namespace sluice::policy
