// SPDX-License-Identifier: Apache-2.0
// ShortestFirst: what sjf and srt have in common (FRS paper, sections IV-A and IV-B): the job with
// the least key has the GPU, and an arrival with a lesser one takes it at once. Least mean
// turnaround where the predictions are right; a stream of short jobs starves a long one, which is
// why neither is a default. Weights and priorities mean nothing to it. Owned and called like any
// Policy: pure, one thread.
#pragma once

#include "policies/parts/turns.h"

namespace sluice::policy {

class ShortestFirst : public Turns {
 public:
  using Turns::Turns;

 protected:
  // What a job is ordered by, whole-GPU nanoseconds. Only the holder's may change while nothing
  // happens to the others.
  virtual uint64_t length_ns(const Job& job) const = 0;

 private:
  uint64_t key(VgpuId v) final { return length_ns(jobs_[v]); }
  bool key_follows_work() const final { return true; }
  bool arrivals_preempt() const final { return true; }
  VgpuId choose(uint64_t, bool) final {
    if (waiting_.empty()) return holder_;
    const VgpuId best = waiting_.top();
    if (holder_ == kNoVgpu || !jobs_[holder_].busy) return best;
    // Both wait for an eviction, so it must be worth its cost (as in FLEP's figure 6; the paper's
    // own rule where no cost is known).
    const Job& h = jobs_[holder_];
    return length_ns(h) <= jobs_[best].key + h.preempt_ns ? holder_ : best;
  }
  uint64_t turn_ns(uint64_t, VgpuId) final { return kForEver; }
};

}  // namespace sluice::policy
