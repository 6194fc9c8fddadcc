// SPDX-License-Identifier: Apache-2.0
// ShareNodes: the tree of a ShareTree (share_tree.h has the terms and the rules): vGPUs and groups,
// what each comes to by weight, priority and minimum, and the token buckets of maxima and minima.
// It knows nothing of the policy or the GPU. Owned by one ShareTree, same thread. Units: ns of the
// whole GPU; parts of the GPU as fractions.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "policies/parts/indexed_heap.h"
#include "policies/policy.h"

namespace sluice::policy {

// Time that a node may have (of its maximum) or lacks (of its minimum).
struct ShareBucket {
  double ns = 0;
  uint64_t at_ns = 0;
  void fill(uint64_t now_ns, double rate, double most_ns);
};

// A vGPU, or a group.
struct NodeRef {
  uint32_t id = 0;
  bool is_group = false;
  bool operator==(const NodeRef&) const = default;
  uint32_t dense() const { return 2 * id + is_group; }
};

struct ShareNode {
  bool present = false;
  GroupId parent = kRootGroup;
  uint32_t weight = kDefaultWeight, priority = 0;
  uint32_t min_permille = 0, max_permille = 0;  // of the GPU; 0: none
  double min = 0, max = 0;                      // the same as parts
  bool has_minimum = false;                     // it or a node in it
  uint32_t least_permille = 0;  // the minimum, or what the active ones in it have reserved if that
                                // is more
  uint32_t counted_permille = 0;  // of that, what its parent has counted
  uint32_t place = 0;             // an active one's, in members of its parent
  uint64_t floor_of = 0;          // its minimum counts, in the division of that number ...
  double floor = 0;               // ... and comes to this weight
  ShareBucket cap, reserve;
  bool below = false;          // it is active, and so is a higher priority, or it is beside_capped
  bool beside_capped = false;  // there are vGPUs outside it that have a maximum
  bool goes_before = false;    // before all others, for its minimum
  uint64_t reserved = 0;       // times that a vGPU began to do so
};
struct ShareVgpu : ShareNode {
  bool active = false;
  bool throttled = false;  // without tokens: to the policy it is idle
  bool capped = false;     // it or a group above has a maximum
};
struct ShareGroup : ShareNode {
  std::vector<NodeRef> members;   // active nodes directly in it
  std::vector<NodeRef> floored;   // of these, those that have a minimum
  uint32_t least_of_members = 0;  // permille
  uint64_t weights = 0;           // of the members
  uint64_t divided = 0;           // the number of the division that the next belongs to
  double per_weight = 0;          // what a unit of weight in it comes to
};

class ShareNodes {
 public:
  // `reserve_ns`: the least turn that a minimum takes before others.
  ShareNodes(uint32_t sms, uint64_t reserve_ns);

  // ---- shape: what nodes there are
  void add_vgpu(VgpuId v);
  void set_vgpu(uint64_t now_ns, VgpuId v, const VgpuShare& share);
  void set_group(uint64_t now_ns, GroupId id, const GroupShare& share);
  // A vGPU that goes must not be active; reshape() after it.
  void remove_vgpu(VgpuId v);
  void reshape();
  void set_active(VgpuId v, bool active);

  uint32_t vgpus() const { return static_cast<uint32_t>(vgpus_.size()); }
  const ShareVgpu& vgpu(VgpuId v) const { return vgpus_[v]; }
  void set_throttled(VgpuId v, bool throttled) { vgpus_[v].throttled = throttled; }
  bool has_group(GroupId id) const { return id < groups_.size() && groups_[id].present; }
  GroupId parent_of(GroupId id) const { return groups_[id].parent; }
  // Whether `above` is `below` or on its way to the root.
  bool is_above(GroupId above, GroupId below) const;
  // Why such limits cannot be beside those of the others in `parent`; empty: they can. `v`,
  // `group`: the node itself (kNoVgpu, kNoGroup: none).
  static constexpr GroupId kNoGroup = ~0u;
  std::string refuses_limits(uint32_t min_permille, uint32_t max_permille, GroupId parent, VgpuId v,
                             GroupId group) const;
  bool plain() const { return plain_; }    // nothing but weights and priorities
  bool minima() const { return minima_; }  // some node has a minimum
  // vGPUs with a maximum on the way to the root, and throttled ones that lost theirs.
  const std::vector<VgpuId>& capped() const { return capped_; }
  // Adds the active vGPUs in it.
  void active_in(NodeRef ref, std::vector<VgpuId>& to) const;

  // ---- weights and priorities
  uint32_t weight_of(VgpuId v);
  uint32_t level_of(VgpuId v) const;
  // Groups in which active vGPUs may have another value than at fresh(). all_stale(): inactive ones
  // and all others, too.
  const std::vector<GroupId>& stale() const { return stale_; }
  bool all_stale() const { return all_stale_; }
  void mark_all_stale() { all_stale_ = true; }
  void fresh() { stale_.clear(), all_stale_ = false; }

  // ---- maxima
  // Whether a bucket of a maximum may be empty now.
  bool charge(VgpuId v, uint64_t sm_ns);
  void fill_caps(uint64_t now_ns, VgpuId v);
  bool is_empty(VgpuId v) const;                            // of tokens, itself or a node above
  void all_empty(VgpuId v, std::vector<VgpuId>& to) const;  // adds active ones without tokens
  uint64_t refilled_in_ns(VgpuId v) const;  // until a throttled one may go on; 0: now
  uint64_t tokens_last_ns(VgpuId v) const;  // of one that runs, at least

  // ---- minima
  // Finds out who goes before higher priorities: relevel(node) for each that may do so or may no
  // longer. Returns when to call again.
  template <class Relevel>
  uint64_t check_reserves(uint64_t now_ns, Relevel&& relevel);

 private:
  ShareNode& node(NodeRef ref) {
    return ref.is_group ? static_cast<ShareNode&>(groups_[ref.id]) : vgpus_[ref.id];
  }
  bool is_active(NodeRef ref) const {
    return ref.is_group ? !groups_[ref.id].members.empty() : vgpus_[ref.id].active;
  }
  static NodeRef ref_of(uint32_t dense) { return {dense / 2, dense % 2 != 0}; }
  template <class F>
  void each_above(const ShareNode& leaf, F&& use);
  template <class F>
  void each_above(const ShareNode& leaf, F&& use) const;
  void join(NodeRef ref);
  void part(NodeRef ref);
  GroupId count(VgpuId v, bool active);
  void count_level(VgpuId v, bool active);
  void rebuild();
  void find_capped();
  void update_least(ShareGroup& group);
  GroupId count_least(GroupId id);
  double promised(GroupId group, VgpuId without_v, GroupId without_group) const;
  double per_weight(GroupId id);
  double value(NodeRef ref);
  void divide_floored(ShareGroup& group, double value, double all);
  uint32_t own_level(const ShareNode& leaf) const;
  bool check_reserve(uint64_t now_ns, NodeRef ref);
  void find_top();

  const uint32_t sms_;
  const double reserve_ns_;
  std::vector<ShareVgpu> vgpus_;
  std::vector<ShareGroup> groups_;
  std::vector<VgpuId> capped_;
  uint64_t division_ = 1;  // a number for each set of active nodes
  std::vector<GroupId> stale_;
  bool all_stale_ = false;
  std::vector<uint32_t> reserves_;     // nodes with a minimum, as NodeRef::dense()
  std::vector<NodeRef> to_check_;      // of these, those that became active or idle
  bool check_all_ = false;             // higher priorities came or went
  std::vector<uint64_t> check_at_ns_;  // by NodeRef::dense()
  IndexedHeap<SoonerAt> checks_{SoonerAt{&check_at_ns_}};  // minima that time changes
  uint32_t scale_ = 1;                                     // of the weights of the root's nodes
  uint32_t top_ = 0;                                       // the highest level of active vGPUs
  std::array<uint32_t, kPriorityLevels> active_at_{};      // active vGPUs of each level
  bool plain_ = true, minima_ = false;
};

// Between two checks of a bucket, at least.
inline constexpr uint64_t kShortestWaitNs = 20'000;
inline constexpr uint64_t kNeverWake = ~0ull;

template <class Relevel>
uint64_t ShareNodes::check_reserves(uint64_t now_ns, Relevel&& relevel) {
  const auto check = [&](NodeRef ref) {
    if (check_reserve(now_ns, ref)) relevel(ref);
  };
  if (check_all_) {
    find_top();
    for (const uint32_t dense : reserves_) {
      const NodeRef ref = ref_of(dense);
      // Its level goes by the highest.
      if (!check_reserve(now_ns, ref) && !node(ref).goes_before) continue;
      relevel(ref);
    }
  } else {
    for (const NodeRef ref : to_check_) check(ref);
  }
  check_all_ = false;
  to_check_.clear();
  while (!checks_.empty() && check_at_ns_[checks_.top()] <= now_ns) check(ref_of(checks_.top()));
  return checks_.empty() ? kNeverWake : check_at_ns_[checks_.top()];
}

}  // namespace sluice::policy
