// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/hosts/slices_host.h"

#include <algorithm>

namespace sluice::sim {

using core::Action;
using core::VgpuId;

namespace {
constexpr uint32_t process(uint32_t v) { return v + 1; }
}  // namespace

core::SchedulerConfig SlicesHost::nvidia() {
  core::SchedulerConfig c;
  c.policy = "wfq";
  c.policy_config.machine.preemptor = policy::PreemptorKind::kProportional;
  c.policy_config.machine.handover_ns = 200'000;
  c.policy_config.machine.slice_floor_ns = 200'000;
  c.policy_config.machine.slice_least_ns = 100'000;
  c.policy_config.machine.slices_are_free_alone = true;
  return c;
}

SlicesHost::SlicesHost(const core::SchedulerConfig& config, const SlicesCosts& costs)
    : VirtualHost(config), costs_(costs) {
  at(costs_.log_ns, [this] { tell_log(); });
}

VgpuId SlicesHost::add(const policy::VgpuShare& share, const SlicesProgram& program) {
  const auto v = *scheduler_->add_vgpu(now_ns_, share, actions_);
  add_session(v, program);
  return v;
}

void SlicesHost::add_session(VgpuId vgpu, const SlicesProgram& program) {
  const auto v = static_cast<Program>(all_.size());
  all_.emplace_back();
  all_[v].vgpu = vgpu;
  all_[v].program = program;
  list_.insert(list_.begin() + std::uniform_int_distribution<int>(0, static_cast<int>(v))(order_),
               v);
  use_.add(process(v), vgpu);
  make_session(vgpu, [&](core::SessionId s) { all_[v].session = s; });
  at(std::max(program.start_ns, now_ns_), [this, v] {
    const SlicesProgram& p = all_[v].program;
    if (p.says_waits_ns > 0) say_waits(v);
    if (p.random) return arrive(v);
    for (uint32_t i = 0; i < std::max(1u, p.queued); ++i) queue_launch(v, now_ns_);
  });
}

void SlicesHost::set(VgpuId v, const policy::VgpuShare& share) {
  scheduler_->set_share(now_ns_, v, share, actions_);
  drain();
}

SlicesHost::Program SlicesHost::program_of(core::SessionId s) const {
  Program v = 0;
  while (v < all_.size() && all_[v].session != s) ++v;
  return v;
}

// ---- sluiced ------------------------------------------------------------------------------------

void SlicesHost::apply(const Action& action) {
  const Program v = program_of(action.session);
  switch (action.kind) {
    case Action::Kind::kSetGrant:
      all_[v].grant = action.word;
      claim(v);
      break;
    case Action::Kind::kRingGate:
      at(now_ns_ + costs_.gate_ns, [this, v] { worker(v), note_if_left(v); });
      break;
    case Action::Kind::kSetSlice: {
      const uint64_t ns = std::clamp<uint64_t>(action.word, 100'000, 10'000'000'000);
      use_.set_slice(process(v), ns);
      at(now_ns_ + costs_.set_ns, [this, v, ns] {
        ++slices_set_;
        all_[v].slice_ns = ns;
        slice_ends_ns_ = now_ns_;  // whoever runs is stopped, ...
        begins_anew_ = true;       // ... and the first in the GPU's list is next
        reconsider();
      });
      break;
    }
    default:  // its kernels are not evicted, and it has all SMs
      break;
  }
}

core::ReportSnapshot SlicesHost::report_of(VgpuId, core::SessionId s) {
  const Tenant& t = all_[program_of(s)];
  core::ReportSnapshot r;
  r.guest_demand = t.demand;
  r.guest_idles = t.idles;
  r.guest_burst_ns = t.rhythm.burst_ns();
  r.guest_gap_ns = t.rhythm.gap_ns();
  r.guest_demand_changed_ns = t.rhythm.changed_ns();
  r.guest_in_flight = static_cast<uint32_t>(t.flights.size());
  r.guest_in_flight_ns = t.in_flight_ns;
  r.guest_left_generation = t.left_generation;
  r.guest_launches = t.launches;
  r.guest_launches_done = t.done;
  return r;
}

void SlicesHost::claim(Program v) {
  const Tenant& t = all_[v];
  const bool open = t.grant & SLUICE_GRANT_OPEN;
  use_.on_claim(now_ns_, process(v), !t.flights.empty() || (open && t.demand > 0), t.demand > 0);
}

void SlicesHost::ring(Program v) {
  at(now_ns_ + costs_.ring_ns, [this, v] {
    const core::SessionId s = all_[v].session;
    scheduler_->on_report(now_ns_, s, report_of(all_[v].vgpu, s), actions_);
  });
}

void SlicesHost::tell_log() {
  for (const Record& r : records_) use_.on_record(r.time_ns, r.worker, r.start);
  records_.clear();
  std::vector<accounting::EngineUse::Used> used;
  use_.settle(now_ns_, used);
  for (const auto& u : used) {
    Tenant& t = all_[u.worker - 1];
    t.charged_ns += u.ns;
    scheduler_->on_used(now_ns_, t.vgpu, u.ns, u.free);
  }
  at(now_ns_ + costs_.log_ns, [this] { tell_log(); });
}

// ---- worker and program -------------------------------------------------------------------------

void SlicesHost::arrive(Program v) {
  Tenant& t = all_[v];
  if (t.waits)
    t.waiting.push_back(now_ns_);
  else
    queue_launch(v, now_ns_);
  const double apart =
      static_cast<double>(t.program.pause_ns) * std::exponential_distribution()(random_);
  at(now_ns_ + static_cast<uint64_t>(apart), [this, v] { arrive(v); });
}

void SlicesHost::queue_launch(Program v, uint64_t since_ns) {
  Tenant& t = all_[v];
  if (t.program.claim_ns > 0) return claim_only(v);
  ++t.launches;
  t.waits = true;
  t.queued_at.push_back(since_ns);
  const bool first = t.demand++ == 0;
  if (first) t.rhythm.begin(now_ns_);
  claim(v);
  if (first && (!(t.grant & SLUICE_GRANT_OPEN) || t.grant & SLUICE_GRANT_CONTENDED)) ring(v);
  worker(v);
}

void SlicesHost::claim_only(Program v) {
  ++all_[v].demand;
  claim(v);
  ring(v);
  at(now_ns_ + all_[v].program.claim_ns, [this, v] {
    --all_[v].demand;
    claim(v);
    ring(v);
    at(now_ns_ + all_[v].program.pause_ns, [this, v] { queue_launch(v, now_ns_); });
  });
}

void SlicesHost::say_waits(Program v) {
  ++all_[v].idles;
  ring(v);
  at(now_ns_ + all_[v].program.says_waits_ns, [this, v] { say_waits(v); });
}

// Sends what may go.
void SlicesHost::worker(Program v) {
  Tenant& t = all_[v];
  if (t.program.claim_ns > 0) return;
  const bool open = t.grant & SLUICE_GRANT_OPEN;
  while (t.sent < t.demand && t.queue.allows(open, now_ns_) && open) {
    ++t.sent;
    t.queue.add(now_ns_);
    if (t.flights.empty()) t.in_flight_ns = now_ns_;
    t.flights.push_back({.rest_ns = t.program.launch_ns});
    at(now_ns_ + costs_.start_ns, [this, v] {
      for (Flight& f : all_[v].flights)
        if (!f.ready) {
          f.ready = true;
          break;
        }
      reconsider();
    });
  }
}

void SlicesHost::note_if_left(Program v) {
  Tenant& t = all_[v];
  if (t.grant & SLUICE_GRANT_OPEN || !t.flights.empty()) return;
  const uint32_t generation = SLUICE_GRANT_GENERATION(t.grant);
  if (generation <= t.left_generation) return;
  t.left_generation = generation;
  ring(v);
}

// The worker has seen that the first one has ended.
void SlicesHost::flight_ended(Program v) {
  Tenant& t = all_[v];
  --t.sent;
  ++t.done;
  t.queue.remove(now_ns_);
  const uint64_t since_ns = t.queued_at.front();
  t.queued_at.pop_front();
  if (--t.demand == 0) {
    t.rhythm.end(now_ns_);
    if (!t.program.hides_waits) ++t.idles;
    if (t.grant & SLUICE_GRANT_CONTENDED) ring(v);
  }
  claim(v);
  at(now_ns_ + costs_.program_ns, [this, v, since_ns] {
    Tenant& x = all_[v];
    x.took_ns.push_back(now_ns_ - since_ns);
    if (x.program.random) {
      x.waits = false;
      if (x.waiting.empty()) return;
      const uint64_t next = x.waiting.front();
      x.waiting.pop_front();
      return queue_launch(v, next);
    }
    at(now_ns_ + x.program.pause_ns, [this, v] { queue_launch(v, now_ns_); });
  });
  note_if_left(v);
  worker(v);
}

// ---- GPU ----------------------------------------------------------------------------------------

SlicesHost::Program SlicesHost::next_with_work() const {
  const size_t n = list_.size();
  size_t from = 0;
  if (!begins_anew_ && resident_ != kNoProgram)
    from =
        1 + static_cast<size_t>(std::find(list_.begin(), list_.end(), resident_) - list_.begin());
  for (size_t i = 0; i < n; ++i) {
    const Program v = list_[(from + i) % n];
    if ((v != resident_ || begins_anew_) && has_work(v)) return v;
  }
  return kNoProgram;
}

void SlicesHost::advance(uint64_t time_ns) {
  const uint64_t from_ns = std::max(now_ns_, runs_from_ns_);
  now_ns_ = time_ns;
  if (resident_ == kNoProgram || !has_work(resident_) || from_ns >= time_ns) return;
  Flight& f = all_[resident_].flights.front();
  const uint64_t ran = std::min(time_ns - from_ns, f.rest_ns);
  f.rest_ns -= ran;
  all_[resident_].ran_ns += ran;
}

void SlicesHost::switch_to(Program v, bool saves) {
  ++switches_;
  const uint64_t left_ns = now_ns_ + (saves ? all_[resident_].program.state_ns : 0);
  if (resident_ != kNoProgram) records_.push_back({left_ns, process(resident_), false});
  const uint64_t came_ns = left_ns + costs_.gap_ns;
  records_.push_back({came_ns, process(v), true});
  resident_ = v;
  runs_from_ns_ = came_ns + all_[v].program.state_ns;
  slice_ends_ns_ = runs_from_ns_ + all_[v].slice_ns;
}

// Chooses what runs, after each change.
void SlicesHost::reconsider() {
  const uint64_t epoch = ++gpu_epoch_;
  const auto again = [&](uint64_t time_ns) {
    at(time_ns, [this, epoch] {
      if (epoch == gpu_epoch_) reconsider();
    });
  };
  if (now_ns_ < runs_from_ns_) return again(runs_from_ns_);  // a switch goes on
  if (resident_ != kNoProgram && has_work(resident_) &&
      all_[resident_].flights.front().rest_ns == 0) {
    const Program v = resident_;
    all_[v].flights.pop_front();
    claim(v);
    at(now_ns_ + costs_.poll_ns, [this, v] { flight_ended(v); });
  }
  const bool works = resident_ != kNoProgram && has_work(resident_);
  const Program next = next_with_work();
  begins_anew_ = false;
  if (next != kNoProgram && next != resident_ && (!works || now_ns_ >= slice_ends_ns_)) {
    switch_to(next, works);
    return again(runs_from_ns_);
  }
  if (!works) return;
  if (now_ns_ >= slice_ends_ns_) slice_ends_ns_ = now_ns_ + all_[resident_].slice_ns;
  again(std::min(slice_ends_ns_, now_ns_ + all_[resident_].flights.front().rest_ns));
}

}  // namespace sluice::sim
