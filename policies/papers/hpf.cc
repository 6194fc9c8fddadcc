// SPDX-License-Identifier: Apache-2.0
// hpf: highest priority first with performance degradation minimization (Wu et al., "FLEP", section
// 5.2.1 and figure 6).
//   - A new kernel of a higher priority than the running one's preempts it; one of a lower priority
//     waits in its priority's queue.
//   - Within a priority, shortest remaining time: the kernel Ks with the least predicted remaining
//     time T_r takes the GPU from the running Kr if T_r of Kr > T_r of Ks + the preemption's
//     overhead. The overhead is the mean of what evicting Kr's kernel has cost (Launch::preempt_ns;
//     FLEP profiles 50 runs), and before that is known, what the last hand-overs cost.
//   - T_r starts as the duration model's T_e and falls as the kernel runs (section 5.1). A kernel
//     that outlives its prediction is taken to need as long again as it has overrun, so that no
//     wrong prediction keeps the GPU from its equals.
//   - Spatial preemption (sections 2.2 and 6.4): where the machine allows it and Ks can use k SMs
//     only, Kr yields SMs [0, k) and runs on on the others; when Ks ends it gets them back. One
//     such guest at a time, as in the paper's experiments; who wants to run besides waits for the
//     guest or takes its place.
// Lower priorities may starve, and so may long kernels behind a stream of short ones.
//
// Where the driver reports no launches, a vGPU is one kernel of unknown length (T_r unknown is
// longest). Where it reports them together (Launch::id 0), a vGPU is one kernel of the length
// announced last, but no shorter than what it has run beyond that, by the driver's clock, or than
// its vGPU's jobs before outran theirs (overruns.h).
#include <algorithm>
#include <unordered_map>
#include <vector>

#include "mediator/base/check.h"
#include "policies/parts/in_units.h"
#include "policies/parts/indexed_heap.h"
#include "policies/parts/overruns.h"
#include "policies/policy.h"

namespace sluice::policy {
namespace {

constexpr uint64_t kMaxWork = 1ull << 50;  // SM-ns, days of a whole GPU

class Hpf final : public Policy {
 public:
  explicit Hpf(const Config& config)
      : config_(config), handover_ns_(static_cast<double>(config.machine.handover_ns)) {
    levels_.reserve(kPriorityLevels);
    for (uint32_t i = 0; i < kPriorityLevels; ++i) levels_.emplace_back(Less{this});
  }
  std::string_view name() const override { return "hpf"; }

  void on_vgpu_added(uint64_t, VgpuId v, const VgpuShare& share, Actions&) override {
    if (v >= vgpus_.size()) vgpus_.resize(v + 1);
    SLUICE_CHECK(!vgpus_[v].present);
    vgpus_[v].present = true;
    vgpus_[v].priority = std::min(share.priority, kPriorityLevels - 1);
  }
  void on_vgpu_changed(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) override {
    for (const uint32_t slot : vgpus_[v].jobs)
      if (kernels_[slot].waits) unqueue(slot);
    vgpus_[v].priority = std::min(share.priority, kPriorityLevels - 1);
    for (const uint32_t slot : vgpus_[v].jobs)
      if (kernels_[slot].live && !holds(slot)) queue(slot);
    decide(now_ns, out);
  }
  void on_vgpu_removed(uint64_t, VgpuId v, Actions&) override {
    SLUICE_CHECK(vgpus_[v].jobs.empty());
    vgpus_[v].present = false;
  }

  void on_launch_queued(uint64_t now_ns, const Launch& launch, Actions& out) override {
    if (launch.id == 0) return announced_as_a_whole(now_ns, launch, out);
    if (slots_.count(launch.id)) return;
    for (const uint32_t slot : vgpus_[launch.vgpu].jobs)
      if (kernels_[slot].launch == 0 && kernels_[slot].live) return;  // announced without launches
    Kernel k{.live = true, .vgpu = launch.vgpu, .launch = launch.id};
    k.predicted_sm_ns = std::min(launch.predicted_sm_ns, kMaxWork);
    k.preempt_ns = launch.preempt_ns;
    if (launch.sms_wanted > 0 && launch.sms_wanted < sms()) k.sms_wanted = launch.sms_wanted;
    join(k);
    decide(now_ns, out);
  }
  void on_launch_done(uint64_t now_ns, const Launch& launch, Actions& out) override {
    const auto it = slots_.find(launch.id);
    if (it == slots_.end()) return;
    end(it->second);
    decide(now_ns, out);
  }
  void on_arrival(uint64_t now_ns, VgpuId v, Actions& out) override {
    for (const uint32_t slot : vgpus_[v].jobs) {
      Kernel& k = kernels_[slot];
      if (k.live) return;
      if (k.launch != 0 || !holds(slot)) continue;
      k.live = true;  // it still holds SMs, or is on its way out: released() queues it
      k.used_sm_ns = k.beyond_sm_ns = 0;
      k.claimed_sm_ns = vgpus_[v].announced_sm_ns;
      k.predicted_sm_ns = expected_sm_ns(k);
      k.preempt_ns = vgpus_[v].announced_preempt_ns;
      return decide(now_ns, out);
    }
    Kernel k{.live = true, .vgpu = v};
    k.claimed_sm_ns = vgpus_[v].announced_sm_ns;
    k.predicted_sm_ns = expected_sm_ns(k);
    k.preempt_ns = vgpus_[v].announced_preempt_ns;
    join(k);
    decide(now_ns, out);
  }
  void on_idle(uint64_t now_ns, VgpuId v, Actions& out) override {
    for (const uint32_t slot : vgpus_[v].jobs)
      if (const Kernel& k = kernels_[slot]; k.launch == 0 && k.live)
        vgpus_[v].overruns.end(k.used_sm_ns, config_.max_quantum_ns * sms());
    for (size_t i = vgpus_[v].jobs.size(); i-- > 0;) end(vgpus_[v].jobs[i]);
    vgpus_[v].announced_sm_ns = vgpus_[v].announced_preempt_ns = 0;
    decide(now_ns, out);
  }

  void on_usage(uint64_t, VgpuId v, const Usage& usage) override {
    const uint64_t sm_ns = std::min(usage.sm_ns, kMaxWork);
    for (const uint32_t slot : {main_.slot, guest_.slot}) {
      if (slot == kNone || kernels_[slot].vgpu != v) continue;
      Kernel& k = kernels_[slot];
      if (usage.launch != 0 && k.launch != 0 && k.launch != usage.launch) continue;
      k.used_sm_ns = std::min(k.used_sm_ns + sm_ns, kMaxWork);
      return;
    }
  }
  void on_left(uint64_t now_ns, VgpuId v, LeftReason why, Actions& out) override {
    on_released(now_ns, v, 0, {}, why, out);
  }
  void on_released(uint64_t now_ns, VgpuId v, LaunchId launch, SmRange sms, LeftReason,
                   Actions& out) override {
    for (Place* place : {&main_, &guest_}) {
      if (place->slot == kNone || kernels_[place->slot].vgpu != v) continue;
      if (launch != 0 && kernels_[place->slot].launch != launch) continue;
      release(*place, sms);
      break;
    }
    decide(now_ns, out);
  }
  void on_handover(uint64_t, uint64_t cost_ns) override {
    handover_ns_ += (std::min(static_cast<double>(cost_ns), 1e9) - handover_ns_) / 8;
  }
  void on_wake(uint64_t, Actions&) override {}

 private:
  static constexpr uint32_t kNone = 0xffffffffu;
  struct Kernel {
    bool live = false;   // has work
    bool waits = false;  // in its level's queue
    VgpuId vgpu = kNoVgpu;
    LaunchId launch = 0;
    uint64_t predicted_sm_ns = 0;  // T_e
    uint64_t used_sm_ns = 0;
    uint64_t claimed_sm_ns = 0;  // announced as a whole: its total as announced, ...
    uint64_t beyond_sm_ns = 0;   // ... and what it used beyond that, each time until announced anew
    uint64_t preempt_ns = 0;
    uint32_t sms_wanted = 0;  // 0: all
    uint64_t seq = 0;
  };
  struct Vgpu {
    bool present = false;
    uint32_t priority = 0;
    std::vector<uint32_t> jobs;
    Overruns overruns;
    uint64_t announced_sm_ns = 0,
             announced_preempt_ns = 0;  // as a whole, since it turned busy or before
  };
  // Who holds SMs [lo, hi), and how many of them he has still to leave.
  struct Place {
    uint32_t slot = kNone;
    uint32_t lo = 0, hi = 0;
    uint32_t held = 0;  // hi - lo, except while it is released part by part
    uint32_t leaving = 0;
  };
  struct Less {
    const Hpf* p;
    bool operator()(uint32_t a, uint32_t b) const {
      const uint64_t ra = p->remaining_ns(a), rb = p->remaining_ns(b);
      return ra != rb ? ra < rb : p->kernels_[a].seq < p->kernels_[b].seq;
    }
  };

  uint32_t sms() const { return std::max(config_.machine.sm_count, 1u); }
  uint32_t priority(uint32_t slot) const { return vgpus_[kernels_[slot].vgpu].priority; }
  bool holds(uint32_t slot) const { return slot == main_.slot || slot == guest_.slot; }

  // T_r. Changes only while the kernel holds SMs, so never while it is in a queue.
  uint64_t remaining_ns(uint32_t slot) const {
    const Kernel& k = kernels_[slot];
    if (k.predicted_sm_ns == 0) return ~0ull;
    const uint64_t left_sm_ns = k.used_sm_ns <= k.predicted_sm_ns
                                    ? k.predicted_sm_ns - k.used_sm_ns
                                    : k.used_sm_ns - k.predicted_sm_ns;
    return left_sm_ns / (k.sms_wanted ? k.sms_wanted : sms());
  }
  uint64_t overhead_ns(uint32_t slot) const {
    return kernels_[slot].preempt_ns ? kernels_[slot].preempt_ns
                                     : static_cast<uint64_t>(handover_ns_);
  }
  // Figure 6, lines 3 to 13 and 28.
  bool preempts(uint32_t next, uint32_t running) const {
    if (priority(next) != priority(running)) return priority(next) > priority(running);
    const uint64_t ks = remaining_ns(next), kr = remaining_ns(running);
    return ks != ~0ull && kr > ks && kr - ks > overhead_ns(running);
  }

  // Of one that is announced as a whole: as announced, but no less than it has run beyond that, or
  // its vGPU's jobs before it did.
  uint64_t expected_sm_ns(const Kernel& k) const {
    const Vgpu& g = vgpus_[k.vgpu];
    if (g.announced_sm_ns == 0) return 0;
    return k.used_sm_ns +
           std::max({g.announced_sm_ns, k.beyond_sm_ns, g.overruns.least_sm_ns(k.used_sm_ns)});
  }
  void announced_as_a_whole(uint64_t now_ns, const Launch& launch, Actions& out) {
    Vgpu& g = vgpus_[launch.vgpu];
    g.announced_sm_ns = std::min(launch.predicted_sm_ns, kMaxWork);
    g.announced_preempt_ns = launch.preempt_ns;
    for (const uint32_t slot : g.jobs) {
      Kernel& k = kernels_[slot];
      if (k.launch != 0 || !k.live) continue;
      const bool waits = k.waits;
      if (waits) unqueue(slot);
      k.beyond_sm_ns += k.used_sm_ns - std::min(k.claimed_sm_ns, k.used_sm_ns);
      k.claimed_sm_ns = k.used_sm_ns + g.announced_sm_ns;
      k.predicted_sm_ns = expected_sm_ns(k);
      k.preempt_ns = g.announced_preempt_ns;
      if (waits) queue(slot);
    }
    decide(now_ns, out);
  }
  void join(const Kernel& kernel) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(kernels_.size()));
      kernels_.emplace_back();
    }
    const uint32_t slot = free_.back();
    free_.pop_back();
    kernels_[slot] = kernel;
    kernels_[slot].seq = ++seqs_;
    if (kernel.launch != 0) slots_.emplace(kernel.launch, slot);
    vgpus_[kernel.vgpu].jobs.push_back(slot);
    queue(slot);
  }
  void queue(uint32_t slot) {
    kernels_[slot].waits = true;
    levels_[priority(slot)].push(slot);
  }
  void unqueue(uint32_t slot) {
    kernels_[slot].waits = false;
    levels_[priority(slot)].remove(slot);
  }
  void end(uint32_t slot) {
    if (!kernels_[slot].live) return;
    kernels_[slot].live = false;
    if (kernels_[slot].waits) unqueue(slot);
    if (!holds(slot)) forget(slot);
  }
  void forget(uint32_t slot) {
    std::erase(vgpus_[kernels_[slot].vgpu].jobs, slot);
    if (kernels_[slot].launch != 0) slots_.erase(kernels_[slot].launch);
    free_.push_back(slot);
  }
  uint32_t best() const {
    for (size_t i = levels_.size(); i-- > 0;)
      if (!levels_[i].empty()) return levels_[i].top();
    return kNone;
  }

  void run(Place& place, uint32_t slot, uint32_t lo, uint32_t hi, Actions& out) {
    const Kernel& k = kernels_[slot];
    if (k.waits) unqueue(slot);
    if (k.launch == 0 && k.claimed_sm_ns != 0) vgpus_[k.vgpu].overruns.chosen(k.claimed_sm_ns);
    place.slot = slot;
    place.lo = lo;
    place.hi = hi;
    place.held = hi - lo;
    std::fill(owners_.begin() + lo, owners_.begin() + hi, slot);
    out.push_back(Action::run(k.vgpu, range(lo, hi), k.launch));
  }
  void evict(Place& place, uint32_t next, uint32_t lo, uint32_t hi, Actions& out) {
    place.leaving = hi - lo;
    const Kernel& k = kernels_[place.slot];
    out.push_back(Action::evict(k.vgpu, next == kNone ? kNoVgpu : kernels_[next].vgpu,
                                range(lo, hi), k.launch));
  }
  SmRange range(uint32_t lo, uint32_t hi) const {
    if (lo == 0 && hi == sms()) return {};
    return {static_cast<uint16_t>(lo), static_cast<uint16_t>(hi)};
  }
  // `left` is free, one part of what the place held: parts may come in any order.
  void release(Place& place, SmRange left) {
    uint32_t count = 0;
    for (uint32_t i = left.lo; i < std::min<uint32_t>(left.hi, sms()); ++i) {
      if (owners_[i] != place.slot) continue;
      owners_[i] = kNone;
      ++count;
    }
    place.held -= count;
    place.leaving -= std::min(place.leaving, count);
    while (place.lo < place.hi && owners_[place.lo] != place.slot) ++place.lo;
    while (place.lo < place.hi && owners_[place.hi - 1] != place.slot) --place.hi;
    if (place.held > 0) return;
    const uint32_t slot = place.slot;
    place = Place{};
    if (kernels_[slot].live)
      queue(slot);
    else
      forget(slot);
  }

  void decide(uint64_t, Actions& out) {
    if (main_.leaving > 0 || guest_.leaving > 0) return;  // on_released() decides
    // A launch that is over is released by itself, right after this.
    for (const Place* p : {&main_, &guest_})
      if (p->slot != kNone && !kernels_[p->slot].live && kernels_[p->slot].launch != 0) return;
    // The guest is alone: it is the main one now; the SMs above it are free.
    if (main_.slot == kNone && guest_.slot != kNone) std::swap(main_, guest_);

    const uint32_t next = best();
    if (main_.slot == kNone) {
      if (next == kNone) return;
      run(main_, next, 0, sms(), out);
      return decide_beside(out);
    }
    decide_beside(out);
  }

  // Somebody holds the main place.
  void decide_beside(Actions& out) {
    const uint32_t next = best();
    const bool main_works = kernels_[main_.slot].live;
    if (guest_.slot != kNone) {
      if (next == kNone) return;
      if (!kernels_[guest_.slot].live || preempts(next, guest_.slot)) {
        // Its place goes to the next small one; a large one takes the whole GPU.
        if (!main_works || preempts(next, main_.slot))
          evict(guest_, next, guest_.lo, guest_.hi, out);
      }
      return;
    }
    const bool all = main_.lo == 0 && main_.hi == sms();
    if (next == kNone) {
      // SMs that a guest has left, or lay beside one that is main now.
      if (!all && main_works) extend(out);
      return;
    }
    if (main_works && !preempts(next, main_.slot)) {
      if (!all) extend(out);
      return;
    }
    const uint32_t k = kernels_[next].sms_wanted;
    if (!config_.machine.spatial || k == 0 || k >= sms() || !main_works)
      return evict(main_, next, main_.lo, main_.hi, out);
    if (main_.lo >= k) return run(guest_, next, 0, main_.lo, out);  // a guest's place is free
    if (main_.hi + k <= sms()) return run(guest_, next, main_.hi, sms(), out);
    if (main_.hi - main_.lo <= k) return evict(main_, next, main_.lo, main_.hi, out);
    evict(main_, next, main_.lo, k, out);
  }
  void extend(Actions& out) {
    const Kernel& k = kernels_[main_.slot];
    if (main_.lo > 0) out.push_back(Action::run(k.vgpu, range(0, main_.lo), k.launch));
    if (main_.hi < sms()) out.push_back(Action::run(k.vgpu, range(main_.hi, sms()), k.launch));
    main_.lo = 0;
    main_.hi = main_.held = sms();
    std::fill(owners_.begin(), owners_.end(), main_.slot);
  }

  const Config config_;
  std::vector<Vgpu> vgpus_;
  std::vector<Kernel> kernels_;
  std::vector<uint32_t> free_;
  std::unordered_map<LaunchId, uint32_t> slots_;
  std::vector<IndexedHeap<Less>> levels_;  // waiting, by remaining time
  Place main_, guest_;
  std::vector<uint32_t> owners_ = std::vector<uint32_t>(sms(), kNone);  // per SM: a slot
  uint64_t seqs_ = 0;
  double handover_ns_;
};

}  // namespace

std::unique_ptr<Policy> make_hpf(const Config& config) {
  return in_units(
      config, [](const Config& c) -> std::unique_ptr<Policy> { return std::make_unique<Hpf>(c); });
}

}  // namespace sluice::policy
