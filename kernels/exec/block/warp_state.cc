// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/block/warp_state.h"

#include "mediator/base/check.h"

namespace sluice::exec::detail {

void WarpState::reset(uint32_t lanes, uint32_t pc) {
  live = lanes;
  exec = 0;
  cc = 0;
  spin = 0;
  slept = false;
  registers = 0;
  split_count = 0;
  current = 0;
  impatience = 0;
  joins.clear();
  free_joins.clear();
  saved_bytes = 0;
  if (lanes != 0) add_split(lanes, pc, kNoJoin);
}

int32_t WarpState::new_join(uint32_t pc, uint32_t expected, int32_t parent, bool call) {
  const Join join{pc, expected, 0, parent, call};
  if (!free_joins.empty()) {
    const int32_t j = free_joins.back();
    free_joins.pop_back();
    joins[static_cast<size_t>(j)] = join;
    return j;
  }
  joins.push_back(join);
  return static_cast<int32_t>(joins.size() - 1);
}

uint32_t WarpState::add_split(uint32_t mask, uint32_t pc, int32_t join) {
  SLUICE_CHECK(split_count < splits.size());  // splits are disjoint and not empty
  splits[split_count] = {mask, pc, join, SplitState::kReady, 0, 0};
  return split_count++;
}

void WarpState::remove_split(uint32_t at) {
  splits[at] = splits[--split_count];
  if (current >= split_count) current = 0;
}

void WarpState::merge_splits() {
  const auto alike = [](const Split& a, const Split& b) {
    return a.state == SplitState::kReady && b.state == SplitState::kReady && a.pc == b.pc &&
           a.join == b.join;
  };
  for (uint32_t i = 0; i < split_count; ++i) {
    for (uint32_t k = split_count - 1; k > i; --k) {
      if (!alike(splits[i], splits[k])) continue;
      splits[i].mask |= splits[k].mask;
      const uint32_t last = split_count - 1;
      if (current == k) current = i;
      if (current == last) current = k;
      remove_split(k);
    }
  }
}

void WarpState::leave_join(int32_t j, uint32_t mask) {
  Join& join = joins[static_cast<size_t>(j)];
  join.expected &= ~mask;
  if (join.expected != join.arrived) return;
  if (join.arrived != 0) add_split(join.arrived, join.pc, join.parent);
  join.arrived = join.expected = 0;
  free_join(j);
}

void WarpState::free_join(int32_t j) {
  const Join& join = joins[static_cast<size_t>(j)];
  if (join.call) saved_bytes -= saved[static_cast<size_t>(j)].bytes.size();
  free_joins.push_back(j);
}

bool WarpState::arrive(uint32_t split, int32_t j) {
  Join& join = joins[static_cast<size_t>(j)];
  join.arrived |= splits[split].mask;
  if (join.arrived != join.expected) {
    remove_split(split);
    return false;
  }
  splits[split].mask = join.arrived;
  splits[split].pc = join.pc;
  splits[split].join = join.parent;
  join.arrived = join.expected = 0;
  free_join(j);
  return true;
}

bool WarpState::release_one_join() {
  // The join with the longest chain of parents is the innermost.
  int32_t best = kNoJoin;
  uint32_t best_depth = 0;
  for (size_t k = 0; k < joins.size(); ++k) {
    if (joins[k].arrived == 0) continue;
    uint32_t depth = 1;
    for (int32_t p = joins[k].parent; p != kNoJoin; p = joins[static_cast<size_t>(p)].parent)
      ++depth;
    if (depth > best_depth) {
      best = static_cast<int32_t>(k);
      best_depth = depth;
    }
  }
  if (best == kNoJoin) return false;
  Join& join = joins[static_cast<size_t>(best)];
  const uint32_t lanes = join.arrived;
  join.expected &= ~lanes;
  join.arrived = 0;
  add_split(lanes, join.pc, join.parent);
  if (join.expected == 0) free_join(best);
  return true;
}

bool WarpState::lanes_wait_at_joins() const {
  for (const Join& join : joins)
    if (join.arrived != 0) return true;
  return false;
}

bool WarpState::has_warp_sync() const {
  for (uint32_t k = 0; k < split_count; ++k)
    if (splits[k].state == SplitState::kWarpSync) return true;
  return false;
}

}  // namespace sluice::exec::detail
