// sjf: preemptive shortest job first (FRS paper, section IV-A): a job's priority is its total duration, the
// sum over its kernels; an arrival with a shorter job displaces the holder. Least mean turnaround where the
// predictions are right. A stream of short jobs starves a long one: that is the policy, and why it is not a
// default. Weights and priorities mean nothing to it.
#include "policies/turns.h"

namespace sluice::policy {
namespace {

class ShortestJobFirst final : public Turns {
 public:
  using Turns::Turns;
  std::string_view name() const override { return "sjf"; }

 private:
  uint64_t key(VgpuId v) override { return total_ns(jobs_[v]); }
  bool key_follows_work() const override { return true; }
  bool arrivals_preempt() const override { return true; }
  VgpuId choose(uint64_t, bool) override {
    if (waiting_.empty()) return holder_;
    const VgpuId best = waiting_.top();
    const bool stays =
        holder_ != kNoVgpu && jobs_[holder_].busy && total_ns(jobs_[holder_]) <= jobs_[best].key;
    return stays ? holder_ : best;
  }
  uint64_t turn_ns(uint64_t, VgpuId) override { return kForEver; }
};

}  // namespace

std::unique_ptr<Policy> make_sjf(const Config& config) {
  return std::make_unique<ShortestJobFirst>(config);
}

}  // namespace sluice::policy
