// srt: shortest remaining time (FRS paper, section IV-B): as sjf, but the priority is what remains of the
// job; "when a new kernel arrives, the remaining time of each kernel/application is estimated and a new
// priority is assigned". Only the holder's remaining time shrinks meanwhile, so only arrivals and ends can
// change who is first. Starves long jobs as sjf does. Weights and priorities mean nothing to it.
#include "policies/turns.h"

namespace sluice::policy {
namespace {

class ShortestRemainingTime final : public Turns {
 public:
  using Turns::Turns;
  std::string_view name() const override { return "srt"; }

 private:
  uint64_t key(VgpuId v) override { return remaining_ns(jobs_[v]); }
  bool key_follows_work() const override { return true; }
  bool arrivals_preempt() const override { return true; }
  VgpuId choose(uint64_t, bool) override {
    if (waiting_.empty()) return holder_;
    const VgpuId best = waiting_.top();
    const bool stays =
        holder_ != kNoVgpu && jobs_[holder_].busy && remaining_ns(jobs_[holder_]) <= jobs_[best].key;
    return stays ? holder_ : best;
  }
  uint64_t turn_ns(uint64_t, VgpuId) override { return kForEver; }
};

}  // namespace

std::unique_ptr<Policy> make_srt(const Config& config) {
  return std::make_unique<ShortestRemainingTime>(config);
}

}  // namespace sluice::policy
