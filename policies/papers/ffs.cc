// SPDX-License-Identifier: Apache-2.0
// ffs: fairness first scheduling under an overhead constraint (Wu et al., "FLEP", section 5.2.2).
// Weighted round robin: in each round vGPU i runs for an epoch T * W_i, and T is the least for
// which
//     sum of O_i / (T * sum of W_i) <= max_overhead,
// O_i being what it costs to preempt i: the mean of what its evictions have cost. FLEP ties the
// weight to the kernel's priority; here it is the operator's weight, and priorities mean nothing.
//
// Beyond the paper, where its kernels "in an infinite loop" need it not:
//   - a round is over when every vGPU that has work has used its epoch, so that one that pauses
//     takes the rest of its epoch later in the round; what is left at the round's end is forfeited.
//     One that pauses after each launch while a single other runs falls behind its weight, as in
//     the paper (wfq is for that);
//   - what a vGPU used beyond its epoch while it left is taken off its next one (the paper's shares
//     are of the time asked for; these are of the time used), for as many rounds as it takes.
// Where one vGPU alone has work, nothing is timed. Config: max_overhead (0: the paper's 10 %),
// epoch_ns the least length of a round's mean epoch.
#include <algorithm>
#include <cmath>
#include <vector>

#include "mediator/base/check.h"
#include "policies/parts/indexed_heap.h"
#include "policies/policy.h"

namespace sluice::policy {
namespace {

constexpr double kMaxOverhead = 0.1;
// FLEP profiles "50 runs with different inputs and use[s] the average"; an average that forgets in
// 1/8 steps follows a kernel that changes.
constexpr double kCostGain = 1.0 / 8;
// Bounds a round against a cost that was measured wrong: nobody's turn is further away than this
// and what the others overrun.
constexpr double kMaxRoundNs = 2e9;
// Where preempting costs nothing the constraint holds for any T; below this the decisions would
// cost more.
constexpr double kLeastEpochNs = 1e5;

class Ffs final : public Policy {
 public:
  explicit Ffs(const Config& config)
      : config_(config),
        max_overhead_(config.max_overhead > 0 ? config.max_overhead : kMaxOverhead) {}
  std::string_view name() const override { return "ffs"; }

  void on_vgpu_added(uint64_t, VgpuId v, const VgpuShare& share, Actions&) override {
    if (v >= vgpus_.size()) vgpus_.resize(v + 1);
    SLUICE_CHECK(!vgpus_[v].present);
    vgpus_[v] = Vgpu{};
    vgpus_[v].present = true;
    vgpus_[v].weight = bounded(share);
    vgpus_[v].cost_ns = std::min(static_cast<double>(config_.machine.handover_ns), kMaxRoundNs);
  }
  // Counts from the next round on.
  void on_vgpu_changed(uint64_t, VgpuId v, const VgpuShare& share, Actions&) override {
    Vgpu& g = vgpus_[v];
    if (g.counted) {
      weights_ += bounded(share);
      weights_ -= g.weight;
    }
    g.weight = bounded(share);
  }
  void on_vgpu_removed(uint64_t, VgpuId v, Actions&) override {
    SLUICE_CHECK(v != holder_ && !vgpus_[v].busy);
    vgpus_[v].present = false;
    uncount(v);
  }

  void on_arrival(uint64_t now_ns, VgpuId v, Actions& out) override {
    Vgpu& g = vgpus_[v];
    if (g.busy) return;
    g.busy = true;
    ++busy_;
    g.seen_round = round_;
    if (!g.counted) {  // new in the round: gets its epoch in this one
      count(v);
      g.budget_sm_ns = std::min<double>(g.budget_sm_ns, 0) + epoch_sm_ns(g);
    }
    if (v != holder_) wait(v);
    decide(now_ns, out);
  }
  void on_idle(uint64_t now_ns, VgpuId v, Actions& out) override {
    Vgpu& g = vgpus_[v];
    if (!g.busy) return;
    g.busy = false;
    --busy_;
    if (ready_.contains(v)) ready_.remove(v);
    if (spent_.contains(v)) spent_.remove(v);
    decide(now_ns, out);
  }
  void on_usage(uint64_t, VgpuId v, const Usage& usage) override {
    const double used = static_cast<double>(std::min<uint64_t>(usage.sm_ns, 1ull << 50));
    double& budget = vgpus_[v].budget_sm_ns;
    // Alone, its rounds follow one another: no other vGPU lacks what it uses.
    if (ready_.empty() && spent_.empty())
      budget = std::max(budget - used, std::min(budget, 0.0));
    else
      budget -= used;
  }
  bool reads_tasks() const override { return false; }
  void on_left(uint64_t now_ns, VgpuId v, LeftReason why, Actions& out) override {
    if (v != holder_) return;
    if (why == LeftReason::kEvicted) left_last_ = v;
    holder_ = kNoVgpu;
    leaving_ = false;
    if (vgpus_[v].busy) wait(v);
    decide(now_ns, out);
  }
  // The cost of evicting who left last; O_i is each vGPU's own.
  void on_handover(uint64_t, uint64_t cost_ns) override {
    if (left_last_ == kNoVgpu || !vgpus_[left_last_].present) return;
    Vgpu& g = vgpus_[left_last_];
    const double bound = kMaxRoundNs * max_overhead_;
    const double change = (std::min(static_cast<double>(cost_ns), bound) - g.cost_ns) * kCostGain;
    g.cost_ns += change;
    if (g.counted) costs_ns_ += change;
    left_last_ = kNoVgpu;
  }
  void on_wake(uint64_t now_ns, Actions& out) override {
    wake_ns_ = 0;
    decide(now_ns, out);
  }
  // The mean epoch of a round.
  uint64_t quantum_ns() const override {
    const uint32_t n = std::max(busy_, 1u);
    return static_cast<uint64_t>(round_ns() / n);
  }

 private:
  struct Vgpu {
    bool present = false, busy = false;
    bool counted = false;  // takes part in the round: its weight and cost are in the sums
    uint32_t weight = kDefaultWeight;
    uint64_t seen_round = 0;  // the last in which it had work
    double budget_sm_ns = 0;  // what is left of its epoch; negative: overrun
    double cost_ns = 0;       // O_i
    uint64_t order = 0;       // in which it came to wait
  };
  static uint32_t bounded(const VgpuShare& s) { return std::clamp(s.weight, 1u, kMaxWeight); }

  void count(VgpuId v) {
    vgpus_[v].counted = true;
    members_.push_back(v);
    weights_ += vgpus_[v].weight;
    costs_ns_ += vgpus_[v].cost_ns;
  }
  void uncount(VgpuId v) {
    if (!vgpus_[v].counted) return;
    vgpus_[v].counted = false;
    weights_ -= vgpus_[v].weight;
    costs_ns_ -= vgpus_[v].cost_ns;
    std::erase(members_, v);
  }
  // T * sum of W_i.
  double round_ns() const {
    const double epoch = std::max(static_cast<double>(config_.epoch_ns), kLeastEpochNs);
    const double least = epoch * static_cast<double>(std::max<size_t>(members_.size(), 1));
    return std::min(std::max(costs_ns_ / max_overhead_, least), kMaxRoundNs);
  }
  double epoch_sm_ns(const Vgpu& g) const {
    return round_ns() * sms() * g.weight / static_cast<double>(std::max<uint64_t>(weights_, 1));
  }
  double sms() const { return std::max(config_.machine.sm_count, 1u); }

  // Called when nobody with work has anything left of its epoch.
  void new_round() {
    // After an overrun as many rounds as it takes until one of them has.
    double rounds = kMaxRoundNs;
    for (const VgpuId v : members_)
      if (vgpus_[v].busy)
        rounds = std::min(rounds, std::ceil((1 - vgpus_[v].budget_sm_ns) / epoch_sm_ns(vgpus_[v])));
    rounds = std::max(rounds, 1.0);
    ++round_;
    // A vGPU without work in the round before either is out of the sums, and starts again from
    // zero.
    for (size_t i = members_.size(); i-- > 0;) {
      const VgpuId v = members_[i];
      if (vgpus_[v].busy)
        vgpus_[v].seen_round = round_;
      else if (vgpus_[v].seen_round + 1 < round_)
        uncount(v);
    }
    for (const VgpuId v : members_) {
      Vgpu& g = vgpus_[v];
      const double epoch = epoch_sm_ns(g);
      g.budget_sm_ns = std::min(g.budget_sm_ns + epoch * (rounds - 1), 0.0) + epoch;
      if (spent_.contains(v) && may_run(v)) {
        spent_.remove(v);
        ready_.push(v);
      }
    }
  }
  bool may_run(VgpuId v) const { return vgpus_[v].budget_sm_ns >= 1; }
  void wait(VgpuId v) {
    vgpus_[v].order = ++orders_;
    (may_run(v) ? ready_ : spent_).push(v);
  }

  // The first of the waiting with something left in the round; kNoVgpu while only the holder has.
  VgpuId next() {
    for (;;) {
      while (!ready_.empty()) {
        const VgpuId v = ready_.top();
        if (may_run(v)) return v;
        ready_.remove(v);  // charged while it waited
        spent_.push(v);
      }
      if (spent_.empty()) return kNoVgpu;
      if (holder_ != kNoVgpu && vgpus_[holder_].busy && may_run(holder_)) return kNoVgpu;
      new_round();
    }
  }

  void decide(uint64_t now_ns, Actions& out) {
    if (leaving_) return;
    // Asked first: a round that begins now gives the holder an epoch too, in its turn.
    const bool used_up = holder_ != kNoVgpu && !may_run(holder_);
    VgpuId n = next();
    if (holder_ == kNoVgpu) {
      if (n == kNoVgpu) return;
      ready_.remove(n);
      holder_ = n;
      out.push_back(Action::run(n));
      n = next();
    }
    const Vgpu& h = vgpus_[holder_];
    if (ready_.empty() && spent_.empty()) return;
    if (n != kNoVgpu && (!h.busy || used_up)) {
      leaving_ = true;
      out.push_back(Action::evict(holder_, n));
      return;
    }
    // While the others work off what they overran, its rounds follow one another.
    const uint64_t end_ns = now_ns + static_cast<uint64_t>(h.budget_sm_ns / sms()) + 1;
    // Rounding moves the end by a little from event to event; a wake that comes early asks again.
    if (wake_ns_ == 0 || wake_ns_ > end_ns + 2 || wake_ns_ + 2 < end_ns) {
      wake_ns_ = end_ns;
      out.push_back(Action::wake(end_ns));
    }
  }

  const Config config_;
  const double max_overhead_;
  std::vector<Vgpu> vgpus_;
  struct Less {
    const Ffs* p;
    bool operator()(uint32_t a, uint32_t b) const {
      return p->vgpus_[a].order < p->vgpus_[b].order;
    }
  };
  IndexedHeap<Less> ready_{Less{this}};  // wait, with something left of their epochs
  IndexedHeap<Less> spent_{Less{this}};  // wait for the next round
  std::vector<VgpuId> members_;          // of the round
  uint64_t weights_ = 0;                 // of the members
  double costs_ns_ = 0;                  // of the members
  uint64_t orders_ = 0;
  uint64_t round_ = 1;
  uint32_t busy_ = 0;
  VgpuId holder_ = kNoVgpu, left_last_ = kNoVgpu;
  bool leaving_ = false;
  uint64_t wake_ns_ = 0;
};

}  // namespace

std::unique_ptr<Policy> make_ffs(const Config& config) { return std::make_unique<Ffs>(config); }

}  // namespace sluice::policy
