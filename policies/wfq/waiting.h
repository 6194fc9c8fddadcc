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
  // By how long they may wait for others to go first: kStretch times their work since they began to
  // wait. By their work alone, the one of four with launches of 200 us that took 1 % longer waited
  // for 30 ms each time (model), until its turn was overdue.
  struct Sooner {
    const Waiting* of;
    bool operator()(uint32_t a, uint32_t b) const {
      // 0, not known, comes last.
      const bool known_a = of->work[a].rest != 0, known_b = of->work[b].rest != 0;
      if (known_a != known_b) return known_a;
      const uint64_t x = of->until_ns(a), y = of->until_ns(b);
      // Of equals the one that ran last goes last, or the first of them would go before the others
      // for ever.
      return x != y ? x < y : of->ran_before(a, b);
    }
  };
  struct Level {                     // of priority
    IndexedHeap<Earlier> by_rank;    // all of them
    IndexedHeap<Sooner> bursts;      // of these, bursts
    IndexedHeap<Sooner> short_ones;  // of the others, those that may go before their turns
  };

  Waiting(const std::vector<KnownWork>& known_work, uint32_t sm_count)
      : work(known_work), sms(std::max(sm_count, 1u)) {
    levels.reserve(kPriorityLevels);
    for (uint32_t i = 0; i < kPriorityLevels; ++i)
      levels.push_back(
          {IndexedHeap(Earlier{this}), IndexedHeap(Sooner{this}), IndexedHeap(Sooner{this})});
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  void add(VgpuId v, int64_t due_at) {
    if (v >= due.size()) {
      due.resize(v + 1);
      rank.resize(v + 1);
      turn_of.resize(v + 1);
      since_ns.resize(v + 1);
      covered_at_ns.resize(v + 1);
    }
    due[v] = due_at;
    turn_of[v] = 0;
    since_ns[v] = 0;
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

  uint64_t until_ns(VgpuId v) const { return since_ns[v] + kStretch * (work[v].rest / sms); }

  static constexpr uint64_t kStretch = 64;
  const std::vector<KnownWork>& work;
  const uint64_t sms;
  std::vector<Level> levels;
  // By vGPU:
  std::vector<int64_t> due;             // vtime at which its turn is due
  std::vector<int64_t> rank;            // WfqWhole::rank(), while it waits
  std::vector<uint64_t> turn_of;        // number of its last turn; 0: none
  std::vector<uint64_t> since_ns;       // when it came, or its last turn was over
  std::vector<uint64_t> covered_at_ns;  // of `uncovered`: when it may be in `short_ones`
  IndexedHeap<SoonerAt> uncovered{SoonerAt{&covered_at_ns}};
  uint64_t turns = 0;
};

}  // namespace sluice::policy
