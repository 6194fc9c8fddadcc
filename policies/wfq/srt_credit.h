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
//   - A sure credit is the same against all vGPUs of the level that are *awake*: backlogged, or
//     were so less than kAsleepNs ago. (Against all that there are, one of two that use the GPU of
//     a host with 34 had a 34th: its visits waited for messages, P50 214 instead of 174 us in the
//     model.) Together the shares are never more than there is: what they pay for may go before
//     one that lags by a quantum, and that still has its own sure share. Who wakes brings at most
//     `most_sure` with it, as one does that had paused for less. So one that uses little is never
//     kept waiting for a whole turn by those that use much. Use beyond it counts as far as the most
//     that it can be: who had a minute of the GPU alone, or its part of two of which one more was
//     idle, uses little from then on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "policies/policy.h"

namespace sluice::policy {

class SrtCredits {
 public:
  explicit SrtCredits(uint32_t sm_count)
      : sms_(sm_count), above_(kPriorityLevels), weights_(kPriorityLevels), all_(kPriorityLevels) {}

  // Begins with `most_sm_ns`, asleep.
  void add(uint64_t now_ns, VgpuId v, const VgpuShare& share, double most_sm_ns) {
    if (v >= of_.size()) of_.resize(v + 1);
    of_[v] = {.sm_ns = most_sm_ns, .at_ns = now_ns, .above = above_[share.priority]};
    of_[v].level = share.priority;
    of_[v].weight = share.weight;
    ++all_[share.priority];
  }
  void remove(VgpuId v) {
    sleep(of_[v]);
    --all_[of_[v].level];
  }
  void turn_busy(VgpuId v) {
    Credit& c = of_[v];
    c.idle_ns = kBusy;
    if (!std::exchange(c.awake, true)) weights_[c.level] += c.weight;
  }
  void turn_idle(uint64_t now_ns, VgpuId v) { of_[v].idle_ns = now_ns; }
  // Its share, `part`, of the time since it was asked last, at the same level; of the sure credit
  // up to `most_sure_sm_ns`.
  void earn(uint64_t now_ns, VgpuId v, const VgpuShare& share, double part, bool busy,
            double most_sm_ns, double most_sure_sm_ns) {
    find_sleepers(now_ns);
    Credit& c = of_[v];
    const double all = static_cast<double>(now_ns - c.at_ns) * sms_,
                 above = above_[share.priority] - c.above;
    const double left = std::max(all - above, 0.0), earned = left * part;
    c.sm_ns = std::min(c.sm_ns + earned, most_sm_ns);
    c.sure = std::min(
        std::max(c.sure, -most_sure_sm_ns) + left * share.weight / (weights_[c.level] + asleep(c)),
        most_sure_sm_ns);
    if (busy) c.missed += earned;
    c.at_ns = now_ns;
    c.above = above_[share.priority];
  }
  // To be called after an earn() with the share before.
  void change(VgpuId v, const VgpuShare& now) {
    Credit& c = of_[v];
    --all_[c.level];
    ++all_[now.priority];
    if (c.awake) weights_[c.level] -= c.weight;
    if (c.awake) weights_[now.priority] += now.weight;
    c.level = now.priority;
    c.weight = now.weight;
    c.above = above_[c.level];
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
  double sure_in_ns(VgpuId v, double sm_ns) const {
    const Credit& c = of_[v];
    return (sm_ns - c.sure) * (weights_[c.level] + asleep(c)) / c.weight / sms_;
  }

  bool is_below_others(uint32_t priority) const {
    return std::any_of(all_.begin() + priority + 1, all_.end(),
                       [](uint32_t vgpus) { return vgpus > 0; });
  }

  bool has_waited(VgpuId v, double most_sm_ns) const {
    return of_[v].missed >= kPatience * most_sm_ns;
  }

 private:
  // More, and long work waits longer; less, and short work waits for long.
  static constexpr double kPatience = 4;
  // Longer than most programs pause.
  static constexpr uint64_t kAsleepNs = 1'000'000'000, kBusy = UINT64_MAX;
  struct Credit {
    double sm_ns = 0, sure = 0;
    uint64_t at_ns = 0;
    double above = 0;  // above_ of its level then
    double missed = 0;
    double weight = 0;
    uint64_t idle_ns = 0;  // since then; kBusy: it is backlogged
    uint32_t level = 0;
    bool awake = false;
  };

  static double asleep(const Credit& c) { return c.awake ? 0 : c.weight; }
  void sleep(Credit& c) {
    if (std::exchange(c.awake, false)) weights_[c.level] -= c.weight;
  }
  void find_sleepers(uint64_t now_ns) {
    if (now_ns < found_ns_ + kAsleepNs / 4) return;
    found_ns_ = now_ns;
    for (Credit& c : of_)
      if (c.idle_ns != kBusy && now_ns >= c.idle_ns + kAsleepNs) sleep(c);
  }

  uint32_t sms_;
  std::vector<Credit> of_;
  std::vector<double> above_;    // by level: what all higher ones have used
  std::vector<double> weights_;  // by level: of all that are awake
  std::vector<uint32_t> all_;    // by level: how many vGPUs there are
  uint64_t found_ns_ = 0;        // when those that sleep were looked for last
};

}  // namespace sluice::policy
