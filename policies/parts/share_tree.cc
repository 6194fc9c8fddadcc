// SPDX-License-Identifier: Apache-2.0
#include "policies/parts/share_tree.h"

#include <algorithm>
#include <string>
#include <vector>

#include "policies/parts/forwarding.h"
#include "policies/parts/share_nodes.h"

namespace sluice::policy {
namespace {

class ShareTree final : public Forwarding {
 public:
  ShareTree(const Config& config, std::unique_ptr<Policy> inner)
      : Forwarding(std::move(inner)),
        proportional_(config.machine.preemptor == PreemptorKind::kProportional),
        cells_(config.machine.spatial ? sms_of(config) : 1),
        nodes_(sms_of(config)) {}

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
      const bool active = nodes_.vgpu(v).active > 0;
      if (active) nodes_.set_active(v, false);
      const bool was_plain = nodes_.plain();
      set_asked(now_ns, v, share);
      if (active) nodes_.set_active(v, true);
      vgpus_[v].changed = true;
      if (nodes_.plain() && was_plain)
        give(now_ns, v, flat(v), out);
      else
        nodes_.mark_stale();
    });
  }
  void on_group(uint64_t now_ns, GroupId id, const GroupShare& share, Actions& out) override {
    if (id == kRootGroup || id >= kMaxGroups) return;
    nodes_.set_group(now_ns, id, share);
    around(now_ns, out, [] {});
  }
  void on_vgpu_removed(uint64_t now_ns, VgpuId v, Actions& out) override {
    if (nodes_.vgpu(v).active) nodes_.set_active(v, false);
    vgpus_[v].wants = false;
    nodes_.remove_vgpu(v);
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
    if (!throttled(v) && !nodes_.plain() && nodes_.is_empty(v)) set_throttled(v);
    around(now_ns, out, [&] {
      if (throttled(v))
        return take_all(now_ns, v, out);  // it may have held the GPU while it was idle
      nodes_.set_active(v, true);
      reweigh(now_ns, out);
      inner_->on_arrival(now_ns, v, out);
    });
  }
  void on_idle(uint64_t now_ns, VgpuId v, Actions& out) override {
    Vgpu& g = vgpus_[v];
    if (!g.wants) return;
    g.wants = false;
    around(now_ns, out, [&] {
      if (throttled(v)) return;
      nodes_.set_active(v, false);
      inner_->on_idle(now_ns, v, out);
    });
  }
  void on_launch_queued(uint64_t now_ns, const Launch& launch, Actions& out) override {
    around(now_ns, out, [&] { inner_->on_launch_queued(now_ns, launch, out); });
  }
  void on_launch_done(uint64_t now_ns, const Launch& launch, Actions& out) override {
    around(now_ns, out, [&] { inner_->on_launch_done(now_ns, launch, out); });
  }
  void on_usage(uint64_t now_ns, VgpuId v, const Usage& usage) override {
    nodes_.charge(v, usage.sm_ns);
    inner_->on_usage(now_ns, v, usage);
  }
  void on_usages(uint64_t now_ns, std::span<const VgpuUsage> reports) override {
    if (!nodes_.plain())
      for (const VgpuUsage& r : reports) nodes_.charge(r.vgpu, r.usage.sm_ns);
    inner_->on_usages(now_ns, reports);
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
    const std::vector<VgpuId>& capped = nodes_.capped();
    return !nodes_.minima() && std::find(capped.begin(), capped.end(), v) == capped.end() &&
           inner_->comes_unasked(v);
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
    g.given = share;
    g.changed = false;
    inner_->on_vgpu_changed(now_ns, v, share, out);
  }
  void reweigh(uint64_t now_ns, Actions& out) {
    if (!nodes_.stale()) return;
    nodes_.divide();
    for (VgpuId v = 0; v < vgpus_.size(); ++v) {
      const ShareNode& n = nodes_.vgpu(v);
      if (n.present && (n.active || vgpus_[v].changed || nodes_.plain()))
        give(now_ns, v, flat(v), out);
    }
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
    nodes_.set_active(v, true);
    reweigh(now_ns, out);
    const size_t from = out.size();
    inner_->on_arrival(now_ns, v, out);
    if (!proportional_) return;
    for (size_t i = from; i < out.size(); ++i)
      if (out[i].kind == Action::Kind::kSetSlice && out[i].vgpu == v) return;
    out.push_back(Action::set_slice(v, g.slice_ns));
  }
  void check_caps(uint64_t now_ns, Actions& out) {
    for (const VgpuId v : nodes_.capped()) {
      if (!vgpus_[v].wants && !throttled(v)) continue;
      nodes_.fill_caps(now_ns, v);
      if (!throttled(v) && nodes_.is_empty(v)) {
        throttle(now_ns, v, out);
      } else if (throttled(v) && nodes_.refilled_in_ns(v) == 0) {
        resume(now_ns, v, out);
      }
    }
  }
  // When a bucket will be full enough, or empty.
  uint64_t next_check_of_caps(uint64_t now_ns) const {
    uint64_t wait_ns = kNeverWake;
    for (const VgpuId v : nodes_.capped()) {
      const Vgpu& g = vgpus_[v];
      if (throttled(v))
        wait_ns = std::min(wait_ns, nodes_.refilled_in_ns(v));
      else if (g.wants && (g.held > 0 || proportional_))
        wait_ns = std::min(wait_ns, nodes_.tokens_last_ns(v));
    }
    return wait_ns == kNeverWake ? kNeverWake : now_ns + std::max(wait_ns, kShortestWaitNs);
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
    if (!nodes_.plain() || nodes_.stale()) {
      note(now_ns, out);
      if (nodes_.minima()) wake_ns = nodes_.fill_reserves(now_ns);
      reweigh(now_ns, out);
      note(now_ns, out);
      check_caps(now_ns, out);
      reweigh(now_ns, out);
      note(now_ns, out);
      wake_ns = std::min(wake_ns, next_check_of_caps(now_ns));
    }
    note(now_ns, out);
    wake_ns = std::min(wake_ns, inner_wake_ns_);
    if (wake_ns == kNeverWake || wake_ns == asked_ns_) return;
    asked_ns_ = wake_ns;
    out.push_back(Action::wake(wake_ns));
  }

  const bool proportional_;
  std::vector<Cell> cells_;
  std::vector<Vgpu> vgpus_;
  ShareNodes nodes_;
  size_t noted_ = 0;  // actions of this event that note() has seen
  uint64_t inner_wake_ns_ = kNeverWake, asked_ns_ = kNeverWake;
};

}  // namespace

std::unique_ptr<Policy> share_tree(const Config& config, std::unique_ptr<Policy> inner) {
  return std::make_unique<ShareTree>(config, std::move(inner));
}

}  // namespace sluice::policy
