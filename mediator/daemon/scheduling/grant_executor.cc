// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/scheduling/grant_executor.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "mediator/base/check.h"
#include "mediator/base/clock.h"
#include "mediator/base/limits.h"
#include "mediator/base/log.h"
#include "mediator/base/peer_socket.h"
#include "mediator/base/process/processor_time.h"
#include "mediator/daemon/scheduling/sharing_checks.h"

namespace sluice {

static_assert(limits::kMaxWeight == policy::kMaxWeight);
static_assert(limits::kMaxPriority + 1 == policy::kPriorityLevels);

namespace {
// `top` looks back over one of these; beats of 100 ms make every fifth a sample.
constexpr uint64_t kBeatsPerSample = 5;
constexpr size_t kSamples = 240;                     // two minutes
constexpr uint64_t kViolationLogNs = 1'000'000'000;  // a hostile worker gets one line a second
}  // namespace

struct GrantExecutor::SessionEntry {
  core::VgpuId vgpu;
  io::StubPages& pages;
  int gate_fd;
  int ring_fd;
  pid_t worker;
  EndHook end;
  SliceHook slice;
  StarvedHook ask_starved;
  uint64_t grant = 0;  // as the scheduler set it
  bool ending = false;
  uint64_t read_in_beat = 0;  // the last one in which its report was read
  ErrorHook on_error = {};    // empty: nobody asks, or it was called
  io::FdWatch ring_watch;
};

Result<std::unique_ptr<GrantExecutor>> GrantExecutor::make(boost::asio::io_context& io,
                                                           const core::SchedulerConfig& config,
                                                           const AccountingSettings& accounting) {
  std::unique_ptr<GrantExecutor> e(new GrantExecutor(io));
  e->scheduler_ = core::Scheduler::make(config, monotonic_ns());
  if (!e->scheduler_) {
    const std::string names = policies_that([&](const policy::Registration& r) {
      return core::Scheduler::runs(r, config.policy_config.machine.preemptor);
    });
    const policy::Registration* row = policy::find_policy(config.policy);
    const char* why =
        !row ? "there is no such policy" : "it needs the GPU's time slices (scheduler.slices)";
    return Error{EINVAL,
                 "scheduler.policy '" + config.policy + "': " + why + "; sluiced runs: " + names};
  }
  e->sm_count_ = std::max(config.policy_config.machine.sm_count, 1u);
  const auto correct = [executor = e.get(), sms = config.policy_config.machine.sm_count](
                           core::VgpuId v, uint64_t refund_ns, uint64_t extra_ns) {
    executor->scheduler_->on_measured(monotonic_ns(), v, refund_ns * sms, extra_ns * sms,
                                      executor->actions_);
    executor->run();
  };
  const auto seen = [executor = e.get()](core::SessionId running) {
    const uint64_t now_ns = monotonic_ns();
    executor->note_silence(now_ns);
    executor->scheduler_->on_seen(now_ns, running, executor->actions_);
    executor->run();
  };
  e->accounting_ = std::make_unique<Accounting>(io, accounting, correct, seen);
  return e;
}

GrantExecutor::GrantExecutor(boost::asio::io_context& io)
    : io_(io), wake_timer_(io), beat_timer_(io) {}
GrantExecutor::~GrantExecutor() = default;

Result<core::VgpuId> GrantExecutor::add_vgpu(const std::string& name, const std::string& owner,
                                             const policy::VgpuShare& share) {
  const std::string learnt_as = LearntFiles::name_of(name, owner);
  auto id = scheduler_->add_vgpu(monotonic_ns(), share, actions_, learnt_as);
  if (!id) return Error{ENOSPC, "the scheduler has no place for another vGPU"};
  if (vgpus_.size() <= *id) vgpus_.resize(*id + 1);
  vgpus_[*id] = {.name = name,
                 .learnt_as = learnt_as,
                 .loop_time = loop_budgets_.make(),
                 .urgent = is_urgent(share)};
  if (learnt_files_)
    learnt_files_->load(vgpus_[*id].learnt_as, [this, v = *id](core::Progress known) {
      vgpus_[v].progress.take_knowledge(std::move(known));
    });
  accounting_->add_vgpu(*id, name);
  if (trace_) trace_->share(monotonic_ns(), *id, name, share);
  run();
  return *id;
}

void GrantExecutor::set_share(core::VgpuId vgpu, const policy::VgpuShare& share) {
  scheduler_->set_share(monotonic_ns(), vgpu, share, actions_);
  vgpus_[vgpu].urgent = is_urgent(share);
  if (trace_) trace_->share(monotonic_ns(), vgpu, vgpus_[vgpu].name, share);
  run();
}

void GrantExecutor::set_paused(core::VgpuId vgpu, bool paused) {
  scheduler_->set_paused(monotonic_ns(), vgpu, paused, actions_);
  run();
}

void GrantExecutor::set_group(policy::GroupId group, const policy::GroupShare& share) {
  scheduler_->set_group(monotonic_ns(), group, share, actions_);
  run();
}

void GrantExecutor::remove_vgpu(core::VgpuId vgpu) {
  scheduler_->remove_vgpu(monotonic_ns(), vgpu, actions_, vgpus_[vgpu].learnt_as);
  accounting_->remove_vgpu(vgpu);
  if (learnt_files_) learnt_files_->save(vgpus_[vgpu].learnt_as, vgpus_[vgpu].progress);
  vgpus_[vgpu] = {};
  // The id will be another vGPU's: its past must not look like that one's.
  for (Sample& s : samples_)
    if (vgpu < s.present.size()) s.present[vgpu] = false;
  run();
}

Result<core::SessionId> GrantExecutor::add_session(core::VgpuId vgpu, io::StubPages& pages,
                                                   int gate_fd, int ring_fd, pid_t worker,
                                                   EndHook end, SliceHook slice,
                                                   StarvedHook ask_starved) {
  // The entry must be there when the scheduler's first actions about it are executed.
  if (slices_) slices_->add(worker, vgpu);
  const uint64_t now = monotonic_ns();
  auto id = scheduler_->add_session(now, vgpu, actions_);
  if (!id) return Error{ENOSPC, "the scheduler has no place for another session"};
  if (sessions_.size() <= *id) sessions_.resize(*id + 1);
  SLUICE_CHECK(!sessions_[*id]);
  auto entry = std::make_unique<SessionEntry>(SessionEntry{.vgpu = vgpu,
                                                           .pages = pages,
                                                           .gate_fd = gate_fd,
                                                           .ring_fd = ring_fd,
                                                           .worker = worker,
                                                           .end = std::move(end),
                                                           .slice = std::move(slice),
                                                           .ask_starved = std::move(ask_starved),
                                                           .ring_watch = {}});
  entry->ring_watch = io::FdWatch(
      io_, ring_fd, io::Pace{limits::kRingsPerSecond, limits::kRingBurst},
      [this, session = *id] { on_ring(session); }, vgpus_[vgpu].loop_time);
  entry->pages.beat(now);
  sessions_[*id] = std::move(entry);
  session_of_[worker] = *id;
  ++session_count_;
  accounting_->add_session(*id, vgpu, worker, &pages.report(), &pages.records());
  start_beating();
  run();
  read_report(*id);  // it may have rung before anybody listened
  run();
  return *id;
}

void GrantExecutor::mark_ending(core::SessionId session) {
  SessionEntry& entry = *sessions_[session];
  if (entry.ending) return;
  entry.ending = true;
  store_grant(entry);
  ring_wake(entry.gate_fd);
}

void GrantExecutor::watch_errors(core::SessionId session, ErrorHook hook) {
  sessions_[session]->on_error = std::move(hook);
}

void GrantExecutor::charge_stall(core::VgpuId vgpu, uint64_t stall_ns) {
  measure(true);
  if (slices_) slices_->on_stall(monotonic_ns(), stall_ns);
  scheduler_->on_stall(monotonic_ns(), vgpu, stall_ns, actions_);
  run();
}

void GrantExecutor::remove_session(core::SessionId session) {
  SLUICE_CHECK(session < sessions_.size() && sessions_[session]);
  measure(true);
  read_report(session);  // the last figures; the pages outlive the worker
  run();
  if (slices_) slices_->forget(sessions_[session]->worker);
  vgpus_[sessions_[session]->vgpu].progress.learn(session, sessions_[session]->pages.records());
  accounting_->remove_session(session);
  scheduler_->on_session_removed(monotonic_ns(), session, actions_);
  vgpus_[sessions_[session]->vgpu].ended_relaunches += relaunches_of(*sessions_[session]);
  vgpus_[sessions_[session]->vgpu].progress.forget(session);
  // Actions about other sessions follow; none about this one has an effect any more.
  if (const auto of = session_of_.find(sessions_[session]->worker);
      of != session_of_.end() && of->second == session)
    session_of_.erase(of);
  sessions_[session].reset();
  --session_count_;
  run();
}

void GrantExecutor::run() {
  while (auto action = actions_.pop()) execute(*action);
}

void GrantExecutor::execute(const core::Action& action) {
  using Kind = core::Action::Kind;
  if (action.kind == Kind::kLog) {
    const uint64_t now = monotonic_ns();
    if (trace_) trace_->event(now, action.event, action.vgpu);
    accounting_->event(now, action.event, action.vgpu);
    return log_event(action);
  }
  if (action.kind == Kind::kWakeAt) {
    if (action.word == core::kNever) return wake_timer_.cancel();
    return wake_timer_.at_ns(action.word, [this] {
      measure(true);
      scheduler_->on_timer(monotonic_ns(), actions_);
      run();
    });
  }
  if (action.session >= sessions_.size() || !sessions_[action.session]) return;
  SessionEntry& entry = *sessions_[action.session];
  switch (action.kind) {
    case Kind::kSetSms:
      entry.pages.set_sms(static_cast<uint32_t>(action.word), action.sms);
      break;
    case Kind::kSetGrant:
      entry.grant = action.word;
      store_grant(entry);
      if (slices_) slices_->note_work(monotonic_ns(), entry.worker, work_of(entry));
      entry.ring_watch.set_awaited(scheduler_->awaits(action.session));
      break;
    case Kind::kSetEvict:
      entry.pages.set_evict(action.word);
      entry.ring_watch.set_awaited(scheduler_->awaits(action.session));
      if (ring_on_evict_) ring_wake(entry.gate_fd);
      break;
    case Kind::kReadReport:
      read_report(action.session);
      break;
    case Kind::kAskStarved:
      entry.ask_starved();
      break;
    case Kind::kRingGate:
      ring_wake(entry.gate_fd);
      break;
    case Kind::kSetSlice:
      if (trace_) trace_->slice(monotonic_ns(), entry.vgpu, action.word);
      if (const uint64_t ns = slices_ ? slices_->set(entry.worker, action.word) : 0; ns != 0)
        entry.slice(ns);
      break;
    case Kind::kEndSession:
      entry.end(action.reason);
      break;
    case Kind::kWakeAt:
    case Kind::kLog:
      break;
  }
}

void GrantExecutor::store_grant(SessionEntry& entry) {
  entry.pages.set_grant(entry.grant | (entry.ending ? SLUICE_GRANT_ENDING : 0));
}

void GrantExecutor::read_report(core::SessionId session) {
  SessionEntry& entry = *sessions_[session];
  core::ReportSnapshot report = core::read_report(entry.pages.report());
  if (report.guest_demand > 0 && scheduler_->wants_hints(session))
    report.guest_hints =
        vgpus_[entry.vgpu].progress.read(session, entry.pages.records(), report.guest_demand);
  scheduler_->on_report(monotonic_ns(), session, report, actions_);
  entry.ring_watch.set_awaited(scheduler_->awaits(session));
  const uint64_t error = __atomic_load_n(&entry.pages.report().error, __ATOMIC_RELAXED);
  if (error == 0 || !entry.on_error) return;
  // Later: the scheduler may be in the middle of its actions.
  boost::asio::post(io_, [this, session, worker = entry.worker, error] {
    if (session >= sessions_.size() || !sessions_[session] || sessions_[session]->worker != worker)
      return;
    if (const ErrorHook hook = std::exchange(sessions_[session]->on_error, nullptr)) hook(error);
  });
}

void GrantExecutor::on_ring(core::SessionId session) {
  SessionEntry& entry = *sessions_[session];
  // Before the report: what comes later rings again.
  if (drain_wake(entry.ring_fd) == Drained::kDescriptors) {
    // It stays there until the socket is closed. Reports are still read by timer, until it is over.
    entry.ring_watch.stop();
    log::warning("vgpu {}: a worker passed a descriptor", vgpus_[entry.vgpu].name);
    return entry.end(core::EndReason::kPassedDescriptors);
  }
  if (vgpus_[entry.vgpu].urgent) expects_ring_until_ns_ = monotonic_ns() + urgent_ring_ns_;
  measure(false);
  read_report(session);
  run();
}

uint64_t GrantExecutor::take_stay_ns(core::SessionId session) {
  read_report(session);  // it may have left at last
  run();
  return scheduler_->take_stay_ns(monotonic_ns(), session);
}

// What its worker has stored meanwhile comes first.
void GrantExecutor::on_starved(core::SessionId session, uint64_t ns) {
  measure(true);
  read_report(session);
  run();
  scheduler_->on_starved(monotonic_ns(), session, ns, actions_);
  run();
}

TimeSlices::Work GrantExecutor::work_of(const SessionEntry& entry) {
  const core::ReportSnapshot report = core::read_report(entry.pages.report());
  const bool open = (entry.grant & SLUICE_GRANT_OPEN) != 0;
  if (report.guest_in_flight > 0 || (open && report.guest_demand > 0))
    return TimeSlices::Work::kRuns;
  return report.guest_demand > 0 ? TimeSlices::Work::kWaits : TimeSlices::Work::kNone;
}

void GrantExecutor::measure(bool now) {
  if (!slices_) return;
  const uint64_t now_ns = monotonic_ns();
  const auto of = [&](pid_t worker) -> SessionEntry* {
    const auto session = session_of_.find(worker);
    return session == session_of_.end() ? nullptr : sessions_[session->second].get();
  };
  const auto works = [&](pid_t worker) {
    const SessionEntry* entry = of(worker);
    return entry ? work_of(*entry) : TimeSlices::Work::kNone;
  };
  slices_->read_use(now_ns, now, works, [&](pid_t worker, uint64_t used_ns, bool free) {
    const SessionEntry* entry = of(worker);
    if (!entry) return;
    if (trace_ && !free) trace_->used(now_ns, entry->vgpu, used_ns);
    scheduler_->on_used(now_ns, entry->vgpu, used_ns * sm_count_, free);
  });
  for (const pid_t worker : slices_->take_overruns())
    if (SessionEntry* entry = of(worker)) {
      log::warning("vgpu {}: worker {} keeps the GPU beyond its time slices: the witness waits",
                   vgpus_[entry->vgpu].name, worker);
      entry->end(core::EndReason::kOverranSlices);
    }
}

void GrantExecutor::start_beating() {
  if (beat_timer_.pending()) return;
  last_beat_ns_ = monotonic_ns();
  beat_timer_.after_ms(limits::kHostPageBeatMs, [this] { beat(); });
}

void GrantExecutor::note_silence(uint64_t now_ns) {
  constexpr uint64_t kLeastNs =
      SLUICE_STALE_HEARTBEAT_NS - limits::kHostPageBeatMs * uint64_t{1'000'000};
  if (now_ns - last_beat_ns_ > kLeastNs) scheduler_->on_silence(now_ns);
}

void GrantExecutor::beat() {
  if (session_count_ == 0) {  // an idle daemon sleeps
    samples_.clear();
    return;
  }
  const uint64_t now = monotonic_ns();
  note_silence(now);
  measure(true);
  for (const auto& entry : sessions_)
    if (entry) entry->pages.beat(now);
  ++beats_;
  read_reports();
  learn(now);
  learn_evictions();
  if (trace_) trace_->flush();
  if (beats_ % kBeatsPerSample == 0) take_sample();
  start_beating();
}

// Of sessions that others wait for all. The rest in turn: who waits for the GPU rings when it has
// work and when it has none, and who holds it alone is asked when another one comes.
void GrantExecutor::read_reports() {
  const auto read = [this](core::SessionId s) {
    sessions_[s]->read_in_beat = beats_;
    read_report(s);
    run();
  };
  for (core::SessionId s = 0; s < sessions_.size(); ++s)
    if (sessions_[s] && scheduler_->awaits(s)) read(s);
  size_t left = limits::kReportsPerBeat;
  for (size_t n = 0; n < sessions_.size(); ++n) {
    const auto s = static_cast<core::SessionId>((read_from_ + n) % sessions_.size());
    if (!sessions_[s] || sessions_[s]->read_in_beat == beats_) continue;
    if (left-- == 0) {
      read_from_ = s;
      return;
    }
    read(s);
  }
}

// In turn, as far as there is time. A vGPU pays for what its records cost as for its messages, and
// nothing is learnt of one that owes.
void GrantExecutor::learn(uint64_t now_ns) {
  const uint64_t began_ns = thread_cpu_ns();
  uint64_t before_ns = began_ns;
  for (size_t n = 0; n < sessions_.size(); ++n) {
    const auto s = static_cast<core::SessionId>((learn_from_ + n) % sessions_.size());
    if (!sessions_[s]) continue;
    if (before_ns - began_ns > limits::kLearnMs * 1'000'000) {
      learn_from_ = s;
      return;
    }
    VgpuEntry& vgpu = vgpus_[sessions_[s]->vgpu];
    if (vgpu.loop_time->in_debt(now_ns)) continue;
    vgpu.progress.learn(s, sessions_[s]->pages.records());
    const uint64_t after_ns = thread_cpu_ns();
    vgpu.loop_time->charge(now_ns, after_ns - before_ns);
    before_ns = after_ns;
  }
}

void GrantExecutor::learn_evictions() {
  for (core::VgpuId v = 0; v < vgpus_.size(); ++v) {
    // Among time slices leaving takes as long as the others' turns do.
    if (vgpus_[v].name.empty() || slices_) continue;
    const accounting::LatencyHistogram& h = scheduler_->eviction_latency(v);
    VgpuEntry& entry = vgpus_[v];
    entry.progress.learn_evictions(h.count() - entry.evictions_seen,
                                   h.sum_ns() - entry.evictions_seen_ns);
    entry.evictions_seen = h.count();
    entry.evictions_seen_ns = h.sum_ns();
  }
}

void GrantExecutor::take_sample() {
  Sample s;
  s.at_ns = monotonic_ns();
  s.vgpus.resize(vgpus_.size());
  s.present.resize(vgpus_.size());
  for (core::VgpuId v = 0; v < vgpus_.size(); ++v) {
    if (vgpus_[v].name.empty()) continue;
    s.present[v] = true;
    s.vgpus[v] = figures(v);
  }
  s.all_contended_ns = scheduler_->all_contended_ns(s.at_ns);
  samples_.push_back(std::move(s));
  if (samples_.size() > kSamples) samples_.pop_front();
}

const GrantExecutor::Sample* GrantExecutor::sample_before(uint64_t ns_ago) const {
  const uint64_t now = monotonic_ns();
  const Sample* best = nullptr;
  for (const Sample& s : samples_) {
    if (best && now - s.at_ns < ns_ago) break;
    best = &s;  // the youngest that is old enough, or the oldest there is
  }
  return best;
}

GrantExecutor::Figures GrantExecutor::figures(core::VgpuId vgpu) const {
  return {scheduler_->stats(monotonic_ns(), vgpu), accounting_->read(vgpu)};
}

GrantExecutor::Figures GrantExecutor::stats(core::VgpuId vgpu) {
  for (core::SessionId s = 0; s < sessions_.size(); ++s) {
    if (!sessions_[s] || sessions_[s]->vgpu != vgpu) continue;
    read_report(s);
    run();
  }
  return figures(vgpu);
}

const accounting::LatencyHistogram& GrantExecutor::eviction_latency(core::VgpuId vgpu) const {
  return scheduler_->eviction_latency(vgpu);
}
core::ProgressSums GrantExecutor::progress(core::VgpuId vgpu) const {
  core::ProgressSums sums;
  for (const auto& s : sessions_)
    if (s && s->vgpu == vgpu) vgpus_[vgpu].progress.add(s->pages.records(), &sums);
  return sums;
}
uint64_t GrantExecutor::relaunches_of(const SessionEntry& entry) {
  return __atomic_load_n(&entry.pages.report().relaunches, __ATOMIC_RELAXED);
}
uint64_t GrantExecutor::relaunches(core::VgpuId vgpu) const {
  uint64_t sum = vgpus_[vgpu].ended_relaunches;
  for (const auto& s : sessions_)
    if (s && s->vgpu == vgpu) sum += relaunches_of(*s);
  return sum;
}
uint64_t GrantExecutor::all_contended_ns() const {
  return scheduler_->all_contended_ns(monotonic_ns());
}
uint64_t GrantExecutor::quantum_ns() const { return scheduler_->quantum_ns(); }
std::string GrantExecutor::policy_name() const { return std::string(scheduler_->policy_name()); }

void GrantExecutor::log_event(const core::Action& a) {
  const std::string& name = a.vgpu < vgpus_.size() ? vgpus_[a.vgpu].name : std::string();
  switch (a.event) {
    case core::LogEvent::kOverdue:
      log::warning("vgpu {}: evicted {:.1f} ms ago and still on the GPU", name, a.word / 1e6);
      return;
    case core::LogEvent::kEnded:
      log::warning("vgpu {}: a session is ended: {}", name,
                   core::to_string(static_cast<core::EndReason>(a.word)));
      return;
    case core::LogEvent::kReportViolation: {
      const uint64_t now = monotonic_ns();
      if (now - last_violation_log_ns_ < kViolationLogNs) return;
      last_violation_log_ns_ = now;
      log::warning("vgpu {}: a worker reported what cannot be (word {})", name, a.word);
      return;
    }
    case core::LogEvent::kPolicyViolation:
      log::error("vgpu {}: policy {} asked for what cannot be", name, policy_name());
      return;
    case core::LogEvent::kShareChanged:
      log::info("vgpu {}: weight is {}", name, a.word);
      return;
    default:
      log::debug("vgpu {}: {} {}", name, core::to_string(a.event), a.word);
  }
}

}  // namespace sluice
