// SPDX-License-Identifier: Apache-2.0
// ShareTree: groups, minimum and maximum shares, and targets of latency, for any policy that
// follows weights and priorities. It stands between a driver and a policy and turns a tree of
// shares into weights and priorities of single vGPUs; the policy behind it knows of nothing else.
// The tree itself is ShareNodes (share_nodes.h). Pure, owned like the policy, same thread. Units:
// ns of the whole GPU; shares in permille of the GPU.
//
// Terms   node     a vGPU, or a group of nodes; the root is the GPU
//         active   backlogged and not throttled; a group: one of its nodes is
//
// Rules
//   weight    An active node has its weight's part of its parent's share among the active siblings.
//             A group's part goes to its own active nodes, so nobody gains by having more vGPUs.
//   priority  The sum of those on the way to the root.
//   minimum   An active node's part is raised to its minimum. Below higher priorities it is put
//             before them, in turns of at least kReserveNs or the least quantum, whichever is
//             longer, for its minimum of the time, and keeps for kLackNs what it lacks. The same
//             holds beside vGPUs that have a maximum, since these go as short work does. What it
//             lacks when they go it has at once, before its equals, or it would wait for that until
//             it interrupts their next bursts.
//   maximum   A token bucket: max of the time, kBurstNs * max at once. A node without tokens is
//             throttled: to the policy its vGPUs are idle, and they leave the GPU. The time to
//             leave is paid from the bucket, too. Where use alone is free, it is paid by the clock.
//             The policy knows no more work of it than its tokens last, so it goes as short work
//             goes: behind others' turns its bucket would be full long before it is served, and
//             what does not fit would be lost.
//             Neither it nor anybody beside a minimum comes unasked.
//   target    counted: from backlogged to the first grant. refuses() says no to one that the policy
//             behind cannot keep (wait_bound_ns()).
//
// Guarantees  (tests/sim/share_tree_test.cc)
//   In any 100 ms a capped node has at most max * (100 ms + kBurstNs), and what cannot be
//   preempted. A policy without groups, minima and maxima decides as if this were not there.
//   A minimum holds whatever priorities are above, and however these come and go.
// Cost: without them O(actions) per event. With groups O(active siblings) when a vGPU becomes
// backlogged or idle, with minima of as many groups above as have other parts then; with maxima
// O(log n) per event.
#pragma once

#include <memory>

#include "policies/policy.h"

namespace sluice::policy {

inline constexpr uint64_t kBurstNs =
    5'000'000;  // longer: caps are coarser; shorter: more hand-overs
// Longer: reserved time comes in larger parts. Where turns are priorities the least quantum is 5
// ms: of turns of 2 ms a tenth was gone in gaps that others filled.
inline constexpr uint64_t kReserveNs = 1'000'000;
// What a minimum lacks is kept for so long: until those above have left, and until what was used is
// known. With 5 ms, less than that takes on time slices, 20 % were 17 to 18.
inline constexpr uint64_t kLackNs = 20'000'000;

std::unique_ptr<Policy> share_tree(const Config& config, std::unique_ptr<Policy> inner);

}  // namespace sluice::policy
