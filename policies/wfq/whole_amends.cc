// SPDX-License-Identifier: Apache-2.0
// WfqWhole's part in amends (amends.h): who is held back, and until when.
#include <utility>

#include "policies/wfq/whole.h"

namespace sluice::policy {

namespace {
// Who leaves no later than this after it had to is in time: so many hand-overs as the machine is
// known for, and no less than kLateNs. Rewritten kernels leave GPUs within 0.1 to 0.4 ms; with a
// third of a longest quantum a vGPU that pauses kept 0.1 to 0.7 beside launches of 3 to 10 ms.
constexpr uint64_t kLateHandovers = 5, kLateNs = 1'000'000;
}  // namespace

// The holder has left. What it used after it had to is charged as the others use as much, if it has
// to make amends to them.
void WfqWhole::end_drain(uint64_t now_ns) {
  const uint64_t by_ns = now_ns - hold_.evicted_ns;
  if (by_ns <= std::max(kLateNs, kLateHandovers * config_.machine.handover_ns))
    amends_.left_in_time(holder_);
  else if (amends_.overran(holder_, by_ns, hold_.drain_sm_ns))
    return;
  charge(holder_, hold_.drain_sm_ns);
}

void WfqWhole::end_amends(VgpuId v) {
  if (const uint64_t rest_sm_ns = amends_.end(v)) charge(v, rest_sm_ns);
}

// Takes those that have to wait out of the heaps.
void WfqWhole::hold_back(uint64_t now_ns) {
  let_go(now_ns);
  for (Amends::Debt& d : amends_.debts()) {
    if (!waits(d.vgpu) || !amends_.waits(now_ns, d)) continue;
    stop_waiting(d.vgpu);
    held_back_.push_back(d.vgpu);
  }
  if (held_back_.empty()) kept_free_ns_ = 0;
}

// They were charged meanwhile.
void WfqWhole::let_go(uint64_t now_ns) {
  if (held_back_.empty()) return;
  if (kept_free_ns_) {
    const uint64_t pause_ns = now_ns - std::exchange(kept_free_ns_, now_ns);
    for (Amends::Debt& d : amends_.debts())
      if (is_held_back(d.vgpu)) amends_.pass_pause(d, pause_ns);
  }
  for (const VgpuId v : held_back_) {
    if (is_off(v, waiting_.due[v], quantum(v))) waiting_.due[v] = clock_[v].vtime;
    wait(now_ns, v);
  }
  held_back_.clear();
}

// Nobody waits but those.
void WfqWhole::wait_for_amends(uint64_t now_ns, Actions& out) {
  if (held_back_.empty()) return;
  if (hold_.state == Hold::kLingers && now_ns < hold_.keep_until_ns)
    return wake_at(hold_.keep_until_ns, out);
  const bool works = holder_ != kNoVgpu && clock_[holder_].backlogged();
  if (!works && kept_free_ns_ == 0) kept_free_ns_ = now_ns;
  // It would be charged for what it does not use.
  if (!works && hold_.state != Hold::kFree) return evict(now_ns, kNoVgpu, /*early=*/false, out);
  wake_at(amends_end_ns(now_ns), out);
}

// Of the first of those held back, if all goes on as it does.
uint64_t WfqWhole::amends_end_ns(uint64_t now_ns) const {
  uint64_t in_ns = FairClock::kMaxUsage;
  for (const Amends::Debt& d : amends_.debts()) {
    if (!is_held_back(d.vgpu)) continue;
    const auto used_in_ns = static_cast<uint64_t>(d.rest * d.weights / static_cast<double>(sms()));
    in_ns = std::min(in_ns, hold_.state == Hold::kFree ? d.pauses_ns : used_in_ns);
  }
  return now_ns + std::max(in_ns, config_.min_quantum_ns);
}

}  // namespace sluice::policy
