// SPDX-License-Identifier: Apache-2.0
#include "policies/parts/share_nodes.h"

#include <algorithm>
#include <cmath>

#include "policies/parts/share_tree.h"

namespace sluice::policy {
namespace {

constexpr double kPermille = kWholePermille;
// Weights of the root's nodes are multiplied, so that parts of a group are not rounded away.
constexpr uint32_t kHeadroom = 4;

// What was used up stays used up, and what is owed stays owed: a new weight fills no bucket.
void set_limits(uint64_t now_ns, ShareNode& n, uint32_t min_permille, uint32_t max_permille) {
  const double least = std::min(min_permille, kWholePermille) / kPermille,
               most = std::min(max_permille, kWholePermille) / kPermille;
  const double full_ns = most * kBurstNs;
  if (n.max <= 0) n.cap = {.ns = full_ns, .at_ns = now_ns};
  n.cap.ns = std::min(n.cap.ns, full_ns);
  if (n.min <= 0 || least <= 0) {
    n.reserve = {.ns = 0, .at_ns = now_ns};
    n.goes_before = false;
  }
  n.min = least, n.max = most;
}

}  // namespace

void ShareBucket::fill(uint64_t now_ns, double rate, double most_ns) {
  ns = std::min(ns + static_cast<double>(now_ns - at_ns) * rate, most_ns);
  at_ns = now_ns;
}

ShareNodes::ShareNodes(uint32_t sms) : sms_(sms), groups_(1) { groups_[kRootGroup].present = true; }

template <class F>
void ShareNodes::each_above(const ShareNode& leaf, F&& use) {
  for (GroupId g = leaf.parent; g != kRootGroup; g = groups_[g].parent) use(groups_[g]);
}

template <class F>
void ShareNodes::each_above(const ShareNode& leaf, F&& use) const {
  for (GroupId g = leaf.parent; g != kRootGroup; g = groups_[g].parent) use(groups_[g]);
}

// ---- shape

void ShareNodes::add_vgpu(VgpuId v) {
  if (v >= vgpus_.size()) vgpus_.resize(v + 1);
  vgpus_[v] = ShareNode{};
}

void ShareNodes::set_vgpu(uint64_t now_ns, VgpuId v, const VgpuShare& share) {
  ShareNode& n = vgpus_[v];
  n.present = true;
  n.parent = has_group(share.group) ? share.group : kRootGroup;
  n.weight = std::clamp(share.weight, 1u, kMaxWeight);
  n.priority = share.priority;
  set_limits(now_ns, n, share.min_permille, share.max_permille);
  reshape();
}

void ShareNodes::set_group(uint64_t now_ns, GroupId id, const GroupShare& share) {
  if (id >= groups_.size()) groups_.resize(id + 1);
  ShareNode& n = groups_[id];
  const GroupId parent = is_above(id, share.parent) ? kRootGroup : share.parent;
  if (n.active && parent != n.parent) count(n.parent, false), count(parent, true);
  n.present = true;
  n.parent = parent;
  n.weight = std::clamp(share.weight, 1u, kMaxWeight);
  n.priority = share.priority;
  set_limits(now_ns, n, share.min_permille, share.max_permille);
  reshape();
  stale_ = true;
}

void ShareNodes::remove_vgpu(VgpuId v) { vgpus_[v].present = vgpus_[v].throttled = false; }

// What of groups, minima and maxima there is.
void ShareNodes::reshape() {
  const bool was = plain_;
  bool shaped = minima_ = false;
  uint32_t heaviest = 1;
  const auto see = [&](const ShareNode& n) {
    if (!n.present) return;
    minima_ |= n.min > 0;
    shaped |= n.max > 0 || n.min > 0 || n.parent != kRootGroup;
    if (n.parent == kRootGroup) heaviest = std::max(heaviest, n.weight);
  };
  for (const ShareNode& n : vgpus_) see(n);
  for (size_t i = 1; i < groups_.size(); ++i) see(groups_[i]);
  plain_ = !shaped;
  scale_ = std::max(kMaxWeight / kHeadroom / heaviest, 1u);
  if (!plain_ || !was) stale_ = true;
  capped_.clear();
  for (VgpuId v = 0; v < vgpus_.size(); ++v) {
    const ShareNode& n = vgpus_[v];
    bool capped = false;
    if (!plain_) {
      capped = n.max > 0;
      each_above(n, [&](const ShareNode& g) { capped |= g.max > 0; });
    }
    // One that is throttled and no longer capped: nothing else would wake it.
    if (capped ? n.present : n.throttled) capped_.push_back(v);
  }
}

bool ShareNodes::is_above(GroupId above, GroupId below) const {
  for (uint32_t depth = 0; below != kRootGroup && depth < kMaxGroups; ++depth) {
    if (below == above) return true;
    if (below >= groups_.size()) return false;
    below = groups_[below].parent;
  }
  return false;
}

void ShareNodes::count(GroupId g, bool active) {
  for (;; g = groups_[g].parent) {
    ShareNode& n = groups_[g];
    const bool was = n.active > 0;
    n.active += active ? 1 : -1u;
    if (g == kRootGroup || was == (n.active > 0)) return;
  }
}

void ShareNodes::set_active(VgpuId v, bool active) {
  vgpus_[v].active = active;
  count(vgpus_[v].parent, active);
  stale_ = !plain_;
}

std::string ShareNodes::refuses_limits(uint32_t min, uint32_t max, GroupId parent, VgpuId v,
                                       GroupId group) const {
  if (min > kWholePermille || max > kWholePermille) return "a share is more than the GPU";
  if (max && min > max) return "the minimum is above the maximum";
  const ShareNode& above = groups_[parent];
  if (parent != kRootGroup && above.max > 0 && min / kPermille > above.max)
    return "the minimum is above the group's maximum";
  double least = min / kPermille;
  if (group != kNoGroup && group < groups_.size())
    least = std::max(least, promised(group, kNoVgpu, kNoGroup));
  // Up to a group that has reserved as much, or the GPU.
  for (GroupId at = parent, below = group;; below = at, at = groups_[at].parent) {
    const ShareNode& n = groups_[at];
    const double whole = at == kRootGroup ? 1.0 : n.min > 0 ? n.min : n.max > 0 ? n.max : 1.0;
    least += promised(at, v, below);
    if (least > whole + 1e-9)
      return "the minima beside it come to " + std::to_string(std::lround(least * 100)) + " % of " +
             std::to_string(std::lround(whole * 100)) + " %";
    if (at == kRootGroup || n.min > 0) return {};
  }
}

// What those in `group` have reserved, without one.
double ShareNodes::promised(GroupId group, VgpuId without_v, GroupId without_group) const {
  double sum = 0;
  for (VgpuId i = 0; i < vgpus_.size(); ++i)
    if (i != without_v && vgpus_[i].present && vgpus_[i].parent == group) sum += vgpus_[i].min;
  for (GroupId i = 1; i < groups_.size(); ++i)
    if (i != without_group && groups_[i].present && groups_[i].parent == group)
      sum += std::max(groups_[i].min, promised(i, without_v, kNoGroup));
  return sum;
}

// ---- weights and priorities

uint32_t ShareNodes::weight_of(VgpuId v) const {
  return static_cast<uint32_t>(std::clamp(std::round(vgpus_[v].value), 1.0, double{kMaxWeight}));
}

// Its own priority and those above it.
uint32_t ShareNodes::own_level(const ShareNode& leaf) const {
  uint32_t level = leaf.priority;
  each_above(leaf, [&](const ShareNode& g) { level += g.priority; });
  return std::min(level, kPriorityLevels - 1);
}

uint32_t ShareNodes::level_of(VgpuId v) const {
  const ShareNode& leaf = vgpus_[v];
  bool before = leaf.goes_before;
  each_above(leaf, [&](const ShareNode& g) { before |= g.goes_before; });
  const uint32_t level = own_level(leaf);
  return before ? std::max(level, std::min(top_ + 1, kPriorityLevels - 1)) : level;
}

// The children of a node share its value by weight, but for those whose minimum is more.
void ShareNodes::divide_node(GroupId id, double value, double all) {
  const std::vector<ShareNode*>& children = children_[id].nodes;
  double weights = 0, rest = value;
  for (ShareNode* n : children) weights += n->weight, n->value = -1;
  for (bool again = true; again;) {
    again = false;
    for (ShareNode* n : children) {
      const double least = std::min(n->least * all, rest);
      if (n->value >= 0 || n->least <= 0 || rest * n->weight / weights >= least) continue;
      n->value = least;
      rest -= least;
      weights -= n->weight;
      again = weights > 0;
    }
  }
  for (ShareNode* n : children)
    if (n->value < 0) n->value = rest * n->weight / weights;
}

void ShareNodes::divide() {
  stale_ = false;
  if (plain_) return;
  find_children();
  find_least();
  double all = 0;
  for (const ShareNode* n : children_[kRootGroup].nodes)
    all += static_cast<double>(n->weight) * scale_;
  groups_[kRootGroup].value = all;
  for (const GroupId g : order_) divide_node(g, groups_[g].value, all);
}

// One pass over all: a pass for each group took 30 us with 1,000 vGPUs in 50 groups.
void ShareNodes::find_children() {
  children_.resize(groups_.size());
  for (Children& c : children_) c.nodes.clear(), c.groups.clear();
  for (ShareNode& n : vgpus_)
    if (n.present && n.active) children_[n.parent].nodes.push_back(&n);
  for (GroupId i = 1; i < groups_.size(); ++i) {
    ShareNode& n = groups_[i];
    if (!n.present || !n.active) continue;
    children_[n.parent].nodes.push_back(&n);
    children_[n.parent].groups.push_back(i);
  }
  order_ = {kRootGroup};
  for (size_t k = 0; k < order_.size(); ++k)
    for (const GroupId g : children_[order_[k]].groups) order_.push_back(g);
}

// A minimum in a group that has reserved less is one of the group's, too.
void ShareNodes::find_least() {
  for (ShareNode& n : vgpus_) n.least = n.min;
  for (size_t k = order_.size(); k-- > 1;) {
    ShareNode& group = groups_[order_[k]];
    double sum = 0;
    for (const ShareNode* n : children_[order_[k]].nodes) sum += n->least;
    group.least = std::max(sum, group.min);
    if (group.max > 0) group.least = std::min(group.least, group.max);
  }
}

// ---- maxima

void ShareNodes::charge(VgpuId v, uint64_t sm_ns) {
  if (plain_) return;
  const double ns = static_cast<double>(sm_ns) / sms_;
  const auto pay = [&](ShareNode& n) {
    if (n.max > 0) n.cap.ns -= ns;
    if (n.min > 0) n.reserve.ns -= ns;
  };
  pay(vgpus_[v]);
  each_above(vgpus_[v], pay);
}

void ShareNodes::fill_caps(uint64_t now_ns, VgpuId v) {
  const auto fill = [&](ShareNode& n) {
    if (n.max > 0) n.cap.fill(now_ns, n.max, n.max * kBurstNs);
  };
  fill(vgpus_[v]);
  each_above(vgpus_[v], fill);
}

bool ShareNodes::is_empty(VgpuId v) const {
  bool empty = vgpus_[v].max > 0 && vgpus_[v].cap.ns <= 0;
  each_above(vgpus_[v], [&](const ShareNode& n) { empty |= n.max > 0 && n.cap.ns <= 0; });
  return empty;
}

uint64_t ShareNodes::refilled_in_ns(VgpuId v) const {
  double ns = 0;
  const auto see = [&](const ShareNode& n) {
    if (n.max > 0) ns = std::max(ns, (n.max * kBurstNs / 2 - n.cap.ns) / n.max);
  };
  see(vgpus_[v]);
  each_above(vgpus_[v], see);
  return static_cast<uint64_t>(std::ceil(ns));
}

uint64_t ShareNodes::tokens_last_ns(VgpuId v) const {
  double ns = 1e12;
  const auto see = [&](const ShareNode& n) {
    if (n.max > 0) ns = std::min(ns, std::max(n.cap.ns, 0.0) / std::max(1 - n.max, 0.01));
  };
  see(vgpus_[v]);
  each_above(vgpus_[v], see);
  return static_cast<uint64_t>(ns);
}

// ---- minima

uint64_t ShareNodes::fill_reserve(uint64_t now_ns, ShareNode& n, bool below) {
  if (n.min <= 0 || !n.present) return kNeverWake;
  const double most_ns = std::max<double>(kReserveNs, n.min * kBurstNs);
  const bool owed = n.active && below;
  // Beside equals it has its floor: that earns nothing, and what it uses is no debt.
  if (owed)
    n.reserve.fill(now_ns, n.min, most_ns);
  else
    n.reserve = {.ns = n.active ? 0.0 : std::min(n.reserve.ns, 0.0), .at_ns = now_ns};
  const bool before = owed && n.reserve.ns >= (n.goes_before ? 1.0 : kReserveNs);
  if (before != n.goes_before) {
    n.goes_before = before, stale_ = true;
    if (before) ++n.reserved;
  }
  if (!owed) return kNeverWake;
  const double wait_ns = before ? n.reserve.ns : std::max((kReserveNs - n.reserve.ns) / n.min, 0.0);
  return now_ns + std::max(static_cast<uint64_t>(wait_ns) + 1, kShortestWaitNs);
}

uint64_t ShareNodes::fill_reserves(uint64_t now_ns) {
  top_ = 0;
  for (const ShareNode& n : vgpus_)
    if (n.active) top_ = std::max(top_, own_level(n));
  uint64_t wake_ns = kNeverWake;
  for (ShareNode& n : vgpus_)
    if (n.present) wake_ns = std::min(wake_ns, fill_reserve(now_ns, n, own_level(n) < top_));
  for (GroupId i = 1; i < groups_.size(); ++i)
    wake_ns = std::min(wake_ns, fill_reserve(now_ns, groups_[i], own_level(groups_[i]) < top_));
  return wake_ns;
}

}  // namespace sluice::policy
