// SPDX-License-Identifier: Apache-2.0
// What is reported to the scheduler and asked of it. Each event goes to the part that answers it
// (sharing/sharing.h has the list) and ends with finish().
#include "mediator/core/scheduler.h"

#include <algorithm>
#include <atomic>

#include "mediator/base/check.h"
#include "mediator/core/sharing/sharing.h"

namespace sluice::core {

std::string_view to_string(EndReason reason) {
  switch (reason) {
    case EndReason::kNone:
      return "none";
    case EndReason::kDidNotLeave:
      return "its work did not leave the GPU within the deadline";
    case EndReason::kOverranSlices:
      return "it kept the GPU beyond its time slices while others waited";
    case EndReason::kPassedDescriptors:
      return "its worker passed descriptors";
    case EndReason::kGenerationsSpent:
      return "it has used up its grant generations";
    case EndReason::kRanUngranted:
      return "it ran on the GPU without a grant for longer than the deadline";
  }
  return "?";
}

std::string_view to_string(LogEvent event) {
  switch (event) {
    case LogEvent::kGranted:
      return "granted";
    case LogEvent::kPart:
      return "part";
    case LogEvent::kEvictSent:
      return "evict-sent";
    case LogEvent::kLeft:
      return "left";
    case LogEvent::kOverdue:
      return "overdue";
    case LogEvent::kEnded:
      return "ended";
    case LogEvent::kReportViolation:
      return "report-violation";
    case LogEvent::kPolicyViolation:
      return "policy-violation";
    case LogEvent::kBusy:
      return "busy";
    case LogEvent::kIdle:
      return "idle";
    case LogEvent::kShareChanged:
      return "share-changed";
  }
  return "?";
}

ReportSnapshot read_report(const sluice_report_header& header) {
  // The page belongs to another process; atomic_ref wants a non-const object and writes nothing
  // here.
  auto& h = const_cast<sluice_report_header&>(header);
  const auto seq32 = [](uint32_t& w) { return std::atomic_ref(w).load(std::memory_order_seq_cst); };
  const auto any64 = [](uint64_t& w) { return std::atomic_ref(w).load(std::memory_order_relaxed); };
  ReportSnapshot r;
  r.guest_demand = seq32(h.demand);
  r.guest_in_flight = seq32(h.in_flight);
  r.guest_left_generation = seq32(h.left_generation);
  r.guest_unconfined = seq32(h.unconfined);
  r.guest_keeps = seq32(h.keeps);
  r.guest_recall = seq32(h.recall);
  r.guest_idles = std::atomic_ref(h.idles).load(std::memory_order_relaxed);
  r.guest_burst_ns = any64(h.burst_ns);
  r.guest_gap_ns = any64(h.gap_ns);
  r.guest_demand_changed_ns = any64(h.demand_changed_ns);
  r.guest_in_flight_ns = any64(h.in_flight_ns);
  r.guest_flight_ns = any64(h.flight_ns);
  r.guest_launches = any64(h.launches);
  r.guest_launches_done = any64(h.launches_done);
  r.guest_evictions = any64(h.evictions);
  r.guest_opaque = any64(h.opaque_launches);
  r.guest_whole = any64(h.whole_launches);
  r.guest_narrowed = any64(h.narrowed);
  r.guest_grown = any64(h.grown);
  r.guest_green_launches = any64(h.green_launches);
  r.guest_green_contexts = any64(h.green_contexts);
  r.guest_part_launches = any64(h.part_launches);
  return r;
}

struct Scheduler::Impl : Sharing {
  using Sharing::Sharing;
  bool knows_groups() const {
    const policy::Registration* row = policy::find_policy(policy->name());
    return row && row->tree;
  }
};

Scheduler::Scheduler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Scheduler::~Scheduler() = default;

std::unique_ptr<Scheduler> Scheduler::make(const SchedulerConfig& config, uint64_t) {
  const policy::Registration* row = policy::find_policy(config.policy);
  if (!row || !runs(*row, config.policy_config.machine.preemptor)) return nullptr;
  return std::unique_ptr<Scheduler>(new Scheduler(std::make_unique<Impl>(config, *row)));
}

// ---- vGPUs -----------------------------------------------------------------------------------

std::optional<VgpuId> Scheduler::add_vgpu(uint64_t now_ns, const policy::VgpuShare& share,
                                          ActionQueue& out, std::string_view name) {
  Impl& m = *impl_;
  m.forget_departed(now_ns, false, out);
  const auto back = m.departed.take(name);
  auto v = back;
  if (back)
    m.reset_vgpu(*back);
  else
    v = m.new_vgpu();
  if (!v && m.forget_departed(now_ns, true, out)) v = m.new_vgpu();
  if (!v) return std::nullopt;
  m.vgpus[*v].share = share;
  m.charging.entitlements.add(now_ns, *v, share);
  m.ask(now_ns, out, [&](policy::Actions& a) {
    if (back)
      m.policy->on_vgpu_changed(now_ns, *v, share, a);
    else
      m.policy->on_vgpu_added(now_ns, *v, share, a);
  });
  m.finish(now_ns, out);
  return v;
}

void Scheduler::set_share(uint64_t now_ns, VgpuId v, const policy::VgpuShare& share,
                          ActionQueue& out) {
  Impl& m = *impl_;
  VgpuState* g = m.vgpu(v);
  if (!g) return;
  g->share = share;
  m.charging.entitlements.set(now_ns, v, share);
  m.log(out, LogEvent::kShareChanged, v, share.weight);
  m.ask(now_ns, out, [&](policy::Actions& a) { m.policy->on_vgpu_changed(now_ns, v, share, a); });
  m.finish(now_ns, out);
}

void Scheduler::set_paused(uint64_t now_ns, VgpuId v, bool paused, ActionQueue& out) {
  Impl& m = *impl_;
  VgpuState* g = m.vgpu(v);
  if (!g || g->paused == paused) return;
  g->paused = paused;
  // Alone its sessions do not ring: what was last reported may be old.
  for (SessionId s : g->sessions) m.reports.read(s, out);
  m.finish(now_ns, out);
}

void Scheduler::set_group(uint64_t now_ns, policy::GroupId group, const policy::GroupShare& share,
                          ActionQueue& out) {
  Impl& m = *impl_;
  if (m.knows_groups() && group != policy::kRootGroup && group < policy::kMaxGroups)
    m.charging.entitlements.set_group(now_ns, group, share);
  m.ask(now_ns, out, [&](policy::Actions& a) { m.policy->on_group(now_ns, group, share, a); });
  m.finish(now_ns, out);
}

std::string Scheduler::refuses(VgpuId vgpu, const policy::VgpuShare& share) const {
  const bool plain = share.group == policy::kRootGroup && !share.min_permille &&
                     !share.max_permille && !share.target_p99_us &&
                     share.latency == policy::LatencyClass::kNormal;
  if (!plain && !impl_->knows_groups())
    return "policy " + std::string(impl_->policy->name()) +
           " knows no groups, limits and latency classes";
  return impl_->policy->refuses(vgpu, share);
}

std::string Scheduler::refuses_group(policy::GroupId group, const policy::GroupShare& share) const {
  if (!impl_->knows_groups())
    return "policy " + std::string(impl_->policy->name()) + " knows no groups";
  return impl_->policy->refuses_group(group, share);
}

policy::ShareFigures Scheduler::share_figures(VgpuId vgpu) const {
  return impl_->policy->figures(vgpu);
}

void Scheduler::remove_vgpu(uint64_t now_ns, VgpuId v, ActionQueue& out, std::string_view name) {
  Impl& m = *impl_;
  const VgpuState* g = m.vgpu(v);
  if (!g) return;
  SLUICE_CHECK(g->sessions.empty());  // the daemon ends a vGPU's workers first
  if (g->busy) m.reports.turn_idle(now_ns, v, out);
  if (name.empty()) {
    m.ask(now_ns, out, [&](policy::Actions& a) { m.policy->on_vgpu_removed(now_ns, v, a); });
    m.charging.entitlements.remove(now_ns, v);
    m.free_vgpu(v);
    return m.finish(now_ns, out);
  }
  // Nothing is reserved for one that is gone.
  policy::VgpuShare share = g->share;
  share.min_permille = share.target_p99_us = 0;
  share.latency = policy::LatencyClass::kNormal;
  m.ask(now_ns, out, [&](policy::Actions& a) { m.policy->on_vgpu_changed(now_ns, v, share, a); });
  m.charging.entitlements.remove(now_ns, v);
  m.forget_vgpu(v);
  m.departed.add(now_ns, name, v);
  m.finish(now_ns, out);
}

// ---- sessions --------------------------------------------------------------------------------

std::optional<SessionId> Scheduler::add_session(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  Impl& m = *impl_;
  if (!m.vgpu(v)) return std::nullopt;
  const auto s = m.new_session(v);
  if (!s) return std::nullopt;
  if (m.strategy->gates_open(v) && m.crowd.has_room(v))
    m.grant_session(*s, out);
  else
    m.set_grant(out, *s, SLUICE_GRANT_CONTENDED);
  m.finish(now_ns, out);
  return s;
}

void Scheduler::on_session_removed(uint64_t now_ns, SessionId s, ActionQueue& out) {
  Impl& m = *impl_;
  const SessionState* x = m.session(s);
  if (!x) return;
  VgpuState& g = m.vgpus[x->vgpu];
  m.reports.forget_session(s);
  g.counters.gone.add(x->report);
  std::erase(g.sessions, s);
  m.strategy->on_session_removed(now_ns, s, out);
  m.free_session(s);
  m.finish(now_ns, out);
}

// ---- events ----------------------------------------------------------------------------------

void Scheduler::on_report(uint64_t now_ns, SessionId s, const ReportSnapshot& report,
                          ActionQueue& out) {
  Impl& m = *impl_;
  const SessionState* x = m.session(s);
  if (!x) return;
  const VgpuId v = x->vgpu;
  m.reports.answered(s);
  m.reports.report_rhythm(now_ns, s, report);
  // It has waited, and has work again: nobody has seen it.
  const bool waited = x->backlogged && x->report.guest_idles != report.guest_idles &&
                      report.guest_demand > 0 && m.vgpus[v].backlogged_sessions == 1;
  m.reports.accept(s, report, out);
  if (waited) m.policy->on_missed_wait(now_ns, v);
  m.launches.accept(s, report.guest_hints);
  m.reports.set_backlogged(
      s, !m.vgpus[v].paused && (x->report.guest_demand > 0 || x->report.guest_in_flight > 0));
  if (m.vgpus[v].holds()) m.charging.clock(v).on_report(now_ns, m.vgpus[v].backlogged());
  m.strategy->on_report(now_ns, s, out);
  m.check_drained(now_ns, s, out);
  m.finish(now_ns, out);
}

bool Scheduler::wants_hints(SessionId s) const {
  // While it drains nobody decides by them, and the next holder waits for the report.
  const SessionState* x = impl_->session(s);
  return impl_->launches.in_use() && x && x->drain == Drain::kNone;
}

bool Scheduler::awaits(SessionId s) const {
  const SessionState* x = impl_->session(s);
  if (!x) return false;
  return x->drain != Drain::kNone ||
         (impl_->has_open_gate(s) && impl_->vgpus[x->vgpu].hold == HoldState::kContended);
}

void Scheduler::on_timer(uint64_t now_ns, ActionQueue& out) {
  impl_->on_timer(now_ns, out);
  impl_->finish(now_ns, out);
}

void Scheduler::on_seen(uint64_t now_ns, SessionId running, ActionQueue& out) {
  impl_->deadlines.sample(now_ns, running, out);
  impl_->finish(now_ns, out);
}

void Scheduler::on_silence(uint64_t now_ns) { impl_->deadlines.on_silence(now_ns); }

void Scheduler::on_measured(uint64_t now_ns, VgpuId v, uint64_t refund_sm_ns, uint64_t extra_sm_ns,
                            ActionQueue& out) {
  if (!impl_->vgpu(v) || !impl_->strategy->charges_by_clock()) return;
  impl_->charging.correct(now_ns, v, refund_sm_ns, extra_sm_ns);
  impl_->finish(now_ns, out);
}

void Scheduler::on_used(uint64_t now_ns, VgpuId v, uint64_t sm_ns, bool free) {
  if (!impl_->vgpu(v) || impl_->strategy->charges_by_clock() || sm_ns == 0) return;
  const uint64_t more_sm_ns = impl_->strategy->on_used(now_ns, v, sm_ns);
  impl_->charging.charge_measured(now_ns, v, sm_ns, free);
  if (!free && more_sm_ns > 0) impl_->charging.correct(now_ns, v, 0, more_sm_ns);
}

void Scheduler::on_stall(uint64_t now_ns, VgpuId v, uint64_t stall_ns, ActionQueue& out) {
  if (!impl_->vgpu(v)) return;
  impl_->deadlines.excuse_others(v, now_ns, stall_ns);
  impl_->strategy->charge_stall(now_ns, v, stall_ns);
  if (impl_->strategy->charges_by_clock()) impl_->finish(now_ns, out);
}

void Scheduler::set_evict_end(VgpuId v, uint64_t evict_end_ns) {
  if (impl_->vgpu(v)) impl_->deadlines.set_limit(v, evict_end_ns);
}

uint64_t Scheduler::overstay_ns(SessionId s, EndReason reason) const {
  return impl_->session(s) ? impl_->deadlines.overstay_ns(s, reason) : impl_->config.evict_end_ns;
}

uint64_t Scheduler::take_stay_ns(uint64_t now_ns, SessionId s) {
  const SessionState* x = impl_->session(s);
  if (!x) return 0;
  impl_->strategy->settle_time(now_ns);
  const uint64_t stay = impl_->deadlines.take_stay_ns(s);
  if (stay > 0) impl_->strategy->on_stayed(x->vgpu);
  return stay;
}

void Scheduler::on_starved(uint64_t now_ns, SessionId s, uint64_t starved_ns, ActionQueue& out) {
  if (!impl_->session(s)) return;
  impl_->deadlines.on_starved(now_ns, s, starved_ns, out);
  impl_->deadlines.enforce(now_ns, out);
  impl_->finish(now_ns, out);
}

// ---- for people ------------------------------------------------------------------------------

void ReportedSums::add(const ReportSnapshot& r) {
  add_counter(launches, r.guest_launches);
  add_counter(launches_done, r.guest_launches_done);
  add_counter(relaunched, r.guest_evictions);
  add_counter(opaque, r.guest_opaque);
  add_counter(whole, r.guest_whole);
  add_counter(part_launches, r.guest_part_launches);
  add_counter(green_launches, r.guest_green_launches);
  add_counter(green_contexts, r.guest_green_contexts);
}

VgpuStats Scheduler::stats(uint64_t now_ns, VgpuId v) const {
  const VgpuState* g = impl_->vgpu(v);
  VgpuStats t;
  if (!g) return t;
  const VgpuCounters& c = g->counters;
  t.share = g->share;
  t.kept = impl_->policy->figures(v);
  t.sessions = static_cast<uint32_t>(g->sessions.size());
  t.busy = g->busy;
  t.holds = g->holds();
  t.queued_sm_ns = impl_->launches.reported_sm_ns(v);
  t.grants = c.grants;
  t.evictions = c.evictions;
  t.overdue = c.overdue;
  t.ended = c.ended;
  t.set_changes = c.set_changes;
  t.unasked = c.unasked;
  t.report_violations = c.violations;
  t.guest = c.gone;
  for (const SessionId s : g->sessions) {
    const ReportSnapshot& r = impl_->sessions[s].report;
    t.guest.add(r);
    t.guest_queued += r.guest_demand;
    t.guest_narrowed += r.guest_narrowed;
    t.guest_grown += r.guest_grown;
  }
  impl_->charging.fill(now_ns, v, t);
  impl_->strategy->fill(v, t);
  return t;
}

const accounting::LatencyHistogram& Scheduler::eviction_latency(VgpuId v) const {
  static const accounting::LatencyHistogram none;
  return v < impl_->vgpus.size() ? impl_->vgpus[v].counters.eviction_latency : none;
}
uint64_t Scheduler::all_contended_ns(uint64_t now_ns) const {
  return impl_->charging.meter.all_contended_ns(now_ns);
}
std::string_view Scheduler::policy_name() const { return impl_->policy->name(); }
uint64_t Scheduler::quantum_ns() const { return impl_->policy->quantum_ns(); }

}  // namespace sluice::core
