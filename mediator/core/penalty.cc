// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/penalty.h"

#include <algorithm>

namespace sluice::core {

namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kPerForgiven =
    kSecond / Penalty::kForgivenPerSecond;  // ns of time per ns of debt

}  // namespace

std::string_view to_string(Offence offence) {
  switch (offence) {
    case Offence::kFault:
      return "a kernel of it faulted";
    case Offence::kDidNotLeave:
      return "its work did not leave the GPU";
    case Offence::kForcedEnd:
      return "a session of it was ended by force";
  }
  return "?";
}

std::string_view to_string(Penalty::State state) {
  switch (state) {
    case Penalty::State::kClear:
      return "clear";
    case Penalty::State::kWaiting:
      return "waiting";
    case Penalty::State::kBarred:
      return "barred";
  }
  return "?";
}

uint64_t Penalty::debt_ns(uint64_t now_ns) const {
  const uint64_t forgiven = now_ns > owed_.at_ns ? (now_ns - owed_.at_ns) / kPerForgiven : 0;
  return owed_.debt_ns - std::min(owed_.debt_ns, forgiven);
}

void Penalty::add_debt(uint64_t now_ns, uint64_t cost_ns) {
  // What overshoots kMost (an offence that was under way when it was barred) is not carried on, so
  // nobody waits for longer than what a single fault takes to be forgiven.
  owed_.debt_ns = std::min(debt_ns(now_ns) + std::min(cost_ns, kMostAtOnce), kMost);
  owed_.at_ns = now_ns;
  owed_.wait_until_ns = std::max(owed_.wait_until_ns, now_ns + kDelay * owed_.debt_ns);
}

Penalty::State Penalty::on_offence(uint64_t now_ns, Offence offence, uint64_t cost_ns,
                                   bool harmed) {
  if (offence == Offence::kFault) {
    ++faults_;
    fault_stall_ns_ += cost_ns;
  } else {
    ++forced_ends_;
  }
  if (offence == Offence::kForcedEnd) cost_ns += kForcedEndCost;
  if (harmed) add_debt(now_ns, cost_ns);
  return state(now_ns);
}

Penalty::State Penalty::add_cost(uint64_t now_ns, uint64_t cost_ns, bool harmed) {
  fault_stall_ns_ += cost_ns;
  if (harmed) add_debt(now_ns, cost_ns);
  return state(now_ns);
}

Penalty::State Penalty::state(uint64_t now_ns) const {
  const uint64_t debt = debt_ns(now_ns);
  if (debt > 0 && debt + worst_ns_ > kMost) return State::kBarred;
  return now_ns < owed_.wait_until_ns ? State::kWaiting : State::kClear;
}

uint64_t Penalty::opens_at_ns(uint64_t now_ns) const {
  uint64_t at = owed_.wait_until_ns;
  const uint64_t room = kMost - std::min(kMost, worst_ns_), debt = debt_ns(now_ns);
  if (debt > room) at = std::max(at, now_ns + (debt - room) * kPerForgiven);
  return at;
}

uint64_t Penalty::deadline_ns(uint64_t now_ns, uint64_t full_ns, uint64_t least_ns) const {
  if (full_ns <= least_ns) return full_ns;
  const double part = 1.0 - static_cast<double>(std::min(debt_ns(now_ns), kMostAtOnce)) /
                                static_cast<double>(kMostAtOnce);
  return std::max(least_ns, static_cast<uint64_t>(static_cast<double>(full_ns) * part));
}

Neighbours::Row& Neighbours::of(uint32_t vgpu) {
  if (vgpu >= rows_.size()) rows_.resize(vgpu + 1);
  return rows_[vgpu];
}

void Neighbours::closed(uint32_t vgpu, uint64_t now_ns) {
  Row& r = of(vgpu);
  if (r.open > 0) --r.open;
  r.ever = true;
  r.closed_ns = now_ns;
}

bool Neighbours::others(uint32_t vgpu, uint64_t now_ns) const {
  for (size_t v = 0; v < rows_.size(); ++v) {
    const Row& r = rows_[v];
    if (v != vgpu && (r.open > 0 || (r.ever && now_ns - r.closed_ns < Penalty::kAlone)))
      return true;
  }
  return false;
}

void Neighbours::did_not_leave(uint32_t vgpu, uint64_t now_ns) {
  Row& r = of(vgpu);
  r.stayed = true;
  r.stayed_ns = now_ns;
}

bool Neighbours::may_be_hit(uint32_t vgpu, uint64_t now_ns) const {
  for (size_t v = 0; v < rows_.size(); ++v)
    if (v != vgpu && rows_[v].stayed && now_ns - rows_[v].stayed_ns < kAftermath) return true;
  return false;
}

}  // namespace sluice::core
