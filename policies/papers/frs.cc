// SPDX-License-Identifier: Apache-2.0
// frs: Fair and Responsive Scheduler (FRS paper, section IV-E). The instantaneous slowdown of a job
// that has done Nt of its NT tasks, t after it became ready, is
//     IS = (t + (NT - Nt) * tpt) / (NT * tpt)                                              (1)
// (the paper prints Nt * tpt below the line; its text, "the shortest execution time, assuming the
// entire kernel was executed with no interruption", and equation 2 say NT * tpt). At each eviction
// or end the job with the highest IS runs, for
//     quantum = IS_max * NT * tpt - (NT - Nt) * tpt - t                                    (2)
// with the figures of the job with the lowest IS: after that long its IS will have caught up with
// IS_max. At least 1 ms (section VI-C). An arrival, whose IS is 1, shortens a running quantum to
// what (2) gives with it, but does not end it: the paper says when IS is computed, after an
// eviction, and a first job that ran alone would otherwise never see one.
//
// tpt * tasks are the job's predicted and measured times (turns.h). A wrong prediction cannot
// starve anybody: t grows for all who wait, so every IS overtakes any bound. Claiming short jobs
// pays where launches are reported one by one, as the paper has it; where they are reported
// together (sluiced), it does not (overruns.h). Weights and priorities mean nothing to it. While a
// job waits its IS is a line over time, so a decision costs O(log busy vGPUs)
// (kinetic_tournament.h).
#include "policies/parts/kinetic_tournament.h"
#include "policies/parts/turns.h"

namespace sluice::policy {
namespace {

constexpr uint64_t kMinQuantumNs = 1'000'000;

class FairResponsive final : public Turns {
 public:
  using Turns::Turns;
  std::string_view name() const override { return "frs"; }
  void on_arrival(uint64_t now_ns, VgpuId v, Actions& out) override {
    now_ = static_cast<double>(now_ns);
    Turns::on_arrival(now_ns, v, out);
  }
  void on_launch_queued(uint64_t now_ns, const Launch& launch, Actions& out) override {
    now_ = static_cast<double>(now_ns);
    Turns::on_launch_queued(now_ns, launch, out);
  }
  void on_idle(uint64_t now_ns, VgpuId v, Actions& out) override {
    now_ = static_cast<double>(now_ns);
    forget(v);
    Turns::on_idle(now_ns, v, out);
  }
  void on_left(uint64_t now_ns, VgpuId v, LeftReason why, Actions& out) override {
    now_ = static_cast<double>(now_ns);
    Turns::on_left(now_ns, v, why, out);
  }
  uint64_t quantum_ns() const override {
    return config_.quantum_ns ? config_.quantum_ns : kMinQuantumNs;
  }

 private:
  struct Figures {
    double t, total, remaining;
    double slowdown() const { return (t + remaining) / total; }
  };
  Figures figures_at(uint64_t now_ns, VgpuId v) const {
    const Job& j = jobs_[v];
    const double total = static_cast<double>(total_ns(j));
    return {.t = static_cast<double>(now_ns - j.ready_ns),
            .total = std::max(total, 1.0),
            .remaining = std::max(total - static_cast<double>(done_ns(j)), 0.0)};
  }

  // Asked for when v starts to wait, or its work becomes known: from here its line is fixed.
  uint64_t key(VgpuId v) override {
    const Job& j = jobs_[v];
    const Figures f = figures_at(j.ready_ns, v);
    const double offset = f.remaining - static_cast<double>(j.ready_ns);
    highest_.set(now_, v, 1 / f.total, offset, j.ready_ns);
    lowest_.set(now_, v, 1 / f.total, offset, j.ready_ns);
    return j.ready_ns;
  }
  bool key_follows_work() const override { return true; }
  void started(uint64_t, VgpuId v) override { forget(v); }
  void forget(VgpuId v) {
    highest_.remove(now_, v);
    lowest_.remove(now_, v);
  }
  bool arrivals_shorten_turn() const override { return true; }
  VgpuId choose(uint64_t now_ns, bool) override {
    now_ = static_cast<double>(now_ns);
    const uint32_t best = highest_.best(now_);
    const bool holds = holder_ != kNoVgpu && jobs_[holder_].busy;
    if (best == kNoVgpu) return holds ? holder_ : kNoVgpu;
    // Equal: a waiting vGPU goes before the holder.
    if (holds && figures_at(now_ns, holder_).slowdown() > figures_at(now_ns, best).slowdown())
      return holder_;
    return best;
  }
  uint64_t turn_ns(uint64_t now_ns, VgpuId v) override {
    now_ = static_cast<double>(now_ns);
    const uint32_t other = lowest_.best(now_);
    if (other == kNoVgpu) return kForEver;
    const Figures least = figures_at(now_ns, other);
    const double quantum =
        figures_at(now_ns, v).slowdown() * least.total - least.remaining - least.t;
    if (!(quantum > static_cast<double>(quantum_ns()))) return quantum_ns();
    return static_cast<uint64_t>(std::min(quantum, 0x1p50));
  }

  double now_ = 0;
  KineticTournament<true> highest_;  // of those that wait, by IS
  KineticTournament<false> lowest_;
};

}  // namespace

std::unique_ptr<Policy> make_frs(const Config& config) {
  return std::make_unique<FairResponsive>(config);
}

}  // namespace sluice::policy
