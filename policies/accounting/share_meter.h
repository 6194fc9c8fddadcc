// SPDX-License-Identifier: Apache-2.0
// ShareMeter: who got how much of the GPU while it was contended. A share is defined only over
// intervals in which the vGPUs compared are all backlogged (terms: policies/policy.h).
//
// Pure and owned by one thread: notified of each change of "has work", of weight and of the GPU's
// holders with its time, it adds up the intervals between. Every change costs O(holders) (running
// sums and marks); totals() copies the meter, O(members). Where the GPU is shared in space, "GPU
// time" is the time for which all of it was held: of `units` (SMs), each for its part.
//
// Two readings of one run:
//   - all: the intervals in which *every* member (two or more) has work. The strict one, for a
//     report about a fixed set of vGPUs.
//   - own: for each vGPU the intervals in which it and at least one other has work, with its
//     entitlement there (by the instant, GPU time without hand-overs). The useful one where vGPUs
//     come and go.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice::accounting {

class ShareMeter {
 public:
  using Member = uint32_t;  // a small dense id
  static constexpr Member kNobody = 0xffffffffu;

  struct Totals {
    uint64_t all_gpu_ns = 0;         // GPU time held while all members had work
    uint64_t own_contended_ns = 0;   // it had work and somebody else too
    uint64_t own_gpu_ns = 0;         // GPU time held during own_contended_ns
    uint64_t own_rivals_gpu_ns = 0;  // GPU time that others held during own_contended_ns
    uint64_t own_entitled_ns = 0;    // its entitlement to own_gpu_ns + own_rivals_gpu_ns

    // Share asked and got over own contended intervals; 0 if there were none.
    double share_asked() const { return ratio(own_entitled_ns); }
    double share_got() const { return ratio(own_gpu_ns); }

   private:
    double ratio(uint64_t part) const {
      const uint64_t whole = own_gpu_ns + own_rivals_gpu_ns;
      return whole ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
    }
  };

  // `units`: what set_held() counts in; 1 where the GPU is given whole.
  explicit ShareMeter(uint32_t units = 1) : units_(units) {}

  void add(uint64_t now_ns, Member m, uint32_t weight);
  void remove(uint64_t now_ns, Member m);
  void set_weight(uint64_t now_ns, Member m, uint32_t weight);
  void set_busy(uint64_t now_ns, Member m, bool busy);
  // Who holds the GPU, all of it, from now on (kNobody: nobody, e.g. between two holders).
  void set_holder(uint64_t now_ns, Member m);
  // m holds so many units from now on, beside what others hold. In sum more than all only where
  // somebody uses more than it was given.
  void set_held(uint64_t now_ns, Member m, uint32_t units);

  // m has used so much GPU time since the last call, whoever held it: where holding says nothing of
  // use. Times of use and of work may be apart by as much as the measuring is late.
  void add_used(uint64_t now_ns, Member m, uint64_t gpu_ns);

  // Cumulative, up to now_ns. Differences of two calls describe the time between.
  Totals totals(uint64_t now_ns, Member m) const;
  // Time in which all members (at least two) had work; `all_gpu_ns` adds up to at most this, the
  // rest went into hand-overs.
  uint64_t all_contended_ns(uint64_t now_ns) const;
  bool contended(Member m) const { return members_[m].busy && busy_count_ >= 2; }

 private:
  struct State {
    bool present = false;
    bool busy = false;
    uint32_t weight = 1;
    // Values of the running sums below when it became busy, so that closing costs O(1).
    double entitled_mark = 0;
    uint64_t contended_mark = 0, gpu_mark = 0, own_gpu_mark = 0;
    uint32_t held = 0;
    Totals done;  // its GPU times in units
  };
  void settle(uint64_t now_ns);
  void open(State& s);
  void close(State& s);
  void accumulate(const State& s, Totals& t) const;

  std::vector<State> members_;
  uint32_t present_count_ = 0, busy_count_ = 0;
  uint64_t busy_weight_ = 0;
  uint32_t units_;
  std::vector<Member> holders_;
  uint64_t last_ns_ = 0;
  bool started_ = false;
  // Running sums over contended time (two or more busy); GPU time in units.
  uint64_t contended_ns_ = 0;       // of any two
  uint64_t contended_gpu_ns_ = 0;   // GPU time held by anybody in it
  double entitled_per_weight_ = 0;  // integral of 1 / busy_weight over that GPU time
  uint64_t all_contended_ns_ = 0;
};

}  // namespace sluice::accounting
