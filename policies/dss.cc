// dss: dynamic spatial sharing (Tanasic et al., "Enabling Preemptive Multiprogramming on GPUs", section 3.4,
// Algorithm 1). The GPU's SMs are divided among the kernels that are active. A token is the right to one
// SM: taking one costs a token, which comes back with the SM; SMs that nobody has tokens for are taken on debt
// (a negative count). The partition is made when a kernel becomes active and when an SM becomes idle:
//   repeat: give an idle SM to the kernel with most tokens; where none is idle, reserve an SM of the one with
//   fewest for the one with most; until no two differ by more than one.
// An SM that is reserved is given to whoever has most tokens when it has been left ("we allow the scheduler
// to change the kernel for which an SM is reserved during the preemption of that SM").
//   - Tokens: floor(N_sm / N_p) each, and one more for those that came first (section 4.4); here by weight, over the
//     vGPUs that have work. With equal weights that partitions as the paper does, because only differences of
//     counts matter.
//   - Departure: as printed, Algorithm 1 returns if the two counts are equal before it looks for an idle SM, which
//     would leave a kernel that is alone without any. Idle SMs are always given out here.
//   - A kernel gets no more SMs than it can use (Launch::sms_wanted).
//   - As in the paper, at most as many kernels are active as there are SMs (its tables have an entry for each SM); others
//     wait, in order of arrival, until one ends, and none is evicted for them. Then vGPUs can starve; wfq is for that.
// Needs a machine with spatial sharing; on another the GPU is one SM. Priorities mean nothing to it; a vGPU's
// launches are run one at a time, the first to come first. How SMs are emptied is the preemptor's.
#include <algorithm>
#include <deque>
#include <vector>

#include "mediator/base/check.h"
#include "policies/policy.h"

namespace sluice::policy {
namespace {

constexpr uint32_t kMaxSms = 4096;  // beyond any GPU; bounds the table

class Dss final : public Policy {
 public:
  explicit Dss(const Config& config)
      : spatial_(config.machine.spatial && config.machine.sm_count > 1),
        sms_(spatial_ ? std::min(config.machine.sm_count, kMaxSms) : 1) {}
  std::string_view name() const override { return "dss"; }

  void on_vgpu_added(uint64_t, VgpuId v, const VgpuShare& share, Actions&) override {
    if (v >= vgpus_.size()) vgpus_.resize(v + 1);
    SLUICE_CHECK(!vgpus_[v].present);
    vgpus_[v] = Vgpu{};
    vgpus_[v].present = true;
    vgpus_[v].weight = std::clamp(share.weight, 1u, kMaxWeight);
  }
  void on_vgpu_changed(uint64_t, VgpuId v, const VgpuShare& share, Actions& out) override {
    vgpus_[v].weight = std::clamp(share.weight, 1u, kMaxWeight);
    set_tokens();
    partition(out);
  }
  void on_vgpu_removed(uint64_t, VgpuId v, Actions&) override {
    SLUICE_CHECK(!vgpus_[v].active);
    vgpus_[v].present = false;
  }

  void on_launch_queued(uint64_t, const Launch& launch, Actions& out) override {
    Vgpu& g = vgpus_[launch.vgpu];
    if (launch.id == 0 || ((g.active || g.pending) && g.launches.empty())) return;  // announced without launches
    g.launches.push_back({launch.id, launch.sms_wanted});
    if (!g.active) activate(launch.vgpu, out);
  }
  void on_launch_done(uint64_t, const Launch& launch, Actions& out) override {
    Vgpu& g = vgpus_[launch.vgpu];
    const bool ran = !g.launches.empty() && g.launches.front().id == launch.id;
    std::erase_if(g.launches, [&](const Queued& q) { return q.id == launch.id; });
    if (!ran) return;
    // Its SMs are released one by one after this; the vGPU's next launch is a new kernel.
    if (!g.active) return;
    deactivate(launch.vgpu);
    fill(out);
    if (!g.launches.empty()) activate(launch.vgpu, out);
  }
  void on_arrival(uint64_t, VgpuId v, Actions& out) override {
    if (!vgpus_[v].active) activate(v, out);
  }
  void on_idle(uint64_t, VgpuId v, Actions& out) override {
    vgpus_[v].launches.clear();
    if (vgpus_[v].pending) std::erase(pending_, v), vgpus_[v].pending = false;
    if (!vgpus_[v].active) return;
    deactivate(v);
    fill(out);
    partition(out);
  }
  void on_usage(uint64_t, VgpuId, const Usage&) override {}

  void on_left(uint64_t now_ns, VgpuId v, LeftReason why, Actions& out) override {
    on_released(now_ns, v, 0, {}, why, out);
  }
  void on_released(uint64_t, VgpuId v, LaunchId, SmRange sms, LeftReason, Actions& out) override {
    const uint32_t hi = spatial_ ? std::min<uint32_t>(sms.hi, sms_) : 1;
    for (uint32_t i = spatial_ ? sms.lo : 0; i < hi; ++i) {
      if (owners_[i].vgpu != v) continue;
      owners_[i] = Sm{};
    }
    partition(out);
  }
  void on_wake(uint64_t, Actions&) override {}

 private:
  struct Queued {
    LaunchId id;
    uint32_t sms_wanted;
  };
  struct Vgpu {
    bool present = false;
    bool active = false;
    bool pending = false;         // waits to become active
    uint32_t weight = kDefaultWeight;
    std::deque<Queued> launches;  // front: the active kernel; empty: the vGPU is one kernel
    int32_t tokens = 0;
    int32_t running = 0;  // SMs that run it and stay
    int32_t held = 0;     // those and the ones promised to it
    LaunchId launch() const { return launches.empty() ? 0 : launches.front().id; }
  };
  struct Sm {
    VgpuId vgpu = kNoVgpu;  // who holds it
    LaunchId launch = 0;
    bool leaving = false;   // reserved: told to leave
  };

  int32_t limit(const Vgpu& g) const {
    const uint32_t wanted = g.launches.empty() ? 0 : g.launches.front().sms_wanted;
    return static_cast<int32_t>(wanted > 0 && spatial_ ? std::min(wanted, sms_) : sms_);
  }
  int32_t count(const Vgpu& g) const { return g.tokens - g.held; }

  void activate(VgpuId v, Actions& out) {
    if (active_.size() >= sms_) {
      if (!vgpus_[v].pending) pending_.push_back(v);
      vgpus_[v].pending = true;
      return;
    }
    vgpus_[v].active = true;
    vgpus_[v].held = 0;
    active_.push_back(v);
    set_tokens();
    partition(out);
  }
  void deactivate(VgpuId v) {
    vgpus_[v].active = false;
    std::erase(active_, v);
    set_tokens();
  }
  // Who waits longest becomes active in the place of one that has ended.
  void fill(Actions& out) {
    while (!pending_.empty() && active_.size() < sms_) {
      const VgpuId v = pending_.front();
      pending_.pop_front();
      vgpus_[v].pending = false;
      activate(v, out);
    }
  }
  void set_tokens() {
    uint64_t weights = 0;
    for (const VgpuId v : active_) weights += vgpus_[v].weight;
    uint32_t rest = sms_;
    for (const VgpuId v : active_) {
      vgpus_[v].tokens = static_cast<int32_t>(static_cast<uint64_t>(sms_) * vgpus_[v].weight / weights);
      rest -= static_cast<uint32_t>(vgpus_[v].tokens);
    }
    for (size_t i = 0; i < active_.size() && rest > 0; ++i, --rest) ++vgpus_[active_[i]].tokens;
  }
  bool runs_kernel(const Sm& sm) const {
    return sm.vgpu != kNoVgpu && vgpus_[sm.vgpu].active && sm.launch == vgpus_[sm.vgpu].launch();
  }

  // Algorithm 1. An SM is spare when it is free, on its way to be, or held by a kernel that is over; each
  // spare one is promised to somebody, and which one it will be is settled when it is free.
  void partition(Actions& out) {
    for (const VgpuId v : active_) vgpus_[v].running = 0;
    uint32_t spare = 0;
    for (const Sm& sm : owners_) {
      if (!sm.leaving && runs_kernel(sm)) ++vgpus_[sm.vgpu].running;
      else ++spare;
    }
    for (const VgpuId v : active_) vgpus_[v].held = vgpus_[v].running;
    for (;;) {
      VgpuId most = kNoVgpu, least = kNoVgpu;
      for (const VgpuId v : active_) {
        const Vgpu& g = vgpus_[v];
        if (g.held < limit(g) && (most == kNoVgpu || count(g) > count(vgpus_[most]))) most = v;
      }
      if (most == kNoVgpu) break;
      if (spare > 0) {
        --spare;
        ++vgpus_[most].held;
        continue;
      }
      for (const VgpuId v : active_)
        if (vgpus_[v].running > 0 && (least == kNoVgpu || count(vgpus_[v]) < count(vgpus_[least]))) least = v;
      if (least == kNoVgpu || count(vgpus_[most]) <= count(vgpus_[least]) + 1) break;
      evict_one(least, most, out);
      --vgpus_[least].running;
      --vgpus_[least].held;
      ++vgpus_[most].held;
    }
    give_free(out);
  }
  void evict_one(VgpuId v, VgpuId next, Actions& out) {
    for (uint32_t i = sms_; i-- > 0;) {
      Sm& sm = owners_[i];
      if (sm.vgpu != v || sm.leaving || !runs_kernel(sm)) continue;
      sm.leaving = true;
      out.push_back(Action::evict(v, next, range(i), sm.launch));
      return;
    }
  }
  // Free SMs go to those that were promised some, most tokens first; a vGPU that holds SMs without work is
  // asked to leave where they are wanted.
  void give_free(Actions& out) {
    for (uint32_t i = 0; i < sms_; ++i) {
      Sm& sm = owners_[i];
      if (sm.vgpu != kNoVgpu && (sm.leaving || runs_kernel(sm))) continue;
      if (sm.vgpu != kNoVgpu && sm.launch != 0) continue;  // its launch is over: it comes by itself
      VgpuId to = kNoVgpu;
      for (const VgpuId v : active_) {
        const Vgpu& g = vgpus_[v];
        if (g.running < g.held &&
            (to == kNoVgpu || g.tokens - g.running > vgpus_[to].tokens - vgpus_[to].running))
          to = v;
      }
      if (to == kNoVgpu) return;
      ++vgpus_[to].running;
      if (sm.vgpu != kNoVgpu) {
        sm.leaving = true;
        out.push_back(Action::evict(sm.vgpu, to, range(i), 0));
      } else {
        sm = Sm{.vgpu = to, .launch = vgpus_[to].launch(), .leaving = false};
        out.push_back(Action::run(to, range(i), sm.launch));
      }
    }
  }
  SmRange range(uint32_t i) const {
    return spatial_ ? SmRange{static_cast<uint16_t>(i), static_cast<uint16_t>(i + 1)} : SmRange{};
  }

  const bool spatial_;
  const uint32_t sms_;
  std::vector<Vgpu> vgpus_;
  std::deque<VgpuId> pending_;  // the first to come first
  std::vector<VgpuId> active_;  // in the order in which they became active
  std::vector<Sm> owners_ = std::vector<Sm>(sms_);
};

}  // namespace

std::unique_ptr<Policy> make_dss(const Config& config) { return std::make_unique<Dss>(config); }

}  // namespace sluice::policy
