// SPDX-License-Identifier: Apache-2.0
// StayTurns: the vGPUs that stay on the GPU have turns one by one, by their gates, in two cases.
// Somebody visits it, or is expected to: the hardware goes round among all whose gates are open, so
// a visitor waits for a slice of one that stays, however many of them there are. Or two of three or
// more wait after launches of half a slice to some slices (Habit::needs_turns()): the hardware goes
// on at each of their pauses, so no slice gives them more of a round than one launch.
//
// Otherwise slices do the same, and nobody waits for what another has in flight: 8 tenants of
// random weights that queue launches of 20 us to 20 ms were off by 5 % in the mean with turns, by
// 1 % with slices (an H200).
//
//   state    gates of those that stay    until
//   kNone    as other rules have it      one of these, and two or more stay
//   kRuns    the holder's is open        the turn is over and another is further behind, or the
//                                        holder has no work
//   kLeaves  all are closed              what the holder had begun has left (on_left()), for
//                                        kLeaveNs at most: the next one begins without a switch
//                                        between the two. The GPU is kept for it meanwhile, as by
//                                        an open gate: what it does not use it pays for (waste.h)
//
// The next holder is the one that is furthest behind (as in WF2Q and EEVDF). The log tells late who
// has used the GPU, so the turn before counts as used. Visitors' gates are open until they are
// kVisitorAhead ahead. There are no such turns where a kernel goes on behind its gate and is ahead,
// among more visitors than kMostVisitors, and where slices are not free alone. Who has its share,
// or comes too often, visits nobody, whatever its worker says (SlicedGpu::asks_much()): it stays.
//
// Pure; part of WfqSlices. Tested with a host in tests/sim/slices_shares_test.cc, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "policies/wfq/slices/expected_visits.h"
#include "policies/wfq/slices/gpu.h"

namespace sluice::policy::slices {

class StayTurns {
 public:
  StayTurns(SlicedGpu& gpu, const ExpectedVisits& expected) : gpu_(gpu), expected_(expected) {}

  bool active() const { return state_ != State::kNone; }
  bool runs(VgpuId v) const { return state_ == State::kRuns && v == holder_; }
  bool holder_is_there() const {
    return holder_ != kNoVgpu && gpu_.clock[holder_].backlogged() && gpu_[holder_].stays;
  }
  // v comes: whether it waits for its turn, or until the others have caught up.
  bool has_to_wait(VgpuId v) const;
  // What v's slice is in these turns.
  uint64_t slice_ns(uint64_t now_ns, VgpuId v) const;
  // A round begins: whether there are such turns in it.
  bool applies(uint64_t now_ns);
  // v has come in the middle of a round that has none: whether there would be in one that begins.
  // Looks at all that are backlogged, and notes who of them stays.
  bool begin_with(uint64_t now_ns, VgpuId v);
  // Returns in how many ns it has to be looked at again.
  double begin_round(uint64_t now_ns);
  // v has left the GPU. Whether the next turn can begin.
  bool on_left(VgpuId v);

 private:
  enum class State : uint8_t { kNone, kRuns, kLeaves };
  static constexpr uint64_t kLeaveNs = 100'000'000;
  static constexpr uint64_t kLateNs = 15'000'000;  // within that the log tells who used the GPU
  // Mean slices that a visitor may be ahead, and a rider while there are such turns.
  static constexpr double kVisitorAhead = 1, kRiderAhead = 2;
  // Beside more at once, the holder would see little of its turn. Fitted to sleepers in the model.
  static constexpr size_t kMostVisitors = 5;
  static constexpr uint64_t kCrowdedNs = 200'000'000;  // for so long after there were more

  bool begins(uint64_t now_ns);
  bool stays(uint64_t now_ns, VgpuId v) const;
  bool find(uint64_t now_ns, const std::vector<VgpuId>& top);
  bool expects_visits(uint64_t now_ns) const;
  bool some_ride_ahead(uint64_t now_ns) const;
  bool is_ahead(VgpuId v, double slices) const;
  VgpuId furthest_behind(uint64_t now_ns) const;
  void begin_turn(uint64_t now_ns, VgpuId v);
  double lead_of(uint64_t now_ns, VgpuId v) const;

  SlicedGpu& gpu_;
  const ExpectedVisits& expected_;
  State state_ = State::kNone;
  std::vector<VgpuId> staying_;  // they have SlicedVgpu::stays
  VgpuId holder_ = kNoVgpu;
  uint64_t ends_ns_ = 0;
  uint64_t crowded_until_ns_ = 0;
};

}  // namespace sluice::policy::slices
