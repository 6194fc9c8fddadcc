// SPDX-License-Identifier: Apache-2.0
#include "policies/parts/in_units.h"

#include <algorithm>
#include <vector>

#include "policies/parts/forwarding.h"

namespace sluice::policy {
namespace {

class InUnits final : public Forwarding {
 public:
  InUnits(std::unique_ptr<Policy> inner, const Machine& machine, uint32_t units)
      : Forwarding(std::move(inner)),
        sms_(machine.sm_count),
        unit_(machine.sm_unit),
        units_(units) {}

  void on_vgpu_added(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) override {
    if (v >= rest_sm_ns_.size()) rest_sm_ns_.resize(v + 1);
    rest_sm_ns_[v] = 0;
    translated(out, [&] { inner_->on_vgpu_added(now_ns, v, share, out); });
  }
  void on_vgpu_changed(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) override {
    translated(out, [&] { inner_->on_vgpu_changed(now_ns, v, share, out); });
  }
  void on_vgpu_removed(uint64_t now_ns, VgpuId v, Actions& out) override {
    translated(out, [&] { inner_->on_vgpu_removed(now_ns, v, out); });
  }
  void on_arrival(uint64_t now_ns, VgpuId v, Actions& out) override {
    translated(out, [&] { inner_->on_arrival(now_ns, v, out); });
  }
  void on_idle(uint64_t now_ns, VgpuId v, Actions& out) override {
    translated(out, [&] { inner_->on_idle(now_ns, v, out); });
  }
  void on_launch_queued(uint64_t now_ns, const Launch& launch, Actions& out) override {
    translated(out, [&] { inner_->on_launch_queued(now_ns, in_units(launch), out); });
  }
  void on_launch_done(uint64_t now_ns, const Launch& launch, Actions& out) override {
    translated(out, [&] { inner_->on_launch_done(now_ns, in_units(launch), out); });
  }
  void on_usage(uint64_t now_ns, VgpuId v, const Usage& usage) override {
    inner_->on_usage(now_ns, v, in_units({v, usage}).usage);
  }
  void on_usages(uint64_t now_ns, std::span<const VgpuUsage> reports) override {
    reports_.clear();
    for (const VgpuUsage& r : reports) reports_.push_back(in_units(r));
    inner_->on_usages(now_ns, reports_);
  }
  void on_released(uint64_t now_ns, VgpuId v, LaunchId launch, SmRange sms, LeftReason why,
                   Actions& out) override {
    if (sms.hi != 0xffff) sms = {unit_of(sms.lo), unit_of(sms.hi)};
    translated(out, [&] { inner_->on_released(now_ns, v, launch, sms, why, out); });
  }
  void on_wake(uint64_t now_ns, Actions& out) override {
    translated(out, [&] { inner_->on_wake(now_ns, out); });
  }

 private:
  // The unit that begins there.
  uint16_t unit_of(uint32_t sm) const {
    return static_cast<uint16_t>(sm >= sms_ ? units_ : sm / unit_);
  }
  uint16_t sm_of(uint32_t unit) const {
    return static_cast<uint16_t>(unit >= units_ ? sms_ : unit * unit_);
  }

  Launch in_units(Launch l) const {
    l.sms_wanted = static_cast<uint16_t>((l.sms_wanted + unit_ - 1) / unit_);
    // 0 would say that it is not known.
    const auto divided = [&](uint64_t sm_ns) {
      return sm_ns ? std::max<uint64_t>(sm_ns / unit_, 1) : 0;
    };
    l.predicted_sm_ns = divided(l.predicted_sm_ns);
    l.run_predicted_sm_ns = divided(l.run_predicted_sm_ns);
    return l;
  }
  VgpuUsage in_units(VgpuUsage r) {
    uint64_t& rest = rest_sm_ns_[r.vgpu];
    const uint64_t sm_ns = std::min(r.usage.sm_ns, ~uint64_t{0} - rest) + rest;
    rest = sm_ns % unit_;
    r.usage.sm_ns = sm_ns / unit_;
    return r;
  }
  template <class Event>
  void translated(Actions& out, Event&& event) {
    const size_t before = out.size();
    event();
    for (size_t i = before; i < out.size(); ++i) {
      if (out[i].kind != Action::Kind::kRun && out[i].kind != Action::Kind::kEvict) continue;
      SmRange& sms = out[i].sms;
      sms.lo = sm_of(sms.lo);
      if (sms.hi != 0xffff) sms.hi = sm_of(sms.hi);
    }
  }

  const uint32_t sms_, unit_, units_;
  std::vector<uint64_t> rest_sm_ns_;  // used, less than a unit-ns, and not reported yet
  std::vector<VgpuUsage> reports_;    // scratch of on_usages()
};

}  // namespace

std::unique_ptr<Policy> in_units(const Config& config,
                                 std::unique_ptr<Policy> (*make)(const Config&)) {
  const Machine& m = config.machine;
  if (!m.spatial || m.sm_unit <= 1) return make(config);
  Config counted = config;
  counted.machine.sm_count = std::max(m.sm_count / m.sm_unit, 1u);
  counted.machine.sm_unit = 1;
  return std::make_unique<InUnits>(make(counted), m, counted.machine.sm_count);
}

}  // namespace sluice::policy
