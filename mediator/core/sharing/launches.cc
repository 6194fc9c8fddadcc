// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/sharing/launches.h"

#include <algorithm>
#include <utility>

#include "mediator/core/sharing/sharing.h"

namespace sluice::core {

namespace {
constexpr uint64_t kMostSmNs = 1ull << 50;  // days of a whole GPU, as in policies/
}

void LaunchForecast::forget_vgpu(VgpuId v) {
  if (vgpus_[v].due) std::erase(due_, v);
  vgpus_[v] = {};
}

void LaunchForecast::accept(SessionId s, const std::optional<LaunchHints>& hints) {
  if (!in_use_ || !hints) return;
  const SessionState& x = sharing_.sessions[s];
  LaunchHints& h = hints_[s];
  h = *hints;
  h.predicted = std::min(h.predicted, x.report.guest_demand);
  h.remaining_ns = h.predicted ? std::min(h.remaining_ns, kMostSmNs) : 0;
  h.preempt_ns = std::min(h.preempt_ns, sharing_.config.evict_end_ns);
  if (std::exchange(vgpus_[x.vgpu].due, true)) return;
  due_.push_back(x.vgpu);
}

void LaunchForecast::report(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  if (!in_use_) return;
  Forecast& f = vgpus_[v];
  uint64_t remaining_ns = 0, unpredicted = 0, preempt_ns = 0;
  for (const SessionId s : sharing_.vgpus[v].sessions) {
    const SessionState& x = sharing_.sessions[s];
    if (!x.backlogged) continue;
    const LaunchHints& h = hints_[s];
    remaining_ns = std::min(remaining_ns + h.remaining_ns, kMostSmNs);
    // Between its end on the GPU and its worker's notice a launch is in flight and none is queued.
    unpredicted += x.report.guest_demand - std::min(h.predicted, x.report.guest_demand);
    preempt_ns = std::max(preempt_ns, h.preempt_ns);
  }
  const double sum_sm_ns = static_cast<double>(remaining_ns) * sharing_.sm_count() +
                           static_cast<double>(unpredicted) * f.mean_launch_sm_ns;
  const auto sm_ns = static_cast<uint64_t>(std::min(sum_sm_ns, static_cast<double>(kMostSmNs)));
  if (sm_ns == f.reported_sm_ns && preempt_ns == f.reported_preempt_ns) return;
  f.reported_sm_ns = sm_ns;
  f.reported_preempt_ns = preempt_ns;
  const policy::Launch all{
      .vgpu = v, .predicted_sm_ns = sm_ns, .run_predicted_sm_ns = sm_ns, .preempt_ns = preempt_ns};
  sharing_.ask(now_ns, out,
               [&](policy::Actions& a) { sharing_.policy->on_launch_queued(now_ns, all, a); });
}

bool LaunchForecast::report_due(uint64_t now_ns, ActionQueue& out) {
  while (!due_.empty()) {
    const VgpuId v = due_.back();
    due_.pop_back();
    vgpus_[v].due = false;
    const VgpuState& g = sharing_.vgpus[v];
    // Where the policy does not know v as busy, Reports::turn_busy() reports them.
    if (!g.present() || !g.busy || !g.backlogged()) continue;
    report(now_ns, v, out);
    return true;
  }
  return false;
}

void LaunchForecast::begin_interval(VgpuId v, uint64_t launches_done) {
  vgpus_[v].charged_at_start_sm_ns = sharing_.charging.charged_sm_ns(v);
  vgpus_[v].done_at_start = launches_done;
}

void LaunchForecast::on_busy(uint64_t now_ns, VgpuId v) {
  if (!in_use_) return;
  sharing_.charging.charge_by_clock(now_ns);
  begin_interval(v, launches_done(v));
}

// How many launches there were is its workers' word; how long they took together is ours.
void LaunchForecast::on_idle(uint64_t now_ns, VgpuId v) {
  if (!in_use_) return;
  sharing_.charging.charge_by_clock(now_ns);
  Forecast& f = vgpus_[v];
  const uint64_t done = launches_done(v);
  const uint64_t launches = done - std::min(done, f.done_at_start);
  const uint64_t used = sharing_.charging.charged_sm_ns(v) - f.charged_at_start_sm_ns;
  if (launches > 0) {
    const double mean = static_cast<double>(used) / static_cast<double>(launches);
    f.mean_launch_sm_ns += (mean - f.mean_launch_sm_ns) / (f.mean_launch_sm_ns > 0 ? 4 : 1);
  }
  f.reported_sm_ns = f.reported_preempt_ns = 0;
  begin_interval(v, done);
}

uint64_t LaunchForecast::longest_ns(VgpuId v) const {
  uint64_t longest_ns = 0;
  for (const SessionId s : sharing_.vgpus[v].sessions)
    if (sharing_.sessions[s].backlogged)
      longest_ns = std::max(longest_ns, hints_[s].predicted ? hints_[s].longest_ns : 0);
  return longest_ns;
}

uint64_t LaunchForecast::launches_done(VgpuId v) const {
  const VgpuState& g = sharing_.vgpus[v];
  uint64_t done = g.counters.gone.launches_done;
  for (const SessionId s : g.sessions)
    add_counter(done, sharing_.sessions[s].report.guest_launches_done);
  return done;
}

}  // namespace sluice::core
