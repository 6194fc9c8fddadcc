// SPDX-License-Identifier: Apache-2.0
// ShareNodes: the tree of a ShareTree (share_tree.h has the terms and the rules): vGPUs and groups,
// what each comes to by weight, priority and minimum, and the token buckets of maxima and minima.
// It knows nothing of the policy or the GPU. Owned by one ShareTree, same thread. Units: ns of the
// whole GPU; parts of the GPU as fractions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "policies/policy.h"

namespace sluice::policy {

// Time that a node may have (maximum) or is owed (minimum).
struct ShareBucket {
  double ns = 0;
  uint64_t at_ns = 0;
  void fill(uint64_t now_ns, double rate, double most_ns);
};

struct ShareNode {
  bool present = false;
  GroupId parent = kRootGroup;
  uint32_t weight = kDefaultWeight, priority = 0;
  double min = 0, max = 0;  // parts of the GPU; 0: none
  double least = 0;         // the minimum, or what the active ones in it have reserved if that is
                            // more
  uint32_t active = 0;      // active nodes directly in it; a vGPU: 0 or 1
  double value = 0;         // weight that it comes to
  ShareBucket cap, reserve;
  bool goes_before = false;  // before higher priorities, for its minimum
  bool throttled = false;    // a vGPU without tokens: to the policy it is idle
  uint64_t reserved = 0;     // times that a vGPU went before higher priorities
};

class ShareNodes {
 public:
  explicit ShareNodes(uint32_t sms);

  // ---- shape: what nodes there are
  void add_vgpu(VgpuId v);
  void set_vgpu(uint64_t now_ns, VgpuId v, const VgpuShare& share);
  void set_group(uint64_t now_ns, GroupId id, const GroupShare& share);
  // A vGPU that goes must not be active; reshape() after it.
  void remove_vgpu(VgpuId v);
  void reshape();
  void set_active(VgpuId v, bool active);

  uint32_t vgpus() const { return static_cast<uint32_t>(vgpus_.size()); }
  const ShareNode& vgpu(VgpuId v) const { return vgpus_[v]; }
  void set_throttled(VgpuId v, bool throttled) { vgpus_[v].throttled = throttled; }
  bool has_group(GroupId id) const { return id < groups_.size() && groups_[id].present; }
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

  // ---- weights and priorities
  // Stale: values are not what the tree would give now.
  bool stale() const { return stale_; }
  void mark_stale() { stale_ = true; }
  void divide();  // values anew; no longer stale
  uint32_t weight_of(VgpuId v) const;
  uint32_t level_of(VgpuId v) const;

  // ---- maxima
  void charge(VgpuId v, uint64_t sm_ns);
  void fill_caps(uint64_t now_ns, VgpuId v);
  bool is_empty(VgpuId v) const;            // of tokens, itself or a node above
  uint64_t refilled_in_ns(VgpuId v) const;  // until a throttled one may go on; 0: now
  uint64_t tokens_last_ns(VgpuId v) const;  // of one that runs

  // ---- minima
  // Finds out who goes before higher priorities. Returns when to call again.
  uint64_t fill_reserves(uint64_t now_ns);

 private:
  template <class F>
  void each_above(const ShareNode& leaf, F&& use);
  template <class F>
  void each_above(const ShareNode& leaf, F&& use) const;
  void count(GroupId g, bool active);
  void find_children();
  void find_least();
  double promised(GroupId group, VgpuId without_v, GroupId without_group) const;
  void divide_node(GroupId id, double value, double all);
  uint32_t own_level(const ShareNode& leaf) const;
  uint64_t fill_reserve(uint64_t now_ns, ShareNode& n, bool below);

  const uint32_t sms_;
  std::vector<ShareNode> vgpus_, groups_;
  std::vector<VgpuId> capped_;
  // Scratch of divide(): of each group the active nodes in it, and groups, parents first.
  struct Children {
    std::vector<ShareNode*> nodes;
    std::vector<GroupId> groups;
  };
  std::vector<Children> children_;
  std::vector<GroupId> order_;
  uint32_t scale_ = 1;  // of the weights of the root's nodes
  uint32_t top_ = 0;    // the highest level of active vGPUs
  bool plain_ = true, minima_ = false, stale_ = false;
};

// Between two checks of a bucket, at least.
inline constexpr uint64_t kShortestWaitNs = 20'000;
inline constexpr uint64_t kNeverWake = ~0ull;

}  // namespace sluice::policy
