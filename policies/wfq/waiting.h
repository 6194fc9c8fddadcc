// SPDX-License-Identifier: Apache-2.0
// Waiting: the backlogged vGPUs that do not hold the GPU, in the orders in which wfq grants it to
// them. It keeps orders and decides nothing: WfqWhole says who is in which heap. Pure; part of
// WfqWhole; the heaps refer to it, so it does not move.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "policies/parts/indexed_heap.h"
#include "policies/policy.h"
#include "policies/wfq/fair_clock.h"
#include "policies/wfq/known_work.h"

namespace sluice::policy {

struct Waiting {
  struct Earlier {
    const Waiting* of;
    bool operator()(uint32_t a, uint32_t b) const {
      const int64_t x = of->rank[a], y = of->rank[b];
      // The one that ran last goes last, or an eviction that took no time would be undone.
      return x != y ? x < y : of->ran_before(a, b);
    }
  };
  struct Shorter {
    const Waiting* of;
    bool operator()(uint32_t a, uint32_t b) const {
      // 0, not known, comes last.
      const uint64_t x = of->work[a].rest - 1, y = of->work[b].rest - 1;
      // Of equals the one that ran last goes last, or the first of them would go before the others
      // for ever.
      return x != y ? x < y : of->ran_before(a, b);
    }
  };
  struct Level {                      // of priority
    IndexedHeap<Earlier> by_rank;     // all of them
    IndexedHeap<Shorter> bursts;      // of these, bursts
    IndexedHeap<Shorter> short_ones;  // of the others, those that may go before their turns
  };

  explicit Waiting(const std::vector<KnownWork>& known_work) : work(known_work) {
    levels.reserve(kPriorityLevels);
    for (uint32_t i = 0; i < kPriorityLevels; ++i)
      levels.push_back(
          {IndexedHeap(Earlier{this}), IndexedHeap(Shorter{this}), IndexedHeap(Shorter{this})});
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  void add(VgpuId v, int64_t due_at) {
    if (v >= due.size()) {
      due.resize(v + 1);
      rank.resize(v + 1);
      turn_of.resize(v + 1);
      covered_at_ns.resize(v + 1);
    }
    due[v] = due_at;
    turn_of[v] = 0;
  }
  void remove(uint32_t level, VgpuId v) {
    Level& l = levels[level];
    l.by_rank.remove(v);
    for (auto* some : {&l.bursts, &l.short_ones})
      if (some->contains(v)) some->remove(v);
    if (uncovered.contains(v)) uncovered.remove(v);
  }
  void begin_turn(VgpuId v) { turn_of[v] = ++turns; }
  // V has been set back by so much. A turn may have begun many of these ago.
  void rebase(VgpuId v, int64_t back) {
    due[v] = std::max(due[v] - back, -FairClock::kRebaseAt);
    rank[v] = std::max(rank[v] - back, -FairClock::kRebaseAt);
  }
  bool ran_before(VgpuId a, VgpuId b) const {
    return turn_of[a] != turn_of[b] ? turn_of[a] < turn_of[b] : a < b;
  }

  const std::vector<KnownWork>& work;
  std::vector<Level> levels;
  // By vGPU:
  std::vector<int64_t> due;             // vtime at which its turn is due
  std::vector<int64_t> rank;            // WfqWhole::rank(), while it waits
  std::vector<uint64_t> turn_of;        // number of its last turn; 0: none
  std::vector<uint64_t> covered_at_ns;  // of `uncovered`: when it may be in `short_ones`
  IndexedHeap<SoonerAt> uncovered{SoonerAt{&covered_at_ns}};
  uint64_t turns = 0;
};

}  // namespace sluice::policy
