// SPDX-License-Identifier: Apache-2.0
// wfq-srt: wfq one vGPU at a time (whole.h) with the shortest known work first, whatever its
// length.
//
// Terms   credit  by what right a vGPU goes before others: its share of the time, up to `most`,
// less
//                 what it has used (srt_credit.h)
//         most    max_quantum_ns of the GPU; for all together kTargets latency targets
//
// Rules beside those of whole.h, each a function of the same name below
//   short_ns()          work is short if it fits into `most`
//   eligible()          the credit covers the known rest
//   shorter()           of two short ones the shorter holds the GPU, if that saves a hand-over
//   preempt_after_ns()  at once
//   protect()           a short holder ends what it said, and a little more (nearly_done())
#include "policies/parts/share_tree.h"
#include "policies/wfq/whole.h"

namespace sluice::policy {
namespace {

class WfqSrt final : public WholeGpu {
 public:
  explicit WfqSrt(const Config& config) : WholeGpu(config) {}
  std::string_view name() const override { return "wfq-srt"; }

 private:
  static constexpr uint64_t kTargets = 4;

  uint64_t short_ns(VgpuId v) const override {
    const uint64_t all_ns = kTargets * config_.latency_target_ns;
    const uint64_t each_ns = all_ns / std::max(clock_.busy(level(v)), 1u);
    return std::max(std::min(config_.max_quantum_ns, each_ns), length_.least_quantum());
  }
  // Predictions leave out starts and are off by something. Taken away now, it would wait with next
  // to nothing left.
  bool nearly_done(VgpuId v) const override {
    const KnownWork& w = work_[v];
    return w.total > 0 && w.used <= w.total + w.total / 4 + 2 * handover_ns() * sms();
  }
  bool eligible(VgpuId v) const override {
    if (latency(v) == LatencyClass::kLow) return WholeGpu::eligible(v);
    return credits_[v] >= static_cast<double>(work_[v].rest);
  }
  bool shorter(const Next& n) const override {
    return n.before_its_turn && work_[n.vgpu].rest + handover_ns() * sms() < work_[holder_].rest;
  }
  uint64_t preempt_after_ns() const override { return 0; }
  uint64_t protect(uint64_t now_ns, uint64_t length_ns) const override {
    if (!holder_goes_first()) return length_ns;
    const uint64_t rest_ns = std::max(rest_of_holder_ns(), handover_ns());
    return std::max(length_ns, held_ns(now_ns) + rest_ns + TurnLength::kTickNs);
  }
};

}  // namespace

std::unique_ptr<Policy> make_wfq_srt(const Config& config) {
  return share_tree(config, std::make_unique<WfqSrt>(config));
}

}  // namespace sluice::policy
