// SPDX-License-Identifier: Apache-2.0
// wfq-srt: wfq one vGPU at a time (whole.h) with the shortest known work first, whatever its
// length.
//
// Terms   credit  by what right a vGPU goes before others: its share of the time, up to `most`,
//                 less what it has used (srt_credit.h)
//         most    max_quantum_ns of the GPU; for all together kTargets latency targets
//
// Rules beside those of whole.h, each a function of the same name below
//   short_ns()          work is short if it fits into `most`, which all have by weight: by number,
//                       many light ones led a heavy one by 90 ms
//   eligible()          the credit covers the known rest
//   protect()           a short holder ends what it said, and a little more (nearly_done())
// Guarantee: whatever others do, one that has work is behind a fluid GPU by kPatience times `most`
// (srt_credit.h), which is its share of 0.64 s, and a longest turn and a hand-over.
#include "policies/parts/share_tree.h"
#include "policies/wfq/whole.h"

namespace sluice::policy {
namespace {

class WfqSrt final : public WfqWhole {
 public:
  explicit WfqSrt(const Config& config) : WfqWhole(config) {}
  std::string_view name() const override { return "wfq-srt"; }

 private:
  static constexpr uint64_t kTargets = 4;

  uint64_t short_ns(VgpuId v) const override {
    const uint64_t all_ns = kTargets * config_.latency_target_ns;
    const auto each_ns = static_cast<uint64_t>(static_cast<double>(all_ns) * part(v));
    return std::max(std::min(config_.max_quantum_ns, each_ns), length_.least_quantum());
  }
  bool eligible(VgpuId v) const override {
    if (latency(v) == LatencyClass::kLow) return WfqWhole::eligible(v);
    return credits_[v] >= static_cast<double>(work_[v].rest);
  }
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
