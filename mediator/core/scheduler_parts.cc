// The scheduler in space: vGPUs side by side, each on the SMs that the policy gave it.
//
// A vGPU goes from one set of SMs to another by *moves*, one at a time (docs/internals/channel.md, "Parts of the GPU"):
//   nothing -> some   its gates open; nobody has to leave for that
//   some -> others    a new generation with the new set, the gates stay open, and the old generation is called
//                     back: its launches leave and go on, from where they were, under the new one
//                     If the workers can, and the SMs that launches have to leave are a range without any that
//                     they may stay on, launches stay where they are: they leave that range alone ("keep")
//   some -> nothing   an eviction, as of the whole GPU
// When everything of the old generation has left, the SMs that it lost are released to the policy. What
// the policy asks for meanwhile is the next move. An SM that was given and taken back before any move came to it
// is released at once.
#include <algorithm>

#include "mediator/core/scheduler_impl.h"

namespace sluice::core {

void Scheduler::Impl::make_due(VgpuId v) {
  if (vgpus[v].move_due) return;
  vgpus[v].move_due = true;
  moves_due.push_back(v);
}

bool Scheduler::Impl::run_part(uint64_t now_ns, const policy::Action& a, ActionQueue& out) {
  const uint32_t hi = a.sms.hi == 0xffff ? sm_count() : a.sms.hi;
  const SmSet sms(a.sms.lo, hi);
  if (!vgpu(a.vgpu) || a.launch != 0 || sms.empty() || hi > sm_count() || taken.meets(sms) || !grantable(a.sms) ||
      vgpus[a.vgpu].sessions.empty())
    return false;
  Vgpu& g = vgpus[a.vgpu];
  taken = taken | sms;
  g.held = g.held | sms;
  if (!g.holds) {
    g.holds = true;
    holders.push_back(a.vgpu);
    g.engaged = others_wanting(a.vgpu) > 0;
    ++g.grants;
    g.clock.on_granted(now_ns, g.engaged);
    log(out, LogEvent::kGranted, a.vgpu, sessions[g.sessions.front()].generation);
  }
  meter.set_held(now_ns, a.vgpu, sms_of(g));
  make_due(a.vgpu);
  return true;
}

bool Scheduler::Impl::evict_part(uint64_t now_ns, const policy::Action& a) {
  const SmSet sms(a.sms.lo, a.sms.hi == 0xffff ? sm_count() : a.sms.hi);
  if (!vgpu(a.vgpu) || a.launch != 0 || sms.empty() || !grantable(a.sms)) return false;
  Vgpu& g = vgpus[a.vgpu];
  // What is just being released needs no eviction any more.
  if (!(g.held | g.released).contains_all(sms)) return false;
  const SmSet more = (sms & g.held) - g.going;
  if (more.empty()) return true;
  if (g.going.empty()) {  // the deadlines run from the first that somebody waits for
    start_leaving(now_ns, a.vgpu);
    g.leaving = false;  // it may hold others all the while
  }
  g.going = g.going | more;
  make_due(a.vgpu);
  return true;
}

// Begins what can begin. False: nothing was to be done.
bool Scheduler::Impl::make_moves(uint64_t now_ns, ActionQueue& out) {
  if (moves_due.empty()) return false;
  std::vector<VgpuId> due;
  due.swap(moves_due);
  bool made = false;
  while (!due.empty()) {
    const VgpuId v = due.back();
    due.pop_back();
    vgpus[v].move_due = false;
    if (!vgpus[v].present || vgpus[v].moving) continue;
    const auto unread = [&](SessionId s) { return sessions[s].reads_pending != 0; };
    if (vgpus[v].asked && std::any_of(vgpus[v].sessions.begin(), vgpus[v].sessions.end(), unread)) {
      make_due(v);  // their reports come first
      continue;
    }
    made = true;
    move(now_ns, v, out);
  }
  return made;
}

// May what the sessions have in flight stay on SMs of `to`? *leave: the range that it then has to leave, perhaps none.
bool Scheduler::Impl::may_stay(const Vgpu& g, const SmSet& to, SmSet::Range* leave) const {
  // What was launched under the whole GPU is on no list of SMs.
  if (g.before.empty() || to.empty() || g.before.count() == sm_count() || to.count() == sm_count()) return false;
  const SmSet lost = (g.spread | g.before) - to;
  *leave = lost.next_range();
  for (SmSet::Range r = lost.next_range(); r.lo < r.hi; r = lost.next_range(r.hi)) leave->hi = r.hi;
  return !to.meets(SmSet(leave->lo, leave->hi));
}

void Scheduler::Impl::move(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  Vgpu& g = vgpus[v];
  const SmSet to = g.held - g.going;
  if (to == g.granted) {
    // Given and taken back in between: nothing of it ever ran there.
    g.asked = false;
    if (!g.going.empty()) release(now_ns, v, g.going, out);
    return;
  }
  g.before = g.granted;
  SmSet::Range leave{0, 0};
  if (may_stay(g, to, &leave)) {
    if (!g.asked) {
      g.asked = true;
      for (const SessionId s : g.sessions) read_report_of(out, s);
      return make_due(v);
    }
    const uint32_t needed = ((g.before - to).empty() ? 0 : SLUICE_KEEPS_SHRINK) |
                            ((to - g.before).empty() ? 0 : SLUICE_KEEPS_GROW);
    g.keeping = std::all_of(g.sessions.begin(), g.sessions.end(), [&](SessionId s) {
      const ReportSnapshot& r = sessions[s].report;
      return r.guest_in_flight == 0 || (r.guest_keeps & needed) == needed;
    });
  }
  g.asked = false;
  g.spread = g.keeping ? g.spread | g.before | to : to;
  g.granted = to;
  g.had_in_flight = false;
  g.moving = !g.before.empty();
  g.move_ns = now_ns;
  ++g.set_changes;
  log(out, g.going.empty() ? LogEvent::kPart : LogEvent::kEvictSent, v,
      g.going.empty() ? to.count()
                      : static_cast<uint64_t>(g.busy ? EvictCause::kQuantum : EvictCause::kIdle));
  for (size_t i = 0; i < g.sessions.size(); ++i) {
    const SessionId s = g.sessions[i];
    if (g.before.empty())
      grant_session(s, out);
    else if (to.empty())
      evict_session(s, out);
    else
      recall_session(s, leave, out);
  }
  if (!g.moving && !g.going.empty()) release(now_ns, v, g.going - to, out);
}

void Scheduler::Impl::recall_session(SessionId s, const SmSet::Range& leave, ActionQueue& out) {
  Session& x = sessions[s];
  const uint32_t old = x.generation;
  const auto evict = [&](uint64_t word) {
    out.push({.kind = Action::Kind::kSetEvict, .session = s, .vgpu = x.vgpu, .word = word});
  };
  x.keeping = vgpus[x.vgpu].keeping;
  // Before the grant: a worker that reads that it may let them stay takes it that the word is there.
  if (x.keeping && leave.lo < leave.hi) evict(SLUICE_EVICT_WORD(old, leave.lo, leave.hi));
  grant_session(s, out);
  if (x.generation == old) {
    // No generation is left for it, or it is being ended: it leaves like everybody, and for good.
    x.keeping = false;
    set_grant(out, s, SLUICE_GRANT_CONTENDED);
  }
  if (!x.keeping) evict(SLUICE_EVICT_ALL_SMS(old));
  await_leaving(s, old, out);
}

// Its worker found that something in flight cannot stay.
void Scheduler::Impl::call_back_whole(SessionId s, ActionQueue& out) {
  Session& x = sessions[s];
  if (!x.keeping || x.report.guest_recall < x.leaving_generation) return;
  x.keeping = false;
  out.push({.kind = Action::Kind::kSetEvict,
            .session = s,
            .vgpu = x.vgpu,
            .word = SLUICE_EVICT_ALL_SMS(x.leaving_generation)});
}

// Everything of the generation before has left.
void Scheduler::Impl::move_over(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  Vgpu& g = vgpus[v];
  const bool stayed = g.keeping;
  g.moving = g.keeping = false;
  make_due(v);  // whatever was asked for meanwhile
  if (!stayed && g.had_in_flight && !g.granted.empty()) policy->on_change(now_ns, now_ns - g.move_ns);
  const SmSet lost = (g.before - g.granted) & g.going;
  if (lost.empty()) return;
  const uint64_t took_ns = now_ns - g.evict_ns;
  if (g.wants()) ++g.evictions;
  if (g.had_in_flight) {
    g.latency.add(took_ns);
    // What it cost for each SM that is handed over: where launches did not stay, all their SMs were idle meanwhile.
    policy->on_handover(now_ns, stayed ? took_ns : took_ns * g.before.count() / lost.count());
  }
  release(now_ns, v, lost, out);
}

// `sms` of v are nobody's from now on, and the policy hears of it.
void Scheduler::Impl::release(uint64_t now_ns, VgpuId v, SmSet sms, ActionQueue& out) {
  Vgpu& g = vgpus[v];
  flush_usage(now_ns);
  const policy::LeftReason why = left_reason(g);
  g.released = sms;
  // The policy must not choose it again for work that it no longer has. It may answer with an evict of
  // what is being released, which is then taken as done.
  if (g.busy && !g.wants()) turn_idle(now_ns, v, out);
  g.held = g.held - sms;
  g.going = g.going - sms;
  taken = taken - sms;
  std::erase(leaving, v);
  if (!g.going.empty()) {
    start_leaving(now_ns, v);
    g.leaving = false;
  }
  if (g.held.empty()) {
    g.clock.on_left(now_ns);
    flush_usage(now_ns);
    std::erase(holders, v);
    g.holds = g.engaged = false;
    g.left_ns = now_ns;
    log(out, LogEvent::kLeft, v, now_ns - g.evict_ns);
  }
  meter.set_held(now_ns, v, g.holds ? sms_of(g) : 0);
  for (SmSet::Range r = sms.next_range(); r.lo < r.hi; r = sms.next_range(r.hi)) {
    const policy::SmRange part{static_cast<uint16_t>(r.lo), static_cast<uint16_t>(r.hi)};
    ask(now_ns, out, [&](policy::Actions& a) { policy->on_released(now_ns, v, 0, part, why, a); });
  }
  vgpus[v].released = SmSet();
}

// Its last session is gone, and with it everything on the GPU.
void Scheduler::Impl::all_gone(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  Vgpu& g = vgpus[v];
  g.not_left = 0;
  g.moving = g.keeping = g.asked = false;
  g.granted = g.before = g.spread = SmSet();
  if (g.held.empty()) return;
  if (g.going.empty()) g.evict_ns = now_ns;
  release(now_ns, v, g.held, out);
}

// While its gate is open a vGPU says when it turns idle, not when it has work again. So before a policy that waits for one decides about
// that, its reports are read.
void Scheduler::Impl::look_at_idle_holders(ActionQueue& out) {
  for (const VgpuId v : holders)
    if (!vgpus[v].busy && !vgpus[v].granted.empty())
      for (const SessionId s : vgpus[v].sessions) read_report_of(out, s);
}

// Its timer has come, and what was asked for before is known. False: nothing was to be done.
bool Scheduler::Impl::wake_policy(uint64_t now_ns, ActionQueue& out) {
  if (!wake_due || outstanding > 0) return false;
  wake_due = false;
  ask(now_ns, out, [&](policy::Actions& a) { policy->on_wake(now_ns, a); });
  return true;
}

void Scheduler::Impl::take_unconfined(uint64_t now_ns, SessionId s, bool unconfined) {
  Session& x = sessions[s];
  if (!spatial() || x.unconfined == unconfined) return;
  flush_usage(now_ns);
  Vgpu& g = vgpus[x.vgpu];
  x.unconfined = unconfined;
  g.unconfined_sessions += unconfined ? 1 : -1;
  if (g.holds) meter.set_held(now_ns, x.vgpu, sms_of(g));
}

}  // namespace sluice::core
