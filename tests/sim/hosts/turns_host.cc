// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/hosts/turns_host.h"

#include <algorithm>

namespace sluice::sim {

using core::Action;
using core::VgpuId;

namespace {
constexpr uint64_t kVisitNs = 500'000;
}

TurnsHost::TurnsHost(const core::SchedulerConfig& config, const TurnsCosts& costs)
    : VirtualHost(config), costs_(costs) {}

VgpuId TurnsHost::add(const policy::VgpuShare& share, const TurnsProgram& program) {
  const auto v = *scheduler_->add_vgpu(now_ns_, share, actions_);
  all_.resize(std::max<size_t>(all_.size(), v + 1));
  all_[v].program = program;
  make_session(v, [&](core::SessionId s) { all_[v].session = s; });
  at(std::max(program.start_ns, now_ns_), [this, v] {
    const TurnsProgram& p = all_[v].program;
    for (uint32_t i = 0; i < std::max({1u, p.queued, p.chain}); ++i) queue_launch(v);
  });
  return v;
}

// ---- sluiced ------------------------------------------------------------------------------------

void TurnsHost::apply(const Action& action) {
  const VgpuId v = action.vgpu;
  switch (action.kind) {
    case Action::Kind::kSetGrant:
      all_[v].grant = action.word;
      break;
    case Action::Kind::kSetEvict:
      all_[v].evict = action.word;
      break;
    case Action::Kind::kRingGate:
      at(now_ns_ + costs_.gate_ns + all_[v].program.wakes_ns,
         [this, v] { worker(v), note_if_left(v); });
      break;
    default:  // it has no slices, and all SMs
      break;
  }
}

core::ReportSnapshot TurnsHost::report_of(VgpuId v, core::SessionId) {
  const Tenant& t = all_[v];
  core::ReportSnapshot r;
  r.guest_demand = t.demand;
  // Launches: of one that is sent in windows only the last window ends it.
  for (const Flight& f : t.flights) r.guest_in_flight += f.last;
  if (!t.flights.empty() && !t.flights.back().last) ++r.guest_in_flight;
  r.guest_in_flight_ns = t.in_flight_ns;
  r.guest_flight_ns = t.flight_ns;
  r.guest_left_generation = t.left_generation;
  r.guest_launches = t.launches;
  r.guest_launches_done = t.done;
  if (t.demand > 0)
    r.guest_hints = core::LaunchHints{.predicted = t.demand,
                                      .remaining_ns = t.demand * t.program.launch_ns,
                                      .longest_ns = t.program.launch_ns,
                                      .preempt_ns = 0};
  return r;
}

void TurnsHost::ring(VgpuId v) {
  at(now_ns_ + costs_.ring_ns, [this, v] {
    const core::SessionId s = all_[v].session;
    scheduler_->on_report(now_ns_, s, report_of(v, s), actions_);
  });
}

// ---- worker and program -------------------------------------------------------------------------

void TurnsHost::queue_launch(VgpuId v) {
  Tenant& t = all_[v];
  ++t.launches;
  t.queued_at.push_back(now_ns_);
  const bool asks = !(t.grant & SLUICE_GRANT_OPEN) || (t.grant & SLUICE_GRANT_STANDBY);
  if (t.demand++ == 0 && asks) ring(v);
  worker(v);
}

// Sends what may go.
void TurnsHost::worker(VgpuId v) {
  Tenant& t = all_[v];
  const uint64_t launch_ns = t.program.launch_ns;
  if (t.grant & SLUICE_GRANT_STANDBY && launch_ns > SLUICE_STANDBY_NS) return;
  if (expected_whole(t) || t.program.opaque) {
    const bool contended = t.grant & SLUICE_GRANT_CONTENDED;
    while (t.sent < t.demand && t.grant & SLUICE_GRANT_OPEN) {
      const bool room =
          t.sent == 0 ||
          (t.sent < 32 && (!contended || (t.sent + 1) * launch_ns <= costs_.together_ns));
      const Flight* f = head(v);
      const bool ends_soon = t.sent == 1 && f && f == &t.flights.back() && running_ == v &&
                             rest_ns(*f) <= costs_.lead_ns;
      if (!room && !ends_soon) break;
      ++t.sent;
      send(v, launch_ns, true);
    }
    return;
  }
  if (t.demand == 0) return;
  const bool closed =
      !(t.grant & SLUICE_GRANT_OPEN) ||
      (!t.flights.empty() && static_cast<uint32_t>(t.evict) >= t.flights.front().generation);
  if (t.unsent_ns == 0 && t.flights.empty()) t.unsent_ns = launch_ns;
  while (!closed && t.unsent_ns > 0 && t.flights.size() < 2) {
    const uint64_t ns = std::min(t.unsent_ns, costs_.window_ns);
    t.unsent_ns -= ns;
    send(v, ns, t.unsent_ns == 0);
  }
}

void TurnsHost::send(VgpuId v, uint64_t ns, bool last) {
  Tenant& t = all_[v];
  Flight f;
  f.generation = SLUICE_GRANT_GENERATION(t.grant);
  f.level = SLUICE_GRANT_LEVEL(t.grant);
  if ((expected_whole(t) || t.program.opaque) && t.program.launch_ns > kVisitNs)
    f.level = std::min(f.level, 1u);
  f.rest_ns = ns;
  f.last = last;
  if (t.flights.empty()) t.in_flight_ns = now_ns_;
  t.flights.push_back(f);
  at(now_ns_ + costs_.start_ns, [this, v] {
    for (Flight& g : all_[v].flights)
      if (!g.ready) {
        g.ready = true;
        g.at_ns = now_ns_;
        break;
      }
    reconsider();
  });
}

void TurnsHost::note_if_left(VgpuId v) {
  Tenant& t = all_[v];
  uint32_t generation = SLUICE_GRANT_GENERATION(t.grant);
  if (t.grant & SLUICE_GRANT_OPEN) {
    if (!(t.grant & SLUICE_GRANT_RECALL)) return;
    if (!t.flights.empty()) generation = std::min(generation, t.flights.front().generation);
    --generation;
  } else if (!t.flights.empty()) {
    return;
  }
  if (generation <= t.left_generation) return;
  t.left_generation = generation;
  ring(v);
}

// The worker has seen that the first one has ended.
void TurnsHost::flight_ended(VgpuId v) {
  Tenant& t = all_[v];
  const Flight f = t.flights.front();
  t.flights.pop_front();
  if (t.flights.empty()) t.flight_ns += now_ns_ - t.in_flight_ns;
  if (f.last) launch_done(v);
  note_if_left(v);
  worker(v);
}

void TurnsHost::launch_done(VgpuId v) {
  Tenant& t = all_[v];
  if (t.sent > 0) --t.sent;
  ++t.done;
  const uint64_t since = t.queued_at.front();
  t.queued_at.pop_front();
  if (--t.demand == 0 && t.grant & SLUICE_GRANT_CONTENDED) ring(v);
  if (t.program.chain > 0 && t.demand > 0) return;
  at(now_ns_ + costs_.program_ns, [this, v, since] { program_knows(v, since); });
}

void TurnsHost::program_knows(VgpuId v, uint64_t queued_at) {
  const TurnsProgram& p = all_[v].program;
  all_[v].took_ns.push_back(now_ns_ - queued_at);
  double pause_ns = static_cast<double>(p.pause_ns);
  if (p.random) pause_ns *= std::exponential_distribution()(random_);
  at(now_ns_ + static_cast<uint64_t>(pause_ns), [this, v, n = std::max(1u, p.chain)] {
    for (uint32_t i = 0; i < n; ++i) queue_launch(v);
  });
}

// ---- GPU ----------------------------------------------------------------------------------------

// What of v's stream is first.
TurnsHost::Flight* TurnsHost::head(VgpuId v) {
  for (Flight& f : all_[v].flights)
    if (!f.ended) return f.ready && f.at_ns <= now_ns_ ? &f : nullptr;
  return nullptr;
}

void TurnsHost::advance(uint64_t time_ns) {
  const uint64_t dt = time_ns - now_ns_;
  now_ns_ = time_ns;
  if (running_ == policy::kNoVgpu) {
    idle_ns_ += dt;
    return;
  }
  Flight* f = head(running_);
  const uint64_t ran = std::min(dt, f->rest_ns);
  f->rest_ns -= ran;
  all_[running_].ran_ns += ran;
}

// Chooses what runs, after each change.
void TurnsHost::reconsider() {
  VgpuId best = policy::kNoVgpu;
  for (VgpuId v = 0; v < all_.size(); ++v) {
    const Flight* f = head(v);
    if (!f) continue;
    const Flight* g = best == policy::kNoVgpu ? nullptr : head(best);
    if (!g || f->level > g->level || (f->level == g->level && f->at_ns < g->at_ns)) best = v;
  }
  const uint64_t epoch = ++gpu_epoch_;
  const bool displaces = running_ != policy::kNoVgpu && best != running_ && head(running_);
  if (displaces) {
    // Its blocks end first.
    const uint64_t half = all_[running_].program.block_ns / 2;
    if (next_ != best) {
      next_ = best;
      at(now_ns_ + half, [this, best] {
        if (next_ != best) return;
        next_ = running_ = policy::kNoVgpu;
        reconsider();
      });
    }
  } else {
    next_ = policy::kNoVgpu;
    running_ = best;
  }
  if (running_ == policy::kNoVgpu) return;
  if (const uint64_t rest = head(running_)->rest_ns; rest > costs_.lead_ns)
    at(now_ns_ + rest - costs_.lead_ns, [this, v = running_] { worker(v); });
  at(now_ns_ + head(running_)->rest_ns, [this, epoch] {
    if (epoch != gpu_epoch_) return;
    const VgpuId v = running_;
    Flight* before = head(v);
    before->ended = true;
    if (Flight* f = head(v)) {
      // A launch's windows are in two streams: the next one is already first in the other.
      if (before->last) f->at_ns = now_ns_ + costs_.gap_ns;
      at(std::max(f->at_ns, now_ns_), [this] { reconsider(); });
    }
    at(now_ns_ + costs_.poll_ns, [this, v] { flight_ended(v); });
    running_ = next_ = policy::kNoVgpu;
    reconsider();
  });
}

}  // namespace sluice::sim
