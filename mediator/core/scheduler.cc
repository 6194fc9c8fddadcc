// What the scheduler is told and asked; its states and rules are in scheduler_impl.h.
#include "mediator/core/scheduler.h"

#include <algorithm>
#include <atomic>

#include "mediator/base/check.h"
#include "mediator/core/scheduler_impl.h"

namespace sluice::core {

using scheduler_detail::add_counter;
using scheduler_detail::Session;
using scheduler_detail::Vgpu;

std::string_view to_string(EndReason reason) {
  switch (reason) {
    case EndReason::kNone: return "none";
    case EndReason::kDidNotLeave: return "its work did not leave the GPU within the deadline";
    case EndReason::kPassedDescriptors: return "its worker passed descriptors";
    case EndReason::kGenerationsSpent: return "it has used up its grant generations";
    case EndReason::kRanUngranted: return "it ran on the GPU without a grant for longer than the deadline";
  }
  return "?";
}

std::string_view to_string(LogEvent event) {
  switch (event) {
    case LogEvent::kGranted: return "granted";
    case LogEvent::kPart: return "part";
    case LogEvent::kEvictSent: return "evict-sent";
    case LogEvent::kLeft: return "left";
    case LogEvent::kOverdue: return "overdue";
    case LogEvent::kEnded: return "ended";
    case LogEvent::kReportViolation: return "report-violation";
    case LogEvent::kPolicyViolation: return "policy-violation";
    case LogEvent::kBusy: return "busy";
    case LogEvent::kIdle: return "idle";
    case LogEvent::kShareChanged: return "share-changed";
  }
  return "?";
}

ReportSnapshot read_report(const sluice_report_header& header) {
  // The page belongs to another process; atomic_ref wants a non-const object and writes nothing here.
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
  r.guest_launches = any64(h.launches);
  r.guest_launches_done = any64(h.launches_done);
  r.guest_evictions = any64(h.evictions);
  r.guest_narrowed = any64(h.narrowed);
  r.guest_grown = any64(h.grown);
  r.guest_green_launches = any64(h.green_launches);
  r.guest_green_contexts = any64(h.green_contexts);
  r.guest_part_launches = any64(h.part_launches);
  return r;
}

Scheduler::Scheduler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Scheduler::~Scheduler() = default;

std::unique_ptr<Scheduler> Scheduler::make(const SchedulerConfig& config, uint64_t) {
  const policy::Registration* row = policy::find_policy(config.policy);
  if (!row || !runs(*row, config.policy_config.machine.preemptor)) return nullptr;
  auto impl = std::make_unique<Impl>();
  impl->config = config;
  impl->policy = row->make(config.policy_config);
  impl->uses_launches = row->launches;
  if (impl->spatial()) {
    SLUICE_CHECK(impl->sm_count() <= SmSet::kMax);
    impl->meter = accounting::ShareMeter(impl->sm_count());
  }
  return std::unique_ptr<Scheduler>(new Scheduler(std::move(impl)));
}

// ---- vGPUs -----------------------------------------------------------------------------------

std::optional<VgpuId> Scheduler::add_vgpu(uint64_t now_ns, const policy::VgpuShare& share,
                                          ActionQueue& out) {
  Impl& m = *impl_;
  VgpuId v;
  if (!m.free_vgpus.empty()) {
    v = m.free_vgpus.back();
    m.free_vgpus.pop_back();
  } else if (m.vgpus.size() < m.config.max_vgpus) {
    v = static_cast<VgpuId>(m.vgpus.size());
    m.vgpus.emplace_back();
  } else {
    return std::nullopt;
  }
  m.vgpus[v] = Vgpu{};
  m.vgpus[v].present = true;
  m.vgpus[v].share = share;
  m.meter.add(now_ns, v, std::max(share.weight, 1u));
  m.ask(now_ns, out, [&](policy::Actions& a) { m.policy->on_vgpu_added(now_ns, v, share, a); });
  m.finish(now_ns, out);
  return v;
}

void Scheduler::set_share(uint64_t now_ns, VgpuId v, const policy::VgpuShare& share,
                          ActionQueue& out) {
  Impl& m = *impl_;
  Vgpu* g = m.vgpu(v);
  if (!g) return;
  g->share = share;
  m.meter.set_weight(now_ns, v, std::max(share.weight, 1u));
  m.log(out, LogEvent::kShareChanged, v, share.weight);
  m.ask(now_ns, out, [&](policy::Actions& a) { m.policy->on_vgpu_changed(now_ns, v, share, a); });
  m.finish(now_ns, out);
}

void Scheduler::remove_vgpu(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  Impl& m = *impl_;
  Vgpu* g = m.vgpu(v);
  if (!g) return;
  SLUICE_CHECK(g->sessions.empty());  // the daemon ends a vGPU's workers first
  if (g->busy) m.turn_idle(now_ns, v, out);
  m.ask(now_ns, out, [&](policy::Actions& a) { m.policy->on_vgpu_removed(now_ns, v, a); });
  m.meter.remove(now_ns, v);
  if (g->dirty) std::erase(m.dirty, v);
  if (g->tell_due) std::erase(m.tells_due, v);
  *g = Vgpu{};
  m.free_vgpus.push_back(v);
  m.finish(now_ns, out);
}

// ---- sessions --------------------------------------------------------------------------------

namespace {

std::optional<SessionId> take_session_id(std::vector<Session>& sessions,
                                         std::vector<SessionId>& free_ids, uint32_t limit) {
  if (!free_ids.empty()) {
    const SessionId s = free_ids.back();
    free_ids.pop_back();
    return s;
  }
  if (sessions.size() >= limit) return std::nullopt;
  sessions.emplace_back();
  return static_cast<SessionId>(sessions.size() - 1);
}

}  // namespace

std::optional<SessionId> Scheduler::add_session(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  Impl& m = *impl_;
  Vgpu* g = m.vgpu(v);
  if (!g) return std::nullopt;
  const auto s = take_session_id(m.sessions, m.free_sessions, m.config.max_sessions);
  if (!s) return std::nullopt;
  m.sessions[*s] = Session{};
  m.sessions[*s].present = true;
  m.sessions[*s].vgpu = v;
  g->sessions.push_back(*s);
  if (m.spatial() ? !g->granted.empty() : g->holds && !g->leaving)
    m.grant_session(*s, out);
  else
    m.set_grant(out, *s, SLUICE_GRANT_CONTENDED);
  m.finish(now_ns, out);
  return s;
}

void Scheduler::on_session_removed(uint64_t now_ns, SessionId s, ActionQueue& out) {
  Impl& m = *impl_;
  Session* x = m.session(s);
  if (!x) return;
  const VgpuId v = x->vgpu;
  Vgpu& g = m.vgpus[v];
  m.set_wants(s, false);
  m.take_unconfined(now_ns, s, false);
  m.outstanding -= x->reads_pending;
  add_counter(g.old_launches, x->report.guest_launches);
  add_counter(g.old_done, x->report.guest_launches_done);
  add_counter(g.old_relaunched, x->report.guest_evictions);
  add_counter(g.old_green_launches, x->report.guest_green_launches);
  add_counter(g.old_green_contexts, x->report.guest_green_contexts);
  add_counter(g.old_part_launches, x->report.guest_part_launches);
  std::erase(g.sessions, s);
  const bool was_leaving = x->leaving;
  if (m.spatial() && g.sessions.empty())
    m.all_gone(now_ns, v, out);
  else if (was_leaving)
    m.session_left(now_ns, s, out);
  else if (g.holds && !g.leaving && g.sessions.empty())
    m.vgpu_left(now_ns, v, out);
  *x = Session{};
  m.free_sessions.push_back(s);
  m.finish(now_ns, out);
}

// ---- events ----------------------------------------------------------------------------------

// Checks what a session says of itself, and keeps it.
void Scheduler::Impl::take_report(SessionId s, const ReportSnapshot& report, ActionQueue& out) {
  Session& x = sessions[s];
  Vgpu& g = vgpus[x.vgpu];
  ReportSnapshot r = report;
  const auto violation = [&](uint64_t word) {
    ++g.violations;
    log(out, LogEvent::kReportViolation, x.vgpu, word, s);
  };
  // Nothing can have left a generation that was never granted: that word then says nothing.
  if (r.guest_left_generation > x.generation) {
    violation(r.guest_left_generation);
    r.guest_left_generation = 0;
  }
  if (r.guest_demand > config.max_demand) {
    violation(r.guest_demand);
    r.guest_demand = config.max_demand;
  }
  if (r.guest_in_flight > config.max_in_flight) {
    violation(r.guest_in_flight);
    r.guest_in_flight = config.max_in_flight;
  }
  if (r.guest_unconfined > r.guest_in_flight) {
    // They were read one after the other, and launches end meanwhile: no violation.
    r.guest_unconfined = r.guest_in_flight;
  }
  // Counters that people see only grow; what goes back is not taken.
  r.guest_launches = std::max(r.guest_launches, x.report.guest_launches);
  r.guest_launches_done = std::max(r.guest_launches_done, x.report.guest_launches_done);
  r.guest_evictions = std::max(r.guest_evictions, x.report.guest_evictions);
  if (pauses_count() && g.holds && !g.busy && r.guest_launches_done > x.report.guest_launches_done) {
    g.came_back = true;
    mark_dirty(x.vgpu);
  }
  x.report = r;
}

void Scheduler::on_report(uint64_t now_ns, SessionId s, const ReportSnapshot& report,
                          ActionQueue& out) {
  Impl& m = *impl_;
  Session* x = m.session(s);
  if (!x) return;
  if (x->reads_pending) {
    --x->reads_pending;
    --m.outstanding;
  }
  m.take_report(s, report, out);
  m.take_hints(s, report.guest_hints);
  m.take_unconfined(now_ns, s, x->report.guest_unconfined > 0);
  m.set_wants(s, x->report.guest_demand > 0 || x->report.guest_in_flight > 0);
  Vgpu& g = m.vgpus[x->vgpu];
  if (g.holds) g.clock.on_look(now_ns, g.wants());
  // Only a report that was read after the closed word was stored can tell that it has left: the one
  // that the evict asked for is the last in the queue.
  if (x->leaving) m.call_back_whole(s, out);
  if (x->leaving && x->reads_pending == 0) {
    if (x->report.guest_in_flight == 0 || x->report.guest_left_generation >= x->leaving_generation)
      m.session_left(now_ns, s, out);
    else
      g.had_in_flight = true;
  }
  m.finish(now_ns, out);
}

void Scheduler::on_timer(uint64_t now_ns, ActionQueue& out) {
  Impl& m = *impl_;
  if (m.armed_ns <= now_ns) m.armed_ns = kNever;
  m.look_at_deadlines(now_ns, out);
  if (m.policy_wake_ns <= now_ns) {
    m.policy_wake_ns = kNever;
    m.wake_due = true;
    if (m.pauses_count()) m.look_at_idle_holders(out);
  }
  m.finish(now_ns, out);
}

void Scheduler::on_seen(uint64_t now_ns, SessionId running, ActionQueue& out) {
  impl_->see(now_ns, running, out);
  impl_->finish(now_ns, out);
}

void Scheduler::on_measured(uint64_t now_ns, VgpuId v, uint64_t refund_sm_ns, uint64_t extra_sm_ns,
                            ActionQueue& out) {
  Impl& m = *impl_;
  Vgpu* g = m.vgpu(v);
  if (!g || m.slices()) return;
  m.flush_usage(now_ns);
  const policy::Config& p = m.config.policy_config;
  // Nobody runs for longer than this for nothing, however wrong a source is.
  const uint64_t most = std::min(g->charged_sm_ns, p.max_quantum_ns * p.machine.sm_count);
  g->refund_sm_ns = std::min(g->refund_sm_ns + std::min(refund_sm_ns, most), most);
  if (extra_sm_ns) {
    g->charged_sm_ns += extra_sm_ns;
    g->extra_sm_ns += extra_sm_ns;
    m.policy->on_usage(now_ns, v, {.sm_ns = extra_sm_ns});
  }
  m.finish(now_ns, out);
}

// ---- for people ------------------------------------------------------------------------------

VgpuStats Scheduler::stats(uint64_t now_ns, VgpuId v) const {
  const Impl& m = *impl_;
  VgpuStats t;
  if (v >= m.vgpus.size() || !m.vgpus[v].present) return t;
  const Vgpu& g = m.vgpus[v];
  t.share = g.share;
  t.sessions = static_cast<uint32_t>(g.sessions.size());
  t.busy = g.busy;
  t.holds = g.holds;
  t.contended = m.meter.contended(v);
  t.told_sm_ns = g.told_sm_ns;
  t.sms = g.held;
  t.gpu_ns = g.clock.total_ns(now_ns);
  if (m.spatial())
    t.gpu_ns = (g.used_sm_ns + (t.gpu_ns - g.flushed_ns) * m.sms_of(g)) / m.sm_count();
  else if (m.slices())
    t.gpu_ns = g.used_sm_ns / m.sm_count();
  t.gpu_error_ns = g.clock.error_ns(now_ns);
  t.charged_sm_ns = g.charged_sm_ns;
  t.refunded_sm_ns = g.refunded_sm_ns;
  t.extra_sm_ns = g.extra_sm_ns;
  t.shares = m.meter.totals(now_ns, v);
  t.grants = g.grants;
  t.evictions = g.evictions;
  t.overdue = g.overdue;
  t.ended = g.ended;
  t.set_changes = g.set_changes;
  t.report_violations = g.violations;
  t.guest_launches = g.old_launches;
  t.guest_launches_done = g.old_done;
  t.guest_relaunched = g.old_relaunched;
  t.guest_green_launches = g.old_green_launches;
  t.guest_green_contexts = g.old_green_contexts;
  t.guest_part_launches = g.old_part_launches;
  for (SessionId s : g.sessions) {
    t.guest_queued += m.sessions[s].report.guest_demand;
    add_counter(t.guest_launches, m.sessions[s].report.guest_launches);
    add_counter(t.guest_launches_done, m.sessions[s].report.guest_launches_done);
    add_counter(t.guest_relaunched, m.sessions[s].report.guest_evictions);
    t.guest_narrowed += m.sessions[s].report.guest_narrowed;
    t.guest_grown += m.sessions[s].report.guest_grown;
    add_counter(t.guest_green_launches, m.sessions[s].report.guest_green_launches);
    add_counter(t.guest_green_contexts, m.sessions[s].report.guest_green_contexts);
    add_counter(t.guest_part_launches, m.sessions[s].report.guest_part_launches);
  }
  return t;
}

const accounting::LatencyHistogram& Scheduler::eviction_latency(VgpuId v) const {
  static const accounting::LatencyHistogram none;
  return v < impl_->vgpus.size() ? impl_->vgpus[v].latency : none;
}
uint64_t Scheduler::all_contended_ns(uint64_t now_ns) const {
  return impl_->meter.all_contended_ns(now_ns);
}
std::string_view Scheduler::policy_name() const { return impl_->policy->name(); }
uint64_t Scheduler::quantum_ns() const { return impl_->policy->quantum_ns(); }
uint64_t Scheduler::grant_word(SessionId s) const {
  return s < impl_->sessions.size() ? impl_->sessions[s].word : 0;
}

}  // namespace sluice::core
