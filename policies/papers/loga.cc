// SPDX-License-Identifier: Apache-2.0
// loga: disengaged fair queuing as in LoGA (VEE 2018, sections 3.3 and 3.4, after NEON, ASPLOS
// 2014), for GPUs that share themselves out between all busy vGPUs (proportional preemptors).
//
// Time goes in polling and pause phases, both as long as accounting/phase_planner.h says. At the
// end of each polling phase each vGPU's virtual time advances by
//     dvt = t_app / t_total * (t_poll + t_pause)                                    (section 3.4)
// of what was measured in that phase alone; the system's time t_sys is the smallest virtual time
// among the vGPUs that were active in it; who lags behind t_sys without having been active is moved
// up to it; a vGPU that is ahead of it by more than t_poll + t_pause is suspended for the next
// pause. Equal slices for all others: the hardware's round robin is left alone ("disengaged").
//
// One addition: dvt is scaled by default weight / weight, which is 1 at equal weights, the paper's
// case. Two weaknesses are the paper's own and are kept (wfq has neither): the GPU idles where all
// but the suspended pause; and because a suspension covers pauses while only polling phases are
// measured, what a suspended vGPU did not get is never seen, so who takes more than its part while
// free is corrected too far.
#include <algorithm>
#include <vector>

#include "mediator/base/check.h"
#include "policies/accounting/phase_planner.h"
#include "policies/policy.h"

namespace sluice::policy {
namespace {

class Loga final : public Policy {
 public:
  explicit Loga(const Config& config) : config_(config), planner_({.seed = config.seed}) {}
  std::string_view name() const override { return "loga"; }

  void on_vgpu_added(uint64_t, VgpuId v, const VgpuShare& share, Actions&) override {
    if (v >= vgpus_.size()) vgpus_.resize(v + 1);
    SLUICE_CHECK(!vgpus_[v].present);
    vgpus_[v] = Vgpu{};
    vgpus_[v].present = true;
    vgpus_[v].share = share;
    vgpus_[v].vtime = system_;
  }
  void on_vgpu_changed(uint64_t, VgpuId v, const VgpuShare& share, Actions&) override {
    vgpus_[v].share = share;
  }
  void on_vgpu_removed(uint64_t, VgpuId v, Actions&) override {
    SLUICE_CHECK(!vgpus_[v].busy);
    vgpus_[v].present = false;
  }
  void on_arrival(uint64_t now_ns, VgpuId v, Actions& out) override {
    if (vgpus_[v].busy) return;
    vgpus_[v].busy = true;
    ++busy_;
    set(v, out);
    if (busy_ > 1 && !planned_) begin_poll(now_ns, out);
  }
  void on_idle(uint64_t, VgpuId v, Actions&) override {
    if (!vgpus_[v].busy) return;
    vgpus_[v].busy = false;
    --busy_;
  }
  void on_usage(uint64_t, VgpuId v, const Usage& usage) override {
    if (polling_) vgpus_[v].polled_sm_ns += std::min(usage.sm_ns, kMaxUsage);
  }
  bool reads_tasks() const override { return false; }
  void on_left(uint64_t, VgpuId, LeftReason, Actions&) override {}
  void on_wake(uint64_t now_ns, Actions& out) override {
    planned_ = false;
    if (polling_) return end_poll(now_ns, out);
    resume_all(out);  // the pause is over
    if (busy_ > 1) begin_poll(now_ns, out);
  }
  uint64_t quantum_ns() const override { return lengths_.poll_ns + lengths_.pause_ns; }

 private:
  static constexpr uint64_t kMaxUsage = 1ull << 50;
  struct Vgpu {
    bool present = false, busy = false, suspended = false;
    VgpuShare share;
    double vtime = 0;           // ns
    uint64_t polled_sm_ns = 0;  // in this polling phase
    uint64_t slice_ns = ~0ull;
  };

  void begin_poll(uint64_t now_ns, Actions& out) {
    lengths_ = planner_.next(busy_);
    for (Vgpu& g : vgpus_) g.polled_sm_ns = 0;
    polling_ = planned_ = true;
    poll_start_ns_ = now_ns;
    out.push_back(Action::wake(now_ns + lengths_.poll_ns));
  }

  void end_poll(uint64_t now_ns, Actions& out) {
    polling_ = false;
    const double whole = static_cast<double>(now_ns - poll_start_ns_ + lengths_.pause_ns);
    double total = 0;
    for (const Vgpu& g : vgpus_) total += static_cast<double>(g.polled_sm_ns);
    bool any = false;
    double system = 0;
    for (Vgpu& g : vgpus_) {
      if (!g.present || g.polled_sm_ns == 0) continue;
      g.vtime += static_cast<double>(g.polled_sm_ns) / total * whole * kDefaultWeight /
                 std::max(g.share.weight, 1u);
      if (!any || g.vtime < system) system = g.vtime, any = true;
    }
    // Without a busy phase there is nothing to compare; it never goes back (a vGPU starts at it).
    if (any) system_ = std::max(system_, system);
    for (VgpuId v = 0; v < vgpus_.size(); ++v) {
      Vgpu& g = vgpus_[v];
      if (!g.present) continue;
      if (g.polled_sm_ns == 0) g.vtime = std::max(g.vtime, system_);
      const bool suspended = g.vtime - system_ > whole;
      g.suspended = suspended;
      if (g.busy) set(v, out);
    }
    planned_ = true;
    out.push_back(Action::wake(now_ns + std::max<uint64_t>(lengths_.pause_ns, 1)));
  }

  void resume_all(Actions& out) {
    for (VgpuId v = 0; v < vgpus_.size(); ++v) {
      Vgpu& g = vgpus_[v];
      if (!g.present || !g.suspended) continue;
      g.suspended = false;
      if (g.busy) set(v, out);
    }
  }
  void set(VgpuId v, Actions& out) {
    const uint64_t slice = vgpus_[v].suspended
                               ? 0
                               : std::clamp(kSliceNs, config_.machine.slice_floor_ns,
                                            std::max(config_.machine.slice_ceiling_ns,
                                                     config_.machine.slice_floor_ns));
    if (vgpus_[v].slice_ns == slice) return;
    vgpus_[v].slice_ns = slice;
    out.push_back(Action::set_slice(v, slice));
  }

  // The hardware's default (measured on an H200: 2.05 ms).
  static constexpr uint64_t kSliceNs = 2'048'000;

  const Config config_;
  accounting::PhasePlanner planner_;
  accounting::PhasePlanner::Lengths lengths_{};
  std::vector<Vgpu> vgpus_;
  double system_ = 0;
  uint32_t busy_ = 0;  // with work
  bool polling_ = false, planned_ = false;
  uint64_t poll_start_ns_ = 0;
};

}  // namespace

std::unique_ptr<Policy> make_loga(const Config& config) { return std::make_unique<Loga>(config); }

}  // namespace sluice::policy
