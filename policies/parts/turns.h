// SPDX-License-Identifier: Apache-2.0
// Turns: what the policies that give the whole GPU to one vGPU at a time have in common (rr, sjf,
// srt, cfs, frs): who is busy, who holds the GPU, evict - left - run, and the timer. A policy
// derives from it and says who comes next and for how long. Owned and called like any Policy: pure,
// one thread.
//
// A *job* is what a vGPU has to do from turning busy until it is idle: the papers' application,
// "priority computed using the total time of its kernels" (FRS section IV-A). Its length is the sum
// of the predicted times of its launches where the driver reports them (on_launch_queued); where it
// reports tasks without times, the sum of what its queued launches have left: of one that has run,
// tasks left times its measured time per task (FRS section IV-E: tpt "updated after each kernel
// eviction"), of one that has not, the mean of the job's launches - another kernel's tasks may be a
// thousand times as long; where nothing is announced, it is guessed from the vGPU's earlier jobs.
// Predictions come from models fed by guests: a policy here may let a wrong one cost efficiency;
// what it may cost in waiting, each policy says itself. A job that is announced as a whole
// (Launch::id 0) may be announced again and again. It is expected to run at least as long again as
// it ran beyond what was announced, by the driver's clock, so that no job is "nearly done" for
// ever; and to exceed it as its vGPU's last jobs did (overruns.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "mediator/base/check.h"
#include "policies/parts/indexed_heap.h"
#include "policies/parts/overruns.h"
#include "policies/policy.h"

namespace sluice::policy {

class Turns : public Policy {
 public:
  explicit Turns(const Config& config) : config_(config), waiting_(Less{&jobs_}) {}

  void on_vgpu_added(uint64_t, VgpuId v, const VgpuShare& share, Actions&) override {
    if (v >= jobs_.size()) jobs_.resize(v + 1);
    SLUICE_CHECK(!jobs_[v].present);
    jobs_[v] = Job{};
    jobs_[v].present = true;
    jobs_[v].share = share;
  }
  void on_vgpu_changed(uint64_t, VgpuId v, const VgpuShare& share, Actions&) override {
    jobs_[v].share = share;
  }
  void on_vgpu_removed(uint64_t, VgpuId v, Actions&) override {
    SLUICE_CHECK(v != holder_ && !jobs_[v].busy);
    jobs_[v].present = false;
  }

  void on_arrival(uint64_t now_ns, VgpuId v, Actions& out) override {
    Job& j = jobs_[v];
    if (j.busy) return;
    j.busy = true;
    j.ready_ns = now_ns;
    j.place = static_cast<uint32_t>(busy_.size());
    busy_.push_back(v);
    if (v != holder_) wait(v, key(v));
    decide(now_ns, out, Why::kArrival);
  }
  void on_idle(uint64_t now_ns, VgpuId v, Actions& out) override {
    Job& j = jobs_[v];
    if (!j.busy) return;
    if (waiting_.contains(v)) waiting_.remove(v);
    j.busy = false;
    busy_[j.place] = busy_.back();
    jobs_[busy_.back()].place = j.place;
    busy_.pop_back();
    j.overruns.end(j.done_sm_ns, config_.max_quantum_ns * sms());
    j.usual_sm_ns = j.usual_sm_ns ? (j.usual_sm_ns * 3 + j.done_sm_ns) / 4 : j.done_sm_ns;
    j.announced_as_a_whole = false;
    j.announced_sm_ns = j.done_sm_ns = j.claimed_sm_ns = j.beyond_sm_ns = 0;
    j.open.clear();
    j.ended = j.ended_sm_ns = 0;
    decide(now_ns, out, Why::kIdle);
  }

  // May come before or after on_arrival().
  void on_launch_queued(uint64_t now_ns, const Launch& launch, Actions& out) override {
    Job& j = jobs_[launch.vgpu];
    const uint64_t run_sm_ns = std::min(launch.run_predicted_sm_ns, kMaxWork);
    if (launch.id == 0) {
      if (j.announced_as_a_whole)
        j.beyond_sm_ns += j.done_sm_ns - std::min(j.claimed_sm_ns, j.done_sm_ns);
      j.announced_as_a_whole = true;
      j.claimed_sm_ns = j.done_sm_ns + run_sm_ns;
      const uint64_t least_sm_ns = std::max(j.beyond_sm_ns, j.overruns.least_sm_ns(j.done_sm_ns));
      j.announced_sm_ns = run_sm_ns ? j.done_sm_ns + std::max(run_sm_ns, least_sm_ns) : 0;
      j.preempt_ns = launch.preempt_ns;
    } else if (run_sm_ns > 0)  // this launch and what is known to follow it
      j.announced_sm_ns = std::max(j.announced_sm_ns, j.done_sm_ns + run_sm_ns);
    else
      j.announced_sm_ns += std::min(launch.predicted_sm_ns, kMaxWork);
    if (launch.id) j.open.push_back({.id = launch.id, .tasks_total = launch.tasks_total});
    if (!j.busy) return;
    if (waiting_.contains(launch.vgpu) && key_follows_work()) wait(launch.vgpu, key(launch.vgpu));
    decide(now_ns, out, Why::kArrival);
  }
  void on_usage(uint64_t, VgpuId v, const Usage& usage) override {
    Job& j = jobs_[v];
    if (!j.busy) return;  // it holds the GPU because nobody else wants it
    const uint64_t sm_ns = std::min(usage.sm_ns, kMaxWork);
    j.done_sm_ns += sm_ns;
    if (usage.launch == 0) return;
    const auto it = find(j, usage.launch);
    if (it == j.open.end()) return;
    it->tasks_done = std::max(it->tasks_done, usage.tasks_done);
    it->sm_ns += sm_ns;
  }
  void on_launch_done(uint64_t, const Launch& launch, Actions&) override {
    Job& j = jobs_[launch.vgpu];
    const auto it = find(j, launch.id);
    if (it == j.open.end()) return;
    ++j.ended;
    j.ended_sm_ns += it->sm_ns;
    *it = j.open.back();
    j.open.pop_back();
  }
  void on_left(uint64_t now_ns, VgpuId v, LeftReason, Actions& out) override {
    if (v != holder_) return;
    holder_ = kNoVgpu;
    leaving_ = false;
    if (jobs_[v].busy) wait(v, key(v));
    decide(now_ns, out, Why::kLeft);
  }
  void on_wake(uint64_t now_ns, Actions& out) override {
    wake_ns_ = 0;
    decide(now_ns, out, Why::kTimer);
  }

 protected:
  enum class Why : uint8_t { kArrival, kIdle, kLeft, kTimer };
  static constexpr uint64_t kMaxWork = 1ull << 50;  // days of a whole GPU
  static constexpr uint64_t kForEver = ~0ull;

  struct Open {
    LaunchId id;
    uint32_t tasks_total = 0, tasks_done = 0;
    uint64_t sm_ns = 0;  // used, as far as usage was reported by launch
  };
  struct Job {
    bool present = false, busy = false;
    VgpuShare share;
    uint32_t place = 0;            // in busy_
    uint64_t ready_ns = 0;         // when it turned busy: the papers' t counts from here
    uint64_t announced_sm_ns = 0;  // sum of the predictions of its launches
    uint64_t done_sm_ns = 0;       // used since it turned busy
    bool announced_as_a_whole = false;
    uint64_t claimed_sm_ns = 0;  // then: its total as announced, ...
    uint64_t beyond_sm_ns = 0;   // ... and what it used beyond that, each time until announced anew
    Overruns overruns;           // of its jobs before, and of this one
    uint64_t preempt_ns = 0;     // what evicting it has cost so far; 0: not known
    std::vector<Open> open;      // launches announced one by one, not ended: one for each stream
    uint64_t ended = 0, ended_sm_ns = 0;  // those that have, since it turned busy
    uint64_t key = 0;                     // by which it waits
    uint64_t usual_sm_ns = 0;             // what its jobs took so far, 0: none ended yet
  };

  struct Less {
    const std::vector<Job>* jobs;
    bool operator()(uint32_t a, uint32_t b) const {
      const uint64_t x = (*jobs)[a].key, y = (*jobs)[b].key;
      return x != y ? x < y : a < b;
    }
  };

  // The key by which v waits, smallest first (ties: by id). Asked for when v starts to wait, and
  // again when launches are added if it follows the work.
  virtual uint64_t key(VgpuId v) = 0;
  virtual bool key_follows_work() const { return false; }
  // v begins to hold the GPU.
  virtual void started(uint64_t, VgpuId) {}
  // Who should hold the GPU now, the holder (if it is busy) among them; kNoVgpu only if nobody is
  // busy. `turn_over`: the holder's quantum has ended (or nobody holds).
  virtual VgpuId choose(uint64_t now_ns, bool turn_over) = 0;
  // How long the turn of v that begins (or is revised) now lasts; kForEver: until somebody
  // comes.
  virtual uint64_t turn_ns(uint64_t now_ns, VgpuId v) = 0;
  // Whether an arrival may displace a holder before its turn is over.
  virtual bool arrivals_preempt() const { return false; }
  // Whether somebody's arrival may shorten a turn (its length depends on who is there).
  virtual bool arrivals_shorten_turn() const { return false; }

  // Remaining work, whole-GPU nanoseconds. A job that outlives its prediction is expected to go on
  // as long again as it has run beyond: no prediction keeps a job "nearly done" for ever.
  uint64_t total_ns(const Job& j) const {
    uint64_t total = j.announced_sm_ns ? j.announced_sm_ns : j.usual_sm_ns;
    if (j.announced_sm_ns == 0) {
      if (const double left = left_sm_ns(j); left > 0)
        total = j.done_sm_ns + static_cast<uint64_t>(std::min(left, 0x1p50));
    }
    if (j.done_sm_ns >= total) total = j.done_sm_ns + (j.done_sm_ns - total) + sms();
    return total / sms();
  }
  // By tasks; 0: no launch of it has reported any.
  static double left_sm_ns(const Job& j) {
    double known = 0, whole = static_cast<double>(j.ended_sm_ns);
    uint64_t wholes = j.ended, unknown = 0;
    for (const Open& l : j.open) {
      if (l.tasks_done == 0 || l.tasks_total == 0) {
        ++unknown;
        continue;
      }
      const double task = static_cast<double>(l.sm_ns) / l.tasks_done;
      known += task * (l.tasks_total - std::min(l.tasks_done, l.tasks_total));
      whole += task * l.tasks_total;
      ++wholes;
    }
    return known +
           (wholes ? whole / static_cast<double>(wholes) * static_cast<double>(unknown) : 0.0);
  }
  uint64_t done_ns(const Job& j) const { return j.done_sm_ns / sms(); }
  uint64_t remaining_ns(const Job& j) const {
    return total_ns(j) - std::min(total_ns(j), done_ns(j));
  }
  uint64_t sms() const { return std::max(config_.machine.sm_count, 1u); }

  void decide(uint64_t now_ns, Actions& out, Why why) {
    if (leaving_ || busy_.empty()) return;
    if (holder_ != kNoVgpu && !jobs_[holder_].busy) return evict(choose(now_ns, true), out);
    if (holder_ == kNoVgpu) {
      holder_ = choose(now_ns, true);
      waiting_.remove(holder_);
      if (Job& j = jobs_[holder_]; j.announced_as_a_whole) j.overruns.chosen(j.claimed_sm_ns);
      started(now_ns, holder_);
      out.push_back(Action::run(holder_));
      turn_end_ns_ = after(now_ns, turn_ns(now_ns, holder_));
    } else if (now_ns >= turn_end_ns_ || (why == Why::kArrival && arrivals_preempt())) {
      const VgpuId next = choose(now_ns, now_ns >= turn_end_ns_);
      if (next != holder_) return evict(next, out);
      turn_end_ns_ = after(now_ns, turn_ns(now_ns, holder_));
    } else if (why == Why::kArrival && arrivals_shorten_turn()) {
      turn_end_ns_ = std::min(turn_end_ns_, after(now_ns, turn_ns(now_ns, holder_)));
    }
    if (busy_.size() > 1 && turn_end_ns_ != kForEver && wake_ns_ != turn_end_ns_) {
      wake_ns_ = turn_end_ns_;
      out.push_back(Action::wake(turn_end_ns_));
    }
  }

  const Config config_;
  std::vector<Job> jobs_;
  std::vector<VgpuId> busy_;   // in no order, the holder among them
  IndexedHeap<Less> waiting_;  // the busy ones but the holder, by key
  VgpuId holder_ = kNoVgpu;
  bool leaving_ = false;

 private:
  static std::vector<Open>::iterator find(Job& j, LaunchId id) {
    return std::find_if(j.open.begin(), j.open.end(), [&](const Open& l) { return l.id == id; });
  }
  void wait(VgpuId v, uint64_t key) {
    jobs_[v].key = key;
    if (waiting_.contains(v))
      waiting_.update(v);
    else
      waiting_.push(v);
  }
  static uint64_t after(uint64_t from_ns, uint64_t ns) {
    return ns == kForEver ? kForEver : from_ns + ns;
  }
  void evict(VgpuId next, Actions& out) {
    leaving_ = true;
    out.push_back(Action::evict(holder_, next));
  }

  uint64_t turn_end_ns_ = kForEver;
  uint64_t wake_ns_ = 0;  // last wake asked for, 0: fired
};

}  // namespace sluice::policy
