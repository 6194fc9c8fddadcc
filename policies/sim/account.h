// SPDX-License-Identifier: Apache-2.0
// Account: how much of the simulated GPU each vGPU got and was entitled to, kept by the simulation
// as truth beside whatever a policy or an estimator has. Every change costs O(1) but for the
// windows (O(vGPUs) per tenth of a window). Pure; one thread.
//
// Entitlement (policy.h) is by the instant: of the SM-time that backlogged vGPUs held in an
// interval, weight / sum of their weights. `V` here is the running sum of held / sum of weights, so
// that a vGPU's entitlement over an interval is weight * (V now - V then) (as in weighted fair
// queuing).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "policies/sim/simulation.h"

namespace sluice::policy::sim {

class Account {
 public:
  Account(const Workload& w, Outcome& out);

  // Time passed with nothing changing: `held_sm_ns` is the SM-time that v, which has work, held in
  // it. First add() for each holder, then pass() once.
  void add(VgpuId v, uint64_t held_sm_ns) {
    held_now_ += static_cast<double>(held_sm_ns);
    charge(v, held_sm_ns);
  }
  // The two halves of it, for an owner that knows what all hold together: the sum before pass(),
  // and who it was later, before anything else of these changes and before a part of a window ends.
  void add_sum(uint64_t held_sm_ns) { held_now_ += static_cast<double>(held_sm_ns); }
  bool part_ends(uint64_t dt_ns) const { return dt_ns >= part_left_ns(); }
  // How long the part of a window that goes on still lasts, if nobody's work ends; at least 1.
  uint64_t part_left_ns() const {
    if (compared_busy_ != compared_count_ || compared_count_ < 2 || full()) return ~0ull;
    return std::max<uint64_t>(window_ns_ / kWindowParts, part_ns_ + 1) - part_ns_;
  }
  void charge(VgpuId v, uint64_t held_sm_ns) {
    Member& m = members_[v];
    m.sm_ns += held_sm_ns;
    const double held = static_cast<double>(held_sm_ns);
    if (m.contended) m.got += held;
    if (compared_busy_ == compared_count_ && compared_count_ >= 2 && m.compared) {
      m.window_got += held;
      m.all_got += held;
    }
  }
  void pass(uint64_t now_ns);

  void set_busy(VgpuId v, bool busy);
  // Whether that, if it is a change, changes what is kept of others too: what they held until then
  // must be charged first.
  bool concerns_others(VgpuId v, bool busy) const {
    if (busy_count_ == (busy ? 1 : 2)) return true;  // one alone contends with nobody
    return members_[v].compared && compared_busy_ + (busy ? 1 : 0) == compared_count_;
  }
  void set_weight(VgpuId v, uint32_t weight);
  void set_holding(VgpuId v, bool holding, uint64_t now_ns);  // at least one SM
  void finish(uint64_t now_ns);

  bool full() const {
    return parts_ended_ >= kMaxWindows;
  }  // also of windows in which nobody had anything, which are not kept
  uint64_t held_sm_ns(VgpuId v) const { return members_[v].sm_ns; }  // as charged so far
  bool busy(VgpuId v) const { return members_[v].busy; }
  uint32_t busy_count() const { return busy_count_; }

 private:
  struct Member {
    bool busy = false, holding = false, compared = true, contended = false;
    double weight = 1;
    uint64_t sm_ns = 0;          // held, in all
    double v_mark = 0, got = 0;  // of the contended interval that goes on
    double window_got = 0;       // of the part of a window that goes on
    double all_got = 0;
    uint64_t waits_since_ns = 0, busy_since_ns = 0;
    bool waits = false;
  };
  bool contends(const Member& m) const { return m.busy && busy_count_ >= 2; }
  void update_contended();
  void open(Member& m);
  void close(VgpuId v);
  void note_lag(VgpuId v);
  void note_wait(VgpuId v, uint64_t now_ns);
  void end_window_part();

  Outcome& out_;
  std::vector<Member> members_;
  uint32_t busy_count_ = 0, compared_count_ = 0, compared_busy_ = 0;
  double busy_weight_ = 0, v_ = 0, held_now_ = 0;
  uint64_t last_ns_ = 0;
  uint64_t window_ns_, part_ns_ = 0;        // part_ns_: time in the part that goes on
  std::vector<std::vector<double>> parts_;  // ring of the last kWindowParts parts' got
  std::vector<double> got_;                 // scratch of end_window_part()
  uint64_t part_number_ = 0;
  size_t parts_ended_ = 0;  // ever
  bool weights_fixed_ = true;
};

}  // namespace sluice::policy::sim
