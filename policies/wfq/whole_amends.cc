// SPDX-License-Identifier: Apache-2.0
// WholeGpu's part in amends (amends.h): who is held back, and until when.
#include <utility>

#include "policies/wfq/whole.h"

namespace sluice::policy {

namespace {
// Of a longest quantum: who leaves sooner than that after it had to is not late. Kernels that can
// be evicted need 2 ms, and 18 at P99, where the software GPU's processors are all busy. Beside
// launches of 10 ms a vGPU that pauses keeps 0.5 to 1; of 20 ms and more, as much as with a
// thirtieth.
constexpr uint64_t kLatePart = 3;
}  // namespace

// The holder has left. What it used after it had to is charged as the others use as much, if it
// owes them that.
void WholeGpu::end_drain(uint64_t now_ns) {
  const uint64_t by_ns = now_ns - evicted_ns_;
  if (by_ns <= config_.max_quantum_ns / kLatePart)
    amends_.left_in_time(holder_);
  else if (amends_.overran(holder_, by_ns, drain_sm_ns_))
    return;
  charge(holder_, drain_sm_ns_);
}

void WholeGpu::end_amends(VgpuId v) {
  if (const uint64_t rest_sm_ns = amends_.end(v)) charge(v, rest_sm_ns);
}

// Takes those that have to wait out of the heaps.
void WholeGpu::hold_back(uint64_t now_ns) {
  let_go(now_ns);
  for (Amends::Debt& d : amends_.debts()) {
    if (!waiting(d.vgpu).contains(d.vgpu) || !amends_.waits(now_ns, d)) continue;
    stop_waiting(d.vgpu);
    held_back_.push_back(d.vgpu);
  }
  if (held_back_.empty()) kept_free_ns_ = 0;
}

// They were charged meanwhile.
void WholeGpu::let_go(uint64_t now_ns) {
  if (held_back_.empty()) return;
  if (kept_free_ns_) {
    const uint64_t pause_ns = now_ns - std::exchange(kept_free_ns_, now_ns);
    for (Amends::Debt& d : amends_.debts())
      if (is_held_back(d.vgpu)) amends_.pass_pause(d, pause_ns);
  }
  for (const VgpuId v : held_back_) {
    if (is_off(v, due_[v], quantum(v))) due_[v] = clock_[v].vtime;
    wait(now_ns, v);
  }
  held_back_.clear();
}

// Nobody waits but those.
void WholeGpu::wait_for_amends(uint64_t now_ns, Actions& out) {
  if (held_back_.empty()) return;
  if (gpu_ == Gpu::kLingers && now_ns < keep_until_ns_) return wake_at(keep_until_ns_, out);
  const bool works = holder_ != kNoVgpu && clock_[holder_].backlogged();
  if (!works && kept_free_ns_ == 0) kept_free_ns_ = now_ns;
  // It would be charged for what it does not use.
  if (!works && gpu_ != Gpu::kFree) return evict(now_ns, kNoVgpu, /*early=*/false, out);
  wake_at(amends_end_ns(now_ns), out);
}

// Of the first of those held back, if all goes on as it does.
uint64_t WholeGpu::amends_end_ns(uint64_t now_ns) const {
  uint64_t in_ns = FairClock::kMaxUsage;
  for (const Amends::Debt& d : amends_.debts()) {
    if (!is_held_back(d.vgpu)) continue;
    const auto used_in_ns = static_cast<uint64_t>(d.rest * d.weights / static_cast<double>(sms()));
    in_ns = std::min(in_ns, gpu_ == Gpu::kFree ? d.pauses_ns : used_in_ns);
  }
  return now_ns + std::max(in_ns, config_.min_quantum_ns);
}

}  // namespace sluice::policy
