// SPDX-License-Identifier: Apache-2.0
#include "mediator/core/sharing/reports.h"

#include <algorithm>
#include <utility>

#include "mediator/core/sharing/sharing.h"

namespace sluice::core {

void Reports::read(SessionId s, ActionQueue& out) {
  SessionState& x = sharing_.sessions[s];
  ++outstanding_;
  ++x.reads_pending;
  out.push({.kind = Action::Kind::kReadReport, .session = s, .vgpu = x.vgpu});
}

void Reports::answered(SessionId s) {
  SessionState& x = sharing_.sessions[s];
  if (x.reads_pending == 0) return;
  --x.reads_pending;
  --outstanding_;
}

void Reports::forget_session(SessionId s) {
  set_backlogged(s, false);
  outstanding_ -= sharing_.sessions[s].reads_pending;
}

void Reports::accept(SessionId s, const ReportSnapshot& report, ActionQueue& out) {
  const SchedulerConfig& c = sharing_.config;
  SessionState& x = sharing_.sessions[s];
  ReportSnapshot r = report;
  const auto violation = [&](uint64_t word) {
    ++sharing_.vgpus[x.vgpu].counters.violations;
    sharing_.log(out, LogEvent::kReportViolation, x.vgpu, word, s);
  };
  // Nothing can have left a generation that was never granted: the word then means nothing.
  if (r.guest_left_generation > x.generation) {
    violation(r.guest_left_generation);
    r.guest_left_generation = 0;
  }
  if (r.guest_demand > c.max_demand) {
    violation(r.guest_demand);
    r.guest_demand = c.max_demand;
  }
  if (r.guest_in_flight > c.max_in_flight) {
    violation(r.guest_in_flight);
    r.guest_in_flight = c.max_in_flight;
  }
  // These two were read one after the other, and launches end meanwhile: no violation.
  r.guest_unconfined = std::min(r.guest_unconfined, r.guest_in_flight);
  // Counters that people see only grow.
  r.guest_launches = std::max(r.guest_launches, x.report.guest_launches);
  r.guest_launches_done = std::max(r.guest_launches_done, x.report.guest_launches_done);
  r.guest_opaque = std::max(r.guest_opaque, x.report.guest_opaque);
  r.guest_whole = std::min(std::max(r.guest_whole, x.report.guest_whole), r.guest_opaque);
  r.guest_evictions = std::max(r.guest_evictions, x.report.guest_evictions);
  if (r.guest_launches_done > x.report.guest_launches_done)
    sharing_.strategy->on_launches_ended(x.vgpu);
  x.report = r;
}

void Reports::report_rhythm(uint64_t now_ns, SessionId s, const ReportSnapshot& report) {
  const VgpuId v = sharing_.sessions[s].vgpu;
  VgpuState& g = sharing_.vgpus[v];
  if (g.hold != HoldState::kContended || g.alone_from_ns == 0) return;
  const uint64_t from_ns = std::exchange(g.alone_from_ns, 0);
  const uint64_t changed_ns = std::min(report.guest_demand_changed_ns, now_ns);
  if (now_ns - from_ns < kAloneNs || changed_ns < from_ns || report.guest_burst_ns == 0) return;
  if (g.sessions.size() != 1) return;
  policy::Rhythm rhythm{report.guest_burst_ns, report.guest_gap_ns, changed_ns};
  if (report.guest_demand > 0) {
    rhythm.burst_ns = std::max(rhythm.burst_ns, now_ns - changed_ns);
    rhythm.waited_ns -= std::min(rhythm.gap_ns, changed_ns);
  } else {
    rhythm.gap_ns = std::max(rhythm.gap_ns, now_ns - changed_ns);
  }
  sharing_.policy->on_rhythm(now_ns, v, rhythm);
}

void Reports::set_backlogged(SessionId s, bool backlogged) {
  SessionState& x = sharing_.sessions[s];
  backlogged = backlogged && x.life != SessionLife::kEnding;
  if (x.backlogged == backlogged) return;
  x.backlogged = backlogged;
  VgpuState& g = sharing_.vgpus[x.vgpu];
  const bool before = g.backlogged();
  g.backlogged_sessions += backlogged ? 1 : -1;
  if (before == g.backlogged()) return;
  backlogged_vgpus_ += g.backlogged() ? 1 : -1;
  mark(x.vgpu, News::kChanged);
}

bool Reports::sharing_backlogged(VgpuId v) const { return sharing_.vgpus[v].backlogged(); }

void Reports::mark(VgpuId v, News news) {
  VgpuState& g = sharing_.vgpus[v];
  if (g.news == News::kNone) news_.push_back(v);
  if (g.news == News::kNone || news == News::kEndedLaunches) g.news = news;
}

void Reports::forget_vgpu(VgpuId v) {
  if (sharing_.vgpus[v].news != News::kNone) std::erase(news_, v);
}

void Reports::settle(uint64_t now_ns, ActionQueue& out) {
  while (outstanding_ == 0) {
    if (update_contended(now_ns, out)) continue;
    // So that a decision about a newcomer rests on what the holder's launches are now.
    if (sharing_.launches.report_due(now_ns, out)) continue;
    if (news_.empty()) return;
    const VgpuId v = next_news();
    if (confirm_idle(v, out)) continue;
    std::erase(news_, v);
    announce(now_ns, v, out);
  }
}

// The contended flag of one holder, where it is out of date. False: none is.
bool Reports::update_contended(uint64_t now_ns, ActionQueue& out) {
  for (const VgpuId v : sharing_.holders) {
    VgpuState& g = sharing_.vgpus[v];
    const bool contended = others_backlogged(v) > 0;
    if (g.leaving() || contended == (g.hold == HoldState::kContended)) continue;
    g.hold = contended ? HoldState::kContended : HoldState::kAlone;
    if (!contended) g.alone_from_ns = now_ns;
    sharing_.charging.clock(v).on_contended(now_ns, contended);
    for (const SessionId s : g.sessions) {
      if (!(sharing_.sessions[s].word & SLUICE_GRANT_OPEN)) continue;
      sharing_.set_grant(out, s, sharing_.open_flags(v));
      if (contended) read(s, out);
    }
    return true;
  }
  return false;
}

// A holder first: a decision about a newcomer must not rest on old news of the holder.
VgpuId Reports::next_news() const {
  const auto held =
      std::find_if(news_.begin(), news_.end(), [&](VgpuId v) { return sharing_.vgpus[v].holds(); });
  return held == news_.end() ? news_.front() : *held;
}

// Whether v seems idle by one session's word, and the others have to be asked first.
bool Reports::confirm_idle(VgpuId v, ActionQueue& out) {
  VgpuState& g = sharing_.vgpus[v];
  if (!g.busy || g.backlogged() || g.hold != HoldState::kContended || g.sessions.size() < 2 ||
      g.news == News::kConfirmed)
    return false;
  g.news = News::kConfirmed;
  for (const SessionId s : g.sessions) read(s, out);
  return true;
}

void Reports::announce(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  VgpuState& g = sharing_.vgpus[v];
  const News news = std::exchange(g.news, News::kNone);
  if (!g.present()) return;
  if (news == News::kEndedLaunches && !g.busy && !g.backlogged()) {
    turn_busy(now_ns, v, out);
    mark(v, News::kChanged);  // and idle again
    return;
  }
  if (g.busy == g.backlogged()) return;
  if (g.backlogged())
    turn_busy(now_ns, v, out);
  else
    turn_idle(now_ns, v, out);
}

void Reports::turn_busy(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  VgpuState& g = sharing_.vgpus[v];
  g.busy = true;
  sharing_.charging.entitlements.set_busy(now_ns, v, true);
  sharing_.log(out, LogEvent::kBusy, v, 0);
  sharing_.launches.on_busy(now_ns, v);
  sharing_.launches.report(now_ns, v, out);
  sharing_.ask(now_ns, out, [&](policy::Actions& a) { sharing_.policy->on_arrival(now_ns, v, a); });
}

void Reports::turn_idle(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  VgpuState& g = sharing_.vgpus[v];
  g.busy = false;
  if (g.news == News::kConfirmed) g.news = News::kChanged;
  sharing_.charging.entitlements.set_busy(now_ns, v, false);
  sharing_.log(out, LogEvent::kIdle, v, 0);
  sharing_.launches.on_idle(now_ns, v);
  sharing_.ask(now_ns, out, [&](policy::Actions& a) { sharing_.policy->on_idle(now_ns, v, a); });
}

}  // namespace sluice::core
