// SPDX-License-Identifier: Apache-2.0
// KernelQueue: what the policies that give the whole GPU to one kernel at a time have in common
// (fcfs, npq, ppq, piv, dprr): the kernels that wait, the one that holds the GPU, evict - released
// - run, and the timer. A policy derives from it and says who is first and who may displace whom.
// Owned and called like any Policy: pure, one thread.
//
// Its unit is the kernel, as in the papers. Where the driver reports launches (on_launch_queued),
// each launch that may run is a job and is run by itself, so that the GPU is decided upon again at
// its end; where it does not, what a vGPU has to do from turning busy until it is idle is one job.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "mediator/base/check.h"
#include "policies/parts/indexed_heap.h"
#include "policies/policy.h"

namespace sluice::policy {

class KernelQueue : public Policy {
 public:
  explicit KernelQueue(const Config& config) : config_(config) {}

  void on_vgpu_added(uint64_t, VgpuId v, const VgpuShare& share, Actions&) override {
    if (v >= vgpus_.size()) vgpus_.resize(v + 1);
    SLUICE_CHECK(!vgpus_[v].present);
    vgpus_[v].present = true;
    vgpus_[v].share = bounded(share);
  }
  void on_vgpu_changed(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) override {
    Vgpu& g = vgpus_[v];
    // Out of the queue and in again: the key by which it is ordered changes.
    for (const uint32_t slot : g.jobs)
      if (jobs_[slot].queued) unqueue(now_ns, slot);
    g.share = bounded(share);
    for (const uint32_t slot : g.jobs)
      if (slot != holder_ && jobs_[slot].live) queue(now_ns, slot, /*returned=*/false);
    decide(now_ns, out);
  }
  void on_vgpu_removed(uint64_t, VgpuId v, Actions&) override {
    SLUICE_CHECK(vgpus_[v].jobs.empty());
    vgpus_[v].present = false;
  }

  void on_launch_queued(uint64_t now_ns, const Launch& launch, Actions& out) override {
    if (launch.id == 0 || slots_.count(launch.id)) return;
    // A vGPU that was announced without launches is one job until it is idle.
    for (const uint32_t slot : vgpus_[launch.vgpu].jobs)
      if (jobs_[slot].launch == 0 && jobs_[slot].live) return;
    join(now_ns, launch.vgpu, launch.id);
    decide(now_ns, out);
  }
  void on_launch_done(uint64_t now_ns, const Launch& launch, Actions& out) override {
    const auto it = slots_.find(launch.id);
    if (it == slots_.end()) return;
    end(now_ns, it->second);  // on_released() follows if it held the GPU
    decide(now_ns, out);
  }

  void on_arrival(uint64_t now_ns, VgpuId v, Actions& out) override {
    for (const uint32_t slot : vgpus_[v].jobs)
      if (jobs_[slot].live) return;  // its launches were announced, or this comes twice
    if (holder_ != kNone && jobs_[holder_].vgpu == v && jobs_[holder_].launch == 0) {
      // It still holds the GPU, or is on its way out: released() then queues it.
      jobs_[holder_].live = true;
      jobs_[holder_].seq = ++seqs_;
      jobs_[holder_].arrived_ns = now_ns;
    } else {
      join(now_ns, v, 0);
    }
    decide(now_ns, out);
  }
  void on_idle(uint64_t now_ns, VgpuId v, Actions& out) override {
    for (size_t i = vgpus_[v].jobs.size(); i-- > 0;) end(now_ns, vgpus_[v].jobs[i]);
    decide(now_ns, out);
  }

  void on_usage(uint64_t, VgpuId, const Usage&) override {}
  bool reads_tasks() const override { return false; }
  void on_left(uint64_t now_ns, VgpuId v, LeftReason, Actions& out) override {
    if (holder_ == kNone || jobs_[holder_].vgpu != v) return;
    const uint32_t slot = holder_;
    holder_ = kNone;
    leaving_ = false;
    if (jobs_[slot].live)
      queue(now_ns, slot, /*returned=*/true);
    else
      forget(slot);
    decide(now_ns, out);
  }
  void on_wake(uint64_t now_ns, Actions& out) override {
    wake_ns_ = 0;
    decide(now_ns, out);
  }

 protected:
  static constexpr uint32_t kNone = 0xffffffffu;
  static constexpr uint64_t kNever = ~0ull;
  struct Job {
    bool live = false;    // has work
    bool queued = false;  // in the derived class's queue
    VgpuId vgpu = kNoVgpu;
    LaunchId launch = 0;
    uint64_t seq = 0;  // order of arrival; an evicted kernel keeps its place
    uint64_t arrived_ns = 0;
  };

  // The derived class's queue of slots. `returned`: it held the GPU and has work left.
  virtual void enqueue(uint64_t now_ns, uint32_t slot, bool returned) = 0;
  virtual void dequeue(uint64_t now_ns, uint32_t slot) = 0;
  // Who runs next, kNone if nobody waits.
  virtual uint32_t first(uint64_t now_ns) = 0;
  // Whether `next` takes the GPU from the holder, who has work.
  virtual bool displaces(uint64_t, uint32_t /*next*/, uint32_t /*holder*/) { return false; }
  virtual void started(uint64_t, uint32_t) {}
  // When to ask displaces() again though nothing happens.
  virtual uint64_t due_ns() const { return kNever; }

  uint32_t priority(uint32_t slot) const { return vgpus_[jobs_[slot].vgpu].share.priority; }
  const Job& job(uint32_t slot) const { return jobs_[slot]; }
  const Config& config() const { return config_; }

 private:
  struct Vgpu {
    bool present = false;
    VgpuShare share;
    std::vector<uint32_t> jobs;  // slots, the dead holder's included
  };
  static VgpuShare bounded(VgpuShare s) {
    s.priority = std::min(s.priority, kPriorityLevels - 1);
    return s;
  }

  void queue(uint64_t now_ns, uint32_t slot, bool returned) {
    jobs_[slot].queued = true;
    enqueue(now_ns, slot, returned);
  }
  void unqueue(uint64_t now_ns, uint32_t slot) {
    jobs_[slot].queued = false;
    dequeue(now_ns, slot);
  }
  void join(uint64_t now_ns, VgpuId v, LaunchId launch) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(jobs_.size()));
      jobs_.emplace_back();
    }
    const uint32_t slot = free_.back();
    free_.pop_back();
    jobs_[slot] =
        Job{.live = true, .vgpu = v, .launch = launch, .seq = ++seqs_, .arrived_ns = now_ns};
    if (launch != 0) slots_.emplace(launch, slot);
    vgpus_[v].jobs.push_back(slot);
    queue(now_ns, slot, /*returned=*/false);
  }
  void end(uint64_t now_ns, uint32_t slot) {
    if (!jobs_[slot].live) return;
    jobs_[slot].live = false;
    if (jobs_[slot].queued) unqueue(now_ns, slot);
    if (slot != holder_) forget(slot);
  }
  void forget(uint32_t slot) {
    std::erase(vgpus_[jobs_[slot].vgpu].jobs, slot);
    if (jobs_[slot].launch != 0) slots_.erase(jobs_[slot].launch);
    free_.push_back(slot);
  }

  void decide(uint64_t now_ns, Actions& out) {
    if (leaving_) return;  // on_left() decides
    uint32_t next = first(now_ns);
    if (next == kNone) return;
    if (holder_ == kNone) {
      unqueue(now_ns, next);
      holder_ = next;
      out.push_back(Action::run(jobs_[next].vgpu, {}, jobs_[next].launch));
      started(now_ns, next);
      next = first(now_ns);
      if (next == kNone) return;
    }
    const Job& h = jobs_[holder_];
    if (!h.live && h.launch != 0) return;  // a launch that ended is released without being asked
    if (!h.live || displaces(now_ns, next, holder_)) {
      leaving_ = true;
      out.push_back(Action::evict(h.vgpu, jobs_[next].vgpu, {}, h.launch));
      return;
    }
    const uint64_t due = due_ns();
    if (due != kNever && due != wake_ns_) {
      wake_ns_ = due;
      out.push_back(Action::wake(due));
    }
  }

  const Config config_;
  std::vector<Vgpu> vgpus_;
  std::vector<Job> jobs_;
  std::vector<uint32_t> free_;
  std::unordered_map<LaunchId, uint32_t> slots_;
  uint32_t holder_ = kNone;
  bool leaving_ = false;
  uint64_t seqs_ = 0;
  uint64_t wake_ns_ = 0;  // last wake asked for, 0: it came
};

// The queue of npq, ppq and piv: by priority, then in order of arrival. `kPreempts`: a higher
// priority takes the GPU at once.
template <bool kPreempts>
class PriorityQueue : public KernelQueue {
 public:
  explicit PriorityQueue(const Config& config) : KernelQueue(config) {}

 protected:
  void enqueue(uint64_t, uint32_t slot, bool) override { heap_.push(slot); }
  void dequeue(uint64_t, uint32_t slot) override { heap_.remove(slot); }
  uint32_t first(uint64_t) override { return heap_.empty() ? kNone : heap_.top(); }
  bool displaces(uint64_t, uint32_t next, uint32_t holder) override {
    return kPreempts && priority(next) > priority(holder);
  }

 private:
  struct Less {
    const PriorityQueue* q;
    bool operator()(uint32_t a, uint32_t b) const {
      const uint32_t pa = q->priority(a), pb = q->priority(b);
      return pa != pb ? pa > pb : q->job(a).seq < q->job(b).seq;
    }
  };
  IndexedHeap<Less> heap_{Less{this}};
};

}  // namespace sluice::policy
