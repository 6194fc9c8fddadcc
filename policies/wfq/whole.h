// SPDX-License-Identifier: Apache-2.0
// WfqWhole: start-time fair queuing over measured GPU time, one vGPU at a time. What wfq and
// wfq-srt have in common on a GPU that is given whole. Owned and called like any Policy: pure, one
// thread.
//
// Terms (entitlement, vtime, V, lag, turn, quantum: policies/policy.h)
//         short   the known work of a vGPU fits into short_ns() since it became backlogged
//         burst   of a vGPU of class low, from when it becomes backlogged until its credit is used
//                 up: its share of the time, pauses included, up to longest_burst_ns()
//                 (srt_credit.h)
//
// Rules, each a function of the same name below
//   next()      the vGPU with the earliest rank runs; an eligible short one goes before it, unless
//               its turn is overdue: its lag exceeds a quantum, or it has missed its share for long
//               (srt_credit.h)
//   bursts()    a burst goes first, before shorter work of others too, and ends their turns. It
//               goes before overdue turns of other classes, until their lag exceeds a quantum by a
//               whole burst, and is not ended for them
//   covered()   except one whose sure share, which all can have at once, pays for its known work:
//               that goes before, and ends, even an overdue turn. It may take up to sure_burst()
//   watch()     one whose sure share pays for that later is checked again then
//   rank()      the due time. Of one that pauses, or has had no turn, and has reported its demand,
//               by when a fluid GPU would end that (at most a quantum of it), against half a round:
//               bursts are served in the order of their fluid ends (weighted fair queuing; FSP,
//               Friedman and Henderson 2003)
//   next_due()  the previous due time plus one quantum; falls back to vtime when they differ by
//               more than half a quantum. Keeps the order of a round stable.
//   quantum()   by entitlement: turn_length.h
//   correct()   an overrun is taken off the next quantum, a shortfall added, at most half of one
//   eligible()  when its work is done, a short vGPU leads V by its length at most, and all of them
//               together by a latency target: longest_lead_ns()
//   preempts()  a short one, or one that came back and has an earlier rank, ends a turn at once
//               (after as long as that costs, if it has less than twice that to do);
//               preempt_budget.h bounds what this costs
//   shorter()   of two short ones the shorter holds the GPU, if that saves a hand-over
//   finish()    work that ends sooner than it could be evicted, ends
//   linger()    an idle holder keeps the GPU if it will be back before a hand-over would be over.
//               It pays for the pause. One that works for at least as long as it pauses may do so
//               for its whole turn: giving the GPU away and back would cost more. Others share
//               Idling.
//   hold_back() who did not leave in time, because its launch cannot, waits until the others have
//               used as much, and is charged as they do; the GPU stays free for the pauses of those
//               that waited (amends.h)
//
// States of the GPU
//   kFree    -> kHeld    run(next)
//   kHeld    -> kLingers the holder became idle and linger() holds
//   kHeld    -> kDrains  its turn is over, it is preempted, or it is idle and another is backlogged
//   kLingers -> kHeld    the holder is back, and has paid for the time like for use
//   kLingers -> kDrains  it is not back in time, or a higher priority came
//   kHeld    -> kDrains  it is idle, and those that wait are held back: kFree until somebody is not
//   any      -> kFree    on_left()
//
// A vGPU that is backlogged alone has no timer (disengaged). Priorities are strict: each level has
// its own V. Time that a vGPU takes to leave is charged to it without bound.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "mediator/base/check.h"
#include "policies/parts/idling.h"
#include "policies/policy.h"
#include "policies/wfq/amends.h"
#include "policies/wfq/fair_clock.h"
#include "policies/wfq/known_work.h"
#include "policies/wfq/preempt_budget.h"
#include "policies/wfq/srt_credit.h"
#include "policies/wfq/turn_length.h"
#include "policies/wfq/waiting.h"

namespace sluice::policy {

class WfqWhole : public Policy {
 public:
  void on_vgpu_added(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions&) override;
  void on_vgpu_changed(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) override;
  void on_reweighed(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) override;
  void on_group(uint64_t, GroupId group, const GroupShare& share, Actions&) override {
    clock_.set_group(group, share.parent);
  }
  void on_vgpu_removed(uint64_t, VgpuId v, Actions&) override;
  void on_arrival(uint64_t now_ns, VgpuId v, Actions& out) override;
  void on_launch_queued(uint64_t now_ns, const Launch& launch, Actions& out) override;
  void on_idle(uint64_t now_ns, VgpuId v, Actions& out) override;
  void on_usage(uint64_t, VgpuId v, const Usage& usage) override;
  bool reads_tasks() const override { return false; }
  void on_left(uint64_t now_ns, VgpuId v, LeftReason, Actions& out) override;
  void on_handover(uint64_t, uint64_t cost_ns) override { length_.learn(cost_ns); }
  void on_wake(uint64_t now_ns, Actions& out) override;
  // One that its sure share would let go first, if it wants as much as it did on average.
  bool comes_unasked(VgpuId v) const override {
    const uint64_t burst_ns = pauses_[v].burst_ns;
    return burst_ns > 0 && credits_.sure(v) >= static_cast<double>(burst_ns * sms()) &&
           latency(v) != LatencyClass::kBatch && !credits_.is_below_others(level(v));
  }
  bool may_fill(VgpuId v) const override { return clock_[v].backlogged() && !is_held_back(v); }
  VgpuId fills_best(const Queues& queues, VgpuId fills) const override;
  uint64_t quantum_ns() const override;
  // Its own drain, and a turn and a hand-over of each other.
  uint64_t wait_bound_ns(uint32_t low_vgpus) const override {
    return handover_ns() + low_vgpus * (length_.least_quantum() + handover_ns());
  }

 protected:
  struct Next {
    VgpuId vgpu = kNoVgpu;
    bool before_its_turn = false;  // short: goes before vGPUs with a greater lag
  };
  explicit WfqWhole(const Config& config);

  // ---- where wfq-srt differs ------------------------------------------------------------------
  virtual uint64_t short_ns(VgpuId) const { return length_.least_quantum(); }
  virtual bool eligible(VgpuId v) const {
    const auto bound = static_cast<int64_t>(longest_lead_ns(v) * sms());
    auto rest = static_cast<int64_t>(work_[v].rest);
    if (latency(v) == LatencyClass::kLow) rest = std::min(rest, bound);
    return clock_.lead_sm_ns(v) + rest <= bound;
  }
  // The length so far allowed, or more for a short holder that nothing shorter waits for.
  virtual uint64_t protect(uint64_t /*now_ns*/, uint64_t length_ns) const { return length_ns; }

  // ---- rules ----------------------------------------------------------------------------------
  Next next(uint64_t now_ns);
  bool turn_is_overdue(VgpuId v) const;
  // By more than `ns`.
  bool lag_exceeds_quantum(VgpuId v, uint64_t ns = 0) const {
    return -clock_.lead_sm_ns(v) > static_cast<int64_t>((quantum(v) + ns) * sms());
  }
  double part(VgpuId v) const;
  // Its share of kBurstTargets latency targets, one target at most: so much of class low goes first
  // at once, and by so much the lag of another may exceed a quantum for that.
  uint64_t longest_burst_ns(VgpuId v) const {
    const double share = std::min(kBurstTargets * part(v), 1.0);
    return static_cast<uint64_t>(share * static_cast<double>(config_.latency_target_ns));
  }
  // By weight: each a least quantum, as many light ones that begin at once kept a heavy one from a
  // third of its second where hand-overs take 300 us, and then waited for most of another.
  uint64_t longest_lead_ns(VgpuId v) const {
    const double all_ns = static_cast<double>(config_.latency_target_ns);
    return std::min(short_ns(v), static_cast<uint64_t>(part(v) * all_ns));
  }
  bool bursts(VgpuId v) const {
    return latency(v) == LatencyClass::kLow && pauses_[v].had_credit && credits_[v] > 0;
  }
  bool bursts_before(VgpuId v, VgpuId other) const {
    return bursts(v) && latency(other) != LatencyClass::kLow &&
           !lag_exceeds_quantum(other, longest_burst_ns(other));
  }
  bool covered(VgpuId v) const {
    const KnownWork& w = work_[v];
    const auto all = static_cast<double>(w.used + w.rest);
    return (is_short(v) || (w.rest > 0 && all <= sure_burst(v))) &&
           credits_.sure(v) >= static_cast<double>(w.rest);
  }
  bool goes_first(VgpuId v) const { return (is_short(v) && eligible(v)) || covered(v); }
  int64_t next_due() const;
  uint64_t quantum(VgpuId v) const;
  uint64_t correct(uint64_t turn_ns) const;
  bool preempts(uint64_t now_ns, const Next& n, uint64_t quantum_ns);
  bool shorter(const Next& n) const {
    return n.before_its_turn && work_[n.vgpu].rest + handover_ns() * sms() < work_[holder_].rest;
  }
  uint64_t preempt_after_ns(const Next& n) const {
    const auto cost_ns = static_cast<uint64_t>(preemption_ns());
    return work_[n.vgpu].rest >= 2 * cost_ns * sms() ? 0 : cost_ns;
  }
  uint64_t finish() const;
  bool linger(uint64_t now_ns, VgpuId v);

  LatencyClass latency(VgpuId v) const { return clock_[v].share.latency; }
  // One of class `low` is like a short one when it comes, if it is below its share.
  bool is_short(VgpuId v) const {
    if (latency(v) == LatencyClass::kNormal) return has_short_work(v);
    return latency(v) == LatencyClass::kLow && pauses_[v].had_no_turn;
  }
  // Predictions leave out starts and are off by something. Taken away now, it would wait with next
  // to nothing left.
  bool nearly_done(VgpuId v) const {
    const KnownWork& w = work_[v];
    return w.total > 0 && w.used <= w.total + w.total / 4 + 2 * handover_ns() * sms();
  }
  bool has_short_work(VgpuId v) const {
    const KnownWork& w = work_[v];
    return (w.rest > 0 || nearly_done(v)) && w.used + w.rest <= short_ns(v) * sms();
  }
  bool holder_goes_first() const {
    return (is_short(holder_) && has_short_work(holder_) && eligible(holder_)) ||
           (work_[holder_].rest > 0 && covered(holder_));
  }
  uint64_t handover_ns() const { return static_cast<uint64_t>(length_.handover_ns()); }
  double preemption_ns() const {
    const uint64_t known_ns = config_.machine.preemption_ns;
    return known_ns ? static_cast<double>(known_ns) : length_.handover_ns();
  }
  uint64_t sms() const { return config_.machine.sm_count; }
  uint32_t level(VgpuId v) const { return clock_[v].share.priority; }
  uint64_t held_ns(uint64_t now_ns) const { return now_ns - hold_.turn.start_ns; }
  uint64_t rest_of_holder_ns() const { return work_[holder_].rest / std::max<uint64_t>(sms(), 1); }

  const Config config_;
  FairClock clock_;
  SrtCredits credits_;
  TurnLength length_;
  std::vector<KnownWork> work_;
  VgpuId holder_ = kNoVgpu;

 private:
  struct Pause {
    uint64_t since_ns = 0;       // when it became idle last
    uint64_t gap_ns = 0;         // mean think time; 0: not known
    bool had_no_turn = false;    // since it became backlogged
    bool had_credit = false;     // the same, always
    uint64_t burst_ns = 0;       // mean GPU time between two pauses
    uint64_t charged_sm_ns = 0;  // since it became idle, by its driver
  };
  struct Turn {
    uint64_t start_ns = 0;
    int64_t rank = 0;          // as it began
    bool was_overdue = false;  // as it began: only a covered one preempts it
    double overrun_ns = 0;     // of the turns before
  };
  // The GPU's state, above, and what belongs to it.
  struct Hold {
    enum State : uint8_t { kFree, kHeld, kLingers, kDrains } state = kFree;
    Turn turn;                                 // the holder's present one
    uint64_t keep_until_ns = 0;                // kLingers
    uint64_t evicted_ns = 0, drain_sm_ns = 0;  // kDrains: since when; used since then
    bool interrupted = false;                  // kDrains, kFree: a turn that was not over
  };
  static constexpr double kBurstTargets = 2;
  static constexpr uint64_t kClassFactor = 4;  // a turn's length from class to class
  // Pauses of such a part of a launch's length are filled; over those of the first kind it lingers.
  static constexpr uint64_t kFillsFromKept = 4, kFillsFrom = 16;
  // A vGPU whose launches take more hand-overs than this may fill although it leaves gaps itself.
  static constexpr uint64_t kFillsWithGaps = 16;
  static constexpr uint64_t kLeastKeepNs = 20'000;      // where hand-overs cost next to nothing
  static constexpr uint64_t kLongestGapNs = 4'000'000;  // that a mean remembers

  void decide(uint64_t now_ns, Actions& out);
  void charge(VgpuId v, uint64_t sm_ns);
  void end_drain(uint64_t now_ns);
  void end_amends(VgpuId v);
  void hold_back(uint64_t now_ns);
  void let_go(uint64_t now_ns);
  bool is_held_back(VgpuId v) const {
    return std::find(held_back_.begin(), held_back_.end(), v) != held_back_.end();
  }
  void wait_for_amends(uint64_t now_ns, Actions& out);
  uint64_t amends_end_ns(uint64_t now_ns) const;
  void settle(uint64_t now_ns, VgpuId v);  // brings v's credits up to now
  double most(VgpuId v) const { return static_cast<double>(short_ns(v) * sms()); }
  // What the holder's credit lasts for, no others running.
  uint64_t burst_ns() const {
    return static_cast<uint64_t>(credits_[holder_]) / std::max<uint64_t>(sms(), 1) +
           TurnLength::kTickNs;
  }
  double most_credit(VgpuId v) const {
    if (latency(v) != LatencyClass::kLow) return most(v);
    return static_cast<double>(longest_burst_ns(v) * sms());
  }
  // The longest work that goes first because it is covered: so little that others wait no longer
  // for it than for a turn.
  double sure_burst(VgpuId v) const {
    const uint64_t each_ns = config_.latency_target_ns / std::max(clock_.busy(level(v)), 1u);
    const uint64_t burst_ns = std::min(2 * length_.least_quantum(), each_ns);
    return std::max(most(v), static_cast<double>(burst_ns * sms()));
  }
  void settle_holder_and_first(uint64_t now_ns);
  VgpuId first_burst(uint64_t now_ns, uint32_t level);
  VgpuId before_overdue(VgpuId overdue) const;
  void watch(uint64_t now_ns, VgpuId v);
  void look_again(uint64_t now_ns);
  void begin(uint64_t now_ns, const Next& n, Actions& out);
  void start_turn(uint64_t now_ns);
  void evict(uint64_t now_ns, VgpuId next, bool early, Actions& out);
  void wake_at(uint64_t at_ns, Actions& out);
  void wait(uint64_t now_ns, VgpuId v);
  void wait_like_others(uint64_t now_ns, VgpuId v);
  void stop_waiting(VgpuId v) { waiting_.remove(level(v), v); }
  bool waits(VgpuId v) const { return waiting_.levels[level(v)].by_rank.contains(v); }

  int64_t rank(VgpuId v, int64_t due) const;
  int64_t rank(VgpuId v) const { return rank(v, waiting_.due[v]); }
  int64_t virtual_ns(VgpuId v, uint64_t ns) const;
  VgpuId behind(VgpuId v, const Queues& queues) const;
  VgpuId least_served(uint32_t level, const Queues& queues) const;
  bool is_off(VgpuId v, int64_t due, uint64_t turn_ns) const;

  void note_burst(VgpuId v);
  uint64_t end_pause(uint64_t now_ns, VgpuId v);
  void stop_lingering(uint64_t now_ns);
  bool pays_its_pauses(VgpuId v) const { return pauses_[v].burst_ns >= pauses_[v].gap_ns; }
  uint64_t longest_keep_ns() const { return std::max(handover_ns(), kLeastKeepNs); }
  bool pauses_shortly(VgpuId v) const {
    return pauses_[v].gap_ns != 0 && pauses_[v].gap_ns <= longest_keep_ns();
  }
  uint64_t keep_ns(VgpuId v) const {  // ski rental: at most what giving the GPU away would cost
    return std::max<uint64_t>(std::min(4 * pauses_[v].gap_ns, longest_keep_ns()), 1);
  }

  Waiting waiting_{work_, config_.machine.sm_count};
  Hold hold_;
  uint64_t wake_ns_ = 0;  // last wake asked for
  std::vector<Pause> pauses_;
  Amends amends_{clock_, config_.machine.sm_count};
  std::vector<VgpuId> held_back_;  // backlogged, in no heap: they make amends first
  uint64_t kept_free_ns_ = 0;      // for that nobody works, since then; 0: somebody does
  Idling idling_;
  PreemptBudget budget_;
};

}  // namespace sluice::policy
