// SPDX-License-Identifier: Apache-2.0
// The divergence state of one warp. Internal to kernels/exec; one thread at a time.
//
// The live lanes of a warp are partitioned into splits (lanes at one program counter) and lanes
// that wait at a join. A divergent branch makes a join at its immediate post-dominator; lanes that
// reach it wait there for the others, so that the warp runs converged again. Waiting is only an
// optimisation, never semantics (PTX promises no reconvergence): when the lanes waited for do not
// come, because they spin on something that the waiting ones must do first, the waiting lanes are
// released and go on by themselves; behind a barrier of the block all are one again. Ready splits
// take turns. Together that gives every lane progress (what PTX ISA 6.0 and later calls independent
// thread scheduling).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/exec/block/warp.h"

namespace sluice::exec::detail {

enum class SplitState : uint8_t { kReady, kBarrier, kWarpSync };

inline constexpr int32_t kNoJoin = -1;

struct Split {
  uint32_t mask = 0;
  uint32_t pc = 0;
  int32_t join = kNoJoin;
  SplitState state = SplitState::kReady;
  uint8_t barrier = 0;  // kBarrier: its number
  uint32_t member = 0;  // kWarpSync: the member mask waited for
};

struct Join {
  uint32_t pc = 0;        // where its lanes go on
  uint32_t expected = 0;  // lanes that will come, those that are here included
  uint32_t arrived = 0;
  int32_t parent = kNoJoin;
  bool call = false;  // the end of a call: reached by ret, not by a pc
};

// What a call's join restores when its lanes return: their frame and stack pointers, and the
// registers of the functions that may be active already.
struct SavedCall {
  struct Part {
    uint32_t callable = 0, lanes = 0;
    size_t offset = 0;  // of its registers in `bytes`
  };
  std::vector<uint8_t> bytes;
  std::vector<Part> parts;
};

struct WarpState : Warp {
  std::array<Split, 32> splits;
  uint32_t split_count = 0;
  uint32_t current = 0;     // index of the split whose turn it is
  uint32_t impatience = 0;  // grows with each used-up turn while lanes wait at joins
  std::vector<Join> joins;
  std::vector<int32_t> free_joins;
  std::vector<SavedCall> saved;  // by join, those of calls
  uint64_t saved_bytes = 0;      // by calls that have not ended

  void reset(uint32_t lanes, uint32_t pc);
  int32_t new_join(uint32_t pc, uint32_t expected, int32_t parent, bool call);
  // A new ready split; its index.
  uint32_t add_split(uint32_t mask, uint32_t pc, int32_t join);
  void remove_split(uint32_t at);
  // Ready splits at one place become one: what waited in vain at a join meets again.
  void merge_splits();
  // `mask` will not come to join `j` any more; the lanes there go on if they were the last missing.
  void leave_join(int32_t j, uint32_t mask);
  // Lanes come to join `j`. True: all are here, `split` holds them all and goes on at the join's pc
  // (the join is gone). False: they wait, and the split is gone.
  bool arrive(uint32_t split, int32_t j);
  // Sends the lanes that wait at one join on their way, the innermost first. False: none waits.
  bool release_one_join();
  // The join is over; nobody names it any more.
  void free_join(int32_t j);
  bool lanes_wait_at_joins() const;
  bool has_warp_sync() const;
};

}  // namespace sluice::exec::detail
