// SPDX-License-Identifier: Apache-2.0
// dss: dynamic spatial sharing (Tanasic et al., "Enabling Preemptive Multiprogramming on GPUs",
// section 3.4, Algorithm 1). The GPU's SMs are divided among the kernels that are active. A token
// is the right to one SM: taking one costs a token, which comes back with the SM; SMs that nobody
// has tokens for are taken on debt (a negative count). The partition is made when a kernel becomes
// active and when an SM becomes idle:
//   repeat: give an idle SM to the kernel with most tokens; where none is idle, reserve an SM of
//   the one with fewest for the one with most; until no two differ by more than one.
// An SM that is reserved is given to whoever has most tokens when it has been left ("we allow the
// scheduler to change the kernel for which an SM is reserved during the preemption of that SM").
//   - Tokens: floor(N_sm / N_p) each, and one more for those that came first (section 4.4); here by
//     weight, over the vGPUs that have work. With equal weights that partitions as the paper does,
//     because only differences of counts matter.
//   - Departure: as printed, Algorithm 1 returns if the two counts are equal before it searches an
//     idle SM, which would leave a kernel that is alone without any. Here idle SMs are always given
//     out.
//   - A kernel gets no more SMs than it can use (Launch::sms_wanted).
//   - As in the paper, at most as many kernels are active as there are SMs (its tables have an
//     entry for each SM); others wait, in order of arrival, until one ends, and none is evicted for
//     them. Then vGPUs can starve; wfq is for that.
// Needs a machine with spatial sharing; on another the GPU is one SM. Priorities mean nothing to
// it; a vGPU's launches are run one at a time, the first to come first. How SMs are emptied is the
// preemptor's. Cost: a look at the counts of the active kernels (compact arrays, at most as long as
// there are SMs) for each SM that changes hands; promises are made anew only when a kernel becomes
// active or ends.
#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "mediator/base/check.h"
#include "policies/parts/in_units.h"
#include "policies/parts/pauses.h"
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
    if (!vgpus_[v].active) return;
    weight_[place(v)] = static_cast<int32_t>(vgpus_[v].weight * sms_);
    changed_ = true;
    partition(out);
  }
  void on_vgpu_removed(uint64_t, VgpuId v, Actions&) override {
    SLUICE_CHECK(!vgpus_[v].active);
    vgpus_[v].present = false;
  }

  void on_launch_queued(uint64_t, const Launch& launch, Actions& out) override {
    Vgpu& g = vgpus_[launch.vgpu];
    if (launch.id == 0 || ((g.active || g.pending) && g.launches.empty()))
      return;  // announced without launches
    g.launches.push_back({launch.id, launch.sms_wanted});
    if (g.active) return;
    activate(launch.vgpu);
    if (changed_) partition(out);
  }
  void on_launch_done(uint64_t, const Launch& launch, Actions& out) override {
    Vgpu& g = vgpus_[launch.vgpu];
    const bool ran = !g.launches.empty() && g.launches.front().id == launch.id;
    std::erase_if(g.launches, [&](const Queued& q) { return q.id == launch.id; });
    if (!ran) return;
    // Its SMs are released one by one after this; the vGPU's next launch is a new kernel.
    if (!g.active) return;
    deactivate(launch.vgpu);
    fill();
    if (!g.launches.empty()) activate(launch.vgpu);
    partition(out);
  }
  void on_arrival(uint64_t, VgpuId v, Actions& out) override {
    if (vgpus_[v].active) return;
    activate(v);
    if (changed_) partition(out);
  }
  void on_idle(uint64_t, VgpuId v, Actions& out) override {
    vgpus_[v].launches.clear();
    if (vgpus_[v].pending) std::erase(pending_, v), vgpus_[v].pending = false;
    if (!vgpus_[v].active) return;
    deactivate(v);
    fill();
    partition(out);
  }
  void on_usage(uint64_t, VgpuId, const Usage&) override {}
  bool reads_tasks() const override { return false; }

  void on_left(uint64_t now_ns, VgpuId v, LeftReason why, Actions& out) override {
    on_released(now_ns, v, 0, {}, why, out);
  }
  void on_released(uint64_t, VgpuId v, LaunchId, SmRange sms, LeftReason, Actions& out) override {
    const uint32_t hi = spatial_ ? std::min<uint32_t>(sms.hi, sms_) : 1;
    for (uint32_t i = spatial_ ? sms.lo : 0; i < hi; ++i) {
      Sm& sm = owners_[i];
      if (sm.vgpu != v) continue;
      if (!sm.leaving && !sm.over) --running_[place(v)], changed_ = true;  // nobody had asked
      sm = Sm{};
      free_.push_back(static_cast<uint16_t>(i));
      std::push_heap(free_.begin(), free_.end(), std::greater<>());
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
    bool pending = false;  // waits to become active
    uint32_t weight = kDefaultWeight;
    std::deque<Queued> launches;  // front: the active kernel; empty: the vGPU is one kernel
    LaunchId launch() const { return launches.empty() ? 0 : launches.front().id; }
  };
  struct Sm {
    VgpuId vgpu = kNoVgpu;  // who holds it
    LaunchId launch = 0;
    bool leaving = false;  // reserved: evicted
    bool over = false;     // the kernel that it was given to is not active any more
  };

  int32_t limit(const Vgpu& g) const {
    const uint32_t wanted = g.launches.empty() ? 0 : g.launches.front().sms_wanted;
    return static_cast<int32_t>(wanted > 0 && spatial_ ? std::min(wanted, sms_) : sms_);
  }
  size_t place(VgpuId v) const {
    return static_cast<size_t>(std::find(active_.begin(), active_.end(), v) - active_.begin());
  }

  // Both leave the recount to the partition that follows.
  void activate(VgpuId v) {
    if (active_.size() >= sms_) {
      if (!vgpus_[v].pending) pending_.push_back(v);
      vgpus_[v].pending = true;
      return;
    }
    Vgpu& g = vgpus_[v];
    g.active = true;
    active_.push_back(v);
    launch_.push_back(g.launch());
    weight_.push_back(static_cast<int32_t>(g.weight * sms_));
    limit_.push_back(limit(g));
    running_.push_back(0);
    tokens_.push_back(0);
    held_.push_back(0);
    changed_ = true;
    if (launch_.back() != 0) return;
    for (Sm& sm : owners_)  // what it kept when it turned idle
      if (sm.vgpu == v && sm.launch == 0 && !sm.leaving) sm.over = false, ++running_.back();
  }
  void deactivate(VgpuId v) {
    vgpus_[v].active = false;
    const auto at = static_cast<std::ptrdiff_t>(place(v));
    active_.erase(active_.begin() + at);
    launch_.erase(launch_.begin() + at);
    weight_.erase(weight_.begin() + at);
    for (auto* counts : {&limit_, &running_, &tokens_, &held_}) counts->erase(counts->begin() + at);
    const Sm* const sms = owners_.data();
    for (uint32_t i = 0; i < sms_; ++i) {
      if (sms[i].vgpu != v || sms[i].leaving || sms[i].over) continue;
      Sm& sm = owners_[i];
      sm.over = true;
      // A launch that is over leaves by itself; a vGPU without work has to be asked.
      if (sm.launch == 0) idle_.push_back(static_cast<uint16_t>(i));
    }
    changed_ = true;
  }
  // The kernel that has waited longest becomes active in the place of one that has ended.
  void fill() {
    while (!pending_.empty() && active_.size() < sms_) {
      const VgpuId v = pending_.front();
      pending_.pop_front();
      vgpus_[v].pending = false;
      activate(v);
    }
  }
  void set_tokens() {
    const int64_t sum = std::accumulate(weight_.begin(), weight_.end(), int64_t{0}) / sms_;
    // Rounded down as with integers: products are below 2^53, and a quotient that is whole is
    // exact.
    const double all = static_cast<double>(sum);
    const int32_t* const weight = weight_.data();
    int32_t* const tokens = tokens_.data();
    const size_t n = tokens_.size();
    int32_t rest = static_cast<int32_t>(sms_);
    for (size_t i = 0; i < n; ++i) {
      const auto whole = static_cast<int32_t>(weight[i] / all);
      tokens[i] = whole;
      rest -= whole;
    }
    const size_t one_more = std::min(n, static_cast<size_t>(rest));
    for (size_t i = 0; i < one_more; ++i) ++tokens[i];
  }

  // The place of the first with `a < b` for which x - y is the largest, kNobody if there is none.
  // Value and place in one number and no branch, so that compilers make vectors of it.
  static constexpr uint32_t kNobody = ~0u;
  using Counts = std::vector<int32_t>;
  uint32_t first_of_largest(const Counts& a_of, const Counts& b_of, const Counts& x_of,
                            const Counts& y_of) const {
    constexpr int32_t kNone = std::numeric_limits<int32_t>::min();
    const int32_t *a = a_of.data(), *b = b_of.data(), *x = x_of.data(), *y = y_of.data();
    int32_t best = kNone;
    for (int32_t i = 0, n = static_cast<int32_t>(active_.size()); i < n; ++i) {
      const int32_t value = (x[i] - y[i]) * static_cast<int32_t>(2 * kMaxSms) - i;
      const int32_t in = -static_cast<int32_t>(a[i] < b[i]);
      best = std::max(best, (value & in) | (kNone & ~in));
    }
    return best == kNone ? kNobody : static_cast<uint32_t>(-best) & (2 * kMaxSms - 1);
  }
  // Algorithm 1. An SM is spare when it is free, on its way to be, or held by a kernel that is
  // over; each spare one is promised to somebody, and which one it will be is settled when it is
  // free.
  void partition(Actions& out) {
    if (changed_) {
      changed_ = false;
      if (!active_.empty()) set_tokens();
      held_ = running_;
      spare_ = static_cast<int32_t>(sms_) - std::accumulate(running_.begin(), running_.end(), 0);
      promised_ = 0;
    }
    for (;;) {
      const uint32_t most = first_of_largest(held_, limit_, tokens_, held_);
      if (most == kNobody) break;
      if (spare_ > 0) {
        --spare_;
      } else {
        const uint32_t least = first_of_largest(zeros_, running_, held_, tokens_);
        if (least == kNobody || tokens_[most] - held_[most] <= tokens_[least] - held_[least] + 1)
          break;
        evict_one(active_[least], active_[most], out);
        --running_[least];
        --held_[least];
      }
      ++held_[most];
      ++promised_;
    }
    give_free(out);
  }
  void evict_one(VgpuId v, VgpuId next, Actions& out) {
    const Sm* const sms = owners_.data();
    for (uint32_t i = sms_; i-- > 0;) {
      if (sms[i].vgpu != v || sms[i].leaving || sms[i].over) continue;
      Sm& sm = owners_[i];
      sm.leaving = true;
      out.push_back(Action::evict(v, next, range(i), sm.launch));
      return;
    }
  }
  uint32_t first_promised() const { return first_of_largest(running_, held_, tokens_, running_); }
  // Free SMs go to those that were promised some, most tokens first; a vGPU that holds SMs without
  // work is asked to leave as many as are promised beyond that.
  void give_free(Actions& out) {
    for (; promised_ > 0 && !free_.empty(); --promised_) {
      const uint32_t to = first_promised();
      std::pop_heap(free_.begin(), free_.end(), std::greater<>());
      const uint32_t i = free_.back();
      free_.pop_back();
      ++running_[to];
      owners_[i] = Sm{.vgpu = active_[to], .launch = launch_[to]};
      out.push_back(Action::run(active_[to], range(i), owners_[i].launch));
    }
    for (int32_t asked = 0; asked < promised_ && !idle_.empty();) {
      const uint32_t i = idle_.back();
      idle_.pop_back();
      Sm& sm = owners_[i];
      if (sm.vgpu == kNoVgpu || !sm.over || sm.leaving || sm.launch != 0)
        continue;  // has left, or works again
      sm.leaving = true;
      ++asked;
      out.push_back(Action::evict(sm.vgpu, active_[first_promised()], range(i), 0));
    }
  }
  std::vector<uint16_t> all() const {
    std::vector<uint16_t> sms(sms_);
    std::iota(sms.begin(), sms.end(), uint16_t{0});
    return sms;
  }
  SmRange range(uint32_t i) const {
    return spatial_ ? SmRange{static_cast<uint16_t>(i), static_cast<uint16_t>(i + 1)} : SmRange{};
  }

  const bool spatial_;
  const uint32_t sms_;
  std::vector<Vgpu> vgpus_;
  std::deque<VgpuId> pending_;  // the first to come first
  std::vector<VgpuId>
      active_;  // in the order in which they became active; beside it, for each of them:
  std::vector<LaunchId> launch_;
  Counts weight_;  // times SMs
  Counts limit_;   // SMs that it can use
  Counts tokens_;
  Counts running_;  // SMs that run it and stay
  Counts held_;     // those and the ones promised to it
  const Counts zeros_ = Counts(sms_);
  int32_t spare_ = 0;     // neither running nor promised
  int32_t promised_ = 0;  // sum of held less running
  bool changed_ = false;  // which kernels are active, or their weights
  std::vector<Sm> owners_ = std::vector<Sm>(sms_);
  std::vector<uint16_t> free_ = all();  // a heap, the lowest first
  std::vector<uint16_t> idle_;          // held without work, but for those that have left since
};

}  // namespace

std::unique_ptr<Policy> make_dss(const Config& config) {
  return in_units(config, [](const Config& c) { return keep_pauses(c, std::make_unique<Dss>(c)); });
}

}  // namespace sluice::policy
