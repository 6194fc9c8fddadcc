// SPDX-License-Identifier: Apache-2.0
#include "policies/parts/share_tree.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "policies/parts/forwarding.h"
#include "policies/parts/indexed_heap.h"
#include "policies/parts/share_nodes.h"

namespace sluice::policy {
namespace {

class ShareTree final : public Forwarding {
 public:
  ShareTree(const Config& config, std::unique_ptr<Policy> inner)
      : Forwarding(std::move(inner)),
        proportional_(config.machine.preemptor == PreemptorKind::kProportional),
        free_alone_(proportional_ && config.machine.slices_are_free_alone),
        sms_(sms_of(config)),
        cells_(config.machine.spatial ? sms_ : 1),
        nodes_(sms_, std::max(kReserveNs, config.min_quantum_ns)) {}

  void on_vgpu_added(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) override {
    if (v >= vgpus_.size()) vgpus_.resize(v + 1);
    vgpus_[v] = Vgpu{};
    nodes_.add_vgpu(v);
    set_asked(now_ns, v, share);
    Vgpu& g = vgpus_[v];
    g.given = flat(v);
    around(now_ns, out, [&] { inner_->on_vgpu_added(now_ns, v, g.given, out); });
  }
  void on_vgpu_changed(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) override {
    around(now_ns, out, [&] {
      const bool was_plain = nodes_.plain();
      set_asked(now_ns, v, share);
      vgpus_[v].changed = true;
      if (nodes_.plain() && was_plain)
        give(now_ns, v, flat(v), out);
      else
        nodes_.mark_all_stale();
    });
  }
  void on_group(uint64_t now_ns, GroupId id, const GroupShare& share, Actions& out) override {
    if (id == kRootGroup || id >= kMaxGroups) return;
    nodes_.set_group(now_ns, id, share);
    watch_caps(now_ns);
    GroupShare in = share;
    in.parent = nodes_.parent_of(id);
    around(now_ns, out, [&] { inner_->on_group(now_ns, id, in, out); });
  }
  void on_vgpu_removed(uint64_t now_ns, VgpuId v, Actions& out) override {
    if (nodes_.vgpu(v).active) nodes_.set_active(v, false);
    vgpus_[v].wants = false;
    nodes_.remove_vgpu(v);
    if (caps_.contains(v)) caps_.remove(v);
    around(now_ns, out, [&] { inner_->on_vgpu_removed(now_ns, v, out); });
    nodes_.reshape();
  }

  void on_arrival(uint64_t now_ns, VgpuId v, Actions& out) override {
    Vgpu& g = vgpus_[v];
    if (g.wants) return;
    g.wants = true;
    g.since_ns = std::max<uint64_t>(now_ns, 1);
    g.served = proportional_;  // when a slice begins the hardware does not say
    if (g.held > 0) see_served(now_ns, v);
    if (!nodes_.plain()) nodes_.fill_caps(now_ns, v);
    if (!throttled(v) && !nodes_.plain() && nodes_.is_empty(v)) {
      set_throttled(v);
      watch_cap(now_ns, v);
    }
    around(now_ns, out, [&] {
      if (throttled(v))
        return take_all(now_ns, v, out);  // it may have held the GPU while it was idle
      activate(now_ns, v, out);
      inner_->on_arrival(now_ns, v, out);
      watch_cap(now_ns, v);
    });
  }
  void on_idle(uint64_t now_ns, VgpuId v, Actions& out) override {
    if (!vgpus_[v].wants) return;
    vgpus_[v].wants = false;
    around(now_ns, out, [&] {
      if (throttled(v)) return;
      nodes_.set_active(v, false);
      inner_->on_idle(now_ns, v, out);
    });
  }
  void on_launch_queued(uint64_t now_ns, const Launch& launch, Actions& out) override {
    Launch capped = launch;
    if (nodes_.vgpu(launch.vgpu).capped && !throttled(launch.vgpu)) {
      nodes_.fill_caps(now_ns, launch.vgpu);
      const uint64_t most = tokens_sm_ns(launch.vgpu);
      capped.predicted_sm_ns = std::min(capped.predicted_sm_ns, most);
      capped.run_predicted_sm_ns = std::min(capped.run_predicted_sm_ns, most);
    }
    around(now_ns, out, [&] { inner_->on_launch_queued(now_ns, capped, out); });
  }
  void on_launch_done(uint64_t now_ns, const Launch& launch, Actions& out) override {
    around(now_ns, out, [&] { inner_->on_launch_done(now_ns, launch, out); });
  }
  void on_usage(uint64_t now_ns, VgpuId v, const Usage& usage) override {
    charge(now_ns, v, usage);
    inner_->on_usage(now_ns, v, usage);
  }
  void on_usages(uint64_t now_ns, std::span<const VgpuUsage> reports) override {
    if (!nodes_.plain())
      for (const VgpuUsage& r : reports) charge(now_ns, r.vgpu, r.usage);
    inner_->on_usages(now_ns, reports);
  }
  void on_free_usage(uint64_t now_ns, VgpuId v, const Usage& usage) override {
    charge(now_ns, v, usage);
    inner_->on_free_usage(now_ns, v, usage);
  }
  void on_released(uint64_t now_ns, VgpuId v, LaunchId launch, SmRange sms, LeftReason why,
                   Actions& out) override {
    const uint32_t hi = end_of(sms);
    for (uint32_t i = begin_of(sms); i < hi; ++i) {
      if (cells_[i].holder != v) continue;
      cells_[i] = Cell{};
      --vgpus_[v].held;
    }
    around(now_ns, out, [&] { inner_->on_released(now_ns, v, launch, sms, why, out); });
  }
  void on_wake(uint64_t now_ns, Actions& out) override {
    asked_ns_ = kNeverWake;
    around(now_ns, out, [&] {
      if (inner_wake_ns_ > now_ns) return;
      inner_wake_ns_ = kNeverWake;
      inner_->on_wake(now_ns, out);
    });
  }

  bool comes_unasked(VgpuId v) const override {
    return !nodes_.minima() && !nodes_.vgpu(v).capped && inner_->comes_unasked(v);
  }
  bool may_fill(VgpuId v) const override {
    return !nodes_.minima() && !nodes_.vgpu(v).capped && inner_->may_fill(v);
  }
  VgpuId fills_best(const Queues& queues, VgpuId fills) const override {
    const VgpuId v = inner_->fills_best(queues, fills);
    return v != kNoVgpu && may_fill(v) ? v : kNoVgpu;
  }
  bool hears_at_once(VgpuId v) const override {
    return (free_alone_ && nodes_.vgpu(v).capped) || inner_->hears_at_once(v);
  }
  ShareFigures figures(VgpuId v) const override {
    if (v >= vgpus_.size()) return {};
    ShareFigures figures = vgpus_[v].figures;
    figures.reserved = nodes_.vgpu(v).reserved;
    return figures;
  }
  std::string refuses(VgpuId v, const VgpuShare& share) const override {
    if (!nodes_.has_group(share.group)) return "there is no such group";
    if (auto bad = nodes_.refuses_limits(share.min_permille, share.max_permille, share.group, v,
                                         ShareNodes::kNoGroup);
        !bad.empty())
      return bad;
    if (share.target_p99_us == 0) return {};
    uint32_t others = 0;
    for (VgpuId i = 0; i < vgpus_.size(); ++i)
      others += i != v && nodes_.vgpu(i).present && vgpus_[i].asked.latency == LatencyClass::kLow;
    const uint64_t bound_us = (inner_->wait_bound_ns(others) + 999) / 1000;
    if (bound_us == 0) return "the policy promises no target of latency";
    if (share.latency != LatencyClass::kLow) return "a target of latency needs the class low";
    if (bound_us <= share.target_p99_us) return {};
    return "a target of " + std::to_string(share.target_p99_us) + " us cannot be kept: beside " +
           std::to_string(others) + " other(s) of class low a wait may take " +
           std::to_string(bound_us) + " us";
  }
  std::string refuses_group(GroupId id, const GroupShare& share) const override {
    if (id == kRootGroup || id >= kMaxGroups) return "there is no such group";
    if (!nodes_.has_group(share.parent)) return "its parent is not there";
    if (nodes_.is_above(id, share.parent)) return "its parent would be within it";
    return nodes_.refuses_limits(share.min_permille, share.max_permille, share.parent, kNoVgpu, id);
  }

 private:
  struct Cell {  // an SM; the whole GPU where no parts are given
    VgpuId holder = kNoVgpu;
    bool leaving = false;
  };
  struct Vgpu {
    VgpuShare asked, given;
    bool wants = false;    // backlogged, as its driver reports; throttled, the policy does not know
    bool changed = false;  // in more than weight and priority
    bool served = true;    // since it became backlogged
    uint32_t held = 0;     // cells
    uint64_t since_ns = 0;
    uint64_t slice_ns = 0;  // set last by the policy
    ShareFigures figures;
  };

  static uint32_t sms_of(const Config& config) { return std::max(config.machine.sm_count, 1u); }
  uint32_t begin_of(SmRange sms) const { return cells_.size() == 1 ? 0 : sms.lo; }
  uint32_t end_of(SmRange sms) const {
    return std::min<uint32_t>(sms.hi, static_cast<uint32_t>(cells_.size()));
  }

  void set_asked(uint64_t now_ns, VgpuId v, const VgpuShare& share) {
    vgpus_[v].asked = share;
    nodes_.set_vgpu(now_ns, v, share);
    watch_caps(now_ns);
  }
  void charge(uint64_t now_ns, VgpuId v, const Usage& usage) {
    if (nodes_.charge(v, usage.sm_ns) && caps_.contains(v) && !throttled(v)) check_at(v, now_ns);
  }

  // ---- what the policy knows of shares
  VgpuShare flat(VgpuId v) {
    VgpuShare s = vgpus_[v].asked;
    s.priority = nodes_.level_of(v);
    if (!nodes_.plain()) s.weight = nodes_.weight_of(v);
    return s;
  }
  void give(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) {
    Vgpu& g = vgpus_[v];
    if (g.given == share && !g.changed) return;
    const bool by_others = !g.changed && g.given.priority == share.priority;
    g.given = share;
    g.changed = false;
    if (by_others)
      inner_->on_reweighed(now_ns, v, share, out);
    else
      inner_->on_vgpu_changed(now_ns, v, share, out);
  }
  void activate(uint64_t now_ns, VgpuId v, Actions& out) {
    nodes_.set_active(v, true);
    if (nodes_.plain()) return;
    give(now_ns, v, flat(v), out);
    reweigh(now_ns, out);
  }
  void reweigh(uint64_t now_ns, Actions& out) {
    scratch_.clear();
    if (nodes_.all_stale()) {
      for (VgpuId v = 0; v < vgpus_.size(); ++v)
        if (const ShareVgpu& n = nodes_.vgpu(v);
            n.present && (n.active || vgpus_[v].changed || nodes_.plain()))
          scratch_.push_back(v);
    } else {
      for (const GroupId g : nodes_.stale()) nodes_.active_in({g, true}, scratch_);
      nodes_.fresh();
      for (const VgpuId v : scratch_) give_weight(now_ns, v, out);
      return;
    }
    nodes_.fresh();
    for (const VgpuId v : scratch_) give(now_ns, v, flat(v), out);
  }
  // Others came or went: its level is what it was.
  void give_weight(uint64_t now_ns, VgpuId v, Actions& out) {
    Vgpu& g = vgpus_[v];
    if (g.changed) return give(now_ns, v, flat(v), out);
    const uint32_t weight = nodes_.weight_of(v);
    if (g.given.weight == weight) return;
    g.given.weight = weight;
    inner_->on_reweighed(now_ns, v, g.given, out);
  }
  // Its level has changed, or may have.
  void relevel(uint64_t now_ns, NodeRef ref, Actions& out) {
    scratch_.clear();
    nodes_.active_in(ref, scratch_);
    for (const VgpuId v : scratch_) give(now_ns, v, flat(v), out);
  }

  // ---- maximum
  bool throttled(VgpuId v) const { return nodes_.vgpu(v).throttled; }
  void set_throttled(VgpuId v) {
    nodes_.set_throttled(v, true);
    ++vgpus_[v].figures.throttled;
  }
  void throttle(uint64_t now_ns, VgpuId v, Actions& out) {
    set_throttled(v);
    nodes_.set_active(v, false);
    inner_->on_idle(now_ns, v, out);
    take_all(now_ns, v, out);
  }
  void take_all(uint64_t now_ns, VgpuId v, Actions& out) {
    note(now_ns, out);
    if (proportional_) out.push_back(Action::set_slice(v, 0));
    for (uint32_t i = 0; i < cells_.size();) {
      const uint32_t lo = i;
      while (i < cells_.size() && cells_[i].holder == v && !cells_[i].leaving)
        cells_[i++].leaving = true;
      if (i == lo) {
        ++i;
        continue;
      }
      SmRange sms;
      if (cells_.size() > 1) sms = {static_cast<uint16_t>(lo), static_cast<uint16_t>(i)};
      out.push_back(Action::evict(v, kNoVgpu, sms));
    }
    noted_ = out.size();  // these are not the policy's
  }
  void resume(uint64_t now_ns, VgpuId v, Actions& out) {
    Vgpu& g = vgpus_[v];
    nodes_.set_throttled(v, false);
    if (!g.wants) {
      if (proportional_) out.push_back(Action::set_slice(v, g.slice_ns));
      return;
    }
    activate(now_ns, v, out);
    const size_t from = out.size();
    const uint64_t most = tokens_sm_ns(v);
    inner_->on_launch_queued(
        now_ns, {.vgpu = v, .predicted_sm_ns = most, .run_predicted_sm_ns = most}, out);
    inner_->on_arrival(now_ns, v, out);
    if (!proportional_) return;
    for (size_t i = from; i < out.size(); ++i)
      if (out[i].kind == Action::Kind::kSetSlice && out[i].vgpu == v) return;
    out.push_back(Action::set_slice(v, g.slice_ns));
  }
  // Whatever it has queued, it runs until its bucket is empty: for the policy that is short work.
  // Behind others' turns its bucket would be full long before it is served.
  uint64_t tokens_sm_ns(VgpuId v) const { return nodes_.tokens_last_ns(v) * sms_; }
  // A bucket is looked at when it may be full enough, or empty: not before, however much the others
  // below a group use, unless a report says so.
  void check_at(VgpuId v, uint64_t at_ns) {
    if (cap_at_ns_.size() <= v) cap_at_ns_.resize(v + 1);
    cap_at_ns_[v] = at_ns;
    if (caps_.contains(v))
      caps_.update(v);
    else
      caps_.push(v);
  }
  void watch_cap(uint64_t now_ns, VgpuId v) {
    const Vgpu& g = vgpus_[v];
    if (!nodes_.vgpu(v).capped && !throttled(v)) return;
    uint64_t wait_ns = 0;
    if (throttled(v))
      wait_ns = nodes_.refilled_in_ns(v);
    else if (g.held > 0 || (g.wants && proportional_))
      wait_ns = nodes_.tokens_last_ns(v);
    else
      return;
    check_at(v, now_ns + std::max(wait_ns, kShortestWaitNs));
  }
  // All, after they have changed.
  void watch_caps(uint64_t now_ns) {
    for (const VgpuId v : nodes_.capped()) check_at(v, now_ns);
  }
  void check_caps(uint64_t now_ns, Actions& out) {
    while (!caps_.empty() && cap_at_ns_[caps_.top()] <= now_ns) {
      const VgpuId v = caps_.top();
      caps_.remove(v);
      nodes_.fill_caps(now_ns, v);
      if (throttled(v) || !nodes_.is_empty(v)) {
        if (throttled(v) && nodes_.refilled_in_ns(v) == 0) resume(now_ns, v, out);
        watch_cap(now_ns, v);
        continue;
      }
      // It holds although it is idle: others of its group would never see the bucket filled.
      if (!vgpus_[v].wants) take_all(now_ns, v, out);
      // All that the empty bucket is for.
      std::vector<VgpuId> empty;
      nodes_.all_empty(v, empty);
      for (const VgpuId e : empty) {
        nodes_.fill_caps(now_ns, e);
        throttle(now_ns, e, out);
        watch_cap(now_ns, e);
      }
    }
  }

  // ---- around each event
  // Notes what the policy did since the last call; its wakes are taken out.
  void note(uint64_t now_ns, Actions& out) {
    size_t kept = noted_;
    for (size_t i = noted_; i < out.size(); ++i) {
      const Action& a = out[i];
      switch (a.kind) {
        case Action::Kind::kWake:
          inner_wake_ns_ = a.at_ns;
          continue;
        case Action::Kind::kSetSlice:
          vgpus_[a.vgpu].slice_ns = a.value;
          break;
        case Action::Kind::kRun:
          for (uint32_t k = begin_of(a.sms); k < end_of(a.sms); ++k)
            cells_[k] = {.holder = a.vgpu}, ++vgpus_[a.vgpu].held;
          see_served(now_ns, a.vgpu);
          if (!nodes_.plain() && nodes_.vgpu(a.vgpu).capped && !throttled(a.vgpu)) {
            nodes_.fill_caps(now_ns, a.vgpu);
            watch_cap(now_ns, a.vgpu);
          }
          break;
        case Action::Kind::kEvict:
          for (uint32_t k = begin_of(a.sms); k < end_of(a.sms); ++k)
            if (cells_[k].holder == a.vgpu) cells_[k].leaving = true;
          break;
      }
      out[kept++] = a;
    }
    out.erase(out.begin() + static_cast<std::ptrdiff_t>(kept), out.end());
    noted_ = kept;
  }
  void see_served(uint64_t now_ns, VgpuId v) {
    Vgpu& g = vgpus_[v];
    if (g.served || !g.wants) return;
    g.served = true;
    if (g.asked.target_p99_us == 0) return;
    const bool late = now_ns - g.since_ns > uint64_t{g.asked.target_p99_us} * 1000;
    ++(late ? g.figures.late : g.figures.in_time);
  }
  template <class Event>
  void around(uint64_t now_ns, Actions& out, Event&& event) {
    noted_ = out.size();
    event();
    uint64_t wake_ns = kNeverWake;
    if (!nodes_.plain() || nodes_.all_stale() || !caps_.empty()) {
      note(now_ns, out);
      if (nodes_.minima())
        wake_ns = nodes_.check_reserves(now_ns, [&](NodeRef n) { relevel(now_ns, n, out); });
      reweigh(now_ns, out);
      note(now_ns, out);
      check_caps(now_ns, out);
      reweigh(now_ns, out);
      note(now_ns, out);
      if (!caps_.empty())
        wake_ns = std::min(wake_ns, std::max(cap_at_ns_[caps_.top()], now_ns + kShortestWaitNs));
    }
    note(now_ns, out);
    wake_ns = std::min(wake_ns, inner_wake_ns_);
    if (wake_ns == kNeverWake || wake_ns == asked_ns_) return;
    asked_ns_ = wake_ns;
    out.push_back(Action::wake(wake_ns));
  }

  const bool proportional_, free_alone_;
  const uint32_t sms_;
  std::vector<Cell> cells_;
  std::vector<Vgpu> vgpus_;
  ShareNodes nodes_;
  std::vector<VgpuId> scratch_;
  std::vector<uint64_t> cap_at_ns_;                    // of the next, when its bucket is checked
  IndexedHeap<SoonerAt> caps_{SoonerAt{&cap_at_ns_}};  // capped ones that hold, or are throttled
  size_t noted_ = 0;                                   // actions of this event that note() has seen
  uint64_t inner_wake_ns_ = kNeverWake, asked_ns_ = kNeverWake;
};

}  // namespace

std::unique_ptr<Policy> share_tree(const Config& config, std::unique_ptr<Policy> inner) {
  return std::make_unique<ShareTree>(config, std::move(inner));
}

}  // namespace sluice::policy
