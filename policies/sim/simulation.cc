// SPDX-License-Identifier: Apache-2.0
#include "policies/sim/simulation.h"

#include "mediator/base/check.h"
#include "policies/sim/simulation_impl.h"

namespace sluice::policy::sim {
namespace {
// 36 years; sums of times and work stay far below 2^64 until then.
constexpr uint64_t kEndOfTime = 1ull << 60;
// Of one program's runs alone, however short the workload is.
constexpr uint64_t kLeastAloneEvents = 10'000;
// Of the fluid reference, beside a multiple of the simulation's events.
constexpr uint64_t kFluidSteps = 1'000'000;
}  // namespace

Simulation::Simulation(const Workload& w, Policy& policy, const Options& options)
    : w_(w),
      policy_(policy),
      options_(options),
      account_((out_.vgpus.resize(w.vgpus.size()), w), out_),
      random_(Random::of(options.seed, 1u << 20)),
      kernels_(w, options.model) {
  usage_.reads_tasks = policy.reads_tasks();
  out_.programs.resize(w.programs.size());
  programs_.resize(w.programs.size());
  if (options.reference) reference_.offered.resize(w.programs.size());
  vgpus_.resize(w.vgpus.size());
  held_.sms.resize(w.gpu.sm_count);
  program_of_.push_back(kNone);  // launch ids begin at 1
}

Simulation::Kernels::Kernels(const Workload& w, DurationModel* given)
    : preempt_cost(w.kernels.size()),
      model(given ? *given : own_model),
      use_bandwidth(std::any_of(w.kernels.begin(), w.kernels.end(),
                                [](const Kernel& k) { return k.bandwidth > 0; })) {
  for (const Kernel& k : w.kernels) {
    uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
    for (char c : k.name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
    keys.push_back(hash);
  }
}

Outcome Simulation::run() {
  for (GroupId g = 0; g < w_.groups.size(); ++g)
    ask([&](Actions& a) { policy_.on_group(0, g + 1, w_.groups[g].share, a); });
  for (VgpuId v = 0; v < vgpus_.size(); ++v) {
    vgpus_[v].share = w_.vgpus[v].share;
    ask([&](Actions& a) { policy_.on_vgpu_added(0, v, vgpus_[v].share, a); });
    if (options_.observer) options_.observer->on_share(0, v, vgpus_[v].share);
    if (!w_.vgpus[v].changes.empty()) push(w_.vgpus[v].changes[0].at_ns, EventKind::kShare, v);
  }
  start_programs();
  const uint64_t asked = options_.max_events ? options_.max_events : w_.max_events;
  const uint64_t limit = asked ? asked : ~uint64_t{0};
  while (!finished()) {
    if (events_.empty()) {
      // Without work left there is nothing to wait for: all programs ended in a workload without
      // runs.
      out_.stuck = account_.busy_count() > 0;
      break;
    }
    if (out_.events >= limit || account_.full()) {
      out_.cut = true;
      break;
    }
    const Event e = events_.top();
    if (w_.horizon_ns && e.time_ns >= w_.horizon_ns) {
      advance(w_.horizon_ns);
      break;
    }
    if (e.time_ns > kEndOfTime) {
      out_.stuck = true;
      break;
    }
    events_.pop();
    ++out_.events;
    advance(e.time_ns);
    handle(e);
  }
  report_usage();
  charge();
  account_.finish(now_ns_);
  for (VgpuId v = 0; v < vgpus_.size(); ++v) out_.vgpus[v].figures = policy_.figures(v);
  count_interference();
  for (uint32_t p = 0; p < programs_.size(); ++p) {
    settle(programs_[p].head);
    out_.programs[p].unfinished_runs = programs_[p].pending.size() + programs_[p].open.size();
    const Head& h = programs_[p].head;
    if (h.present) out_.programs[p].work_done_sm_ns += (h.work - h.remaining) / kUnit;
    out_.useful_sm_ns += static_cast<double>(out_.programs[p].work_done_sm_ns);
  }
  double held = 0;
  for (const VgpuResult& v : out_.vgpus) held += static_cast<double>(v.sm_ns);
  out_.lost_sm_ns = held - out_.useful_sm_ns;
  out_.end_ns = now_ns_;
  if (options_.reference) compare_with_fluid();
  return std::move(out_);
}

bool Simulation::finished() const {
  return (left_.any_finite && left_.finite == 0) || (w_.replay_runs && left_.replays == 0);
}

void Simulation::advance(uint64_t time_ns) {
  SLUICE_CHECK(time_ns >= now_ns_);
  // No further than to the end of a part of a window at a time: windows are as long as they say.
  while (time_ns - now_ns_ > account_.part_left_ns()) advance(now_ns_ + account_.part_left_ns());
  while (time_ns - now_ns_ > mark_left_ns()) advance(now_ns_ + mark_left_ns());
  if (time_ns == now_ns_) return;
  const uint64_t dt = time_ns - now_ns_;
  bool works = false;
  // A hold is charged while its vGPU has work; leaving costs nothing to one that has none.
  if (held_.busy_whole_sms) {
    works = true;
    account_.add_sum(dt * held_.busy_whole_sms);
  }
  for (const uint32_t id : held_.of_launches) {
    const Hold& h = held_.holds[id];
    if (!account_.busy(h.vgpu)) continue;
    const uint64_t held = dt * (h.hi - h.lo);
    works = true;
    account_.add(h.vgpu, held);
    programs_[h.program].head.used_sm_ns += held;
  }
  now_ns_ = time_ns;
  if (!works && account_.busy_count()) {
    out_.idle_with_work_ns += dt;
    if (!held_.holders.empty()) out_.kept_ns += dt;
    for (const Holder& h : held_.holders) out_.vgpus[h.vgpu].kept_sm_ns += dt * h.sms;
  }
  if (account_.part_ends(dt)) charge();
  account_.pass(time_ns);
  if (mark_left_ns() == 0) mark();
}

void Simulation::mark() {
  charge();
  for (VgpuId v = 0; v < vgpus_.size(); ++v)
    out_.vgpus[v].held_at_mark.push_back(static_cast<double>(account_.held_sm_ns(v)));
  ++reference_.marks;
}

void Simulation::compare_with_fluid() {
  for (const Program& p : w_.programs)
    for (const Step& s : p.steps)
      if (s.copy_ns) return;  // the fluid GPU knows no copies
  const auto work = [this](uint32_t p, uint32_t kernel, uint64_t run) {
    const Kernel& k = w_.kernels[kernel];
    const uint32_t width = k.width_sms ? std::min(k.width_sms, w_.gpu.sm_count) : w_.gpu.sm_count;
    return mean_alone_ns(p, kernel, run, opaque(p, k)) * width;
  };
  const bool in_space = w_.gpu.spatial && w_.gpu.preemptor == PreemptorKind::kExclusive;
  const double capacity =
      in_space || out_.some_work_ns == 0
          ? 1
          : out_.useful_sm_ns / (static_cast<double>(out_.some_work_ns) * w_.gpu.sm_count);
  // Without hand-overs the same programs come to more launches than in the simulation.
  const auto reference = [&](Loops loops) {
    return fluid_reference(w_, reference_.offered, work, loops, capacity, now_ns_,
                           w_.share_window_ns, kFluidSteps + 16 * out_.events);
  };
  const Fluid own = reference(Loops::kOwnPace), asked = reference(Loops::kAsTheyCame);
  if (!own.complete || !asked.complete) return;
  out_.has_reference = true;
  for (VgpuId v = 0; v < vgpus_.size(); ++v) {
    VgpuResult& r = out_.vgpus[v];
    r.fluid_sm_ns = own.served[v];
    for (uint64_t i = 0; i < std::min<uint64_t>(reference_.marks, own.at_mark.size()); ++i)
      r.fluid_at_mark.push_back(own.at_mark[i][v]);
    for (uint64_t i = 0; i < std::min<uint64_t>(reference_.marks, asked.at_mark.size()); ++i)
      r.fluid_as_came_at_mark.push_back(asked.at_mark[i][v]);
  }
}

void Simulation::charge() {
  for (Holder& h : held_.holders) charge(h);
}

void Simulation::set_busy(VgpuId v, bool busy) {
  if (account_.busy(v) == busy) return;
  if (account_.concerns_others(v, busy)) charge();
  if (const uint32_t place = vgpus_[v].place; place != kNowhere) {
    Holder& h = held_.holders[place];
    charge(h);
    count_use(h);
    h.charged_sms = busy ? h.sms : 0;
    held_.busy_whole_sms += busy ? h.sms : -uint64_t{h.sms};
  }
  account_.set_busy(v, busy);
}

void Simulation::report_usage() {
  if (usage_.reported_ns == now_ns_) return;  // use needs time
  usage_.reported_ns = now_ns_;
  for (const uint32_t id : held_.of_launches) {
    const Hold& h = held_.holds[id];
    Head& l = programs_[h.program].head;
    if (!l.used_sm_ns) continue;
    settle(l);
    policy_.on_usage(now_ns_, h.vgpu,
                     {.sm_ns = l.used_sm_ns, .launch = l.info.id, .tasks_done = tasks_done(l)});
    l.used_sm_ns = 0;
  }
  if (w_.account == ChargeBy::kSlowdown) count_interference();
  usage_.reports.resize(held_.holders.size());
  size_t n = 0;
  for (Holder& h : held_.holders) {
    count_use(h);
    if (!h.used_sm_ns) continue;
    const uint64_t charged = charged_sm_ns(h.vgpu, std::exchange(h.used_sm_ns, 0));
    if (charged) usage_.reports[n++] = {.vgpu = h.vgpu, .usage = {.sm_ns = charged}};
  }
  if (usage_.reads_tasks)
    for (size_t i = 0; i < n; ++i) report_tasks(usage_.reports[i]);
  if (n) policy_.on_usages(now_ns_, {usage_.reports.data(), n});
}

// Of the first launch that works on SMs held for the whole vGPU.
void Simulation::report_tasks(VgpuUsage& report) {
  for (const uint32_t p : vgpus_[report.vgpu].heads) {
    Head& l = programs_[p].head;
    if (l.holds || !l.speed) continue;
    settle(l);
    report.usage.launch = l.info.id;
    report.usage.tasks_done = tasks_done(l);
    return;
  }
}

void Simulation::handle(const Event& e) {
  switch (e.kind) {
    case EventKind::kArrive:
      return arrive(e.id);
    case EventKind::kHost:
      return host(e.id);
    case EventKind::kFinish: {
      if (e.version == programs_[e.id].head.version) finish(e.id);
      return;
    }
    case EventKind::kActive: {
      Hold& h = held_.holds[e.id];
      if (!h.present || h.version != e.version) return;
      if (h.state == HoldState::kStarting) h.state = HoldState::kRunning;
      h.was_starting = false;
      return reassign(h.vgpu);
    }
    case EventKind::kCopied:
      return copied(e.id);
    case EventKind::kGoOn:
      return reassign(e.id);
    case EventKind::kSeen:
      if (held_.holds[e.id].present && held_.holds[e.id].version == e.version) seen(e.id);
      return;
    case EventKind::kRelease:
      if (held_.holds[e.id].present && held_.holds[e.id].version == e.version)
        release(e.id,
                account_.busy(held_.holds[e.id].vgpu) ? LeftReason::kEvicted : LeftReason::kIdle);
      return;
    case EventKind::kWake:
      if (e.version == wake_version_) ask([&](Actions& a) { policy_.on_wake(now_ns_, a); });
      return;
    case EventKind::kShare: {
      VgpuState& v = vgpus_[e.id];
      const auto& changes = w_.vgpus[e.id].changes;
      v.share = changes[v.next_change].share;
      charge();
      account_.set_weight(e.id, v.share.weight);
      if (options_.observer) options_.observer->on_share(now_ns_, e.id, v.share);
      if (++v.next_change < changes.size())
        push(std::max(now_ns_, changes[v.next_change].at_ns), EventKind::kShare, e.id);
      ask([&](Actions& a) { policy_.on_vgpu_changed(now_ns_, e.id, v.share, a); });
      return;
    }
    case EventKind::kSlice:
      if (e.version == slice_.version) slice_over();
      return;
  }
}

void Simulation::violate(const std::string& what) {
  if (out_.violations++ == 0) out_.violation = "at " + std::to_string(now_ns_) + " ns: " + what;
}

void Simulation::apply(const Action& a) {
  const bool exclusive = w_.gpu.preemptor == PreemptorKind::kExclusive;
  switch (a.kind) {
    case Action::Kind::kWake:
      push(std::max(a.at_ns, now_ns_), EventKind::kWake, 0, ++wake_version_);
      return;
    case Action::Kind::kSetSlice:
      return exclusive ? violate("a slice for an exclusive preemptor") : set_slice(a);
    case Action::Kind::kRun:
      return exclusive ? run(a) : violate("a run for a proportional preemptor");
    case Action::Kind::kEvict:
      return exclusive ? evict(a) : violate("an evict for a proportional preemptor");
  }
}

Config engine_config(const Workload& w) {
  Config c = w.config;
  c.machine.sm_count = w.gpu.sm_count;
  c.machine.preemptor = w.gpu.preemptor;
  c.machine.spatial = w.gpu.spatial;
  c.machine.sm_unit = w.gpu.sm_unit;
  c.machine.change_ns = w.gpu.change_ns;
  return c;
}

Outcome simulate(const Workload& w, Policy& policy, const Options& options) {
  return Simulation(w, policy, options).run();
}

// Under a policy that has nothing to decide, each program by itself, with its own number: programs
// draw from generators of their own, so each launch is as long here as in the whole. All of them
// together may take as many events as the whole.
std::vector<double> alone_times(const Workload& w, uint64_t seed) {
  std::vector<double> mean(w.programs.size());
  Workload one = w;
  one.original_form = true;
  one.horizon_ns = 0;
  one.replay_runs = 0;
  one.gpu.preemptor = PreemptorKind::kExclusive;
  one.high_program = -1;
  if (w.max_events)
    one.max_events = std::max<uint64_t>(w.max_events / w.programs.size(), kLeastAloneEvents);
  for (uint32_t i = 0; i < w.programs.size(); ++i) {
    const Program& program = w.programs[i];
    // Enough runs for a mean where launches vary; one run at a time, so that none waits for
    // another.
    Program p = program;
    const bool varies = std::any_of(program.steps.begin(), program.steps.end(), [&](const Step& s) {
      return w.kernels[s.kernel].alone_cv > 0;
    });
    const size_t traced = p.offset_alone_ns.size();
    p.arrival = ArrivalKind::kClosed;
    p.think_ns = 0;
    p.runs = traced ? traced : varies ? 32 : 1;
    if (program.arrival == ArrivalKind::kOffsets)
      p.runs = std::min(p.runs, program.offsets_ns.size());
    else if (program.runs)
      p.runs = std::min(p.runs, program.runs);
    if (p.runs == 0) continue;
    one.vgpus = {w.vgpus[p.vgpu]};
    p.vgpu = 0;
    one.programs = {std::move(p)};
    const auto policy = find_policy("fcfs")->make(engine_config(one));
    const Outcome r = simulate(one, *policy, {.seed = seed, .preempts = false, .first_program = i});
    for (const RunRecord& run : r.programs[0].runs)
      mean[i] += static_cast<double>(run.ended_ns - run.arrived_ns);
    if (!r.programs[0].runs.empty()) mean[i] /= static_cast<double>(r.programs[0].runs.size());
  }
  return mean;
}

}  // namespace sluice::policy::sim
