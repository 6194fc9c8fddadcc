// SPDX-License-Identifier: Apache-2.0
// cfs: "completely fairness scheduler" (FRS paper, section IV-D; not Linux's): time goes in epochs;
// in each, every job that was ready at its start runs once, for epoch / number of ready jobs, in
// decreasing order of how long it has waited. The epoch is that paper's 4 ms (section VI-C). The
// quantum is bounded below by the hand-over's cost, which the paper does not say but any real use
// needs: with 100 jobs it would be 40 us. Weights and priorities mean nothing to it.
#include "policies/parts/turns.h"

namespace sluice::policy {
namespace {

constexpr uint64_t kEpochNs = 4'000'000;

class CompletelyFair final : public Turns {
 public:
  using Turns::Turns;
  std::string_view name() const override { return "cfs"; }
  uint64_t quantum_ns() const override { return quantum_ns_; }

 private:
  // Waiting longest first is the order in which they came or left the GPU.
  uint64_t key(VgpuId) override { return ++arrivals_; }
  VgpuId choose(uint64_t, bool turn_over) override {
    const bool stays = holder_ != kNoVgpu && jobs_[holder_].busy && !turn_over;
    return stays || waiting_.empty() ? holder_ : waiting_.top();
  }
  void started(uint64_t, VgpuId v) override {
    if (jobs_[v].key <= epoch_last_) return;
    // The first that was not there when the epoch began: the next one begins, with all who wait
    // now.
    epoch_last_ = arrivals_;
    quantum_ns_ = std::max((config_.epoch_ns ? config_.epoch_ns : kEpochNs) / busy_.size(),
                           config_.machine.handover_ns);
  }
  uint64_t turn_ns(uint64_t, VgpuId) override { return std::max<uint64_t>(quantum_ns_, 1); }

  uint64_t arrivals_ = 0;
  uint64_t epoch_last_ = 0;  // the last arrival that belongs to this epoch
  uint64_t quantum_ns_ = kEpochNs;
};

}  // namespace

std::unique_ptr<Policy> make_cfs(const Config& config) {
  return std::make_unique<CompletelyFair>(config);
}

}  // namespace sluice::policy
