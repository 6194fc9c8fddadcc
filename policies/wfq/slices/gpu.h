// SPDX-License-Identifier: Apache-2.0
// SlicedGpu: a GPU in time slices, as all rules of wfq on slices see it: who is backlogged, whose
// gate is open, how far each is ahead and how it comes and goes. It decides nothing. Pure; owned by
// WfqSlices; the rules refer to it, so it does not move.
//
// Terms   lead    GPU time that a vGPU has had beyond its entitlement: the negated lag
//         rider   its kernel goes on behind a closed gate
//         burst   of a vGPU of class low, from when it comes until its credit is used up
//         rest    the vGPUs of the highest level that do not pause (habit.h)
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "policies/policy.h"
#include "policies/wfq/fair_clock.h"
#include "policies/wfq/slices/habit.h"
#include "policies/wfq/slices/lengths.h"

namespace sluice::policy::slices {

struct SlicedVgpu {
  static constexpr uint64_t kUnset = ~0ull;

  uint32_t place = 0;  // in SlicedGpu::busy
  Habit habit;
  // Its gate and its slice.
  bool gated = false;
  uint64_t gated_at_ns = 0;     // when that changed last
  double used_gated_ns = 0;     // since then, while its gate was closed
  uint64_t rides_until_ns = 0;  // a kernel that it had begun goes on behind a closed gate
  // riders.h: the round that it was found to need, and its lead then.
  double ride_round_ns = 0, ride_lead_ns = 0;
  uint64_t ride_checked_ns = 0;
  uint64_t slice_ns = kUnset;  // as it was set last; 0: none, its gate is closed
  uint64_t wanted_ns = 0;      // the slice of the round that begins
  uint64_t beside_ns = 0;      // the same, in the last round that it was not alone in
  double lead_ns = 0;          // when the last round began
  // burst.h
  bool in_burst = false;
  double credit_ns = 0;
  // waste.h: what its open gate kept of the GPU, and what it was seen to use meanwhile.
  uint64_t kept_from_ns = 0;
  double kept_ns = 0, seen_ns = 0;
  double unused_ns = 0;        // of that, what it had not used lately; below 0: used more
  double left_ns = 0;          // one_by_one.h, stay_turns.h: of the turn that it has been given
  double lead_in_turn = 0;     // one_by_one.h: its lead in the middle of one, by weight
  uint64_t turn_ns = 0;        // gate_turns.h: when its last turn began
  uint64_t stay_ended_ns = 0;  // stay_turns.h: when its last turn ends
  bool stays = false;          // stay_turns.h: it does not visit
  bool is_awaited = false;     // stay_turns.h: nobody's turn begins until it has left
};

struct SlicedGpu {
  explicit SlicedGpu(const Config& c)
      : config(c),
        lengths(config),
        clock(with_credit(c), FairClock::Credit::kStays, FairClock::Debt::kLeaves) {}
  SlicedGpu(const SlicedGpu&) = delete;
  SlicedGpu& operator=(const SlicedGpu&) = delete;

  const Config config;
  SliceLengths lengths;
  FairClock clock;
  std::vector<SlicedVgpu> vgpus;
  std::vector<VgpuId> busy;  // backlogged, in no order
  size_t gated = 0;          // of `busy`
  // As the last round began:
  uint32_t top_priority = 0;
  bool stay_turns = false;   // those that stay have turns by their gates: stay_turns.h
  std::vector<VgpuId> top;   // those of `busy` of the highest level
  std::vector<VgpuId> rest;  // those of `top` that do not pause
  double weight_of_top = 1;
  double lead_of_rest = 0, weight_of_rest = 0;

  SlicedVgpu& operator[](VgpuId v) { return vgpus[v]; }
  const SlicedVgpu& operator[](VgpuId v) const { return vgpus[v]; }
  const Habit& habit(VgpuId v) const { return vgpus[v].habit; }
  const VgpuShare& share(VgpuId v) const { return clock[v].share; }

  // ---- who is backlogged ------------------------------------------------------------------------
  void add(VgpuId v, const VgpuShare& share) {
    clock.add(v, share);
    if (v >= vgpus.size()) vgpus.resize(v + 1);
    vgpus[v] = SlicedVgpu{};
  }
  void enter(VgpuId v) {
    vgpus[v].place = static_cast<uint32_t>(busy.size());
    busy.push_back(v);
  }
  void leave(VgpuId v) {
    const uint32_t place = vgpus[v].place;
    busy[place] = busy.back();
    vgpus[busy.back()].place = place;
    busy.pop_back();
  }
  void gate(uint64_t now_ns, VgpuId v, bool closed) {
    if (vgpus[v].gated == closed) return;
    vgpus[v].gated = closed;
    vgpus[v].gated_at_ns = now_ns;
    vgpus[v].used_gated_ns = 0;
    closed ? ++gated : --gated;
  }
  // A round begins; somebody is backlogged.
  void find_top() {
    top_priority = kPriorityLevels - 1;
    while (clock.busy(top_priority) == 0) --top_priority;
    top.clear();
    weight_of_top = 0;
    for (const VgpuId v : busy) {
      if (share(v).priority != top_priority) continue;
      top.push_back(v);
      weight_of_top += share(v).weight;
      vgpus[v].lead_ns = lead_of(v);
    }
  }

  // ---- entitlement and lead ---------------------------------------------------------------------
  double sms() const { return std::max(config.machine.sm_count, 1u); }
  double lead_of(VgpuId v) const { return static_cast<double>(clock.lead_sm_ns(v)) / sms(); }
  double quantum_ns(VgpuId v) const { return lengths.quantum_ns(share(v).weight); }
  uint64_t slice_for(VgpuId v, double lead_ns) const {
    return lengths.slice_for(share(v).weight, lead_ns);
  }
  bool has_slice(VgpuId v) const {
    return vgpus[v].slice_ns != SlicedVgpu::kUnset && vgpus[v].slice_ns != 0;
  }
  // What of a round is kept for v: its slice, also while others wait until it has left.
  double kept_slice_ns(VgpuId v) const {
    const SlicedVgpu& o = vgpus[v];
    if (o.is_awaited) return static_cast<double>(o.wanted_ns);
    if (stay_turns && !o.stays) return 0;  // one of those that stay has it
    return o.gated || !has_slice(v) ? 0 : static_cast<double>(o.slice_ns);
  }
  // Of one of the rest, against the others of them: or all would be ahead where one that pauses
  // lags.
  double lead_among_rest(VgpuId v) const {
    return vgpus[v].lead_ns - share(v).weight / weight_of_rest * lead_of_rest;
  }
  // Whether v is closer to its entitlement at the end of a round without a turn than with its
  // shortest. A vGPU that is gated because others left it their time stays so until it is half a
  // turn behind: what it had begun runs on in floor slices, each with a switch.
  bool sits_out(VgpuId v, double lead_ns) const {
    const double quantum = quantum_ns(v),
                 turn = static_cast<double>(slice_for(v, 1e18)) + lengths.handover_ns();
    const bool below_floor = turn >= quantum;
    return lead_ns + turn - quantum > (vgpus[v].gated && !below_floor ? -0.5 : 0.5) * turn;
  }

  // Whether it has used so much of its share lately, as the log tells.
  bool has_its_share(uint64_t now_ns, VgpuId v, double part = 1) const {
    return habit(v).part_used(now_ns) > part * share(v).weight / weight_of_top;
  }
  // Among several that may stay: more than a visitor may. Its share, as the log tells; so many
  // visits that the switches would cost the others too much; or it has work all the time and uses
  // a part of its share. Less than that if it stays already.
  bool asks_much(uint64_t now_ns, VgpuId v) const {
    if (top.size() <= 2) return false;  // nobody else would have turns
    const bool stays = vgpus[v].stays;
    const double part = stays ? 0.75 : 1;
    if (has_its_share(now_ns, v, stays ? 0.5 : 1)) return true;
    if (habit(v).comes_a_second(now_ns) > part * kMostComings) return true;
    return habit(v).part_busy(now_ns, clock[v].backlogged()) > part * kMostBusy &&
           has_its_share(now_ns, v, 0.25);
  }

  // ---- how v comes and goes ---------------------------------------------------------------------
  bool visits(uint64_t now_ns, VgpuId v) const {
    return habit(v).visits(now_ns, clock[v].backlogged(), lengths);
  }
  bool pauses(uint64_t now_ns, VgpuId v) const {
    return habit(v).pauses(now_ns, quantum_ns(v), lengths);
  }
  // It pauses, and lags by half of a burst: its turn comes between those of the rest.
  bool comes_between(uint64_t now_ns, VgpuId v) const {
    return pauses(now_ns, v) && lead_of(v) < -habit(v).burst_ns / 2;
  }
  bool chats(uint64_t now_ns, VgpuId v) const { return habit(v).chats(now_ns, lengths); }
  bool needs_turns(uint64_t now_ns, VgpuId v) const {
    return habit(v).needs_turns(now_ns, lengths);
  }
  bool returns_soon(VgpuId v) const { return habit(v).returns_soon(lengths) && has_slice(v); }
  bool rides(uint64_t now_ns, VgpuId v) const {
    return now_ns < vgpus[v].rides_until_ns && share(v).priority == top_priority;
  }

 private:
  static constexpr double kMostBusy = 0.9;     // of the time
  static constexpr double kMostComings = 700;  // a second
  // A credit that is kept over a gap is two mean slices at most: more would gate all others for as
  // long, of whom the light ones then have nothing for some of their rounds.
  static Config with_credit(Config c) {
    const double slice_ns =
        c.handover_loss > 0 ? 2 * static_cast<double>(c.machine.handover_ns) / c.handover_loss : 0;
    if (slice_ns > 0)
      c.max_quantum_ns = std::min(c.max_quantum_ns, static_cast<uint64_t>(slice_ns));
    return c;
  }
};

}  // namespace sluice::policy::slices
