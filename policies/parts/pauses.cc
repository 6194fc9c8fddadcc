// SPDX-License-Identifier: Apache-2.0
#include "policies/parts/pauses.h"

#include <algorithm>
#include <vector>

#include "policies/parts/change_cost.h"
#include "policies/parts/forwarding.h"
#include "policies/parts/idling.h"

namespace sluice::policy {
namespace {

constexpr uint64_t kLongestPauseNs = 5'000'000;
constexpr uint64_t kNever = ~0ull;

class Pauses final : public Forwarding {
 public:
  Pauses(const Config& config, std::unique_ptr<Policy> inner)
      : Forwarding(std::move(inner)),
        sms_(std::max(config.machine.sm_count, 1u)),
        loss_(config.handover_loss / 2),
        change_(config.machine.change_ns) {}

  void on_vgpu_added(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) override {
    if (v >= vgpus_.size()) vgpus_.resize(v + 1);
    vgpus_[v] = Vgpu{};
    seen(now_ns, out, [&] { inner_->on_vgpu_added(now_ns, v, share, out); });
  }
  void on_vgpu_changed(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) override {
    seen(now_ns, out, [&] { inner_->on_vgpu_changed(now_ns, v, share, out); });
  }
  void on_vgpu_removed(uint64_t now_ns, VgpuId v, Actions& out) override {
    seen(now_ns, out, [&] {
      if (vgpus_[v].paused) end_pause(now_ns, v, out);
      inner_->on_vgpu_removed(now_ns, v, out);
    });
  }
  void on_arrival(uint64_t now_ns, VgpuId v, Actions& out) override {
    Vgpu& g = vgpus_[v];
    if (g.works) return;
    const bool paused = g.paused;
    if (paused) pay(now_ns, v), settle(now_ns, v), g.paused = false, std::erase(paused_, v);
    // When it came back is not known where its driver polls now and then only, but whether that was
    // in time.
    if (g.idle_since_ns)
      g.late += ((paused || now_ns - g.idle_since_ns <= g.worth_ns ? 0.0 : 1.0) - g.late) / 4;
    g.works = true, ++working_, working_sms_ += g.held;
    seen(now_ns, out, [&] {
      if (!paused) inner_->on_arrival(now_ns, v, out);
    });
  }
  void on_idle(uint64_t now_ns, VgpuId v, Actions& out) override {
    seen(now_ns, out, [&] {
      Vgpu& g = vgpus_[v];
      if (!g.works) return;
      g.works = false, --working_, working_sms_ -= g.held;
      g.idle_since_ns = std::max<uint64_t>(now_ns, 1);
      g.worth_ns = worth_ns(std::max(g.held, 1u));
      if (g.held == 0 || g.late > 0.5) return inner_->on_idle(now_ns, v, out);
      g.paused = true, g.longer = false;
      g.until_ns = now_ns + g.worth_ns;
      g.settled_ns = now_ns, g.charged_sm_ns = 0;
      paused_.push_back(v);
    });
  }
  void on_launch_queued(uint64_t now_ns, const Launch& launch, Actions& out) override {
    seen(now_ns, out, [&] { inner_->on_launch_queued(now_ns, launch, out); });
  }
  void on_launch_done(uint64_t now_ns, const Launch& launch, Actions& out) override {
    seen(now_ns, out, [&] { inner_->on_launch_done(now_ns, launch, out); });
  }
  void on_usage(uint64_t now_ns, VgpuId v, const Usage& usage) override {
    if (vgpus_[v].paused) vgpus_[v].charged_sm_ns += usage.sm_ns;
    inner_->on_usage(now_ns, v, usage);
  }
  void on_usages(uint64_t now_ns, std::span<const VgpuUsage> reports) override {
    if (!paused_.empty())
      for (const VgpuUsage& r : reports)
        if (vgpus_[r.vgpu].paused) vgpus_[r.vgpu].charged_sm_ns += r.usage.sm_ns;
    inner_->on_usages(now_ns, reports);
  }
  void on_released(uint64_t now_ns, VgpuId v, LaunchId launch, SmRange sms, LeftReason why,
                   Actions& out) override {
    seen(now_ns, out, [&] {
      Vgpu& g = vgpus_[v];
      if (g.paused) settle(now_ns, v);
      if (launch == 0) hold(v, -static_cast<int64_t>(std::min(count(sms), g.held)));
      if (g.paused && (g.held == 0 || why == LeftReason::kGone))
        end_pause(now_ns, v, out);  // nothing is kept for it any more
      inner_->on_released(now_ns, v, launch, sms, why, out);
    });
  }
  void on_change(uint64_t now_ns, uint64_t cost_ns) override {
    change_.learn(cost_ns);
    inner_->on_change(now_ns, cost_ns);
  }
  void on_wake(uint64_t now_ns, Actions& out) override {
    seen(now_ns, out, [&] {
      asked_ns_ = kNever;
      end_pauses(now_ns, out);
      if (inner_wake_ns_ > now_ns) return;
      inner_wake_ns_ = kNever;
      inner_->on_wake(now_ns, out);
    });
  }

 private:
  struct Vgpu {
    bool works = false;
    bool paused = false;         // idle, and the policy does not know
    uint32_t held = 0;           // SMs, as a whole
    uint64_t idle_since_ns = 0;  // 0: never
    uint64_t worth_ns = 0;       // so long that pause was worth waiting for
    double late = 0;             // how often it was back later than that, a mean
    uint64_t until_ns = 0;       // paused: it is waited for
    bool longer = false;         // ... longer than it is worth
    uint64_t settled_ns = 0;     // paid for what it holds up to here ...
    uint64_t charged_sm_ns = 0;  // ... but for this, which its driver has charged since
  };

  uint32_t count(SmRange sms) const {
    return std::min<uint32_t>(sms.hi, sms_) - std::min<uint32_t>(sms.lo, sms_);
  }
  void hold(VgpuId v, int64_t sms) {
    vgpus_[v].held = static_cast<uint32_t>(vgpus_[v].held + sms);
    if (vgpus_[v].works)
      working_sms_ = static_cast<uint64_t>(static_cast<int64_t>(working_sms_) + sms);
  }
  uint64_t worth_ns(uint32_t held) const {
    return std::min(static_cast<uint64_t>(2 * change_.ns() * sms_ / held), kLongestPauseNs);
  }
  // Charges paused v for what it held until now; some drivers do so themselves.
  void settle(uint64_t now_ns, VgpuId v) {
    Vgpu& g = vgpus_[v];
    const uint64_t to_ns = std::clamp(now_ns, g.settled_ns, std::max(g.until_ns, g.settled_ns));
    const uint64_t sm_ns = (to_ns - g.settled_ns) * g.held;
    const uint64_t charge = sm_ns - std::min(sm_ns, g.charged_sm_ns);
    g.charged_sm_ns -= std::min(g.charged_sm_ns, sm_ns);
    g.settled_ns = to_ns;
    if (charge) inner_->on_usage(now_ns, v, {.sm_ns = charge});
  }
  // At the end of v's worth: may it be waited for longer, so that its set lasts?
  bool wait_longer(uint64_t now_ns, VgpuId v) {
    Vgpu& g = vgpus_[v];
    if (g.longer || g.held == 0 || g.worth_ns >= kLongestPauseNs || now_ns < g.until_ns)
      return false;
    const double all_ns = static_cast<double>(kLongestPauseNs) * sms_;
    credit_sm_ns_ = std::min(
        credit_sm_ns_ + loss_ * static_cast<double>(now_ns - credit_at_ns_) * sms_, all_ns);
    credit_at_ns_ = now_ns;
    const auto more_ns = static_cast<uint64_t>(
        std::clamp(credit_sm_ns_ / g.held, 0.0, static_cast<double>(kLongestPauseNs - g.worth_ns)));
    if (more_ns < g.worth_ns || g.until_ns + more_ns <= now_ns) return false;
    g.longer = true;
    g.until_ns += more_ns;
    credit_sm_ns_ -= static_cast<double>(more_ns) * g.held;
    return true;
  }
  // What was taken for waiting longer, less what it took.
  void pay(uint64_t now_ns, VgpuId v) {
    Vgpu& g = vgpus_[v];
    if (g.longer && now_ns < g.until_ns)
      credit_sm_ns_ += static_cast<double>(g.until_ns - now_ns) * g.held;
  }
  void end_pause(uint64_t now_ns, VgpuId v, Actions& out) {
    pay(now_ns, v);
    settle(now_ns, v);
    vgpus_[v].paused = false;
    std::erase(paused_, v);
    inner_->on_idle(now_ns, v, out);
  }
  void end_pauses(uint64_t now_ns, Actions& out) {
    // Of several for which a vGPU waits without an SM none may get what another one leaves.
    const bool all = all_wait() && first_end_ns() <= now_ns;
    for (size_t i = 0; i < paused_.size();) {
      const bool due = vgpus_[paused_[i]].until_ns <= now_ns && !wait_longer(now_ns, paused_[i]);
      if (all || due)
        end_pause(now_ns, paused_[i], out);
      else
        ++i;
    }
  }
  // Somebody works and has nothing to work on.
  bool all_wait() const { return !paused_.empty() && working_ > 0 && working_sms_ == 0; }

  // Around each event: what the policy answers is read. Pauses end at wakes only, before which
  // a driver checks who is back.
  template <class Event>
  void seen(uint64_t now_ns, Actions& out, Event&& event) {
    const size_t before = out.size();
    event();
    take_over(before, out);
    if (!all_wait()) {
      idling_.stop(now_ns);
    } else if (!idling_.may(now_ns, first_end_ns() - std::min(now_ns, first_end_ns()),
                            change_.ns())) {
      for (const VgpuId v : paused_) vgpus_[v].until_ns = std::min(vgpus_[v].until_ns, now_ns);
    }
    uint64_t wake_ns = inner_wake_ns_;
    // Of two that pause each may be back without its driver's knowing.
    if (working_ > 0 || paused_.size() > 1) wake_ns = std::min(wake_ns, first_end_ns());
    if (wake_ns == kNever || wake_ns == asked_ns_) return;
    asked_ns_ = wake_ns;
    out.push_back(Action::wake(wake_ns));
  }
  uint64_t first_end_ns() const {
    uint64_t ns = kNever;
    for (const VgpuId v : paused_) ns = std::min(ns, vgpus_[v].until_ns);
    return ns;
  }
  void take_over(size_t from, Actions& out) {
    size_t kept = from;
    for (size_t i = from; i < out.size(); ++i) {
      const Action& a = out[i];
      if (a.kind == Action::Kind::kWake) {
        inner_wake_ns_ = a.at_ns;
        continue;
      }
      if (a.kind == Action::Kind::kRun && a.launch == 0) hold(a.vgpu, count(a.sms));
      out[kept++] = a;
    }
    out.erase(out.begin() + static_cast<std::ptrdiff_t>(kept), out.end());
  }

  const uint32_t sms_;
  const double loss_;  // part of the time that waiting for longer than it is worth may take
  double credit_sm_ns_ = 0;
  uint64_t credit_at_ns_ = 0;
  ChangeCost change_;
  std::vector<Vgpu> vgpus_;
  std::vector<VgpuId> paused_;
  uint32_t working_ = 0;      // vGPUs
  uint64_t working_sms_ = 0;  // that those hold
  Idling idling_;
  uint64_t inner_wake_ns_ = kNever, asked_ns_ = kNever;  // the policy's; ours
};

}  // namespace

std::unique_ptr<Policy> keep_pauses(const Config& config, std::unique_ptr<Policy> inner) {
  if (config.machine.change_ns == 0) return inner;
  return std::make_unique<Pauses>(config, std::move(inner));
}

}  // namespace sluice::policy
