// wfq for proportional preemptors: the hardware alternates between the contexts of all busy vGPUs in time
// slices; this sets the slices and gates who is ahead.
//
//   - A round gives each busy vGPU a slice of round * weight / weights of the busy, within the machine's
//     floor and ceiling. The mean slice is just long enough to pay for a switch (handover /
//     handover_loss): who comes or waits after each launch waits for the slices of the others. While all are backlogged the hardware does the
//     rest, exactly and for any kernel (measured: 4.00 for 4.00).
//   - Where it does not - a slice clipped by floor or ceiling, a tenant that waits after each launch and so
//     gives the rest of its slice away (measured: 2.00 for 4.00) - gates correct: virtual times advance by
//     measured use (fair_clock.h), and a vGPU ahead of its level's V by more than its slice (at least
//     the mean one) is gated until V has caught up. That is LoGA's and NEON's disengaged fair queuing, with
//     weights. Leads add up to nothing, so somebody is never gated (work conservation).
//   - A vGPU for whose sake the others are gated and that turns idle may be back at once (it waits
//     after each launch). The gates stay shut for as long as a switch to another and back would cost, and then
//     open: waiting costs at most as much again as switching would (ski rental). All that waiting together may cost
//     kIdleLoss of the time (a token bucket): beyond that a tenant's pauses are the others' gain, and what it is owed
//     stays owed.
//   - Priorities are strict: lower levels are gated while a higher one has work.
//   - Disengaged: no timer while one vGPU alone has work.
// Slices are set anew once in a round, not at each arrival; a newcomer gets its own at once. Cost: O(1) per
// event, O(busy) per round.
#include <algorithm>
#include <vector>

#include "mediator/base/check.h"
#include "policies/fair_clock.h"
#include "policies/policy.h"

namespace sluice::policy {
namespace {

class WfqSlices final : public Policy {
 public:
  explicit WfqSlices(const Config& config)
      : config_(config), clock_(config),
        handover_ns_(static_cast<double>(config.machine.handover_ns)) {}
  std::string_view name() const override { return "wfq"; }

  void on_vgpu_added(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions&) override {
    clock_.add(now_ns, v, share);
    if (v >= own_.size()) own_.resize(v + 1);
    own_[v] = Own{};
  }
  void on_vgpu_changed(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) override {
    clock_.change(v, share);
    if (clock_[v].busy) tick(now_ns, out);
  }
  void on_vgpu_removed(uint64_t, VgpuId v, Actions&) override {
    SLUICE_CHECK(!clock_[v].busy);
    clock_.remove(v);
  }

  void on_arrival(uint64_t now_ns, VgpuId v, Actions& out) override {
    if (clock_[v].busy) return;
    clock_.turn_busy(now_ns, v);
    own_[v].place = static_cast<uint32_t>(busy_.size());
    busy_.push_back(v);
    const bool was_pausing = pausing_;
    end_pause(now_ns);
    // Whether its coming may change what the others get before the next round does: then all are looked at.
    if (busy_.size() <= 2 || was_pausing || next_tick_ns_ <= now_ns ||
        clock_[v].share.priority != top_priority_)
      return tick(now_ns, out);
    set(v, own_[v].gated ? 0 : slice_for(v), out);
  }

  void on_idle(uint64_t now_ns, VgpuId v, Actions& out) override {
    if (!clock_[v].busy) return;
    clock_.turn_idle(now_ns, v);
    const uint32_t place = own_[v].place;
    busy_[place] = busy_.back();
    own_[busy_.back()].place = place;
    busy_.pop_back();
    const bool had_gated = gated_ > 0;
    if (own_[v].gated) --gated_, own_[v].gated = false;
    if (busy_.empty()) return;
    if (gated_ < busy_.size()) {  // somebody goes on
      if (busy_.size() == 1) tick(now_ns, out);
      return;
    }
    if (!had_gated) return tick(now_ns, out);
    if (!may_pause(now_ns)) return tick(now_ns, out);
    pausing_ = true;
    pause_since_ns_ = now_ns;
    wake_at(now_ns + static_cast<uint64_t>(handover_ns_), out);
  }

  void on_usage(uint64_t, VgpuId v, const Usage& usage) override { clock_.charge(v, usage.sm_ns); }
  void on_left(uint64_t, VgpuId, LeftReason, Actions&) override {}
  void on_handover(uint64_t, uint64_t cost_ns) override {
    const double bound = static_cast<double>(config_.max_quantum_ns) * config_.handover_loss;
    handover_ns_ += (std::min(static_cast<double>(cost_ns), bound) - handover_ns_) / 8;
  }
  void on_wake(uint64_t now_ns, Actions& out) override {
    wake_ns_ = 0;
    end_pause(now_ns);
    tick(now_ns, out);
  }
  uint64_t quantum_ns() const override { return mean_slice_ns(); }

 private:
  struct Own {
    uint32_t place = 0;  // in busy_
    bool gated = false;
    uint64_t slice_ns = kUnset;
  };
  static constexpr uint64_t kUnset = ~0ull;

  uint64_t floor_ns() const { return std::max<uint64_t>(config_.machine.slice_floor_ns, 1); }
  uint64_t ceiling_ns() const { return std::max(config_.machine.slice_ceiling_ns, floor_ns()); }
  uint64_t mean_slice_ns() const {
    const double paid = config_.handover_loss > 0 ? handover_ns_ / config_.handover_loss : 0.0;
    return std::clamp(static_cast<uint64_t>(paid), floor_ns(),
                      std::max(config_.max_quantum_ns, floor_ns()));
  }
  uint64_t slice_for(VgpuId v) const {
    const double wanted = per_weight_ns_ * static_cast<double>(clock_[v].share.weight);
    return std::clamp(static_cast<uint64_t>(wanted), floor_ns(), ceiling_ns());
  }

  void set(VgpuId v, uint64_t slice_ns, Actions& out) {
    if (own_[v].slice_ns == slice_ns) return;
    own_[v].slice_ns = slice_ns;
    out.push_back(Action::set_slice(v, slice_ns));
  }
  void gate(VgpuId v, bool gated) {
    if (own_[v].gated == gated) return;
    own_[v].gated = gated;
    gated ? ++gated_ : --gated_;
  }
  void wake_at(uint64_t at_ns, Actions& out) {
    next_tick_ns_ = at_ns;
    if (wake_ns_ == at_ns) return;
    wake_ns_ = at_ns;
    out.push_back(Action::wake(at_ns));
  }

  static constexpr double kIdleLoss = 0.01;   // work conservation is at least what is left
  static constexpr double kPauseBurst = 8;    // hand-overs' lengths
  bool may_pause(uint64_t now_ns) {
    pause_credit_ns_ += static_cast<double>(now_ns - credit_at_ns_) * kIdleLoss;
    pause_credit_ns_ = std::min(pause_credit_ns_, kPauseBurst * handover_ns_);
    credit_at_ns_ = now_ns;
    return pause_credit_ns_ >= handover_ns_;
  }
  void end_pause(uint64_t now_ns) {
    if (pausing_) pause_credit_ns_ -= static_cast<double>(now_ns - pause_since_ns_);
    pausing_ = false;
  }

  // Decides who is gated and how long the others' slices are, until the round is over.
  void tick(uint64_t now_ns, Actions& out) {
    if (busy_.empty()) return;
    top_priority_ = 0;
    for (const VgpuId v : busy_) top_priority_ = std::max(top_priority_, clock_[v].share.priority);

    const int64_t sms = std::max(config_.machine.sm_count, 1u);
    const int64_t mean = static_cast<int64_t>(mean_slice_ns());
    VgpuId last = kNoVgpu;  // the one that is owed most
    int64_t least = 0;
    for (const VgpuId v : busy_) {
      if (clock_[v].share.priority < top_priority_) {
        gate(v, true);
        continue;
      }
      const int64_t lead_ns = clock_.lead_sm_ns(v) / sms;
      const int64_t own = own_[v].slice_ns == kUnset ? 0 : static_cast<int64_t>(own_[v].slice_ns);
      // Its own slice ahead is how far one round of the hardware's takes it.
      if (lead_ns > std::max(mean, own)) gate(v, true);
      else if (lead_ns <= 0) gate(v, false);
      if (last == kNoVgpu || lead_ns < least) last = v, least = lead_ns;
    }
    gate(last, false);

    int64_t weights = 0;
    uint64_t open = 0;
    for (const VgpuId v : busy_)
      if (!own_[v].gated) weights += clock_[v].share.weight, ++open;
    per_weight_ns_ = static_cast<double>(open * mean_slice_ns()) / static_cast<double>(std::max<int64_t>(weights, 1));
    uint64_t sum_ns = 0;
    for (const VgpuId v : busy_) {
      // Alone, the hardware has nobody to switch to; a long slice would only make a newcomer wait.
      const uint64_t slice = own_[v].gated ? 0 : busy_.size() == 1 ? mean_slice_ns() : slice_for(v);
      set(v, slice, out);
      sum_ns += slice;
    }
    if (busy_.size() > 1) wake_at(now_ns + std::min(sum_ns, ceiling_ns()), out);
  }

  const Config config_;
  FairClock clock_;
  std::vector<Own> own_;
  std::vector<VgpuId> busy_;  // in no order
  size_t gated_ = 0;          // of busy_
  uint32_t top_priority_ = 0;
  double per_weight_ns_ = 0;  // slice per weight in this round
  double handover_ns_;
  uint64_t next_tick_ns_ = 0, wake_ns_ = 0;
  double pause_credit_ns_ = 0;
  uint64_t credit_at_ns_ = 0, pause_since_ns_ = 0;
  bool pausing_ = false;      // all who are busy are gated, for the sake of one that may be back at once
};

}  // namespace

std::unique_ptr<Policy> make_wfq_slices(const Config& config) {
  return std::make_unique<WfqSlices>(config);
}

}  // namespace sluice::policy
