// SPDX-License-Identifier: Apache-2.0
#include "policies/parts/share_nodes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "policies/parts/share_tree.h"

namespace sluice::policy {
namespace {

constexpr double kPermille = kWholePermille;
// Weights of the root's nodes are multiplied, so that parts of a group are not rounded away.
constexpr uint32_t kHeadroom = 4;

// What was used up stays used up, and what a minimum lacks is lacking still: a new weight fills no
// bucket.
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
  n.min_permille = std::min(min_permille, kWholePermille);
  n.max_permille = std::min(max_permille, kWholePermille);
  n.min = least, n.max = most;
}

}  // namespace

void ShareBucket::fill(uint64_t now_ns, double rate, double most_ns) {
  ns = std::min(ns + static_cast<double>(now_ns - at_ns) * rate, most_ns);
  at_ns = now_ns;
}

ShareNodes::ShareNodes(uint32_t sms, uint64_t reserve_ns)
    : sms_(sms), reserve_ns_(static_cast<double>(reserve_ns)), groups_(1) {
  groups_[kRootGroup].present = true;
}

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
  vgpus_[v] = ShareVgpu{};
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
  n.present = true;
  n.parent = is_above(id, share.parent) ? kRootGroup : share.parent;
  n.weight = std::clamp(share.weight, 1u, kMaxWeight);
  n.priority = share.priority;
  set_limits(now_ns, n, share.min_permille, share.max_permille);
  reshape();
  all_stale_ = true;
}

void ShareNodes::remove_vgpu(VgpuId v) { vgpus_[v].present = vgpus_[v].throttled = false; }

// What of groups, minima and maxima there is.
void ShareNodes::reshape() {
  const bool was = plain_;
  bool shaped = minima_ = false;
  uint32_t heaviest = 1;
  reserves_.clear();
  const auto see = [&](ShareNode& n, NodeRef ref) {
    n.has_minimum = n.present && n.min > 0;
    if (!n.present) return;
    if (n.has_minimum) minima_ = true, reserves_.push_back(ref.dense());
    shaped |= n.max > 0 || n.min > 0 || n.parent != kRootGroup;
    if (n.parent == kRootGroup) heaviest = std::max(heaviest, n.weight);
  };
  for (VgpuId v = 0; v < vgpus_.size(); ++v) see(vgpus_[v], {v, false});
  for (GroupId g = 1; g < groups_.size(); ++g) see(groups_[g], {g, true});
  for (const uint32_t dense : reserves_)
    each_above(node(ref_of(dense)), [](ShareNode& g) { g.has_minimum = true; });
  plain_ = !shaped;
  scale_ = std::max(kMaxWeight / kHeadroom / heaviest, 1u);
  if (!plain_ || !was) all_stale_ = true;
  find_capped();
  rebuild();
}

void ShareNodes::find_capped() {
  capped_.clear();
  for (VgpuId v = 0; v < vgpus_.size(); ++v) {
    ShareVgpu& n = vgpus_[v];
    n.capped = false;
    if (!plain_) {
      n.capped = n.max > 0;
      each_above(n, [&](const ShareNode& g) { n.capped |= g.max > 0; });
    }
    // One that is throttled and no longer capped: nothing else would wake it.
    if (n.capped ? n.present : n.throttled) capped_.push_back(v);
  }
  for (const uint32_t dense : reserves_) {
    const NodeRef ref = ref_of(dense);
    node(ref).beside_capped = std::any_of(capped_.begin(), capped_.end(), [&](VgpuId v) {
      return ref.is_group ? !is_above(ref.id, vgpus_[v].parent) : v != ref.id;
    });
  }
}

// What is kept of the active ones, from nothing.
void ShareNodes::rebuild() {
  for (ShareGroup& g : groups_) {
    g.members.clear(), g.floored.clear();
    g.weights = g.least_of_members = 0;
    update_least(g);
  }
  ++division_;
  to_check_.clear();
  active_at_ = {};
  while (!checks_.empty()) checks_.remove(checks_.top());
  check_at_ns_.resize(2 * std::max(vgpus_.size(), groups_.size()) + 2);
  for (VgpuId v = 0; v < vgpus_.size(); ++v) {
    vgpus_[v].least_permille = vgpus_[v].min_permille;
    if (!vgpus_[v].active) continue;
    count(v, true);
    count_level(v, true);
  }
  check_all_ = true;
}

bool ShareNodes::is_above(GroupId above, GroupId below) const {
  for (uint32_t depth = 0; below != kRootGroup && depth < kMaxGroups; ++depth) {
    if (below == above) return true;
    if (below >= groups_.size()) return false;
    below = groups_[below].parent;
  }
  return false;
}

void ShareNodes::join(NodeRef ref) {
  ShareNode& n = node(ref);
  ShareGroup& group = groups_[n.parent];
  n.place = static_cast<uint32_t>(group.members.size());
  group.members.push_back(ref);
  group.weights += n.weight;
  if (!n.has_minimum) return;
  group.floored.push_back(ref);
  group.least_of_members += n.counted_permille = n.least_permille;
}

void ShareNodes::part(NodeRef ref) {
  const ShareNode& n = node(ref);
  ShareGroup& group = groups_[n.parent];
  const NodeRef last = group.members.back();
  group.members[n.place] = last;
  node(last).place = n.place;
  group.members.pop_back();
  group.weights -= n.weight;
  if (!n.has_minimum) return;
  std::erase(group.floored, ref);
  group.least_of_members -= n.counted_permille;
}

// A minimum in a group that has reserved less is one of the group's, too.
void ShareNodes::update_least(ShareGroup& group) {
  group.least_permille = std::max(group.least_of_members, group.min_permille);
  if (group.max > 0) group.least_permille = std::min(group.least_permille, group.max_permille);
}

// What an active group comes to may have changed: its parent, and so on. Returns the highest group
// whose members have other parts for it.
GroupId ShareNodes::count_least(GroupId id) {
  while (id != kRootGroup) {
    ShareGroup& n = groups_[id];
    ShareGroup& parent = groups_[n.parent];
    if (n.least_permille == n.counted_permille) break;
    parent.least_of_members += n.least_permille - n.counted_permille;
    n.counted_permille = n.least_permille;
    update_least(parent);
    id = n.parent;
  }
  return id;
}

// Returns the highest group whose members have other parts now.
GroupId ShareNodes::count(VgpuId v, bool active) {
  for (NodeRef ref{v, false};;) {
    const GroupId parent = node(ref).parent;
    ShareGroup& group = groups_[parent];
    const bool was_active = !group.members.empty();
    if (active)
      join(ref);
    else
      part(ref);
    update_least(group);
    if (parent != kRootGroup && was_active == group.members.empty()) {
      ref = {parent, true};
      continue;
    }
    return count_least(parent);
  }
}

void ShareNodes::count_level(VgpuId v, bool active) {
  const uint32_t level = own_level(vgpus_[v]);
  active_at_[level] += active ? 1 : -1u;
  if (active ? level > top_ : level == top_ && active_at_[level] == 0) check_all_ = true;
  if (!minima_) return;
  const auto check = [&](NodeRef ref) {
    if (node(ref).min > 0) to_check_.push_back(ref);
  };
  check({v, false});
  for (GroupId g = vgpus_[v].parent; g != kRootGroup; g = groups_[g].parent) check({g, true});
}

void ShareNodes::set_active(VgpuId v, bool active) {
  vgpus_[v].active = active;
  ++division_;
  const GroupId changed = count(v, active);
  count_level(v, active);
  if (plain_) return;
  // The root's members have their own weights, except those whose minimum is more.
  if (!minima_ && changed == kRootGroup) return;
  if (stale_.empty() || stale_.back() != changed) stale_.push_back(changed);
}

void ShareNodes::active_in(NodeRef ref, std::vector<VgpuId>& to) const {
  if (ref.is_group)
    for (const NodeRef member : groups_[ref.id].members) active_in(member, to);
  else if (vgpus_[ref.id].active)
    to.push_back(ref.id);
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

uint32_t ShareNodes::weight_of(VgpuId v) {
  return static_cast<uint32_t>(std::clamp(std::round(value({v, false})), 1.0, double{kMaxWeight}));
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
  uint32_t level = leaf.priority;
  each_above(leaf, [&](const ShareNode& g) { before |= g.goes_before, level += g.priority; });
  level = std::min(level, kPriorityLevels - 1);
  return before ? std::max(level, std::min(top_ + 1, kPriorityLevels - 1)) : level;
}

double ShareNodes::value(NodeRef ref) {
  const ShareNode& n = node(ref);
  const double each = per_weight(n.parent);
  return n.floor_of == division_ ? n.floor : each * n.weight;
}

// Worked out when it is asked for, once in a division.
double ShareNodes::per_weight(GroupId id) {
  ShareGroup& group = groups_[id];
  if (group.divided == division_) return group.per_weight;
  const double all = static_cast<double>(groups_[kRootGroup].weights) * scale_,
               its = id == kRootGroup ? all : value({id, true});
  group.divided = division_;
  divide_floored(group, its, all);
  return group.per_weight;
}

// The members of a group share its value by weight, except those whose minimum is more.
void ShareNodes::divide_floored(ShareGroup& group, double value, double all) {
  double rest = value;
  uint64_t weights = group.weights;
  for (bool again = true; again;) {
    again = false;
    for (const NodeRef ref : group.floored) {
      ShareNode& n = node(ref);
      const double least = std::min(n.least_permille / kPermille * all, rest);
      if (n.floor_of == division_ || n.least_permille == 0 ||
          rest * n.weight >= least * static_cast<double>(weights))
        continue;
      n.floor_of = division_;
      n.floor = least;
      rest -= least;
      weights -= n.weight;
      again = weights > 0;
    }
  }
  group.per_weight = weights > 0 ? rest / static_cast<double>(weights) : 0;
}

// ---- maxima

bool ShareNodes::charge(VgpuId v, uint64_t sm_ns) {
  if (plain_) return false;
  const double ns = static_cast<double>(sm_ns) / sms_;
  bool empty = false;
  const auto pay = [&](ShareNode& n) {
    if (n.min > 0 && (n.below || n.goes_before || !vgpus_[v].active)) n.reserve.ns -= ns;
    if (n.max <= 0) return;
    n.cap.ns -= ns;
    empty |= n.cap.ns <= 0;
  };
  pay(vgpus_[v]);
  each_above(vgpus_[v], pay);
  return empty;
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

void ShareNodes::all_empty(VgpuId v, std::vector<VgpuId>& to) const {
  NodeRef empty{v, false};
  for (GroupId g = vgpus_[v].parent; g != kRootGroup; g = groups_[g].parent)
    if (groups_[g].max > 0 && groups_[g].cap.ns <= 0) empty = {g, true};
  active_in(empty, to);
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

void ShareNodes::find_top() {
  top_ = kPriorityLevels - 1;
  while (top_ > 0 && active_at_[top_] == 0) --top_;
}

// Whether it goes before others now and did not, or the other way round.
bool ShareNodes::check_reserve(uint64_t now_ns, NodeRef ref) {
  ShareNode& n = node(ref);
  const uint32_t dense = ref.dense();
  if (checks_.contains(dense)) checks_.remove(dense);
  const bool active = is_active(ref) && n.min > 0, was_below = std::exchange(n.below, false);
  n.below = active && (own_level(n) < top_ || n.beside_capped);
  if (was_below || n.goes_before) n.reserve.fill(now_ns, n.min, reserve_ns_ + n.min * kLackNs);
  // Beside equals it has its floor: that earns nothing, and what it uses is no debt. What it earned
  // below others it has first then, so that those find little of it when they are back.
  n.reserve.at_ns = now_ns;
  const double enough_ns = n.goes_before ? 1.0 : n.below ? reserve_ns_ : reserve_ns_ / 4.0;
  const bool before = active && n.reserve.ns >= enough_ns;
  const bool changed = before != n.goes_before;
  n.goes_before = before;
  if (changed && before) ++n.reserved;
  if (before || n.below) {
    const double wait_ns =
        before ? n.reserve.ns : std::max((reserve_ns_ - n.reserve.ns) / n.min, 0.0);
    check_at_ns_[dense] = now_ns + std::max(static_cast<uint64_t>(wait_ns) + 1, kShortestWaitNs);
    checks_.push(dense);
  }
  return changed;
}

}  // namespace sluice::policy
