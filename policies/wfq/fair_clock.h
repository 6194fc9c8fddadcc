// SPDX-License-Identifier: Apache-2.0
// FairClock: the virtual times of weighted fair queuing, for the forms of wfq (wfq.cc). Pure; owned
// by a policy, called from its thread. It accounts and compares; it decides nothing.
//
// Terms (the others: policies/policy.h)
//   V     of a priority level; the lags of its backlogged vGPUs add up to nothing
//   lag   kept here by weight, as virtual time: V - vtime
//
// Rules
//   A vGPU that becomes idle with a debt still counts in V until V has come to its vtime (EEVDF's
//   delayed dequeue): V is then that of a fluid system, in which it would still have work. Taken
//   out at once, it would leave its debt to the others: beside 64 sleepers that were served first,
//   2 saturating vGPUs got 0.95 of their shares. When the last one becomes idle all debts end.
//   A credit decays by as much as V has gone on, and is one longest quantum at most: nobody saves
//   up GPU time by being idle, and a program that pauses between two launches keeps its turn. A
//   pause in which V goes on by less than kFreeNs of the GPU takes nothing: one that waits for each
//   launch would lose that at each. Nor does it end others' debts, though V rises as one that is
//   behind leaves: it, or who stays, would pay for them (one that waits for each launch had 0.73 of
//   its share beside bursts). No lag is kept or forgiven by a wall clock.
//   In a group, a credit that one loses is the others' there: so much that they use next is free.
//   The group was backlogged all the time, so nobody else has a claim to its entitlement
//   (hierarchical fair queuing, Bennett and Zhang 1996).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "mediator/base/check.h"
#include "policies/parts/indexed_heap.h"
#include "policies/policy.h"

namespace sluice::policy {

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 UInt128;

// x / weight, rounded down, for x <= 2^56, by a multiplication: a division takes as long as all
// else that charging somebody does. With 2^s <= weight < 2^(s + 1) the factor m = (2^(63 + s) + e)
// / weight has 0 < e <= weight, so x m / 2^(63 + s) is too large by x e / (2^(63 + s) weight),
// which is less than 1 / weight since x e < 2^(63 + s) (Granlund and Montgomery 1994).
class WeightDivisor {
 public:
  WeightDivisor() : WeightDivisor(1) {}
  explicit WeightDivisor(uint32_t weight)  // 1..kMaxWeight
      : shift_(static_cast<uint32_t>(std::bit_width(weight)) - 1),
        factor_(static_cast<uint64_t>((static_cast<UInt128>(1) << (63 + shift_)) / weight) + 1) {}
  uint64_t divide(uint64_t x) const {
    return static_cast<uint64_t>((static_cast<UInt128>(2 * x) * factor_) >> 64) >> shift_;
  }

 private:
  uint32_t shift_;
  uint64_t factor_;
};

class FairClock {
 public:
  // Virtual time is kScale * SM-nanoseconds / weight. 64 keeps the division's remainder below 160
  // SM-nanoseconds at the largest weight.
  static constexpr int64_t kScale = 64;
  // One report is clipped here (days of a whole GPU): larger would overflow before the rebase
  // below.
  static constexpr uint64_t kMaxUsage = 1ull << 50;
  // Lags are clipped here (seconds of a whole GPU at weight 1), so that scaling one by two weights
  // cannot overflow. Only a debt kept over a short gap or a change of weight is ever cut by it.
  static constexpr int64_t kMaxLag = 1ll << 46;
  // Virtual times are moved back by V when V reaches this, so that they never overflow.
  static constexpr int64_t kRebaseAt = 1ll << 60;
  static constexpr int64_t kNoDebtStays = -(1ll << 61);  // no V is below

  // Of the whole GPU, used by others of its level while a vGPU pauses. Longer: sleepers keep more
  // of their credits; shorter: programs that wait after each launch have less than their
  // shares.
  static constexpr uint64_t kFreeNs = 200'000;

  // kAbsent -> add() -> kIdle <-> kBacklogged; remove() -> kAbsent
  // kBacklogged -> kInDebt: it turned idle and has had more than its share
  // kInDebt -> kBacklogged: it is back; -> kIdle: V has come to its vtime, or nobody is backlogged
  enum class State : uint8_t { kAbsent, kIdle, kInDebt, kBacklogged };
  struct Vgpu {
    State state = State::kAbsent;
    bool backlogged() const { return state == State::kBacklogged; }
    VgpuShare share;
    WeightDivisor by_weight;
    int64_t vtime = 0;
    int64_t lag = 0;            // V - vtime when it turned idle, less what it was charged since
    int64_t left_at = 0;        // V when it turned idle, without it
    bool had_siblings = false;  // then: others of its group were backlogged
    // At the level that it had before this one: going to another one and back pays no debt, and
    // takes no credit.
    uint32_t other_level = 0;
    int64_t other_lag = 0, other_vtime = kNoDebtStays;
    uint64_t used_sm_ns = 0;  // all that it was ever charged, modulo 2^64
  };

  // What becomes of a credit while its owner is away.
  enum class Credit : uint8_t { kDecays, kStays };
  // Whether who turns idle with a debt still counts in V. Not on time slices, where all of a round
  // are served at once and a debt is a slice at most.
  enum class Debt : uint8_t { kCounts, kLeaves };
  explicit FairClock(const Config& config, Credit credit = Credit::kDecays,
                     Debt debt = Debt::kCounts)
      : keeps_credit_(config.short_gap_ns > 0),
        decays_(credit == Credit::kDecays),
        debts_count_(debt == Debt::kCounts),
        credit_(std::min(kMaxUsage, config.max_quantum_ns * config.machine.sm_count)),
        free_sm_ns_(static_cast<int64_t>(kFreeNs * config.machine.sm_count)),
        levels_(kPriorityLevels, Level(&vgpus_)) {}
  FairClock(const FairClock&) = delete;
  FairClock& operator=(const FairClock&) = delete;

  const Vgpu& operator[](VgpuId v) const { return vgpus_[v]; }
  size_t size() const { return vgpus_.size(); }
  uint32_t busy(uint32_t priority) const { return levels_[priority].busy; }
  int64_t weight(uint32_t priority) const { return levels_[priority].weight(); }  // of the busy
  int64_t vtime(uint32_t priority) const { return levels_[priority].vtime(); }

  // A group that was not set is one of the root's.
  void set_group(GroupId group, GroupId parent) {
    if (group == kRootGroup) return;
    while (groups_.size() <= group) groups_.emplace_back();
    groups_[group].parent = parent;
  }
  void add(VgpuId v, const VgpuShare& share) {
    if (v >= vgpus_.size()) vgpus_.resize(v + 1);
    Vgpu& g = vgpus_[v];
    SLUICE_CHECK(g.state == State::kAbsent);
    g = Vgpu{};
    g.state = State::kIdle;
    set_share(g, bounded(share));
    g.vtime = level(g).vtime();
  }
  // Its lag in GPU time stays the same, within a level.
  void change(VgpuId v, const VgpuShare& share) {
    Vgpu& g = vgpus_[v];
    const VgpuShare changed = bounded(share);
    const State state = g.state;
    if (g.backlogged() && g.share.priority == changed.priority) return reweigh(g, changed);
    if (g.backlogged()) leave(v);
    if (g.state == State::kInDebt) pay_off(v);
    g.lag = clipped(static_cast<Int128>(g.lag) * g.share.weight / changed.weight);
    const uint32_t left = g.share.priority;
    set_share(g, changed);
    if (left != changed.priority) {
      const int64_t lag = std::exchange(g.lag, 0), vtime = levels_[left].vtime() - lag;
      g.vtime = level(g).vtime();
      if (g.other_level == changed.priority)
        g.lag = std::min(std::max<int64_t>(g.other_lag, 0), g.vtime - g.other_vtime);
      g.other_level = left, g.other_lag = lag, g.other_vtime = vtime;
    }
    if (state == State::kBacklogged) {
      if (level(g).weight() > 0)
        place(g, std::min(g.lag, most_credit(g)));
      else
        g.vtime = std::max(g.vtime, level(g).vtime());
      g.state = State::kBacklogged;
      enter(g);
      count_busy(g, true);
    } else if (g.lag < 0) {
      place(g, g.lag);
      if (level(g).busy > 0 && debts_count_) keep_in_debt(v);
    }
    settle(g.share.priority);
  }
  void remove(VgpuId v) {
    if (vgpus_[v].state == State::kInDebt) pay_off(v);
    vgpus_[v].state = State::kAbsent;
  }

  void turn_busy(VgpuId v) {
    Vgpu& g = vgpus_[v];
    if (has_paid(g)) end_debt(v);
    if (g.state == State::kInDebt) {
      level(g).in_debt.remove(v);
      level(g).come_back(g.share.weight);
      count_busy(g, true);
    } else {
      rejoin(v);
    }
    g.state = State::kBacklogged;
    level(g).debts_stay_until = kNoDebtStays;
    settle(g.share.priority);
  }
  void turn_idle(VgpuId v) {
    leave(v);
    const Vgpu& g = vgpus_[v];
    if (g.lag > 0) level(g).debts_stay_until = g.left_at + free(level(g));
    settle(g.share.priority);
  }

  // Charges v. Returns by how much all virtual times of its level were moved back (nearly always
  // 0).
  int64_t charge(VgpuId v, uint64_t sm_ns) {
    const VgpuUsage report{v, {.sm_ns = sm_ns}};
    int64_t moved = 0;
    charge({&report, 1}, [&](uint32_t, int64_t back) { moved = back; });
    return moved;
  }
  // The same for several, one after the other. rebased(priority, back): all virtual times of this
  // level were moved back.
  template <class Rebased>
  void charge(std::span<const VgpuUsage> reports, Rebased&& rebased) {
    Vgpu* const vgpus = vgpus_.data();
    uint32_t priority = 0;
    Int128 sum = 0;  // for that level
    const auto add = [&] {
      if (sum == 0) return;
      levels_[priority].add(sum);
      sum = 0;
      if (levels_[priority].reaches(kRebaseAt)) rebased(priority, rebase(priority));
      settle(priority);
    };
    for (const VgpuUsage& r : reports) {
      Vgpu& g = vgpus[r.vgpu];
      const uint64_t sm_ns = std::min(r.usage.sm_ns, kMaxUsage);
      const uint64_t paid = inherited_ && g.state != State::kIdle ? pay_inherited(g, sm_ns) : 0;
      const auto delta = static_cast<int64_t>(g.by_weight.divide((sm_ns - paid) * kScale));
      g.vtime += delta;
      g.used_sm_ns += sm_ns;
      if (g.state == State::kIdle) {
        g.lag = clipped(static_cast<Int128>(g.lag) - delta);
      } else {
        if (g.state == State::kInDebt) levels_[g.share.priority].in_debt.update(r.vgpu);
        if (g.share.priority != priority) add(), priority = g.share.priority;
        sum += delta * int64_t{g.share.weight};
      }
    }
    add();
  }

  // The lag of busy v beyond its credit is forgotten: it had all that it could use.
  void forgive(VgpuId v) {
    Vgpu& g = vgpus_[v];
    Level& l = level(g);
    const int64_t least = l.vtime() - static_cast<int64_t>(credit_) * kScale / g.share.weight;
    if (g.vtime >= least) return;
    l.add((static_cast<Int128>(least) - g.vtime) * g.share.weight);
    g.vtime = least;
  }

  // Whether that is more than nothing; without its multiplication of 128 bits.
  bool leads(VgpuId v) const {
    const Vgpu& g = vgpus_[v];
    const int64_t lead = g.vtime - levels_[g.share.priority].vtime();
    return lead >= kScale || (lead > 0 && lead * g.share.weight >= kScale);
  }
  // The lead of busy v, in SM-ns: GPU time that it has had beyond its share. Negated: its lag.
  int64_t lead_sm_ns(VgpuId v) const {
    const Vgpu& g = vgpus_[v];
    const Int128 lead = static_cast<Int128>(g.vtime) - levels_[g.share.priority].vtime();
    return static_cast<int64_t>(
        std::clamp<Int128>(lead * g.share.weight / kScale, -(Int128{1} << 62), Int128{1} << 62));
  }

 private:
  // V is asked for more often than it changes, and takes a division of 128 bits.
  struct Sooner {
    const std::vector<Vgpu>* vgpus;
    bool operator()(uint32_t a, uint32_t b) const {
      const int64_t x = (*vgpus)[a].vtime, y = (*vgpus)[b].vtime;
      return x != y ? x < y : a < b;
    }
  };
  class Level {
   public:
    explicit Level(const std::vector<Vgpu>* vgpus) : in_debt(Sooner{vgpus}) {}
    void add(Int128 sum, int64_t weights = 0) {
      weighted_sum_ += sum;
      weight_ += weights;
      known_ = false;
    }
    void set_last(int64_t v) { last_ = v, known_ = false; }
    int64_t weight() const { return busy_weight_; }
    int64_t counted_weight() const { return weight_; }
    void come_back(uint32_t weight) { busy_weight_ += weight, ++busy; }
    void go(uint32_t weight) { busy_weight_ -= weight, --busy; }
    int64_t vtime() const {
      if (!known_)
        v_ = weight_ ? static_cast<int64_t>(weighted_sum_ / weight_) : last_, known_ = true;
      return v_;
    }
    bool reaches(int64_t v) const {
      return weight_ && weighted_sum_ >= static_cast<Int128>(v) * weight_;
    }
    uint32_t busy = 0;
    IndexedHeap<Sooner> in_debt;
    // V; somebody with a credit is away, perhaps for a moment.
    int64_t debts_stay_until = kNoDebtStays;

   private:
    int64_t busy_weight_ = 0;
    Int128 weighted_sum_ = 0;  // of weight * vtime over the busy and those in debt
    int64_t weight_ = 0;
    int64_t last_ = 0;  // V when the last busy one left
    mutable int64_t v_ = 0;
    mutable bool known_ = false;
  };

  static VgpuShare bounded(VgpuShare s) {
    s.weight = std::clamp(s.weight, 1u, kMaxWeight);
    s.priority = std::min(s.priority, kPriorityLevels - 1);
    return s;
  }
  static void set_share(Vgpu& g, const VgpuShare& share) {
    g.share = share;
    g.by_weight = WeightDivisor(share.weight);
  }
  static int64_t clipped(Int128 lag) {
    return static_cast<int64_t>(std::clamp<Int128>(lag, -kMaxLag, kMaxLag));
  }
  int64_t most_credit(const Vgpu& g) const {
    return static_cast<int64_t>(credit_) * kScale / g.share.weight;
  }
  Level& level(const Vgpu& g) { return levels_[g.share.priority]; }

  struct Group {
    GroupId parent = kRootGroup;
    uint32_t busy = 0;       // vGPUs in it
    uint64_t inherited = 0;  // SM-ns
  };
  // visit(group) for those that g is in but the root, until it says true.
  template <class Visit>
  void each_group(const Vgpu& g, Visit&& visit) {
    for (GroupId i = g.share.group; i != kRootGroup; i = groups_[i].parent) {
      if (i >= groups_.size()) set_group(i, kRootGroup);
      if (visit(groups_[i])) return;
    }
  }
  void count_busy(const Vgpu& g, bool busy) {
    each_group(g, [&](Group& group) {
      group.busy += busy ? 1 : -1u;
      if (group.busy == 0) inherited_ -= std::exchange(group.inherited, 0);
      return false;
    });
  }
  bool has_siblings(const Vgpu& g) {
    bool some = false;
    each_group(g, [&](const Group& group) { return some = group.busy > 0; });
    return some;
  }
  // The next group above in which others are backlogged has what g, which is not, has lost.
  void inherit(const Vgpu& g, int64_t lost) {
    each_group(g, [&](Group& group) {
      if (group.busy == 0) return false;
      const auto sm_ns = static_cast<uint64_t>(static_cast<Int128>(lost) * g.share.weight / kScale);
      const uint64_t more = std::min(sm_ns, credit_ - std::min(credit_, group.inherited));
      group.inherited += more, inherited_ += more;
      return true;
    });
  }
  uint64_t pay_inherited(const Vgpu& g, uint64_t sm_ns) {
    uint64_t paid = 0;
    each_group(g, [&](Group& group) {
      const uint64_t part = std::min(group.inherited, sm_ns - paid);
      group.inherited -= part, inherited_ -= part, paid += part;
      return paid == sm_ns;
    });
    return paid;
  }

  // Back from a pause, without a debt. A credit has decayed by as much as V has gone on.
  void rejoin(VgpuId v) {
    Vgpu& g = vgpus_[v];
    Level& l = level(g);
    const int64_t now = l.vtime();
    const int64_t gone = decays_ ? std::max<int64_t>(now - g.left_at - free(l), 0) : 0;
    const int64_t credit = keeps_credit_ ? std::min(g.lag, most_credit(g)) - gone : 0;
    if (g.lag > 0 && g.had_siblings) inherit(g, g.lag - std::max<int64_t>(credit, 0));
    if (credit > 0 && l.weight() > 0)
      place(g, credit);
    else
      g.vtime = std::max(g.vtime, now);
    enter(g);
    count_busy(g, true);
  }
  // V moves as g joins; placed here, its lag to the new V is `lag`.
  void place(Vgpu& g, Int128 lag) {
    const Level& l = level(g);
    const int64_t weight = l.counted_weight();
    if (weight > 0) lag = lag * (weight + g.share.weight) / weight;
    g.vtime = l.vtime() - static_cast<int64_t>(lag);
  }
  void enter(Vgpu& g) {
    Level& l = level(g);
    l.add(static_cast<Int128>(g.vtime) * g.share.weight, g.share.weight);
    l.come_back(g.share.weight);
  }
  void leave(VgpuId v) {
    Vgpu& g = vgpus_[v];
    Level& l = level(g);
    const int64_t now = l.vtime();
    g.lag = clipped(static_cast<Int128>(now) - g.vtime);
    l.go(g.share.weight);
    count_busy(g, false);
    g.had_siblings = has_siblings(g);
    g.state = State::kInDebt;
    l.in_debt.push(v);
    if (g.lag >= 0 || !debts_count_) pay_off(v);
    if (l.busy == 0 && !debts_count_) l.set_last(now);
    if (l.busy == 0 && debts_count_) {
      // All that was asked for has been served: no lag is left.
      int64_t last = std::max(now, g.vtime);
      while (!l.in_debt.empty()) {
        const VgpuId top = l.in_debt.top();
        last = std::max(last, vgpus_[top].vtime);
        pay_off(top);
        vgpus_[top].lag = 0;
      }
      l.set_last(last);
    }
    g.left_at = l.vtime();
  }
  // Of a backlogged one. It does not become idle in between: if it were the last, debts would end.
  void reweigh(Vgpu& g, const VgpuShare& share) {
    Level& l = level(g);
    const Int128 lag = static_cast<Int128>(l.vtime()) - g.vtime;
    l.add(-static_cast<Int128>(g.vtime) * g.share.weight, -int64_t{g.share.weight});
    l.go(g.share.weight);
    g.lag = clipped(static_cast<Int128>(clipped(lag)) * g.share.weight / share.weight);
    const bool moves = share.group != g.share.group;
    if (moves) count_busy(g, false);
    set_share(g, share);
    if (moves) count_busy(g, true);
    if (l.counted_weight() > 0) place(g, std::min(g.lag, most_credit(g)));
    enter(g);
    settle(g.share.priority);
  }
  // Counted in V although it is idle: until V has come to its vtime.
  void keep_in_debt(VgpuId v) {
    Vgpu& g = vgpus_[v];
    Level& l = level(g);
    l.add(static_cast<Int128>(g.vtime) * g.share.weight, g.share.weight);
    l.in_debt.push(v);
    g.state = State::kInDebt;
  }
  void pay_off(VgpuId v) {
    Vgpu& g = vgpus_[v];
    Level& l = level(g);
    g.lag = clipped(static_cast<Int128>(l.vtime()) - g.vtime);
    l.in_debt.remove(v);
    l.add(-static_cast<Int128>(g.vtime) * g.share.weight, -int64_t{g.share.weight});
    g.left_at = l.vtime();
    g.state = State::kIdle;
  }
  bool has_paid(const Vgpu& g) const {
    return g.state == State::kInDebt && g.vtime <= levels_[g.share.priority].vtime();
  }
  void end_debt(VgpuId v) {
    pay_off(v);
    vgpus_[v].lag = 0;
  }
  void settle(uint32_t priority) {
    Level& l = levels_[priority];
    while (!l.in_debt.empty() && has_paid(vgpus_[l.in_debt.top()]) &&
           l.vtime() >= l.debts_stay_until)
      end_debt(l.in_debt.top());
  }
  // A pause of so little of V takes nothing.
  int64_t free(const Level& l) const {
    return free_sm_ns_ * kScale / std::max<int64_t>(l.weight(), 1);
  }
  int64_t rebase(uint32_t priority) {
    Level& l = levels_[priority];
    const int64_t back = l.vtime();
    l.add(-static_cast<Int128>(back) * l.counted_weight());
    l.debts_stay_until = std::max(l.debts_stay_until - back, kNoDebtStays);
    for (Vgpu& g : vgpus_) {
      if (g.state == State::kAbsent) continue;
      if (g.other_level == priority) g.other_vtime = std::max(g.other_vtime - back, kNoDebtStays);
      if (g.share.priority != priority) continue;
      // An idle one far behind would start at V anyway.
      g.vtime = g.state == State::kIdle ? std::max<int64_t>(g.vtime - back, 0) : g.vtime - back;
      g.left_at = std::max(g.left_at - back, -kRebaseAt);
    }
    return back;
  }

  const bool keeps_credit_, decays_, debts_count_;
  const uint64_t credit_;
  const int64_t free_sm_ns_;
  std::vector<Vgpu> vgpus_;
  std::vector<Level> levels_;
  std::vector<Group> groups_{1};
  uint64_t inherited_ = 0;  // by all of them
};

}  // namespace sluice::policy
