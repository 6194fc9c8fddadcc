// SPDX-License-Identifier: Apache-2.0
// Crowd: which sessions of one vGPU may launch at once, whatever the way in which the GPU is
// shared. While another vGPU is backlogged, config.sessions_at_once gates of a vGPU are open at
// most: it can have no more faults and launches that do not leave under way than that.
//
// Its sessions take turns. One that was granted goes to the end of its vGPU's list. Others follow
//   - with the next hold or turn, those with work first. A closed one that has not drained yet
//     keeps its place;
//   - when none of the open ones has work; their reports are read before that, because a session
//     with an open gate does not report that it has work again;
//   - where holds may last (rotates()): when an open one seems idle, session_idle_ns after the
//     last grant at the earliest, and after session_turn_ns, the longest open ones first. A session
//     that gives way is evicted, and keeps its place until it has drained: launches that do not
//     leave get no company.
// Where holds may last, what is open beyond the limit when a neighbour becomes backlogged is
// evicted, those without work first. Elsewhere it stays open: the policy ends that hold soon.
//
// A part of Sharing, one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "mediator/core/sharing/state.h"

namespace sluice::core {

struct Sharing;

class Crowd {
 public:
  explicit Crowd(Sharing& sharing) : sharing_(sharing) {}

  void reset_vgpu(VgpuId v) { reset_record(vgpus_, v); }
  // v's gates open.
  void open_gates(uint64_t now_ns, VgpuId v, ActionQueue& out);
  // Whether one more gate of v may open.
  bool has_room(VgpuId v) const;
  // Whether `s` is among those of its vGPU that may launch, or will be when its gates open.
  bool may_launch(SessionId s) const;
  // Lets the next ones of a vGPU follow. False: nothing was to be done.
  bool advance(uint64_t now_ns, ActionQueue& out);
  // When it has something to do by the clock alone.
  uint64_t next_ns() const { return next_ns_; }

 private:
  struct Round {
    uint64_t since_ns = 0;  // the last grant of a round
    bool asked = false;     // whether the open sessions have no work
  };
  // v's sessions by what they may do, each in the order of its list.
  struct Places {
    std::vector<SessionId> open, waiting;
    size_t leaving = 0;     // closed, and have not drained
    size_t working = 0;     // of the open ones
    bool recalled = false;  // an open one drains what it launched before
  };
  bool all_launch(VgpuId v) const;
  Places places(VgpuId v) const;
  size_t most(VgpuId v) const;
  bool advance(uint64_t now_ns, VgpuId v, ActionQueue& out);
  void grant(uint64_t now_ns, VgpuId v, const std::vector<SessionId>& sessions, ActionQueue& out);
  // The first `count` of v's open sessions, those without work before others.
  void give_way(const Places& p, size_t count, ActionQueue& out);

  Sharing& sharing_;
  std::vector<Round> vgpus_;  // by VgpuId
  uint64_t next_ns_ = ~0ull;
};

}  // namespace sluice::core
