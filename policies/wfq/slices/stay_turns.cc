// SPDX-License-Identifier: Apache-2.0
#include "policies/wfq/slices/stay_turns.h"

#include <algorithm>

#include "policies/wfq/slices/burst.h"

namespace sluice::policy::slices {

// Also one that waits for its visit for so long that it seems to stay.
bool StayTurns::stays(uint64_t now_ns, VgpuId v) const {
  const Habit& habit = gpu_.habit(v);
  const double visit_ns = Habit::longest_visit_ns(gpu_.lengths);
  if (bursts(gpu_, v)) return false;
  if (gpu_.asks_much(now_ns, v)) return true;
  // One that has waited visits until the log, which is late, says that it used more.
  if (habit.burst_ns > 0 || (habit.bursts > 0 && !habit.comes_for_nothing(now_ns)))
    return habit.burst_ns > visit_ns || habit.used_ns > visit_ns * (habit.bursts + 1);
  return !gpu_.visits(now_ns, v);
}

bool StayTurns::applies(uint64_t now_ns) {
  gpu_.stay_turns = begins(now_ns);
  return gpu_.stay_turns;
}

bool StayTurns::begins(uint64_t now_ns) {
  if (!gpu_.lengths.free_alone()) return false;
  if (holder_ != kNoVgpu) gpu_[holder_].is_awaited = false;
  if (!find(now_ns, gpu_.top) || some_ride_ahead(now_ns)) {
    state_ = State::kNone;
    holder_ = kNoVgpu;
  } else if (!active()) {
    state_ = State::kLeaves;  // all of them
    ends_ns_ = now_ns;
  }
  return active();
}

bool StayTurns::begin_with(uint64_t now_ns, VgpuId v) {
  if (active() || !gpu_.lengths.free_alone() || gpu_.share(v).priority != gpu_.top_priority)
    return false;
  std::vector<VgpuId> top = gpu_.top;
  std::erase_if(top, [&](VgpuId o) { return o == v || !gpu_.clock[o].backlogged(); });
  top.push_back(v);
  return find(now_ns, top) && !some_ride_ahead(now_ns);
}

// Of `top`, those that stay; whether they are to have turns.
bool StayTurns::find(uint64_t now_ns, const std::vector<VgpuId>& top) {
  staying_.clear();
  bool visited = false;
  size_t needing = 0;
  for (const VgpuId v : top) {
    gpu_[v].stays = stays(now_ns, v);
    if (gpu_[v].stays) {
      staying_.push_back(v);
      needing += gpu_.needs_turns(now_ns, v);
    } else {
      visited |= gpu_.share(v).latency != LatencyClass::kBatch;
    }
  }
  if (top.size() > staying_.size() + kMostVisitors) crowded_until_ns_ = now_ns + kCrowdedNs;
  if (staying_.size() < 2 || now_ns < crowded_until_ns_) return false;
  // The holder, which waits, may be the third.
  const bool some_need = needing >= 2 && (staying_.size() > 2 || active());
  return visited || some_need || expects_visits(now_ns);
}

// None of those that stay is expected itself, and all have one priority: what one of them may have
// all may.
bool StayTurns::expects_visits(uint64_t now_ns) const {
  return expected_.longest_slice_ns(now_ns, staying_.front()) < gpu_.lengths.ceiling_ns();
}

bool StayTurns::some_ride_ahead(uint64_t now_ns) const {
  return std::any_of(staying_.begin(), staying_.end(), [&](VgpuId v) {
    const bool is_awaited = v == holder_ && state_ == State::kLeaves;
    return !is_awaited && gpu_.rides(now_ns, v) && is_ahead(v, kRiderAhead);
  });
}

bool StayTurns::has_to_wait(VgpuId v) const {
  if (!active()) return false;
  if (gpu_[v].stays) return v != holder_ || state_ == State::kLeaves;
  return is_ahead(v, kVisitorAhead) && !bursts(gpu_, v);
}

bool StayTurns::is_ahead(VgpuId v, double slices) const {
  return gpu_[v].lead_ns > slices * static_cast<double>(gpu_.lengths.mean_slice_ns());
}

double StayTurns::begin_round(uint64_t now_ns) {
  if (now_ns >= ends_ns_ || !holder_is_there()) {
    const VgpuId next = furthest_behind(now_ns);
    const bool has_begun = holder_is_there() && gpu_.habit(holder_).came_ns != now_ns;
    if (state_ == State::kRuns && has_begun && next != holder_) {
      state_ = State::kLeaves;
      ends_ns_ = now_ns + kLeaveNs;
      gpu_[holder_].stay_ended_ns = now_ns;
    } else {
      begin_turn(now_ns, next);
    }
  }
  gpu_[holder_].is_awaited = state_ == State::kLeaves;
  for (const VgpuId v : gpu_.top) {
    gpu_[v].wanted_ns = slice_ns(now_ns, v);
    gpu_.gate(now_ns, v, has_to_wait(v));
  }
  return static_cast<double>(ends_ns_ - now_ns);
}

uint64_t StayTurns::slice_ns(uint64_t now_ns, VgpuId v) const {
  const uint64_t mean_ns = gpu_.lengths.mean_slice_ns();
  return gpu_[v].stays ? std::min(mean_ns, expected_.longest_slice_ns(now_ns, v)) : mean_ns;
}

double StayTurns::lead_of(uint64_t now_ns, VgpuId v) const {
  const SlicedVgpu& o = gpu_[v];
  const double untold_ns = now_ns < o.stay_ended_ns + kLateNs ? std::max(o.left_ns, 0.0) : 0;
  return (o.lead_ns + untold_ns) / gpu_.share(v).weight;
}

VgpuId StayTurns::furthest_behind(uint64_t now_ns) const {
  return *std::min_element(staying_.begin(), staying_.end(), [&](VgpuId a, VgpuId b) {
    return lead_of(now_ns, a) < lead_of(now_ns, b);
  });
}

void StayTurns::begin_turn(uint64_t now_ns, VgpuId v) {
  const uint64_t turn_ns = gpu_.lengths.mean_slice_ns();
  const double untold_ns = v == holder_ ? std::max(gpu_[v].left_ns, 0.0) : 0;
  if (state_ == State::kRuns && now_ns < ends_ns_) {  // its holder had no more work
    gpu_[holder_].left_ns -= static_cast<double>(ends_ns_ - now_ns);
    gpu_[holder_].stay_ended_ns = now_ns;
  }
  holder_ = v;
  state_ = State::kRuns;
  ends_ns_ = now_ns + turn_ns;
  gpu_[v].left_ns = untold_ns + static_cast<double>(turn_ns);
  gpu_[v].stay_ended_ns = ends_ns_;
}

bool StayTurns::on_left(VgpuId v) {
  gpu_[v].rides_until_ns = 0;
  if (state_ != State::kLeaves || v != holder_) return false;
  ends_ns_ = 0;
  return true;
}

}  // namespace sluice::policy::slices
