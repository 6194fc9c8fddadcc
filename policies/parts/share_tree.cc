// SPDX-License-Identifier: Apache-2.0
#include "policies/parts/share_tree.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "policies/parts/forwarding.h"

namespace sluice::policy {
namespace {

constexpr uint64_t kNeverWake = ~0ull;
constexpr uint64_t kShortestWaitNs = 20'000;  // between two looks at a bucket
constexpr double kPermille = kWholePermille;
// Weights of the root's nodes are multiplied, so that parts of a group are not rounded away.
constexpr uint32_t kHeadroom = 4;

// Time that a node may have (maximum) or is owed (minimum).
struct Bucket {
  double ns = 0;
  uint64_t at_ns = 0;
  void fill(uint64_t now_ns, double rate, double most_ns) {
    ns = std::min(ns + static_cast<double>(now_ns - at_ns) * rate, most_ns);
    at_ns = now_ns;
  }
};

struct Node {
  bool present = false;
  GroupId parent = kRootGroup;
  uint32_t weight = kDefaultWeight, priority = 0;
  double min = 0, max = 0;  // parts of the GPU
  uint32_t active = 0;      // active nodes directly in it; a vGPU: 0 or 1
  double value = 0;         // weight that it comes to
  Bucket cap, reserve;
  bool goes_before = false;
};

class ShareTree final : public Forwarding {
 public:
  ShareTree(const Config& config, std::unique_ptr<Policy> inner)
      : Forwarding(std::move(inner)),
        proportional_(config.machine.preemptor == PreemptorKind::kProportional),
        sms_(std::max(config.machine.sm_count, 1u)),
        cells_(config.machine.spatial ? sms_ : 1),
        groups_(1) {
    groups_[kRootGroup].present = true;
  }

  void on_vgpu_added(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) override {
    if (v >= vgpus_.size()) vgpus_.resize(v + 1);
    vgpus_[v] = Vgpu{};
    set_asked(now_ns, v, share);
    Vgpu& g = vgpus_[v];
    g.given = flat(v);
    around(now_ns, out, [&] { inner_->on_vgpu_added(now_ns, v, g.given, out); });
  }
  void on_vgpu_changed(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) override {
    around(now_ns, out, [&] {
      const bool active = vgpus_[v].node.active > 0;
      if (active) set_active(v, false);
      const bool was_plain = plain_;
      set_asked(now_ns, v, share);
      if (active) set_active(v, true);
      vgpus_[v].changed = true;
      if (plain_ && was_plain)
        give(now_ns, v, flat(v), out);
      else
        stale_ = true;
    });
  }
  void on_group(uint64_t now_ns, GroupId id, const GroupShare& share, Actions& out) override {
    if (id == kRootGroup || id >= kMaxGroups) return;
    if (id >= groups_.size()) groups_.resize(id + 1);
    Node& n = groups_[id];
    const GroupId parent = is_above(id, share.parent) ? kRootGroup : share.parent;
    if (n.active && parent != n.parent) count(n.parent, false), count(parent, true);
    n.present = true;
    n.parent = parent;
    n.weight = std::clamp(share.weight, 1u, kMaxWeight);
    n.priority = share.priority;
    set_limits(now_ns, n, share.min_permille, share.max_permille);
    look_at_shape();
    stale_ = true;
    around(now_ns, out, [] {});
  }
  void on_vgpu_removed(uint64_t now_ns, VgpuId v, Actions& out) override {
    if (vgpus_[v].node.active) set_active(v, false);
    vgpus_[v].node.present = vgpus_[v].wants = vgpus_[v].throttled = false;
    around(now_ns, out, [&] { inner_->on_vgpu_removed(now_ns, v, out); });
    look_at_shape();
  }

  void on_arrival(uint64_t now_ns, VgpuId v, Actions& out) override {
    Vgpu& g = vgpus_[v];
    if (g.wants) return;
    g.wants = true;
    g.since_ns = std::max<uint64_t>(now_ns, 1);
    g.served = proportional_;  // when a slice begins the hardware does not say
    if (g.held > 0) see_served(now_ns, v);
    if (!plain_) fill_caps(now_ns, v);
    if (!g.throttled && !plain_ && is_empty(v)) g.throttled = true, ++g.figures.throttled;
    around(now_ns, out, [&] {
      if (g.throttled)
        return take_all(now_ns, v, out);  // it may have held the GPU while it was idle
      set_active(v, true);
      reweigh(now_ns, out);
      inner_->on_arrival(now_ns, v, out);
    });
  }
  void on_idle(uint64_t now_ns, VgpuId v, Actions& out) override {
    Vgpu& g = vgpus_[v];
    if (!g.wants) return;
    g.wants = false;
    around(now_ns, out, [&] {
      if (g.throttled) return;
      set_active(v, false);
      inner_->on_idle(now_ns, v, out);
    });
  }
  void on_launch_queued(uint64_t now_ns, const Launch& launch, Actions& out) override {
    around(now_ns, out, [&] { inner_->on_launch_queued(now_ns, launch, out); });
  }
  void on_launch_done(uint64_t now_ns, const Launch& launch, Actions& out) override {
    around(now_ns, out, [&] { inner_->on_launch_done(now_ns, launch, out); });
  }
  void on_usage(uint64_t now_ns, VgpuId v, const Usage& usage) override {
    charge(v, usage.sm_ns);
    inner_->on_usage(now_ns, v, usage);
  }
  void on_usages(uint64_t now_ns, std::span<const VgpuUsage> reports) override {
    if (!plain_)
      for (const VgpuUsage& r : reports) charge(r.vgpu, r.usage.sm_ns);
    inner_->on_usages(now_ns, reports);
  }
  void on_released(uint64_t now_ns, VgpuId v, LaunchId launch, SmRange sms, LeftReason why,
                   Actions& out) override {
    const uint32_t hi = end_of(sms);
    for (uint32_t i = begin_of(sms); i < hi; ++i) {
      if (cells_[i].holder != v) continue;
      cells_[i] = Cell{};
      --vgpus_[v].held;
    }
    around(now_ns, out, [&] { inner_->on_released(now_ns, v, launch, sms, why, out); });
  }
  void on_wake(uint64_t now_ns, Actions& out) override {
    asked_ns_ = kNeverWake;
    around(now_ns, out, [&] {
      if (inner_wake_ns_ > now_ns) return;
      inner_wake_ns_ = kNeverWake;
      inner_->on_wake(now_ns, out);
    });
  }

  ShareFigures figures(VgpuId v) const override {
    return v < vgpus_.size() ? vgpus_[v].figures : ShareFigures{};
  }
  std::string refuses(VgpuId v, const VgpuShare& share) const override {
    if (share.group >= groups_.size() || !groups_[share.group].present)
      return "there is no such group";
    if (auto bad = refuses_limits(share.min_permille, share.max_permille, share.group, v, kNoGroup);
        !bad.empty())
      return bad;
    if (share.target_p99_us == 0) return {};
    uint32_t others = 0;
    for (VgpuId i = 0; i < vgpus_.size(); ++i)
      others += i != v && vgpus_[i].node.present && vgpus_[i].asked.latency == LatencyClass::kLow;
    const uint64_t bound_us = (inner_->wait_bound_ns(others) + 999) / 1000;
    if (bound_us == 0) return "the policy promises no target of latency";
    if (share.latency != LatencyClass::kLow) return "a target of latency needs the class low";
    if (bound_us <= share.target_p99_us) return {};
    return "a target of " + std::to_string(share.target_p99_us) + " us cannot be kept: beside " +
           std::to_string(others) + " other(s) of class low a wait may take " +
           std::to_string(bound_us) + " us";
  }
  std::string refuses_group(GroupId id, const GroupShare& share) const override {
    if (id == kRootGroup || id >= kMaxGroups) return "there is no such group";
    if (share.parent >= groups_.size() || !groups_[share.parent].present)
      return "its parent is not there";
    if (is_above(id, share.parent)) return "its parent would be within it";
    return refuses_limits(share.min_permille, share.max_permille, share.parent, kNoVgpu, id);
  }

 private:
  static constexpr GroupId kNoGroup = ~0u;
  struct Cell {  // an SM; the whole GPU where no parts are given
    VgpuId holder = kNoVgpu;
    bool leaving = false;
  };
  struct Vgpu {
    Node node;
    VgpuShare asked, given;
    bool wants = false;      // as its driver says
    bool throttled = false;  // ... and the policy does not know
    bool changed = false;    // in more than weight and priority
    bool served = true;      // since it became backlogged
    uint32_t held = 0;       // cells
    uint64_t since_ns = 0;
    uint64_t slice_ns = 0;  // set last by the policy
    ShareFigures figures;
  };

  uint32_t begin_of(SmRange sms) const { return cells_.size() == 1 ? 0 : sms.lo; }
  uint32_t end_of(SmRange sms) const {
    return std::min<uint32_t>(sms.hi, static_cast<uint32_t>(cells_.size()));
  }

  // ---- the tree --------------------------------------------------------------------------------
  // Whether `above` is `below` or on its way to the root.
  bool is_above(GroupId above, GroupId below) const {
    for (uint32_t depth = 0; below != kRootGroup && depth < kMaxGroups; ++depth) {
      if (below == above) return true;
      if (below >= groups_.size()) return false;
      below = groups_[below].parent;
    }
    return false;
  }
  template <class F>
  void each_above(const Node& leaf, F&& use) {
    for (GroupId g = leaf.parent; g != kRootGroup; g = groups_[g].parent) use(groups_[g]);
  }
  void count(GroupId g, bool active) {
    for (;; g = groups_[g].parent) {
      Node& n = groups_[g];
      const bool was = n.active > 0;
      n.active += active ? 1 : -1u;
      if (g == kRootGroup || was == (n.active > 0)) return;
    }
  }
  void set_active(VgpuId v, bool active) {
    vgpus_[v].node.active = active;
    count(vgpus_[v].node.parent, active);
    stale_ = !plain_;
  }
  static void set_limits(uint64_t now_ns, Node& n, uint32_t min_permille, uint32_t max_permille) {
    n.min = std::min(min_permille, kWholePermille) / kPermille;
    n.max = std::min(max_permille, kWholePermille) / kPermille;
    n.cap = {.ns = n.max * kBurstNs, .at_ns = now_ns};
    n.reserve = {.ns = 0, .at_ns = now_ns};
    n.goes_before = false;
  }
  void set_asked(uint64_t now_ns, VgpuId v, const VgpuShare& share) {
    Vgpu& g = vgpus_[v];
    g.asked = share;
    g.node.present = true;
    const bool known = share.group < groups_.size() && groups_[share.group].present;
    g.node.parent = known ? share.group : kRootGroup;
    g.node.weight = std::clamp(share.weight, 1u, kMaxWeight);
    g.node.priority = share.priority;
    set_limits(now_ns, g.node, share.min_permille, share.max_permille);
    look_at_shape();
  }
  // What of all this there is.
  void look_at_shape() {
    const bool was = plain_;
    bool shaped = minima_ = false;
    uint32_t heaviest = 1;
    const auto look = [&](const Node& n) {
      if (!n.present) return;
      minima_ |= n.min > 0;
      shaped |= n.max > 0 || n.min > 0 || n.parent != kRootGroup;
      if (n.parent == kRootGroup) heaviest = std::max(heaviest, n.weight);
    };
    for (const Vgpu& g : vgpus_) look(g.node);
    for (size_t i = 1; i < groups_.size(); ++i) look(groups_[i]);
    plain_ = !shaped;
    scale_ = std::max(kMaxWeight / kHeadroom / heaviest, 1u);
    if (!plain_ || !was) stale_ = true;
    capped_.clear();
    for (VgpuId v = 0; v < vgpus_.size() && !plain_; ++v) {
      bool capped = vgpus_[v].node.max > 0;
      each_above(vgpus_[v].node, [&](const Node& g) { capped |= g.max > 0; });
      if (vgpus_[v].node.present && capped) capped_.push_back(v);
      // No longer capped: nothing would wake it.
      if (vgpus_[v].throttled && !capped) capped_.push_back(v);
    }
    for (VgpuId v = 0; v < vgpus_.size() && plain_; ++v)
      if (vgpus_[v].throttled) capped_.push_back(v);
  }
  std::string refuses_limits(uint32_t min, uint32_t max, GroupId parent, VgpuId v,
                             GroupId group) const {
    if (min > kWholePermille || max > kWholePermille) return "a share is more than the GPU";
    if (max && min > max) return "the minimum is above the maximum";
    const Node& above = groups_[parent];
    if (parent != kRootGroup && above.max > 0 && min / kPermille > above.max)
      return "the minimum is above the group's maximum";
    double sum = min / kPermille;
    for (VgpuId i = 0; i < vgpus_.size(); ++i)
      if (i != v && vgpus_[i].node.present && vgpus_[i].node.parent == parent)
        sum += vgpus_[i].node.min;
    for (GroupId i = 1; i < groups_.size(); ++i)
      if (i != group && groups_[i].present && groups_[i].parent == parent) sum += groups_[i].min;
    const double whole = parent != kRootGroup && above.min > 0 ? above.min : 1.0;
    if (sum <= whole + 1e-9) return {};
    return "the minima beside it come to " + std::to_string(std::lround(sum * 100)) + " % of " +
           std::to_string(std::lround(whole * 100)) + " %";
  }

  // ---- weights and priorities
  // --------------------------------------------------------------------
  VgpuShare flat(VgpuId v) {
    const Vgpu& g = vgpus_[v];
    VgpuShare s = g.asked;
    s.priority = level_of(g.node);
    if (!plain_) s.weight = weight_of(g.node.value);
    return s;
  }
  static uint32_t weight_of(double value) {
    return static_cast<uint32_t>(std::clamp(std::round(value), 1.0, double{kMaxWeight}));
  }
  uint32_t level_of(const Node& leaf) {
    uint32_t level = leaf.priority;
    bool before = leaf.goes_before;
    each_above(leaf, [&](const Node& g) { level += g.priority, before |= g.goes_before; });
    level = std::min(level, kPriorityLevels - 1);
    return before ? std::max(level, std::min(top_ + 1, kPriorityLevels - 1)) : level;
  }
  void give(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) {
    Vgpu& g = vgpus_[v];
    if (g.given == share && !g.changed) return;
    g.given = share;
    g.changed = false;
    inner_->on_vgpu_changed(now_ns, v, share, out);
  }
  // The children of a node share its value by weight, but for those whose minimum is more.
  void divide(GroupId id, double value, double all) {
    children_.clear();
    for (Vgpu& g : vgpus_)
      if (g.node.present && g.node.parent == id && g.node.active) children_.push_back(&g.node);
    for (GroupId i = 1; i < groups_.size(); ++i)
      if (groups_[i].present && groups_[i].parent == id && groups_[i].active)
        children_.push_back(&groups_[i]);
    double weights = 0, rest = value;
    for (Node* n : children_) weights += n->weight, n->value = -1;
    for (bool again = true; again;) {
      again = false;
      for (Node* n : children_) {
        const double least = std::min(n->min * all, rest);
        if (n->value >= 0 || n->min <= 0 || rest * n->weight / weights >= least) continue;
        n->value = least;
        rest -= least;
        weights -= n->weight;
        again = weights > 0;
      }
    }
    for (Node* n : children_)
      if (n->value < 0) n->value = rest * n->weight / weights;
  }
  void reweigh(uint64_t now_ns, Actions& out) {
    if (!stale_) return;
    stale_ = false;
    if (!plain_) {
      double all = 0;
      const auto add = [&](const Node& n) {
        if (n.present && n.active && n.parent == kRootGroup)
          all += static_cast<double>(n.weight) * scale_;
      };
      for (const Vgpu& g : vgpus_) add(g.node);
      for (size_t i = 1; i < groups_.size(); ++i) add(groups_[i]);
      divide(kRootGroup, all, all);
      // Parents before children, whatever their numbers.
      order_.clear();
      for (GroupId i = 1; i < groups_.size(); ++i)
        if (groups_[i].active && groups_[i].parent == kRootGroup) order_.push_back(i);
      for (size_t k = 0; k < order_.size(); ++k) {
        const GroupId g = order_[k];
        divide(g, groups_[g].value, all);
        for (GroupId i = 1; i < groups_.size(); ++i)
          if (groups_[i].active && groups_[i].parent == g) order_.push_back(i);
      }
    }
    for (VgpuId v = 0; v < vgpus_.size(); ++v) {
      Vgpu& g = vgpus_[v];
      if (g.node.present && (g.node.active || g.changed || plain_)) give(now_ns, v, flat(v), out);
    }
  }

  // ---- maximum and minimum
  // -----------------------------------------------------------------------
  void charge(VgpuId v, uint64_t sm_ns) {
    if (plain_) return;
    const double ns = static_cast<double>(sm_ns) / sms_;
    const auto pay = [&](Node& n) {
      if (n.max > 0) n.cap.ns -= ns;
      if (n.min > 0) n.reserve.ns -= ns;
    };
    pay(vgpus_[v].node);
    each_above(vgpus_[v].node, pay);
  }
  void fill_caps(uint64_t now_ns, VgpuId v) {
    const auto fill = [&](Node& n) {
      if (n.max > 0) n.cap.fill(now_ns, n.max, n.max * kBurstNs);
    };
    fill(vgpus_[v].node);
    each_above(vgpus_[v].node, fill);
  }
  bool is_empty(VgpuId v) {
    bool empty = vgpus_[v].node.max > 0 && vgpus_[v].node.cap.ns <= 0;
    each_above(vgpus_[v].node, [&](const Node& n) { empty |= n.max > 0 && n.cap.ns <= 0; });
    return empty;
  }
  // When it may go on (0: now), or how long its tokens last.
  uint64_t refilled_in_ns(VgpuId v) {
    double ns = 0;
    const auto look = [&](const Node& n) {
      if (n.max > 0) ns = std::max(ns, (n.max * kBurstNs / 2 - n.cap.ns) / n.max);
    };
    look(vgpus_[v].node);
    each_above(vgpus_[v].node, look);
    return static_cast<uint64_t>(std::ceil(ns));
  }
  uint64_t lasts_ns(VgpuId v) {
    double ns = 1e12;
    const auto look = [&](const Node& n) {
      if (n.max > 0) ns = std::min(ns, std::max(n.cap.ns, 0.0) / std::max(1 - n.max, 0.01));
    };
    look(vgpus_[v].node);
    each_above(vgpus_[v].node, look);
    return static_cast<uint64_t>(ns);
  }
  void throttle(uint64_t now_ns, VgpuId v, Actions& out) {
    Vgpu& g = vgpus_[v];
    g.throttled = true;
    ++g.figures.throttled;
    set_active(v, false);
    inner_->on_idle(now_ns, v, out);
    take_all(now_ns, v, out);
  }
  void take_all(uint64_t now_ns, VgpuId v, Actions& out) {
    note(now_ns, out);
    if (proportional_) out.push_back(Action::set_slice(v, 0));
    for (uint32_t i = 0; i < cells_.size();) {
      const uint32_t lo = i;
      while (i < cells_.size() && cells_[i].holder == v && !cells_[i].leaving)
        cells_[i++].leaving = true;
      if (i == lo) {
        ++i;
        continue;
      }
      SmRange sms;
      if (cells_.size() > 1) sms = {static_cast<uint16_t>(lo), static_cast<uint16_t>(i)};
      out.push_back(Action::evict(v, kNoVgpu, sms));
    }
    noted_ = out.size();  // these are not the policy's
  }
  void resume(uint64_t now_ns, VgpuId v, Actions& out) {
    Vgpu& g = vgpus_[v];
    g.throttled = false;
    if (!g.wants) {
      if (proportional_) out.push_back(Action::set_slice(v, g.slice_ns));
      return;
    }
    set_active(v, true);
    reweigh(now_ns, out);
    const size_t from = out.size();
    inner_->on_arrival(now_ns, v, out);
    if (!proportional_) return;
    for (size_t i = from; i < out.size(); ++i)
      if (out[i].kind == Action::Kind::kSetSlice && out[i].vgpu == v) return;
    out.push_back(Action::set_slice(v, g.slice_ns));
  }
  void look_at_caps(uint64_t now_ns, Actions& out) {
    for (const VgpuId v : capped_) {
      Vgpu& g = vgpus_[v];
      if (!g.wants && !g.throttled) continue;
      fill_caps(now_ns, v);
      if (!g.throttled && is_empty(v)) {
        throttle(now_ns, v, out);
      } else if (g.throttled && refilled_in_ns(v) == 0) {
        resume(now_ns, v, out);
      }
    }
  }
  // When a bucket will be full enough, or empty.
  uint64_t next_look_at_caps(uint64_t now_ns) {
    uint64_t wait_ns = kNeverWake;
    for (const VgpuId v : capped_) {
      const Vgpu& g = vgpus_[v];
      if (g.throttled)
        wait_ns = std::min(wait_ns, refilled_in_ns(v));
      else if (g.wants && (g.held > 0 || proportional_))
        wait_ns = std::min(wait_ns, lasts_ns(v));
    }
    return wait_ns == kNeverWake ? kNeverWake : now_ns + std::max(wait_ns, kShortestWaitNs);
  }
  // A vGPU that is owed reserved time goes before higher priorities.
  uint64_t look_at_reserves(uint64_t now_ns) {
    uint32_t top = 0;
    const auto own_level = [&](const Node& leaf) {
      uint32_t level = leaf.priority;
      each_above(leaf, [&](const Node& g) { level += g.priority; });
      return std::min(level, kPriorityLevels - 1);
    };
    for (const Vgpu& g : vgpus_)
      if (g.node.active) top = std::max(top, own_level(g.node));
    top_ = top;
    uint64_t wake_ns = kNeverWake;
    const auto look = [&](Node& n, bool below, uint64_t* times) {
      if (n.min <= 0 || !n.present) return;
      const double most_ns = std::max<double>(kReserveNs, n.min * kBurstNs);
      if (n.active && below)
        n.reserve.fill(now_ns, n.min, most_ns);
      else
        n.reserve = {.ns = std::min(n.reserve.ns, 0.0), .at_ns = now_ns};
      const bool before = n.active && below && n.reserve.ns >= (n.goes_before ? 1.0 : kReserveNs);
      if (before != n.goes_before) {
        n.goes_before = before, stale_ = true;
        if (before && times) ++*times;
      }
      if (!n.active || !below) return;
      const double wait_ns =
          before ? n.reserve.ns : std::max((kReserveNs - n.reserve.ns) / n.min, 0.0);
      wake_ns =
          std::min(wake_ns, now_ns + std::max(static_cast<uint64_t>(wait_ns) + 1, kShortestWaitNs));
    };
    for (Vgpu& g : vgpus_)
      if (g.node.present) look(g.node, own_level(g.node) < top, &g.figures.reserved);
    for (GroupId i = 1; i < groups_.size(); ++i)
      look(groups_[i], own_level(groups_[i]) < top, nullptr);
    return wake_ns;
  }

  // ---- around each event
  // ------------------------------------------------------------------------- Notes what the policy
  // did since the last call; its wakes are taken out.
  void note(uint64_t now_ns, Actions& out) {
    size_t kept = noted_;
    for (size_t i = noted_; i < out.size(); ++i) {
      const Action& a = out[i];
      switch (a.kind) {
        case Action::Kind::kWake:
          inner_wake_ns_ = a.at_ns;
          continue;
        case Action::Kind::kSetSlice:
          vgpus_[a.vgpu].slice_ns = a.value;
          break;
        case Action::Kind::kRun:
          for (uint32_t k = begin_of(a.sms); k < end_of(a.sms); ++k)
            cells_[k] = {.holder = a.vgpu}, ++vgpus_[a.vgpu].held;
          see_served(now_ns, a.vgpu);
          break;
        case Action::Kind::kEvict:
          for (uint32_t k = begin_of(a.sms); k < end_of(a.sms); ++k)
            if (cells_[k].holder == a.vgpu) cells_[k].leaving = true;
          break;
      }
      out[kept++] = a;
    }
    out.erase(out.begin() + static_cast<std::ptrdiff_t>(kept), out.end());
    noted_ = kept;
  }
  void see_served(uint64_t now_ns, VgpuId v) {
    Vgpu& g = vgpus_[v];
    if (g.served || !g.wants) return;
    g.served = true;
    if (g.asked.target_p99_us == 0) return;
    const bool late = now_ns - g.since_ns > uint64_t{g.asked.target_p99_us} * 1000;
    ++(late ? g.figures.late : g.figures.in_time);
  }
  template <class Event>
  void around(uint64_t now_ns, Actions& out, Event&& event) {
    noted_ = out.size();
    event();
    uint64_t wake_ns = kNeverWake;
    if (!plain_ || stale_) {
      note(now_ns, out);
      if (minima_) wake_ns = look_at_reserves(now_ns);
      reweigh(now_ns, out);
      note(now_ns, out);
      look_at_caps(now_ns, out);
      reweigh(now_ns, out);
      note(now_ns, out);
      wake_ns = std::min(wake_ns, next_look_at_caps(now_ns));
    }
    note(now_ns, out);
    wake_ns = std::min(wake_ns, inner_wake_ns_);
    if (wake_ns == kNeverWake || wake_ns == asked_ns_) return;
    asked_ns_ = wake_ns;
    out.push_back(Action::wake(wake_ns));
  }

  const bool proportional_;
  const uint32_t sms_;
  std::vector<Cell> cells_;
  std::vector<Vgpu> vgpus_;
  std::vector<Node> groups_;
  std::vector<Node*> children_;  // scratch of divide()
  std::vector<GroupId> order_;   // scratch of reweigh()
  uint32_t scale_ = 1, top_ = 0;
  std::vector<VgpuId> capped_;  // present, with a maximum on the way to the root
  size_t noted_ = 0;            // actions of this event that note() has seen
  bool plain_ = true;           // nothing but weights and priorities
  bool minima_ = false;
  bool stale_ = false;  // weights are not what the tree says
  uint64_t inner_wake_ns_ = kNeverWake, asked_ns_ = kNeverWake;
};

}  // namespace

std::unique_ptr<Policy> share_tree(const Config& config, std::unique_ptr<Policy> inner) {
  return std::make_unique<ShareTree>(config, std::move(inner));
}

}  // namespace sluice::policy
