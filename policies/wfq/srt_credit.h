// SPDX-License-Identifier: Apache-2.0
// SrtCredits: by what right short work goes before that of others, and what those have missed: of a
// vGPU of wfq its sure credit and what it has missed, of one of wfq-srt its credit too. Pure;
// wfq's own, called from its thread. Units: ns, and SM-ns of GPU time.
//
//   - A credit grows with the vGPU's share of the time, pauses included, up to `most`, and is paid
//     from for all use. (Its lead over V would say so too, if V did not move whenever somebody
//     comes or goes: two that pause in turns would seem to lack their share for ever.)
//   - The time is what higher levels of priority leave. Shares of all of it would be more than
//     there is, and the others of the level, never without credit, would go before one with long
//     work for ever.
//   - Since pauses count, the credits of many that pause may take all of the time as well. So what
//     each has missed is counted: its share of the time while it has work, less what it had then.
//     One that has missed kPatience times `most` goes first itself, one turn at a time. What has
//     been missed is never cut: `most` shrinks with the number of backlogged vGPUs, and cut by it
//     a saturating vGPU never got there (it starved beside 28 sleepers).
//   - A sure credit is the same against all vGPUs of the level, backlogged or not. Together they
//     are never more than there is: what they pay for may go before one that lags by a quantum,
//     and that still has its own sure share. So one that uses little is never kept waiting for a
//     whole turn by those that use much. Use beyond it counts as far as the most that it can be:
//     who had a minute of the GPU alone, or its part of two of which one more was idle, uses little
//     from then on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "policies/policy.h"

namespace sluice::policy {

class SrtCredits {
 public:
  explicit SrtCredits(uint32_t sm_count)
      : sms_(sm_count), above_(kPriorityLevels), weights_(kPriorityLevels) {}

  // Begins with `most_sm_ns`.
  void add(uint64_t now_ns, VgpuId v, const VgpuShare& share, double most_sm_ns) {
    if (v >= of_.size()) of_.resize(v + 1);
    of_[v] = {.sm_ns = most_sm_ns, .at_ns = now_ns, .above = above_[share.priority]};
    weights_[share.priority] += share.weight;
  }
  void remove(const VgpuShare& share) { weights_[share.priority] -= share.weight; }
  // Its share, `part`, of the time since it was asked last, at the same level; of the sure credit
  // up to `most_sure_sm_ns`.
  void earn(uint64_t now_ns, VgpuId v, const VgpuShare& share, double part, bool busy,
            double most_sm_ns, double most_sure_sm_ns) {
    Credit& c = of_[v];
    const double all = static_cast<double>(now_ns - c.at_ns) * sms_,
                 above = above_[share.priority] - c.above;
    const double left = std::max(all - above, 0.0), earned = left * part;
    c.sm_ns = std::min(c.sm_ns + earned, most_sm_ns);
    c.sure = std::min(
        std::max(c.sure, -most_sure_sm_ns) + left * share.weight / weights_[share.priority],
        most_sure_sm_ns);
    if (busy) c.missed += earned;
    c.at_ns = now_ns;
    c.above = above_[share.priority];
  }
  // To be called after an earn() with the share before.
  void change(VgpuId v, const VgpuShare& before, const VgpuShare& now) {
    of_[v].above = above_[now.priority];
    weights_[before.priority] -= before.weight;
    weights_[now.priority] += now.weight;
  }
  void pay(VgpuId v, uint32_t priority, double sm_ns) {
    of_[v].sm_ns -= sm_ns;
    of_[v].sure -= sm_ns;
    of_[v].missed = std::max(of_[v].missed - sm_ns, 0.0);
    for (uint32_t i = priority; i-- > 0;) above_[i] += sm_ns;
  }
  // Nothing is less than no credit.
  void forgive(VgpuId v) { of_[v].sm_ns = std::max(of_[v].sm_ns, 0.0); }
  double operator[](VgpuId v) const { return of_[v].sm_ns; }
  double sure(VgpuId v) const { return of_[v].sure; }
  // After an earn(): in how long it is `sm_ns`, if higher levels use nothing.
  double sure_in_ns(VgpuId v, const VgpuShare& share, double sm_ns) const {
    return (sm_ns - of_[v].sure) * weights_[share.priority] / share.weight / sms_;
  }

  bool is_below_others(uint32_t priority) const {
    return std::any_of(weights_.begin() + priority + 1, weights_.end(),
                       [](double weight) { return weight > 0; });
  }

  bool has_waited(VgpuId v, double most_sm_ns) const {
    return of_[v].missed >= kPatience * most_sm_ns;
  }

 private:
  // More, and long work waits longer; less, and short work waits for long.
  static constexpr double kPatience = 4;
  struct Credit {
    double sm_ns = 0, sure = 0;
    uint64_t at_ns = 0;
    double above = 0;  // above_ of its level then
    double missed = 0;
  };
  uint32_t sms_;
  std::vector<Credit> of_;
  std::vector<double> above_;    // by level: what all higher ones have used
  std::vector<double> weights_;  // by level: of all that are there
};

}  // namespace sluice::policy
