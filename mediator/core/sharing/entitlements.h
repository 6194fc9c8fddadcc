// SPDX-License-Identifier: Apache-2.0
// Entitlements: what part of the GPU each vGPU with work is entitled to, for the figures that
// people see (ASKED of `sluicectl top`, contended_owed of the metrics). No policy reads it:
// ShareTree (policies/parts/share_tree.h) carries the same rules out.
//
// Rules, for the busy nodes (vGPUs, groups with a busy one in them) of each group, from the root:
//   weight    each has its weight's part of its group's, ...
//   minimum   ... raised to its minimum at the others' cost; a group's is what its busy nodes' come
//             to, if that is more
//   maximum   ... and cut to its maximum, so that the others have more; a group's is what its busy
//             nodes' come to, if that is less
// Minima and maxima are parts of the GPU. Priorities are not in it.
//
// ShareTree's weights do not say this: it keeps a maximum by a bucket of GPU time, not by a part,
// and divides for each event what those with a minimum leave, not all members. So each has a
// division of its own.
//
// It tells the ShareMeter weights and groups as they are while no node has a minimum or maximum;
// otherwise each busy vGPU's part as its weight at the root, O(busy vGPUs and groups) a change.
// Owned by Charging, one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "policies/accounting/share_meter.h"
#include "policies/policy.h"

namespace sluice::core {

class Entitlements {
 public:
  explicit Entitlements(accounting::ShareMeter& meter) : meter_(meter), groups_(1) {}

  // As of ShareMeter, which hears of all of these.
  void add(uint64_t now_ns, policy::VgpuId v, const policy::VgpuShare& share);
  void set(uint64_t now_ns, policy::VgpuId v, const policy::VgpuShare& share);
  void set_group(uint64_t now_ns, policy::GroupId g, const policy::GroupShare& share);
  void remove(uint64_t now_ns, policy::VgpuId v);
  void set_busy(uint64_t now_ns, policy::VgpuId v, bool busy);

 private:
  struct Node {
    policy::GroupId parent = policy::kRootGroup;
    uint32_t weight = 1;
    double min = 0, max = 1;
    // Of the busy ones, by the last divide(): the bounds with what is in it, and its part.
    double least = 0, most = 1, part = 0;
    std::vector<Node*> members;
    bool has_bound() const { return min > 0 || max < 1; }
  };
  struct Vgpu : Node {
    bool present = false, busy = false;
    uint32_t metered_weight = 0;
    policy::GroupId metered_group = policy::kRootGroup;
  };
  void reshape(uint64_t now_ns);
  void divide(uint64_t now_ns);
  void meter(uint64_t now_ns, policy::VgpuId v, uint32_t weight, policy::GroupId group);

  accounting::ShareMeter& meter_;
  std::vector<Vgpu> vgpus_;
  std::vector<Node> groups_;  // the root first
  std::vector<policy::VgpuId> busy_;
  bool bounded_ = false;  // some node has a minimum or a maximum
};

}  // namespace sluice::core
