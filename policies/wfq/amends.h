// SPDX-License-Identifier: Apache-2.0
// Amends: who keeps the GPU after it was asked to leave, because its launch cannot leave, makes
// amends to those that waited before it is granted again. Pure; owned by a form of wfq, called from
// its thread. Units: ns, and SM-ns of GPU time.
//
// Charged at once, such an overrun would be a debt that the fair clock forgets: a vGPU that waited
// and pauses keeps a longest quantum of its credit, and each of its pauses would begin the next
// long launch. Beside launches of 400 ms it had 0.01 to 0.5 of what it has beside short ones.
//
// Terms   debt      an overrun, while it is made up for
//         debtor    the vGPU that overran
//         creditor  a vGPU that a debt is made up to: those of the debtor's priority that waited
//
// Rules
//   - A debtor waits until its creditors have used as much, by weight. It is charged as they use
//     it. A pause of one of them does not end that: the GPU stays free.
//   - Such pauses add to what it has to make up for, up to as much as it overran by: with short
//     launches it would have used them. So one that works for two thirds of its time, or more, has
//     its share.
//   - All of them together are no longer than the creditors' part of the overrun, by weight, and
//     kMostIdle times the overrun. So beside one of its weight a debtor has a quarter of the time
//     at least, and the GPU is idle for half of it at most.
//   - Nobody is waited for whose pause, usually or now, is longer than what is left of that.
//   - A vGPU that overruns by half as much is no creditor: among themselves they take turns. Nor is
//     one that has had more than the debtor by weight, its debt included.
//   - Being granted ends it; what is left is charged then.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "policies/policy.h"
#include "policies/wfq/fair_clock.h"

namespace sluice::policy {

class Amends {
 public:
  struct Debt {
    VgpuId vgpu = kNoVgpu;
    uint64_t overrun_ns = 0;
    double rest = 0;          // SM-ns that it has to be charged yet, divided by its weight
    uint64_t charged_ns = 0;  // of pauses that may still be added to that
    uint64_t pauses_ns = 0;   // for which the GPU may still stay free
    double weights = 0;       // of those that it makes amends to, by waits()
  };

  Amends(const FairClock& clock, uint32_t sm_count) : clock_(clock), sms_(sm_count) {}

  void add(VgpuId v) {
    if (v >= of_.size()) of_.resize(v + 1);
    of_[v] = {};
  }
  void became_busy(uint64_t now_ns, VgpuId v) {
    Vgpu& g = of_[v];
    if (g.idle_since_ns == 0) return;
    const uint64_t ns = std::max<uint64_t>(std::min(now_ns - g.idle_since_ns, kLongestPauseNs), 1);
    g.pause_ns = g.pause_ns ? (g.pause_ns * 3 + ns) / 4 : ns;
  }
  void became_idle(uint64_t now_ns, VgpuId v) {
    of_[v].idle_since_ns = std::max<uint64_t>(now_ns, 1);
  }

  void left_in_time(VgpuId v) { of_[v].overrun_ns = 0; }
  // v has left so long after it had to, and used `sm_ns` in that time. False: there is no
  // creditor, and it is to be charged as ever.
  bool overran(VgpuId v, uint64_t by_ns, uint64_t sm_ns) {
    of_[v].overrun_ns = by_ns;
    const double weight = clock_[v].share.weight;
    Debt d{.vgpu = v,
           .overrun_ns = by_ns,
           .rest = static_cast<double>(sm_ns) / weight,
           .charged_ns = by_ns};
    for (VgpuId i = 0; i < of_.size(); ++i) {
      if (!is_creditor(d, i) || !clock_[i].backlogged()) continue;
      of_[i].waited = true;
      d.weights += clock_[i].share.weight;
    }
    if (d.weights == 0) return false;
    d.pauses_ns =
        static_cast<uint64_t>(std::min(d.weights / weight, kMostIdle) * static_cast<double>(by_ns));
    debts_.push_back(d);
    of_[v].is_debtor = true;
    return true;
  }
  // charge(vgpu, sm_ns): the debtors of `user`, as it uses the GPU.
  template <class Charge>
  void use(VgpuId user, uint64_t sm_ns, Charge&& charge) {
    for (Debt& d : debts_) {
      if (!is_creditor(d, user)) continue;
      const double weights = std::max<double>(d.weights, clock_[user].share.weight);
      const double paid = std::min(static_cast<double>(sm_ns) / weights, d.rest);
      d.rest -= paid;
      charge(d.vgpu, static_cast<uint64_t>(paid * clock_[d.vgpu].share.weight));
    }
  }
  // v had this weight until now.
  void changed(VgpuId v, uint32_t weight) {
    for (Debt& d : debts_)
      if (d.vgpu == v) d.rest = d.rest * weight / clock_[v].share.weight;
  }
  // Returns the SM-ns that v has to be charged yet.
  uint64_t end(VgpuId v) {
    if (!of_[v].is_debtor) return 0;
    const auto d =
        std::find_if(debts_.begin(), debts_.end(), [v](const Debt& x) { return x.vgpu == v; });
    const auto rest_sm_ns = static_cast<uint64_t>(d->rest * clock_[v].share.weight);
    debts_.erase(d);
    of_[v].is_debtor = false;
    if (debts_.empty())
      for (Vgpu& g : of_) g.waited = false;
    return rest_sm_ns;
  }

  std::vector<Debt>& debts() { return debts_; }
  const std::vector<Debt>& debts() const { return debts_; }
  // Whether d's vGPU has to wait.
  bool waits(uint64_t now_ns, Debt& d) const {
    if (d.rest <= 0 || d.pauses_ns == 0) return false;
    d.weights = 0;
    for (VgpuId i = 0; i < of_.size(); ++i)
      if (is_creditor(d, i) && (clock_[i].backlogged() || is_expected(now_ns, d, i)))
        d.weights += clock_[i].share.weight;
    return d.weights > 0;
  }
  // Nobody used the GPU for so long, and d's vGPU waited.
  void pass_pause(Debt& d, uint64_t ns) const {
    const uint64_t charged_ns = std::min(ns, d.charged_ns);
    d.charged_ns -= charged_ns;
    d.pauses_ns -= std::min(ns, d.pauses_ns);
    d.rest += static_cast<double>(charged_ns * sms_) / clock_[d.vgpu].share.weight;
  }

 private:
  // So one of 19 times its weight keeps 0.95, however little it works.
  static constexpr double kMostIdle = 19;
  static constexpr uint64_t kLongestPauseNs = 1'000'000'000;  // that a mean remembers
  struct Vgpu {
    uint64_t idle_since_ns = 0;  // last; 0: it never was
    uint64_t pause_ns = 0;       // mean; 0: not known
    uint64_t overrun_ns = 0;     // when it had to leave last
    bool waited = false;         // for one of those in debts_
    bool is_debtor = false;      // of one of them
  };

  bool is_creditor(const Debt& d, VgpuId v) const {
    return v != d.vgpu && clock_[v].share.priority == clock_[d.vgpu].share.priority &&
           2 * of_[v].overrun_ns < d.overrun_ns && !of_[v].is_debtor &&
           static_cast<double>(clock_[v].vtime - clock_[d.vgpu].vtime) < d.rest * FairClock::kScale;
  }
  bool is_expected(uint64_t now_ns, const Debt& d, VgpuId v) const {
    const Vgpu& g = of_[v];
    return g.waited && std::max(g.pause_ns, now_ns - g.idle_since_ns) < d.pauses_ns &&
           clock_[v].state != FairClock::State::kAbsent;
  }

  const FairClock& clock_;
  const uint32_t sms_;
  std::vector<Vgpu> of_;
  std::vector<Debt> debts_;  // few
};

}  // namespace sluice::policy
