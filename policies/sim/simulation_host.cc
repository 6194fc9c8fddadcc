// SPDX-License-Identifier: Apache-2.0
// Programs: when runs arrive and launches are queued.
#include <cmath>

#include "policies/sim/simulation_impl.h"

namespace sluice::policy::sim {
namespace {
constexpr uint64_t kMaxWork = 1ull << 62;
}

void Simulation::start_programs() {
  for (uint32_t i = 0; i < w_.programs.size(); ++i) {
    const Program& p = w_.programs[i];
    ProgramState& s = programs_[i];
    s.random = Random::of(options_.seed, options_.first_program + i);
    s.after.resize(p.steps.size() + 1);
    s.varies = std::any_of(p.steps.begin(), p.steps.end(),
                           [&](const Step& x) { return w_.kernels[x.kernel].alone_cv > 0; });
    for (size_t j = p.steps.size(); j-- > 0;) {
      const Kernel& k = w_.kernels[p.steps[j].kernel];
      const uint32_t width = k.width_sms ? std::min(k.width_sms, w_.gpu.sm_count) : w_.gpu.sm_count;
      const double work = p.steps[j].copy_ns ? 0 : static_cast<double>(k.alone_ns) * width;
      s.after[j] = s.after[j + 1] + work * p.steps[j].launches * p.prediction_factor;
    }
    const uint64_t runs = p.arrival == ArrivalKind::kOffsets ? p.offsets_ns.size() : p.runs;
    const bool finite = p.arrival == ArrivalKind::kOffsets || p.runs > 0;
    left_.any_finite |= finite;
    left_.finite += finite && runs > 0;
    if (p.steps.empty() || (finite && runs == 0)) continue;
    left_.replays += w_.replay_runs > 0;
    if (p.arrival == ArrivalKind::kOffsets) {
      for (uint64_t at : p.offsets_ns) push(at, EventKind::kArrive, i);
      s.runs_started = runs;
    } else {
      ++s.runs_started;
      push(p.first_ns, EventKind::kArrive, i);
    }
  }
}

void Simulation::schedule_arrival(uint32_t i, uint64_t after_ns) {
  const Program& p = w_.programs[i];
  ProgramState& s = programs_[i];
  if (p.arrival == ArrivalKind::kOffsets || (p.runs && s.runs_started >= p.runs)) return;
  ++s.runs_started;
  push(now_ns_ + after_ns, EventKind::kArrive, i);
}

void Simulation::arrive(uint32_t i) {
  const Program& p = w_.programs[i];
  programs_[i].pending.push_back(now_ns_);
  if (options_.reference) reference_.offered[i].arrivals_ns.push_back(now_ns_);
  if (p.arrival == ArrivalKind::kPeriodic)
    schedule_arrival(i, std::max<uint64_t>(p.period_ns, 1));
  else if (p.arrival == ArrivalKind::kPoisson)
    schedule_arrival(i, 1 + static_cast<uint64_t>(
                                programs_[i].random.exponential(static_cast<double>(p.period_ns))));
  try_host(i);
}

// The host queues the next launch of the run that it works on as soon as there is room.
void Simulation::try_host(uint32_t i) {
  const Program& p = w_.programs[i];
  ProgramState& s = programs_[i];
  if (s.host_pending) return;
  const size_t outstanding = s.queue.size() + s.head.present;  // a copy stays in the queue
  if (!s.host_in_run) {
    if (s.pending.empty() || (outstanding && outstanding >= p.queue_depth)) return;
    s.host_in_run = true;
    s.step = s.in_step = 0;
    s.open.push_back({.arrived_ns = s.pending.front()});
    s.pending.pop_front();
    if (p.priority_hi) {
      VgpuState& v = vgpus_[p.vgpu];
      v.share.priority = static_cast<uint32_t>(s.random.between(p.priority_lo, p.priority_hi));
      if (options_.observer) options_.observer->on_share(now_ns_, p.vgpu, v.share);
      ask([&](Actions& a) { policy_.on_vgpu_changed(now_ns_, p.vgpu, v.share, a); });
    }
  }
  const Step& step = p.steps[s.step];
  if (outstanding && (outstanding >= p.queue_depth || step.sync)) return;
  s.host_pending = true;
  push(now_ns_ + step.host_ns, EventKind::kHost, i);
}

void Simulation::host(uint32_t i) {
  const Program& p = w_.programs[i];
  ProgramState& s = programs_[i];
  s.host_pending = false;
  const Step& step = p.steps[s.step];
  ProgramState::Queued q{.kernel = step.kernel,
                         .run = s.runs_issued,
                         .queued_ns = now_ns_,
                         .copy_ns = step.copy_ns,
                         .way = step.way};
  if (++s.in_step >= step.launches) {
    s.in_step = 0;
    ++s.step;
  }
  q.last = s.step >= p.steps.size();
  q.after = q.last ? 0
                   : s.after[s.step] - static_cast<double>(s.in_step) *
                                           (s.after[s.step] - s.after[s.step + 1]) /
                                           p.steps[s.step].launches;
  if (q.last) {
    s.host_in_run = false;
    ++s.runs_issued;
    if (p.arrival == ArrivalKind::kBacklog) schedule_arrival(i, 0);
  }
  s.queue.push_back(q);
  next_in_stream(i);
  try_host(i);
}

// Taken off by the hardware, nothing need be rewritten.
bool Simulation::opaque(uint32_t i, const Kernel& k) const {
  const bool by_hardware = w_.gpu.mechanism == Mechanism::kContextSwitch ||
                           w_.gpu.preemptor == PreemptorKind::kProportional;
  if (by_hardware) return !options_.preempts;
  return w_.original_form || !options_.preempts || w_.programs[i].opaque || !k.evictable;
}

// Of a launch in the form that runs, without its variation.
double Simulation::mean_alone_ns(uint32_t i, uint32_t kernel, uint64_t run, bool opaque) const {
  const Program& p = w_.programs[i];
  const Kernel& k = w_.kernels[kernel];
  const bool by_hardware = w_.gpu.mechanism == Mechanism::kContextSwitch ||
                           w_.gpu.preemptor == PreemptorKind::kProportional;
  const uint64_t alone_ns = p.offset_alone_ns.empty() ? k.alone_ns : p.offset_alone_ns[run];
  return static_cast<double>(alone_ns) * (opaque || by_hardware ? 1.0 : k.form_factor);
}

// The first launch behind the head becomes the head, and the policy hears of it.
void Simulation::make_head(uint32_t i) {
  ProgramState& s = programs_[i];
  const ProgramState::Queued q = s.queue.front();
  s.queue.pop_front();
  const Kernel& k = w_.kernels[q.kernel];
  Head& h = s.head;
  const uint64_t version = h.version + 1;
  h = Head{};
  h.version = version;
  h.present = true;
  h.kernel = q.kernel;
  h.run = q.run;
  h.queued_ns = q.queued_ns;
  h.settled_ns = now_ns_;
  s.head_is_last = q.last;
  const uint32_t width = k.width_sms ? std::min(k.width_sms, w_.gpu.sm_count) : w_.gpu.sm_count;
  h.opaque = opaque(i, k);
  h.width = width * kUnit;
  const double work =
      mean_alone_ns(i, q.kernel, q.run, h.opaque) * s.random.factor(k.alone_cv) * width;
  // Clamped as a double: the tail of the variation may not fit an integer.
  h.work =
      static_cast<uint64_t>(std::clamp(work, 1.0, static_cast<double>(kMaxWork / kUnit))) * kUnit;
  if (options_.reference && s.varies) reference_.offered[i].works.push_back(work);
  h.remaining = h.work;
  out_.programs[i].work_arrived_sm_ns += h.work / kUnit;

  fill_launch(i, q.after, width);
  place_head(i);
  announce_head(i);
}

// What is reported to the policy of the head.
void Simulation::fill_launch(uint32_t i, double after_sm_ns, uint32_t width_sms) {
  const Program& p = w_.programs[i];
  Head& h = programs_[i].head;
  const Kernel& k = w_.kernels[h.kernel];
  Launch& l = h.info;
  l.id = program_of_.size();
  program_of_.push_back(i);
  l.vgpu = p.vgpu;
  l.session = i;
  l.stream_priority = p.stream_priority;
  l.evictable = !h.opaque;
  l.tasks_total = k.tasks;
  h.tasks_per_work = static_cast<double>(k.tasks) / static_cast<double>(h.work);
  l.sms_wanted = static_cast<uint16_t>(width_sms);
  l.kernel = kernels_.keys[h.kernel];
  l.preempt_ns = kernels_.preempt_cost[h.kernel].mean_ns();
  l.predicted_sm_ns = predicted(i, h);
  if (l.predicted_sm_ns)
    l.run_predicted_sm_ns = l.predicted_sm_ns + static_cast<uint64_t>(after_sm_ns);
}

// Behind those of its vGPU whose streams have the same priority, or a higher one.
void Simulation::place_head(uint32_t i) {
  VgpuState& g = vgpus_[w_.programs[i].vgpu];
  auto place = g.heads.begin();
  while (place != g.heads.end() &&
         w_.programs[*place].stream_priority >= w_.programs[i].stream_priority)
    ++place;
  g.heads.insert(place, i);
}

void Simulation::announce_head(uint32_t i) {
  const VgpuId v = w_.programs[i].vgpu;
  const Head& h = programs_[i].head;
  if (options_.observer) options_.observer->on_launch(now_ns_, h.info, i, h.kernel);
  const bool had_work = account_.busy(v);
  if (!had_work) {
    set_busy(v, true);
    if (options_.observer) options_.observer->on_busy(now_ns_, v);
  }
  ask([&](Actions& a) { policy_.on_launch_queued(now_ns_, h.info, a); });
  if (!had_work) ask([&](Actions& a) { policy_.on_arrival(now_ns_, v, a); });
  reassign(v);
  if (w_.gpu.preemptor == PreemptorKind::kProportional) {
    if (slice_.current == kNoVgpu || !resident(slice_.current))
      rotate();
    else if (!had_work)
      slice_over();
  }
}

uint64_t Simulation::predicted(uint32_t i, const Head& h) {
  const Program& p = w_.programs[i];
  const Kernel& k = w_.kernels[h.kernel];
  double prediction = 0;
  switch (w_.predictor) {
    case Predictor::kNone:
      return 0;
    case Predictor::kOracle:
      prediction = static_cast<double>(h.work / kUnit);
      if (w_.prediction_cv > 0) prediction *= random_.factor(w_.prediction_cv);
      break;
    case Predictor::kModel:
      prediction =
          static_cast<double>(kernels_.model
                                  .predict(kernels_.keys[h.kernel], {k.grid_blocks, k.block_threads,
                                                                     k.shared_bytes, k.input_bytes})
                                  .value_or(0));
      break;
  }
  return static_cast<uint64_t>(std::min(prediction * p.prediction_factor, 0x1p60));
}

// Its last launch is done.
void Simulation::run_ended(uint32_t i) {
  const Program& p = w_.programs[i];
  ProgramState& s = programs_[i];
  RunRecord r = s.open.front();
  s.open.pop_front();
  r.ended_ns = now_ns_;
  out_.programs[i].runs.push_back(r);
  ++s.runs_done;
  const uint64_t runs = p.arrival == ArrivalKind::kOffsets ? p.offsets_ns.size() : p.runs;
  if (runs && s.runs_done == runs) --left_.finite;
  if (w_.replay_runs && s.runs_done == w_.replay_runs) --left_.replays;
  if (p.arrival == ArrivalKind::kClosed) {
    const double mean = static_cast<double>(p.think_ns);
    const uint64_t think = p.think_exponential && p.think_ns
                               ? static_cast<uint64_t>(s.random.exponential(mean))
                               : p.think_ns;
    if (options_.reference && p.think_exponential) reference_.offered[i].thinks_ns.push_back(think);
    schedule_arrival(i, think);
  }
}

}  // namespace sluice::policy::sim
