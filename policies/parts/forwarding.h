// SPDX-License-Identifier: Apache-2.0
// Forwarding: a policy that hands everything on to another one. Base of those that stand between a
// driver and a policy and change some of what passes: units of SMs (in_units.cc), short pauses
// (pauses.cc). Owns the other one; same thread.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "policies/policy.h"

namespace sluice::policy {

class Forwarding : public Policy {
 public:
  explicit Forwarding(std::unique_ptr<Policy> inner) : inner_(std::move(inner)) {}
  std::string_view name() const override { return inner_->name(); }
  void on_vgpu_added(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) override {
    inner_->on_vgpu_added(now_ns, v, share, out);
  }
  void on_vgpu_changed(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) override {
    inner_->on_vgpu_changed(now_ns, v, share, out);
  }
  void on_reweighed(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) override {
    inner_->on_reweighed(now_ns, v, share, out);
  }
  void on_vgpu_removed(uint64_t now_ns, VgpuId v, Actions& out) override {
    inner_->on_vgpu_removed(now_ns, v, out);
  }
  void on_arrival(uint64_t now_ns, VgpuId v, Actions& out) override {
    inner_->on_arrival(now_ns, v, out);
  }
  void on_idle(uint64_t now_ns, VgpuId v, Actions& out) override {
    inner_->on_idle(now_ns, v, out);
  }
  void on_launch_queued(uint64_t now_ns, const Launch& launch, Actions& out) override {
    inner_->on_launch_queued(now_ns, launch, out);
  }
  void on_launch_done(uint64_t now_ns, const Launch& launch, Actions& out) override {
    inner_->on_launch_done(now_ns, launch, out);
  }
  void on_usage(uint64_t now_ns, VgpuId v, const Usage& usage) override {
    inner_->on_usage(now_ns, v, usage);
  }
  void on_usages(uint64_t now_ns, std::span<const VgpuUsage> reports) override {
    inner_->on_usages(now_ns, reports);
  }
  void on_free_usage(uint64_t now_ns, VgpuId v, const Usage& usage) override {
    inner_->on_free_usage(now_ns, v, usage);
  }
  void on_rhythm(uint64_t now_ns, VgpuId v, const Rhythm& rhythm) override {
    inner_->on_rhythm(now_ns, v, rhythm);
  }
  void on_missed_wait(uint64_t now_ns, VgpuId v) override { inner_->on_missed_wait(now_ns, v); }
  bool reads_tasks() const override { return inner_->reads_tasks(); }
  void on_left(uint64_t now_ns, VgpuId v, LeftReason why, Actions& out) override {
    on_released(now_ns, v, 0, {}, why, out);
  }
  void on_released(uint64_t now_ns, VgpuId v, LaunchId launch, SmRange sms, LeftReason why,
                   Actions& out) override {
    inner_->on_released(now_ns, v, launch, sms, why, out);
  }
  void on_handover(uint64_t now_ns, uint64_t cost_ns) override {
    inner_->on_handover(now_ns, cost_ns);
  }
  void on_change(uint64_t now_ns, uint64_t cost_ns) override { inner_->on_change(now_ns, cost_ns); }
  void on_wake(uint64_t now_ns, Actions& out) override { inner_->on_wake(now_ns, out); }
  bool comes_unasked(VgpuId v) const override { return inner_->comes_unasked(v); }
  bool may_fill(VgpuId v) const override { return inner_->may_fill(v); }
  VgpuId fills_best(const Queues& queues, VgpuId fills) const override {
    return inner_->fills_best(queues, fills);
  }
  bool hears_at_once(VgpuId v) const override { return inner_->hears_at_once(v); }
  uint64_t quantum_ns() const override { return inner_->quantum_ns(); }
  void on_group(uint64_t now_ns, GroupId group, const GroupShare& share, Actions& out) override {
    inner_->on_group(now_ns, group, share, out);
  }
  uint64_t wait_bound_ns(uint32_t low_vgpus) const override {
    return inner_->wait_bound_ns(low_vgpus);
  }
  std::string refuses(VgpuId v, const VgpuShare& share) const override {
    return inner_->refuses(v, share);
  }
  std::string refuses_group(GroupId group, const GroupShare& share) const override {
    return inner_->refuses_group(group, share);
  }
  ShareFigures figures(VgpuId v) const override { return inner_->figures(v); }

 protected:
  const std::unique_ptr<Policy> inner_;
};

}  // namespace sluice::policy
