// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/sharing/entitlements.h"

#include <algorithm>
#include <cmath>

namespace sluice::core {
namespace {

constexpr double kWholeWeight = 1e9;  // the weight that the whole GPU comes to

template <class Node, class Share>
void take(Node& n, policy::GroupId parent, const Share& share) {
  constexpr double kPermille = policy::kWholePermille;
  n.parent = parent;
  n.weight = std::max(share.weight, 1u);
  n.min = std::min(share.min_permille / kPermille, 1.0);
  n.max = share.max_permille ? std::min(share.max_permille / kPermille, 1.0) : 1.0;
}

template <class Node>
void find_bounds(Node& n) {
  double least = 0, most = n.members.empty() ? n.max : 0;
  for (Node* m : n.members) find_bounds(*m), least += m->least, most += m->most;
  n.most = std::min(n.max, most);
  n.least = std::min(std::max(n.min, least), n.most);
}

// In each round those on one side of their bounds come to these for good: on the side that takes
// more from the others, or leaves more to them, so that the others' parts only move further there.
template <class Node>
void divide_among_members(const Node& n) {
  double rest = n.part;
  for (std::vector<Node*> open = n.members; !open.empty();) {
    double weights = 0, raised = 0;
    for (const Node* m : open) weights += m->weight;
    const double each = rest / weights;
    for (Node* m : open) {
      m->part = std::clamp(each * m->weight, m->least, m->most);
      raised += m->part - each * m->weight;
    }
    std::erase_if(open, [&](const Node* m) {
      const double by = m->part - each * m->weight;
      const bool settled = raised > 0 ? by > 0 : raised < 0 ? by < 0 : true;
      if (settled) rest -= m->part;
      return settled;
    });
  }
  for (const Node* m : n.members) divide_among_members(*m);
}

}  // namespace

void Entitlements::add(uint64_t now_ns, policy::VgpuId v, const policy::VgpuShare& share) {
  if (v >= vgpus_.size()) vgpus_.resize(v + 1);
  vgpus_[v] = {};
  vgpus_[v].present = true;
  meter_.add(now_ns, v, 1);
  set(now_ns, v, share);
}

void Entitlements::set(uint64_t now_ns, policy::VgpuId v, const policy::VgpuShare& share) {
  take(vgpus_[v], share.group < groups_.size() ? share.group : policy::kRootGroup, share);
  reshape(now_ns);
}

// Groups' numbers are given without a gap, and none goes.
void Entitlements::set_group(uint64_t now_ns, policy::GroupId g, const policy::GroupShare& share) {
  if (g >= groups_.size()) groups_.resize(g + 1);
  const policy::GroupId parent = share.parent < groups_.size() ? share.parent : policy::kRootGroup;
  policy::GroupId above = parent;
  while (above != policy::kRootGroup && above != g) above = groups_[above].parent;
  take(groups_[g], above == g ? policy::kRootGroup : parent, share);
  meter_.set_group(now_ns, g, groups_[g].weight, groups_[g].parent);
  reshape(now_ns);
}

void Entitlements::remove(uint64_t now_ns, policy::VgpuId v) {
  set_busy(now_ns, v, false);
  meter_.remove(now_ns, v);
  vgpus_[v] = {};
  reshape(now_ns);
}

void Entitlements::set_busy(uint64_t now_ns, policy::VgpuId v, bool busy) {
  meter_.set_busy(now_ns, v, busy);
  if (vgpus_[v].busy == busy) return;
  vgpus_[v].busy = busy;
  if (busy)
    busy_.push_back(v);
  else
    std::erase(busy_, v);
  if (bounded_) divide(now_ns);
}

void Entitlements::reshape(uint64_t now_ns) {
  const auto has_bound = [](const Node& n) { return n.has_bound(); };
  bounded_ = std::any_of(vgpus_.begin(), vgpus_.end(), has_bound) ||
             std::any_of(groups_.begin(), groups_.end(), has_bound);
  if (bounded_) return divide(now_ns);
  for (policy::VgpuId v = 0; v < vgpus_.size(); ++v)
    if (vgpus_[v].present) meter(now_ns, v, vgpus_[v].weight, vgpus_[v].parent);
}

void Entitlements::divide(uint64_t now_ns) {
  for (Node& g : groups_) g.members.clear();
  for (const policy::VgpuId v : busy_) {
    Node* n = &vgpus_[v];
    for (bool first = true; first && n != &groups_[policy::kRootGroup];) {
      Node& parent = groups_[n->parent];
      first = parent.members.empty();
      parent.members.push_back(n);
      n = &parent;
    }
  }
  Node& root = groups_[policy::kRootGroup];
  find_bounds(root);
  root.part = 1;
  divide_among_members(root);
  for (const policy::VgpuId v : busy_) {
    const double weight = std::round(vgpus_[v].part * kWholeWeight);
    meter(now_ns, v, static_cast<uint32_t>(std::max(weight, 1.0)), policy::kRootGroup);
  }
}

void Entitlements::meter(uint64_t now_ns, policy::VgpuId v, uint32_t weight,
                         policy::GroupId group) {
  Vgpu& n = vgpus_[v];
  if (n.metered_weight == weight && n.metered_group == group) return;
  n.metered_weight = weight, n.metered_group = group;
  meter_.set_share(now_ns, v, weight, group);
}

}  // namespace sluice::core
