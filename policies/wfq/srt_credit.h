// SPDX-License-Identifier: Apache-2.0
// SrtCredits: by what right the vGPUs of wfq-srt (wfq_srt.cc) go before others, and what those have
// missed. Pure; wfq's own, called from its thread. Units: ns, and SM-ns of GPU time.
//
//   - A credit grows with the vGPU's share of the time, pauses included, up to `most`, and is paid
//     from for all use. (Its lead over V would say so too, if V did not move whenever somebody
//     comes or goes: two that pause in turns would seem to be owed for ever.)
//   - The time is what higher levels of priority leave. Shares of all of it would be more than
//     there is, and the others of the level, never without credit, would go before one with long
//     work for ever.
//   - Since pauses count, the credits of many that pause may take all of the time as well. So what
//     each has missed is counted: its share of the time while it has work, less what it had then.
//     One that has missed kPatience times `most` goes first itself, one turn at a time. What has
//     been missed is never cut: `most` shrinks with the number of backlogged vGPUs, and cut by it
//     a saturating vGPU never got there (it starved beside 28 sleepers).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "policies/policy.h"

namespace sluice::policy {

class SrtCredits {
 public:
  explicit SrtCredits(uint32_t sm_count) : sms_(sm_count), above_(kPriorityLevels) {}

  // Begins with `most_sm_ns`.
  void add(uint64_t now_ns, VgpuId v, uint32_t priority, double most_sm_ns) {
    if (v >= of_.size()) of_.resize(v + 1);
    of_[v] = {.sm_ns = most_sm_ns, .at_ns = now_ns, .above = above_[priority]};
  }
  // Its share, `part`, of the time since it was asked last, at the same level.
  void earn(uint64_t now_ns, VgpuId v, uint32_t priority, double part, bool busy,
            double most_sm_ns) {
    Credit& c = of_[v];
    const double all = static_cast<double>(now_ns - c.at_ns) * sms_,
                 above = above_[priority] - c.above;
    const double earned = std::max(all - above, 0.0) * part;
    c.sm_ns = std::min(c.sm_ns + earned, most_sm_ns);
    if (busy) c.missed += earned;
    c.at_ns = now_ns;
    c.above = above_[priority];
  }
  // To be called after an earn() at the level that it leaves.
  void change_level(VgpuId v, uint32_t priority) { of_[v].above = above_[priority]; }
  void pay(VgpuId v, uint32_t priority, double sm_ns) {
    of_[v].sm_ns -= sm_ns;
    of_[v].missed = std::max(of_[v].missed - sm_ns, 0.0);
    for (uint32_t i = priority; i-- > 0;) above_[i] += sm_ns;
  }
  double operator[](VgpuId v) const { return of_[v].sm_ns; }
  bool has_waited(VgpuId v, double most_sm_ns) const {
    return of_[v].missed >= kPatience * most_sm_ns;
  }

 private:
  // More, and long work waits longer; less, and short work waits for long.
  static constexpr double kPatience = 4;
  struct Credit {
    double sm_ns = 0;
    uint64_t at_ns = 0;
    double above = 0;  // above_ of its level then
    double missed = 0;
  };
  uint32_t sms_;
  std::vector<Credit> of_;
  std::vector<double> above_;  // by level: what all higher ones have used
};

}  // namespace sluice::policy
