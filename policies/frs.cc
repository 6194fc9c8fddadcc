// frs: Fair and Responsive Scheduler (FRS paper, section IV-E). The instantaneous slowdown of a job that has
// done Nt of its NT tasks, t after it became ready, is
//     IS = (t + (NT - Nt) * tpt) / (NT * tpt)                                              (1)
// (the paper prints Nt * tpt below the line; its text, "the shortest execution time, assuming the entire
// kernel was executed with no interruption", and equation 2 say NT * tpt). At each eviction or end the job
// with the highest IS runs, for
//     quantum = IS_max * NT * tpt - (NT - Nt) * tpt - t                                    (2)
// with the figures of the job with the lowest IS: after that long its IS will have caught up with IS_max.
// At least 1 ms (section VI-C). An arrival, whose IS is 1, shortens a running quantum to what (2) gives
// with it, but does not end it: the paper says when IS is computed, after an eviction, and a first job that
// ran alone would otherwise never see one.
//
// tpt * tasks are the job's predicted and measured times (turns.h). A wrong prediction cannot starve anybody:
// t grows for all who wait, so every IS overtakes any bound. Claiming short jobs does pay under this
// policy, as the paper has it; it is offered for guests whose predictions come from the host's own model.
// Weights and priorities mean nothing to it. A decision costs O(busy vGPUs).
#include "policies/turns.h"

namespace sluice::policy {
namespace {

constexpr uint64_t kMinQuantumNs = 1'000'000;

class FairResponsive final : public Turns {
 public:
  using Turns::Turns;
  std::string_view name() const override { return "frs"; }
  uint64_t quantum_ns() const override { return config_.quantum_ns ? config_.quantum_ns : kMinQuantumNs; }

 private:
  struct Figures {
    double t, total, remaining;
    double slowdown() const { return (t + remaining) / total; }
  };
  Figures figures(uint64_t now_ns, VgpuId v) const {
    const Job& j = jobs_[v];
    const double total = static_cast<double>(total_ns(j));
    return {.t = static_cast<double>(now_ns - j.ready_ns), .total = std::max(total, 1.0),
            .remaining = std::max(total - static_cast<double>(done_ns(j)), 0.0)};
  }

  uint64_t key(VgpuId v) override { return jobs_[v].ready_ns; }
  bool arrivals_shorten_turn() const override { return true; }
  VgpuId choose(uint64_t now_ns, bool) override {
    VgpuId best = kNoVgpu;
    double highest = 0;
    for (const VgpuId v : busy_) {
      const double s = figures(now_ns, v).slowdown();
      // Equal: who waits goes before the holder, then the one that has been ready longest, then by id.
      const auto after_best = [&] {
        if ((v == holder_) != (best == holder_)) return v == holder_;
        if (jobs_[v].ready_ns != jobs_[best].ready_ns) return jobs_[v].ready_ns > jobs_[best].ready_ns;
        return v > best;
      };
      if (best == kNoVgpu || s > highest || (s == highest && !after_best())) best = v, highest = s;
    }
    return best;
  }
  uint64_t turn_ns(uint64_t now_ns, VgpuId v) override {
    if (busy_.size() < 2) return kForEver;
    double lowest = 0;
    Figures least{};
    bool found = false;
    for (const VgpuId other : busy_) {
      if (other == v) continue;
      const Figures f = figures(now_ns, other);
      if (!found || f.slowdown() < lowest) least = f, lowest = f.slowdown(), found = true;
    }
    const double quantum = figures(now_ns, v).slowdown() * least.total - least.remaining - least.t;
    if (!(quantum > static_cast<double>(quantum_ns()))) return quantum_ns();
    return static_cast<uint64_t>(std::min(quantum, 0x1p50));
  }
};

}  // namespace

std::unique_ptr<Policy> make_frs(const Config& config) {
  return std::make_unique<FairResponsive>(config);
}

}  // namespace sluice::policy
