// SPDX-License-Identifier: Apache-2.0
// SMs, launches and preemption: what a Run, an Evict or a slice does, and how long it takes.
#include <cmath>

#include "policies/parts/in_units.h"
#include "policies/sim/simulation_impl.h"

namespace sluice::policy::sim {

// ---- launches
// ------------------------------------------------------------------------------------
void Simulation::set_speed(uint32_t program, uint64_t speed) {
  Head& h = programs_[program].head;
  if (h.speed == speed) return;
  settle(h);
  if (speed && !h.started) {
    h.started = true;
    out_.wait_ns.push_back(now_ns_ - h.queued_ns);
    RunRecord& r = programs_[program].open[h.run - programs_[program].runs_done];
    if (r.first_start_ns == 0) r.first_start_ns = now_ns_;
  }
  if (speed) h.evicted = false;
  h.speed = speed;
  if (kernels_.use_bandwidth) share_bandwidth();
  if (w_.kernels[h.kernel].bandwidth <= 0) set_rate(program, speed);
}

void Simulation::set_rate(uint32_t program, uint64_t rate) {
  Head& h = programs_[program].head;
  settle(h);
  h.rate = rate;
  ++h.version;
  if (rate) push(now_ns_ + (h.remaining + rate - 1) / rate, EventKind::kFinish, program, h.version);
}

// Memory bandwidth is divided by what each launch would use (a roofline). One that would use b > 1
// of it alone was measured so limited, and is as fast on a b-th of its SMs; of one that would use
// b < 1, that part of the time is stretched.
void Simulation::share_bandwidth() {
  count_interference();
  const auto demand = [&](const Head& h) {
    return w_.kernels[h.kernel].bandwidth * static_cast<double>(h.speed) /
           static_cast<double>(h.width);
  };
  const auto rate = [](const Head& h, double b, double of_all) {
    const double all = std::max(of_all, 1.0);
    const double slow = b >= 1 ? all : 1 - b + b * all;
    return static_cast<uint64_t>(static_cast<double>(h.speed) * std::max(b, 1.0) / slow);
  };
  double all = 0;
  for (ProgramState& p : programs_) {
    p.head.demand = p.head.present && p.head.speed ? demand(p.head) : 0;
    all += p.head.demand;
  }
  memory_demand_ = all;
  for (uint32_t i = 0; i < programs_.size(); ++i) {
    Head& h = programs_[i].head;
    const double b = h.present ? w_.kernels[h.kernel].bandwidth : 0;
    if (b <= 0) continue;
    settle(h);
    h.own_rate = std::max<uint64_t>(rate(h, b, demand(h)), h.speed > 0);
    const uint64_t now = std::min(std::max<uint64_t>(rate(h, b, all), h.speed > 0), h.own_rate);
    if (now != h.rate) set_rate(i, now);
  }
}

// Of the SM-time that each launch held since the last time, the part that it was kept from using is
// put down to those, itself among them, that would use more of the memory than of the SMs: in the
// proportion of how much more. Who stays within its part slows nobody, however long it suffers.
void Simulation::count_interference() {
  const auto dt = static_cast<double>(now_ns_ - interference_to_ns_) / kUnit;
  interference_to_ns_ = now_ns_;
  if (dt <= 0 || memory_demand_ <= 1) return;
  const auto lost = [&](const Head& h) {
    if (h.demand <= 0 || h.own_rate == 0) return 0.0;
    return dt * static_cast<double>(h.speed) *
           (1 - static_cast<double>(h.rate) / static_cast<double>(h.own_rate));
  };
  const double all_sms = static_cast<double>(w_.gpu.sm_count) * kUnit;
  const auto excess = [&](const Head& h) {
    return std::max(0.0, h.demand - static_cast<double>(h.speed) / all_sms);
  };
  double all_lost = 0, all_excess = 0;
  for (const ProgramState& p : programs_) {
    all_lost += lost(p.head);
    if (p.head.demand > 0) all_excess += excess(p.head);
  }
  if (all_excess <= 0) return;
  for (const ProgramState& p : programs_) {
    const Head& h = p.head;
    if (h.demand <= 0) continue;
    const double mine = lost(h), part = excess(h) / all_excess;
    out_.vgpus[h.info.vgpu].slows_sm_ns += part * (all_lost - mine);
    vgpus_[h.info.vgpu].unreported_sm_ns += part * all_lost - mine;
  }
}

// What the policy hears that v has used, of what it held. Never less than nothing: the rest comes
// with the next report.
uint64_t Simulation::charged_sm_ns(VgpuId v, uint64_t held_sm_ns) {
  if (w_.account == ChargeBy::kTime) return held_sm_ns;
  double& unreported = vgpus_[v].unreported_sm_ns;
  const double charged = std::max(0.0, std::floor(static_cast<double>(held_sm_ns) + unreported));
  unreported += static_cast<double>(held_sm_ns) - charged;
  return static_cast<uint64_t>(charged);
}

// Task time in the form that runs, on SMs as they are (a task is no faster on more of them).
uint64_t Simulation::task_ns(const Head& h) const {
  const Kernel& k = w_.kernels[h.kernel];
  if (k.task_ns) return k.task_ns;
  const double alone = static_cast<double>(h.work) / static_cast<double>(h.width);
  const double slots = static_cast<double>(h.width) / kUnit * k.blocks_per_sm;
  return static_cast<uint64_t>(std::max(1.0, std::min(alone, alone * slots / k.tasks)));
}

Launch Simulation::view(const Head& h) {
  Launch l = h.info;
  l.tasks_done = tasks_done(h);
  return l;
}

// The speeds of v's launches from the SMs that it holds. SMs held for the whole vGPU go to its
// launches in their order, each as many as it can use; while all of them are leaving, nothing new
// starts.
void Simulation::reassign(VgpuId v) {
  VgpuState& g = vgpus_[v];
  uint64_t general = 0;
  bool may_start = false;
  for (uint32_t id : g.holds) {
    const Hold& h = held_.holds[id];
    if (h.program != kNone || h.state == HoldState::kStarting || h.was_starting) continue;
    const uint64_t speed = static_cast<uint64_t>(h.hi - h.lo) * kUnit;
    general += h.state == HoldState::kLeaving ? speed * h.useful / kUnit : speed;
    may_start |= h.state == HoldState::kRunning;
  }
  // Gated: what runs goes on, nothing starts.
  if (w_.gpu.preemptor == PreemptorKind::kProportional && g.slice_set && g.slice_ns == 0)
    may_start = false;
  const bool still = now_ns_ < g.still_until_ns;
  if (still) general = 0;
  for (uint32_t p : g.heads) {
    Head& l = programs_[p].head;
    uint64_t speed = 0;
    if (l.holds) {
      for (uint32_t id : g.holds) {
        const Hold& h = held_.holds[id];
        if (h.program != p || h.state == HoldState::kStarting || h.was_starting) continue;
        const uint64_t whole = static_cast<uint64_t>(h.hi - h.lo) * kUnit;
        speed += h.state == HoldState::kLeaving ? whole * h.useful / kUnit : whole;
      }
      speed = std::min(speed, l.width);
    } else if (l.speed || l.stands_still || may_start ||
               (w_.gpu.preemptor == PreemptorKind::kProportional && l.started)) {
      speed = std::min(general, l.width);
      general -= speed;
    }
    // It goes on when its vGPU does, on SMs that are to be left, too.
    l.stands_still = still && (l.speed || l.stands_still);
    set_speed(p, speed);
  }
}

void Simulation::finish(uint32_t program) {
  ProgramState& ps = programs_[program];
  Head& h = ps.head;
  settle(h);
  if (h.remaining) return set_rate(program, h.rate);  // cannot be: the event is at its ceiling
  const Launch done = view(h);
  const VgpuId v = h.info.vgpu;
  ProgramResult& result = out_.programs[program];
  ++result.launches_done;
  result.work_done_sm_ns += h.work / kUnit;
  learn(h);
  if (options_.observer) options_.observer->on_done(now_ns_, done.id);
  report_usage();
  const bool run_ends = ps.head_is_last;
  count_interference();
  h.present = false;
  h.speed = h.rate = h.own_rate = 0;
  if (kernels_.use_bandwidth) share_bandwidth();
  ++h.version;
  h.holds = 0;
  std::erase(vgpus_[v].heads, program);
  program_of_[done.id] = kNone;
  const bool next = !ps.queue.empty() && ps.queue.front().copy_ns == 0;
  if (vgpus_[v].heads.empty() && !next) set_busy(v, false);
  ask([&](Actions& a) { policy_.on_launch_done(now_ns_, done, a); });
  if (next) make_head(program);
  const bool idle = !account_.busy(v);
  if (idle) {
    if (options_.observer) options_.observer->on_idle(now_ns_, v);
    ask([&](Actions& a) { policy_.on_idle(now_ns_, v, a); });
  }
  release_where(v, LeftReason::kIdle, [&](const Hold& hold) {
    return hold.program == program && hold.launch == done.id;
  });
  reassign(v);
  release_evicted(v);
  if (slice_.current == v && (idle || !resident(v))) rotate();
  if (run_ends) run_ended(program);
  next_in_stream(program);
  try_host(program);
}

void Simulation::learn(const Head& h) {
  if (w_.predictor != Predictor::kModel) return;
  const Kernel& k = w_.kernels[h.kernel];
  kernels_.model.learn(kernels_.keys[h.kernel],
                       {k.grid_blocks, k.block_threads, k.shared_bytes, k.input_bytes},
                       h.work / kUnit);
}

// Releasing one may move others.
template <class Condition>
void Simulation::release_where(VgpuId v, LeftReason why, const Condition& condition) {
  for (size_t i = 0; i < vgpus_[v].holds.size();) {
    const uint32_t id = vgpus_[v].holds[i];
    if (!condition(held_.holds[id])) {
      ++i;
      continue;
    }
    release(id, why);
    i = 0;
  }
}

// Evicted holds of the whole vGPU that only waited for work to end.
void Simulation::release_evicted(VgpuId v) {
  bool works = false;
  LaunchId oldest_opaque = ~LaunchId{0};  // of those that work on SMs held for the whole vGPU
  for (uint32_t p : vgpus_[v].heads) {
    const Head& l = programs_[p].head;
    if (l.holds) continue;
    works |= l.speed > 0;
    if (l.opaque && l.started) oldest_opaque = std::min(oldest_opaque, l.info.id);
  }
  const LeftReason why = vgpus_[v].heads.empty() ? LeftReason::kIdle : LeftReason::kEvicted;
  release_where(v, why, [&](const Hold& hold) {
    const bool evicted = hold.state == HoldState::kSignalled || hold.state == HoldState::kLeaving;
    // Nothing works there any more, or what could only end has ended; what came after it works on
    // other SMs.
    return hold.program == kNone && !hold.was_starting && evicted &&
           (!works || (hold.waits_below && oldest_opaque >= hold.waits_below));
  });
}

// ---- exclusive ----
void Simulation::run(const Action& a) {
  const uint16_t lo = a.sms.lo;
  const uint16_t hi = static_cast<uint16_t>(std::min<uint32_t>(a.sms.hi, w_.gpu.sm_count));
  if (a.vgpu >= vgpus_.size()) return violate("run of a vGPU that is not there");
  if (lo >= hi) return violate("run on no SM");
  if (!w_.gpu.spatial && (lo != 0 || hi != w_.gpu.sm_count))
    return violate("run on a part of the SMs of a GPU that cannot");
  if (!is_whole_units(w_.gpu.sm_count, w_.gpu.sm_unit, a.sms))
    return violate("run on a part of a unit of SMs");
  for (uint16_t i = lo; i < hi; ++i)
    if (held_.sms[i])
      return violate("run of vGPU " + std::to_string(a.vgpu) + " on SM " + std::to_string(i) +
                     ", which somebody holds");
  uint32_t program = kNone;
  if (a.launch) {
    if (a.launch < program_of_.size()) program = program_of_[a.launch];
    if (program == kNone || programs_[program].head.info.vgpu != a.vgpu)
      return violate("run of a launch that is not there");
    settle(programs_[program].head);
  }
  const uint64_t extra = resume_cost(program != kNone               ? program
                                     : vgpus_[a.vgpu].heads.empty() ? kNone
                                                                    : vgpus_[a.vgpu].heads.front(),
                                     hi - lo);
  if (program == kNone) set_changed(a.vgpu, !vgpus_[a.vgpu].holds.empty());
  start_hold(a.vgpu, program, lo, hi, w_.gpu.start_ns + extra);
  if (options_.observer) options_.observer->on_grant(now_ns_, a.vgpu, a.launch, {lo, hi});
  if (held_.handover_since_ns) {
    policy_.on_handover(now_ns_, now_ns_ - held_.handover_since_ns + w_.gpu.start_ns + extra);
    held_.handover_since_ns = 0;
  }
}

uint64_t Simulation::resume_cost(uint32_t program, uint32_t sms) {
  if (program == kNone) return 0;
  Head& l = programs_[program].head;
  const Kernel& k = w_.kernels[l.kernel];
  uint64_t cost = l.evicted ? k.relaunch_ns : 0;
  if (l.saved_sms) {
    cost += k.restore_ns;
    l.saved_sms -= std::min(l.saved_sms, sms);
  }
  return cost;
}

uint32_t Simulation::new_hold() {
  if (held_.free.empty()) {
    held_.holds.emplace_back();
    return static_cast<uint32_t>(held_.holds.size() - 1);
  }
  const uint32_t id = held_.free.back();
  held_.free.pop_back();
  return id;
}

void Simulation::count_whole(VgpuId v, int64_t sms) {
  VgpuState& g = vgpus_[v];
  if (g.place == kNowhere) {
    g.place = static_cast<uint32_t>(held_.holders.size());
    held_.holders.push_back({.vgpu = v,
                             .sms = 0,
                             .charged_sms = 0,
                             .used_sm_ns = g.used_sm_ns,
                             .used_to_ns = now_ns_,
                             .charged_to_ns = now_ns_});
  }
  Holder& h = held_.holders[g.place];
  charge(h);
  count_use(h);
  h.sms = static_cast<uint32_t>(h.sms + sms);
  if (account_.busy(v)) h.charged_sms = h.sms, held_.busy_whole_sms += static_cast<uint64_t>(sms);
  if (h.sms > 0) return;
  // What it used until now is reported before it is no longer read (release() did so).
  g.used_sm_ns = h.used_sm_ns;
  const uint32_t place = g.place;
  held_.holders[place] = held_.holders.back();
  vgpus_[held_.holders.back().vgpu].place = place;
  held_.holders.pop_back();
  g.place = kNowhere;
}

// A hold that is new takes its place among those that are charged.
void Simulation::count_hold(uint32_t id) {
  Hold& h = held_.holds[id];
  vgpus_[h.vgpu].holds.push_back(id);
  for (uint16_t i = h.lo; i < h.hi; ++i) held_.sms[i] = true;
  if (h.program == kNone) return count_whole(h.vgpu, h.hi - h.lo);
  ++programs_[h.program].head.holds;
  h.place = static_cast<uint32_t>(held_.of_launches.size());
  held_.of_launches.push_back(id);
}

void Simulation::start_hold(VgpuId v, uint32_t program, uint16_t lo, uint16_t hi,
                            uint64_t start_ns) {
  const uint32_t id = new_hold();
  Hold& h = held_.holds[id];
  const uint64_t version = h.version + 1;
  h = Hold{};
  h.version = version;
  h.present = true;
  h.vgpu = v;
  h.program = program;
  h.lo = lo;
  h.hi = hi;
  h.since_ns = now_ns_;
  if (program != kNone) h.launch = programs_[program].head.info.id;
  count_hold(id);
  ++out_.vgpus[v].grants;
  account_.set_holding(v, true, now_ns_);
  if (start_ns) {
    h.state = HoldState::kStarting;
    push(now_ns_ + start_ns, EventKind::kActive, id, version);
  }
  reassign(v);
}

// Of what v holds as a whole.
void Simulation::set_changed(VgpuId v, bool holds_others) {
  VgpuState& g = vgpus_[v];
  if (!w_.gpu.spatial) return;
  if (g.changed_ns != now_ns_) ++out_.vgpus[v].changes;
  g.changed_ns = now_ns_;
  if (w_.gpu.change_ns == 0 || !holds_others) return;
  g.still_until_ns = now_ns_ + w_.gpu.change_ns;
  push(g.still_until_ns, EventKind::kGoOn, v);
}

void Simulation::drop_hold(uint32_t id) {
  Hold& h = held_.holds[id];
  h.present = false;
  ++h.version;
  for (uint16_t i = h.lo; i < h.hi; ++i) held_.sms[i] = false;
  if (h.program == kNone) {
    count_whole(h.vgpu, -(h.hi - h.lo));
  } else {
    held_.of_launches[h.place] = held_.of_launches.back();
    held_.holds[held_.of_launches.back()].place = h.place;
    held_.of_launches.pop_back();
  }
  std::erase(vgpus_[h.vgpu].holds, id);
  held_.free.push_back(id);
}

void Simulation::evict(const Action& a) {
  const uint16_t lo = a.sms.lo;
  const uint16_t hi = static_cast<uint16_t>(std::min<uint32_t>(a.sms.hi, w_.gpu.sm_count));
  if (a.vgpu >= vgpus_.size()) return violate("evict of a vGPU that is not there");
  if (!w_.gpu.spatial && (lo != 0 || hi != w_.gpu.sm_count))
    return violate("evict from a part of the SMs of a GPU that cannot");
  if (!is_whole_units(w_.gpu.sm_count, w_.gpu.sm_unit, a.sms))
    return violate("evict from a part of a unit of SMs");
  bool found = false;
  std::vector<uint32_t> evicted;
  for (size_t i = 0; i < vgpus_[a.vgpu].holds.size(); ++i) {
    const uint32_t id = vgpus_[a.vgpu].holds[i];
    const Hold& h = held_.holds[id];
    if (h.lo >= hi || lo >= h.hi || (a.launch && h.launch != a.launch)) continue;
    found = true;
    if (h.state == HoldState::kSignalled || h.state == HoldState::kLeaving) continue;
    signal(id, lo, hi);
    evicted.push_back(id);
  }
  join_adjacent(evicted);
  if (!found)
    return violate("evict of vGPU " + std::to_string(a.vgpu) +
                   " that does not hold what it should leave");
  if (options_.observer) options_.observer->on_evict(now_ns_, a.vgpu, a.launch, {lo, hi});
  reassign(a.vgpu);
  for (uint32_t id : evicted) {
    const Hold& h = held_.holds[id];
    const bool works = h.program != kNone || account_.busy(a.vgpu);
    push(now_ns_ + (works ? w_.gpu.signal_ns : 0), EventKind::kSeen, id, h.version);
  }
}

// The hold's SMs in [lo, hi) are to leave; what else it has becomes holds of their own.
void Simulation::signal(uint32_t id, uint16_t lo, uint16_t hi) {
  const Hold whole = held_.holds[id];
  const auto split = [&](uint16_t from, uint16_t to) {
    const uint32_t part = new_hold();
    const uint64_t version = held_.holds[part].version + 1;
    held_.holds[part] = whole;
    held_.holds[part].version = version;
    held_.holds[part].lo = from;
    held_.holds[part].hi = to;
    if (whole.program == kNone) count_whole(whole.vgpu, from - to);  // are counted already
    count_hold(part);
    // Its start-up goes on; the time that is left of it is not kept, so it begins again.
    if (whole.state == HoldState::kStarting)
      push(now_ns_ + w_.gpu.start_ns, EventKind::kActive, part, version);
  };
  if (whole.lo < lo) split(whole.lo, lo);
  if (hi < whole.hi) split(hi, whole.hi);
  Hold& leaving = held_.holds[id];  // split may have moved it
  leaving.lo = std::max(whole.lo, lo);
  leaving.hi = std::min(whole.hi, hi);
  leaving.was_starting = whole.state == HoldState::kStarting;
  leaving.state = HoldState::kSignalled;
  leaving.evict_ns = now_ns_;
  ++leaving.version;
}

// Adjacent parts that came by several Runs leave as one, so that the policy hears once.
void Simulation::join_adjacent(std::vector<uint32_t>& evicted) {
  std::sort(evicted.begin(), evicted.end(),
            [&](uint32_t x, uint32_t y) { return held_.holds[x].lo < held_.holds[y].lo; });
  for (size_t i = 0; i + 1 < evicted.size();) {
    Hold &first = held_.holds[evicted[i]], &second = held_.holds[evicted[i + 1]];
    if (first.hi != second.lo || first.program != second.program ||
        first.was_starting != second.was_starting) {
      ++i;
      continue;
    }
    const uint16_t from = second.lo, to = second.hi;
    const bool whole = second.program == kNone;
    if (!whole) --programs_[second.program].head.holds;
    drop_hold(evicted[i + 1]);
    first.hi = to;
    if (whole) count_whole(first.vgpu, to - from);
    for (uint16_t sm = from; sm < to; ++sm) held_.sms[sm] = true;
    evicted.erase(evicted.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
}

// The kernels see the evict word: how long until the last task is off these SMs?
void Simulation::seen(uint32_t id) {
  Hold& h = held_.holds[id];
  h.state = HoldState::kLeaving;
  Leaving leaving;
  const uint64_t sms = static_cast<uint64_t>(h.hi - h.lo) * kUnit;
  if (h.was_starting) {
    // Nothing works there yet.
  } else if (h.program != kNone) {
    Head& l = programs_[h.program].head;
    add_leaving(l, std::min(sms, l.width), leaving);
  } else {
    uint64_t left = sms;
    for (uint32_t p : vgpus_[h.vgpu].heads) {
      Head& l = programs_[p].head;
      if (l.holds) continue;
      const uint64_t speed = std::min(l.speed, left);
      add_leaving(l, speed, leaving);
      left -= speed;
    }
  }
  h.worked = leaving.any;
  if (!leaving.any) {
    release(id, account_.busy(h.vgpu) ? LeftReason::kEvicted : LeftReason::kIdle);
    return;
  }
  // What ends sooner than its tasks would, ends. An opaque launch has no other way.
  const bool waits = leaving.opaque;
  if (waits || static_cast<double>(leaving.ends_ns) <= leaving.longest_ns) {
    h.until_end = true;
    h.waits_below = waits ? static_cast<LaunchId>(program_of_.size()) : 0;
    // The vGPU may lose other SMs meanwhile, so that the end comes later: tasks here have ended by
    // then.
    if (!waits) push(now_ns_ + leaving.ends_ns, EventKind::kRelease, id, h.version);
    return;
  }
  const double all = leaving.slots * leaving.longest_ns;
  const double part = all > 0 ? leaving.useful / all : 0;
  h.useful = static_cast<uint64_t>(std::clamp(part, 0.0, 1.0) * kUnit);
  push(now_ns_ + static_cast<uint64_t>(leaving.longest_ns), EventKind::kRelease, id, h.version);
  reassign(h.vgpu);
}

void Simulation::add_leaving(Head& l, uint64_t speed, Leaving& to) {
  if (!l.present || speed == 0) return;
  settle(l);
  to.any = true;
  const Kernel& k = w_.kernels[l.kernel];
  to.ends_ns = std::max(to.ends_ns, (l.remaining + l.rate - 1) / l.rate);
  if (l.opaque) {
    to.opaque = true;
    return;
  }
  double rest = 0, mean = 0;
  const double n = std::max(1.0, static_cast<double>(speed) / kUnit * k.blocks_per_sm);
  if (w_.gpu.mechanism == Mechanism::kContextSwitch) {
    rest = static_cast<double>(k.save_ns);
    l.saved_sms += static_cast<uint32_t>(speed / kUnit);
  } else if (k.drain_ns) {
    rest = static_cast<double>(k.drain_ns);
    mean = rest / 2;
  } else {
    const double task = static_cast<double>(task_ns(l));
    rest = task * std::pow(random_.unit(), 1 / n);  // the largest of n uniform ones
    mean = std::min(task / 2, rest);
  }
  to.longest_ns = std::max(to.longest_ns, rest);
  to.useful += mean * n;
  to.slots += n;
}

void Simulation::release(uint32_t id, LeftReason why) {
  report_usage();
  const Hold h = held_.holds[id];
  drop_hold(id);
  const bool evicted = h.state == HoldState::kSignalled || h.state == HoldState::kLeaving;
  if (h.program != kNone) {
    Head& l = programs_[h.program].head;
    if (l.present && l.info.id == h.launch) {
      --l.holds;
      if (l.holds == 0 && l.started && evicted) {
        l.evicted = true;
        ++out_.programs[h.program].evictions;
        ++out_.evictions;
        ++out_.vgpus[h.vgpu].evictions;
      }
      why = LeftReason::kEvicted;
    }
    if (evicted && h.worked) kernels_.preempt_cost[l.kernel].observe(now_ns_ - h.evict_ns);
  } else if (evicted && vgpus_[h.vgpu].holds.empty()) {
    for (uint32_t p : vgpus_[h.vgpu].heads) {
      Head& l = programs_[p].head;
      if (l.holds || l.speed == 0) continue;
      l.evicted = true;
      ++out_.programs[p].evictions;
      kernels_.preempt_cost[l.kernel].observe(now_ns_ - h.evict_ns);
    }
    if (!vgpus_[h.vgpu].heads.empty()) {
      ++out_.vgpus[h.vgpu].evictions;
      ++out_.evictions;
    }
  }
  if (evicted && h.worked) {
    out_.evict_latency_ns.push_back(now_ns_ - h.evict_ns);
    held_.handover_since_ns = std::max<uint64_t>(h.evict_ns, 1);
  }
  account_.set_holding(h.vgpu, !vgpus_[h.vgpu].holds.empty(), now_ns_);
  if (h.program == kNone) set_changed(h.vgpu, !vgpus_[h.vgpu].holds.empty());
  reassign(h.vgpu);
  if (options_.observer) options_.observer->on_left(now_ns_, h.vgpu, h.launch, {h.lo, h.hi}, why);
  ask([&](Actions& a) { policy_.on_released(now_ns_, h.vgpu, h.launch, {h.lo, h.hi}, why, a); });
}

}  // namespace sluice::policy::sim
