// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/hosts/sim_host.h"

#include <algorithm>

namespace sluice::sim {

using core::Action;
using core::SessionId;
using core::VgpuId;

SimHost::SimHost(const core::SchedulerConfig& config, const Costs& costs, uint64_t seed)
    : VirtualHost(config), config_(config), costs_(costs), random_(seed) {}

void SimHost::poll_reports() {
  for (SessionId s = 0; s < sessions_.size(); ++s) {
    if (!sessions_[s].present) continue;
    sluiced_looks(s);
    drain();
  }
}

bool SimHost::honest(VgpuId v) const {
  for (const Sess& s : sessions_)
    if (s.present && s.vgpu == v &&
        (s.program.lie != Program::Lie::kNone || s.program.never_leaves))
      return false;
  return true;
}

void SimHost::advance(uint64_t time_ns) {
  const uint64_t dt = time_ns - now_ns_;
  now_ns_ = time_ns;
  if (dt == 0) return;
  const size_t n = truth_.size();
  uint32_t present = 0, with_work = 0, on = 0;
  bool honest_work = false;
  std::vector<char> work(n), running(n);
  for (const Sess& s : sessions_) {
    if (!s.present || s.dead) continue;
    work[s.vgpu] |= s.demand > 0;
    running[s.vgpu] |= s.run.on;
  }
  SmSet honest_sms;
  bool overlap = false;
  for (VgpuId v = 0; v < n; ++v) {
    present += vgpu_present_[v];
    with_work += work[v];
    on += running[v];
    const SmSet sms = running_on(v);
    truth_[v].sm_ns += dt * sms.count();
    if (running[v] && honest(v)) {
      SmSet bound;
      for (const Sess& s : sessions_)
        if (s.present && s.vgpu == v && s.run.on && !s.run.unconfined) bound = bound | s.run.sms;
      overlap |= honest_sms.meets(bound);
      honest_sms = honest_sms | bound;
    }
    if (work[v] && honest(v)) honest_work = true;
    if (running[v] || !work[v]) {
      waiting_since_[v] = now_ns_;
    } else {
      truth_[v].longest_wait_ns = std::max(truth_[v].longest_wait_ns, now_ns_ - waiting_since_[v]);
    }
    if (running[v]) truth_[v].on_gpu_ns += dt;
  }
  const bool all = present >= 2 && with_work == present;
  if (all) all_contended_ns_ += dt;
  for (VgpuId v = 0; v < n; ++v) {
    if (all && running[v]) truth_[v].all_gpu_ns += dt;
    if (all) truth_[v].all_sm_ns += dt * running_on(v).count();
  }
  if (overlap) overlap_ns_ += dt;
  if (honest_work) {
    some_work_ns_ += dt;
    if (on == 0) wasted_ns_ += dt;
  }
}

SmSet SimHost::running_on(VgpuId v) const {
  SmSet sms;
  for (const Sess& s : sessions_)
    if (s.present && s.vgpu == v && s.run.on) sms = sms | s.run.sms;
  return sms;
}

void SimHost::after(uint64_t dt_ns, SessionId s, void (SimHost::*step)(SessionId)) {
  at(now_ns_ + dt_ns, [this, s, step, life = sessions_[s].life] {
    if (sessions_[s].present && sessions_[s].life == life) (this->*step)(s);
  });
}

// ---- sluiced ------------------------------------------------------------------------------------

void SimHost::apply(const Action& action) {
  switch (action.kind) {
    case Action::Kind::kSetSms: {
      sessions_[action.session].sms[action.word & 1] = action.sms;
      auto& sets = truth_[action.vgpu].sets;
      const auto at = std::find(sets.begin(), sets.end(), action.sms);
      if (at != sets.end())
        sets.erase(at);
      else
        ++truth_[action.vgpu].new_sets;
      sets.push_back(action.sms);
      if (sets.size() > VgpuTruth::kSetsKept) sets.erase(sets.begin());
      break;
    }
    case Action::Kind::kSetGrant:
      sessions_[action.session].grant = action.word;
      break;
    case Action::Kind::kSetEvict:
      sessions_[action.session].evict = action.word;
      after(costs_.signal_ns, action.session, &SimHost::gpu_sees_evict);
      break;
    case Action::Kind::kRingGate:
      after(costs_.gate_ns, action.session, &SimHost::worker_tries);
      break;
    case Action::Kind::kEndSession:
      ++ended_;
      after(costs_.reap_ns, action.session, &SimHost::reap);
      break;
    case Action::Kind::kLog:
      if (action.event == core::LogEvent::kPolicyViolation) ++policy_violations_;
      if (action.event == core::LogEvent::kPart || action.event == core::LogEvent::kEvictSent)
        ++truth_[action.vgpu].set_changes;
      break;
    default:  // it has no slices
      break;
  }
}

core::LaunchHints SimHost::hints(const Sess& x) const {
  if (x.program.claimed == 0) return {};
  uint64_t tasks = x.head_tasks + uint64_t{x.demand - 1} * x.program.tasks_per_launch;
  if (x.run.on && now_ns_ > x.run.first_task_ns)
    tasks -= std::min<uint64_t>((now_ns_ - x.run.first_task_ns) / x.run.task_ns, x.head_tasks);
  const double claimed =
      x.run.on && x.program.claimed_running != 0 ? x.program.claimed_running : x.program.claimed;
  return {.predicted = x.demand,
          .remaining_ns =
              static_cast<uint64_t>(static_cast<double>(tasks * x.program.task_ns) * claimed),
          .preempt_ns = 0};
}

core::ReportSnapshot SimHost::report_of(VgpuId, SessionId s) {
  const Sess& x = sessions_[s];
  core::ReportSnapshot r;
  r.guest_demand = x.demand;
  r.guest_in_flight = x.in_flight;
  r.guest_left_generation = x.left_generation;
  r.guest_unconfined = x.unconfined;
  r.guest_launches = x.launches;
  r.guest_launches_done = x.launches_done;
  r.guest_evictions = x.evictions;
  if (x.demand > 0 && scheduler_->wants_hints(s)) r.guest_hints = hints(x);
  switch (x.program.lie) {
    case Program::Lie::kNone:
    case Program::Lie::kSilent:
      break;
    case Program::Lie::kAlwaysBusy:
      r.guest_demand = 7, r.guest_in_flight = 0;
      break;
    case Program::Lie::kNothingInFlight:
      r.guest_in_flight = 0;
      break;
    case Program::Lie::kLeftAtOnce:
      r.guest_left_generation = SLUICE_GRANT_GENERATION(x.grant) + (random_() % 3);
      break;
    case Program::Lie::kRandom:
      r.guest_unconfined = static_cast<uint32_t>(random_() >> (random_() % 64));
      r.guest_keeps = static_cast<uint32_t>(random_() % 4);
      r.guest_recall = static_cast<uint32_t>(random_() >> (random_() % 64));
      r.guest_demand = static_cast<uint32_t>(random_() >> (random_() % 64));
      r.guest_in_flight = static_cast<uint32_t>(random_() >> (random_() % 64));
      r.guest_left_generation = static_cast<uint32_t>(random_() >> (random_() % 64));
      r.guest_launches = random_();
      r.guest_launches_done = random_();
      r.guest_hints = {.predicted = static_cast<uint32_t>(random_() >> (random_() % 64)),
                       .remaining_ns = random_() >> (random_() % 64),
                       .preempt_ns = random_() >> (random_() % 64)};
      break;
  }
  return r;
}

VgpuId SimHost::add_vgpu(const policy::VgpuShare& share) {
  const auto v = scheduler_->add_vgpu(now_ns_, share, actions_);
  drain();
  truth_.resize(std::max<size_t>(truth_.size(), *v + 1));
  waiting_since_.resize(truth_.size());
  vgpu_present_.resize(truth_.size());
  truth_[*v] = {};
  waiting_since_[*v] = now_ns_;
  vgpu_present_[*v] = 1;
  return *v;
}

void SimHost::set_share(VgpuId v, uint32_t weight, uint32_t priority) {
  scheduler_->set_share(now_ns_, v, {.weight = weight, .priority = priority}, actions_);
  drain();
}

void SimHost::set_group(policy::GroupId group, const policy::GroupShare& share) {
  scheduler_->set_group(now_ns_, group, share, actions_);
  drain();
}

SessionId SimHost::add_session(VgpuId v, const Program& program) {
  const SessionId made = make_session(v, [&](SessionId s) {
    if (s >= sessions_.size()) sessions_.resize(s + 1);
    Sess& x = sessions_[s];
    const uint64_t life = x.life + 1;
    x = Sess{};
    x.life = life;
    x.present = true;
    x.vgpu = v;
    x.program = program;
  });
  after(program.start_ns > now_ns_ ? program.start_ns - now_ns_ : 0, made, &SimHost::burst_starts);
  return made;
}

void SimHost::kill_session(SessionId s) {
  sessions_[s].dead = true;
  sessions_[s].run = {};
  after(costs_.reap_ns, s, &SimHost::reap);
}

void SimHost::reap(SessionId s) {
  sessions_[s].present = false;
  sessions_[s].run = {};
  scheduler_->on_session_removed(now_ns_, s, actions_);
}

// ---- worker and program -------------------------------------------------------------------------

void SimHost::ring(SessionId s) {
  Sess& x = sessions_[s];
  if (x.program.lie == Program::Lie::kSilent && x.rang) return;
  x.rang = true;
  after(costs_.ring_ns, s, &SimHost::sluiced_looks);
}

void SimHost::sluiced_looks(SessionId s) {
  scheduler_->on_report(now_ns_, s, report_of(sessions_[s].vgpu, s), actions_);
}

void SimHost::burst_starts(SessionId s) {
  Sess& x = sessions_[s];
  x.active = true;
  x.burst_left = x.program.launches_per_burst;
  program_acts(s);
}

// Keeps `queued` launches queued, until the burst is over.
void SimHost::program_acts(SessionId s) {
  Sess& x = sessions_[s];
  if (x.dead) return;
  const uint32_t before = x.demand;
  while (x.active && x.demand < x.program.queued) {
    if (x.program.launches_per_burst && x.burst_left == 0) break;
    if (x.burst_left) --x.burst_left;
    if (x.demand == 0) x.head_tasks = x.program.tasks_per_launch;
    ++x.demand;
    ++x.launches;
  }
  if (before == 0 && x.demand > 0) {
    if (!(x.grant & SLUICE_GRANT_OPEN)) ring(s);
    worker_tries(s);
  }
  if (x.program.lie != Program::Lie::kNone && !x.rang) ring(s);
}

void SimHost::worker_tries(SessionId s) {
  Sess& x = sessions_[s];
  if (x.dead || x.demand == 0 || x.in_flight > 0) return;
  ++x.in_flight;
  if (!(x.grant & SLUICE_GRANT_OPEN)) {
    --x.in_flight;
    return worker_left(s);
  }
  x.run.on = true;
  x.run.generation = SLUICE_GRANT_GENERATION(x.grant);
  const uint32_t sm_count = config_.policy_config.machine.sm_count;
  x.run.sms = SmSet(0, sm_count);
  const bool part = x.grant & SLUICE_GRANT_PART,
             confined = x.program.evictable && x.program.confined;
  x.run.unconfined = part && !confined;
  if (part && confined) x.run.sms = x.sms[x.run.generation & 1];
  x.run.task_ns = x.program.task_ns * sm_count / std::max(1u, x.run.sms.count());
  if (x.run.unconfined) {
    x.unconfined = 1;
    ring(s);
  }
  if (x.grant & SLUICE_GRANT_RECALL) worker_left(s);
  x.run.tasks = x.head_tasks;
  x.run.first_task_ns = now_ns_ + costs_.start_ns + (x.run.sms == x.ran_on ? 0 : costs_.change_ns);
  x.ran_on = x.run.sms;
  const uint64_t epoch = ++x.run.epoch;
  if (x.program.never_leaves) return;
  at(x.run.first_task_ns + x.run.tasks * x.run.task_ns,
     [this, s, epoch] { launch_ends(s, epoch); });
  if (static_cast<uint32_t>(x.evict) >= x.run.generation) gpu_sees_evict(s);
}

void SimHost::worker_left(SessionId s) {
  Sess& x = sessions_[s];
  uint32_t generation = SLUICE_GRANT_GENERATION(x.grant);
  if (x.grant & SLUICE_GRANT_OPEN) {
    if (!(x.grant & SLUICE_GRANT_RECALL) || (x.in_flight > 0 && x.run.generation < generation))
      return;
    --generation;
    if (generation <= x.left_generation) return;
  } else if (x.in_flight > 0) {
    return;
  }
  x.left_generation = generation;
  ring(s);
}

// ---- GPU ----------------------------------------------------------------------------------------

void SimHost::gpu_sees_evict(SessionId s) {
  Sess& x = sessions_[s];
  if (!x.run.on || !x.program.evictable || x.program.never_leaves) return;
  if (static_cast<uint32_t>(x.evict) < x.run.generation) return;
  const uint64_t t = x.run.task_ns;
  const uint64_t ran = now_ns_ > x.run.first_task_ns ? now_ns_ - x.run.first_task_ns : 0;
  const uint64_t end_ns =
      now_ns_ > x.run.first_task_ns ? x.run.first_task_ns + (ran + t - 1) / t * t : now_ns_;
  const uint64_t epoch = ++x.run.epoch;
  at(end_ns, [this, s, epoch] { launch_ends(s, epoch); });
}

void SimHost::launch_ends(SessionId s, uint64_t epoch) {
  Sess& x = sessions_[s];
  if (!x.present || !x.run.on || x.run.epoch != epoch) return;
  const uint64_t ran = now_ns_ > x.run.first_task_ns ? now_ns_ - x.run.first_task_ns : 0;
  const auto done = static_cast<uint32_t>(std::min<uint64_t>(ran / x.run.task_ns, x.run.tasks));
  x.run.on = false;
  if (x.run.unconfined) {
    x.unconfined = 0;
    ring(s);
  }
  x.head_tasks -= done;
  truth_[x.vgpu].tasks_done += done;
  --x.in_flight;
  if (x.head_tasks > 0) {
    ++x.evictions;
  } else {
    ++x.launches_done;
    ++truth_[x.vgpu].launches_done;
    --x.demand;
    x.head_tasks = x.program.tasks_per_launch;
    // The program may queue the next one at once.
    if (x.active && !(x.program.launches_per_burst && x.burst_left == 0)) {
      while (x.demand < x.program.queued && !(x.program.launches_per_burst && x.burst_left == 0)) {
        if (x.burst_left) --x.burst_left;
        ++x.demand;
        ++x.launches;
      }
    }
    if (x.demand == 0) {
      x.active = false;
      const bool long_one = x.program.long_pause_in && random_() % x.program.long_pause_in == 0;
      const uint64_t p = long_one ? x.program.long_pause_ns : x.program.pause_ns;
      after(p / 2 + (p ? random_() % p : 0), s, &SimHost::burst_starts);
      if (x.grant & SLUICE_GRANT_CONTENDED) ring(s);
    }
  }
  worker_left(s);
  worker_tries(s);
}

std::vector<double> shares_since(const SimHost& h, const std::vector<VgpuTruth>& base,
                                 const std::vector<core::VgpuId>& v, uint64_t VgpuTruth::*what) {
  double whole = 0;
  std::vector<double> got;
  for (size_t i = 0; i < v.size(); ++i) {
    got.push_back(static_cast<double>(h.truth(v[i]).*what - base[i].*what));
    whole += got.back();
  }
  for (double& g : got) g /= whole;
  return got;
}

}  // namespace sluice::sim
