// SPDX-License-Identifier: Apache-2.0
// GateTurns: vGPUs that wait after each of many short launches ("chat", habit.h) have turns one by
// one, by their gates: the hardware would change between them at each launch. Where one of them
// fills its turn, those that stay have one together, too. Whoever has no turn is gated. A turn is a
// quantum of wall time, and goes on while its holder waits.
//
// Only where slices are free alone. Pure; part of WfqSlices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "policies/wfq/slices/gpu.h"

namespace sluice::policy::slices {

class GateTurns {
 public:
  explicit GateTurns(SlicedGpu& gpu) : gpu_(gpu) {}

  // Whether there are such turns in this round.
  bool active() const { return active_; }
  // v, which waits, has the turn that goes on.
  bool is_turn_of(uint64_t now_ns, VgpuId v) const {
    return active_ && v == holder_ && now_ns < ends_ns_;
  }
  // A round begins. Returns in how many ns it has to be looked at again; `ends_ns` without turns.
  double begin_round(uint64_t now_ns, double ends_ns);

 private:
  static constexpr VgpuId kThoseThatStay = kNoVgpu - 1;  // as holder_
  // Of more than these, one that chats is as well off between their slices, and each of its turns
  // has to wait for what all of them have in flight: 32 tenants lost 9 % instead of 5 (an H200).
  static constexpr size_t kMostThatStay = 3;

  // Who chats and may be away, between two launches, is back by then.
  uint64_t back_ns(VgpuId v) const;
  void find_members(uint64_t now_ns);
  bool holder_is_member() const;
  // Round robin among chatting_ that are there and those that stay. A vGPU that is ahead by more
  // than a turn is passed over, but not by all.
  void begin_turn(uint64_t now_ns);
  void begin_turn_of_staying(uint64_t now_ns, double turn_ns, double lead_ns);

  SlicedGpu& gpu_;
  bool active_ = false;
  std::vector<VgpuId> chatting_;  // the first away_ of them are away
  size_t away_ = 0;
  std::vector<VgpuId> staying_;   // have one turn together
  VgpuId holder_ = kNoVgpu;       // one that chats, or kThoseThatStay
  uint64_t ends_ns_ = 0;          // its turn
  uint64_t staying_turn_ns_ = 0;  // when the last turn of those that stay began
};

}  // namespace sluice::policy::slices
