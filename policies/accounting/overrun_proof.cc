// SPDX-License-Identifier: Apache-2.0
#include "policies/accounting/overrun_proof.h"

#include <algorithm>

namespace sluice::accounting {

namespace {

double leaked(double ns, uint64_t elapsed_ns, double leak) {
  return std::max(ns - leak * static_cast<double>(elapsed_ns), 0.0);
}

}  // namespace

void OverrunProof::set_slice(uint64_t now_ns, uint32_t worker, uint64_t slice_ns) {
  Worker& w = workers_[worker];
  while (!w.given.empty() && w.given.front().until_ns <= now_ns) w.given.pop_front();
  while (!w.given.empty() && w.given.back().slice_ns <= w.slice_ns) w.given.pop_back();
  if (w.slice_ns != 0) w.given.push_back({now_ns + kLateNs, w.slice_ns});
  w.slice_ns = slice_ns;
}

uint64_t OverrunProof::allowance(uint64_t now_ns, const Worker& w) const {
  uint64_t slice_ns = std::max(w.slice_ns, kDriversSliceNs);
  for (const Given& g : w.given)
    if (g.until_ns > now_ns) slice_ns = std::max(slice_ns, g.slice_ns);
  return slice_ns + kToleranceNs;
}

void OverrunProof::on_witness(uint64_t now_ns, Say say) {
  switch (say) {
    case Say::kAsked:
      // On the GPU already: its launch runs at once, and the log shows no start.
      return end_try(witness_resident_ ? Try::kNone : Try::kAsked);
    case Say::kWaits:
      if (try_ == Try::kWaits) return count(now_ns);
      if (try_ == Try::kAsked) end_try(Try::kWaits);
      return;
    case Say::kServed:
    case Say::kGone:
      return end_try();
  }
}

void OverrunProof::on_resident(uint64_t now_ns, uint32_t process, bool witness) {
  if (witness) {
    if (try_ == Try::kWaits) count(now_ns);
    end_try();
  }
  resident_ = process;
  witness_resident_ = witness;
  piece_ns_ = 0;
}

void OverrunProof::excuse(uint64_t now_ns, uint64_t stall_ns) {
  for (auto& [process, w] : workers_) {
    const uint64_t pending_ns = std::min(w.pending_ns, stall_ns);
    w.pending_ns -= pending_ns;
    const uint64_t excess = excess_ns(now_ns, process);
    w.excess_ns = static_cast<double>(excess - std::min(excess, stall_ns - pending_ns));
    w.counted_ns = now_ns;
  }
}

void OverrunProof::pass(uint64_t now_ns, uint64_t interval_ns, bool others_claim) {
  const uint64_t ns = now_ns - std::min(passed_ns_, now_ns);
  passed_ns_ = now_ns;
  const auto found = workers_.find(resident_);
  if (resident_ == kNobody || found == workers_.end()) return;
  Worker& w = found->second;
  const uint64_t usual_ns = w.slice_ns + w.slice_ns / 2 + 1'000'000;
  if (others_claim && interval_ns > usual_ns) {
    const double more_ns = static_cast<double>(std::min(ns, interval_ns - usual_ns));
    suspicion_ns_ = std::min(suspicion(now_ns) + more_ns, double{kMostSuspectNs});
    suspected_ns_ = now_ns;
  }
  if (try_ != Try::kWaits) return;
  piece_ns_ += ns;
  const uint64_t allowed_ns = allowance(now_ns, w);
  if (piece_ns_ > allowed_ns) w.pending_ns += std::min(ns, piece_ns_ - allowed_ns);
}

double OverrunProof::suspicion(uint64_t now_ns) const {
  return leaked(suspicion_ns_, now_ns - std::min(suspected_ns_, now_ns), kSuspectLeak);
}

uint64_t OverrunProof::excess_ns(uint64_t now_ns, uint32_t worker) const {
  const auto w = workers_.find(worker);
  if (w == workers_.end()) return 0;
  const uint64_t elapsed_ns = now_ns - std::min(w->second.counted_ns, now_ns);
  return static_cast<uint64_t>(leaked(w->second.excess_ns, elapsed_ns, kLeak));
}

void OverrunProof::count(uint64_t now_ns) {
  for (auto& [process, w] : workers_) {
    if (w.pending_ns == 0) continue;
    w.excess_ns = static_cast<double>(excess_ns(now_ns, process) + std::exchange(w.pending_ns, 0));
    w.counted_ns = now_ns;
    if (w.excess_ns <= static_cast<double>(overrun_ns_) || w.proved) continue;
    w.proved = true;
    proved_.push_back(process);
  }
}

void OverrunProof::end_try(Try next) {
  try_ = next;
  piece_ns_ = 0;
  for (auto& [process, w] : workers_) w.pending_ns = 0;
}

}  // namespace sluice::accounting
