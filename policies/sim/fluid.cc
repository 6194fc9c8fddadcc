// SPDX-License-Identifier: Apache-2.0
#include "policies/sim/fluid.h"

#include <algorithm>
#include <deque>
#include <limits>

namespace sluice::policy::sim {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class FluidSystem {
 public:
  FluidSystem(const Workload& w, const std::vector<Offered>& offered,
              const std::function<double(uint32_t, uint32_t, uint64_t)>& mean_work, Loops loops,
              double capacity)
      : w_(w),
        loops_(loops),
        capacity_(capacity),
        offered_(offered),
        mean_work_(mean_work),
        programs_(w.programs.size()),
        vgpus_(w.vgpus.size()) {
    for (size_t v = 0; v < vgpus_.size(); ++v) vgpus_[v].weight = w.vgpus[v].share.weight;
    served_.resize(vgpus_.size());
  }

  Fluid run(double end_ns, double mark_ns, uint64_t max_steps) {
    Fluid out;
    double mark = mark_ns > 0 ? mark_ns : kNever;
    for (uint64_t steps = 0; now_ < end_ns; ++steps) {
      if (steps >= max_steps) return Fluid{.complete = false, .served = {}, .at_mark = {}};
      admit();
      divide();
      serve_until(std::min({next_event(), mark, end_ns}));
      if (now_ < mark) continue;
      out.at_mark.push_back(served_);
      mark += mark_ns;
    }
    out.complete = true;
    out.served = served_;
    return out;
  }

 private:
  struct Queued {
    uint32_t kernel = 0;
    double work = 0;
    bool last = false;  // of its run
  };
  struct ProgramState {
    size_t arrived = 0;        // runs
    double own_next = kNever;  // the next run by the fluid system's own loop
    uint64_t waiting = 0;      // runs that the host has not begun
    uint64_t issued = 0, launches = 0, ended = 0;
    bool in_run = false;
    uint32_t step = 0, in_step = 0;
    double host_at = kNever;
    std::deque<Queued> queue;
    double speed = 0, ends = kNever;
  };
  struct VgpuState {
    double weight = 1;
    size_t changes = 0;
    std::vector<uint32_t> heads;  // programs with work, in the order in which they get SMs
    double sms = 0;
  };

  double width(uint32_t p) const {
    const uint32_t sms = w_.kernels[programs_[p].queue.front().kernel].width_sms;
    return sms ? std::min(sms, w_.gpu.sm_count) : w_.gpu.sm_count;
  }
  bool in_space() const { return w_.gpu.spatial && w_.gpu.preemptor == PreemptorKind::kExclusive; }
  double next_arrival(uint32_t p) const {
    const ProgramState& s = programs_[p];
    const std::vector<uint64_t>& real = offered_[p].arrivals_ns;
    const double at = s.arrived < real.size() ? static_cast<double>(real[s.arrived]) : kNever;
    return std::min(at, s.own_next);
  }

  // Everything that is due now: weights, runs, launches.
  void admit() {
    for (size_t v = 0; v < vgpus_.size(); ++v) {
      const std::vector<ShareChange>& changes = w_.vgpus[v].changes;
      size_t& n = vgpus_[v].changes;
      while (n < changes.size() && static_cast<double>(changes[n].at_ns) <= now_)
        vgpus_[v].weight = changes[n++].share.weight;
    }
    for (uint32_t p = 0; p < programs_.size(); ++p) admit(p);
  }

  void admit(uint32_t p) {
    ProgramState& s = programs_[p];
    // A program may take as many turns here as its queue is deep, all in one instant.
    for (;;) {
      if (next_arrival(p) <= now_) {
        s.own_next = kNever;
        ++s.arrived;
        ++s.waiting;
      } else if (s.host_at <= now_) {
        issue(p);
      } else {
        return;
      }
      plan_host(p);
    }
  }

  // When the host queues its next launch, if there is room.
  void plan_host(uint32_t p) {
    const Program& program = w_.programs[p];
    ProgramState& s = programs_[p];
    if (s.host_at < kNever) return;
    const size_t queued = s.queue.size();
    if (queued && queued >= program.queue_depth) return;
    if (!s.in_run) {
      if (!s.waiting) return;
      --s.waiting;
      s.in_run = true;
      s.step = s.in_step = 0;
    }
    const Step& step = program.steps[s.step];
    if (queued && step.sync) return;
    s.host_at = now_ + static_cast<double>(step.host_ns);
  }

  void issue(uint32_t p) {
    const Program& program = w_.programs[p];
    ProgramState& s = programs_[p];
    s.host_at = kNever;
    const Step& step = program.steps[s.step];
    const std::vector<double>& works = offered_[p].works;
    Queued q{.kernel = step.kernel,
             .work = s.launches < works.size() ? works[s.launches]
                                               : mean_work_(p, step.kernel, s.issued)};
    ++s.launches;
    if (++s.in_step >= step.launches) {
      s.in_step = 0;
      ++s.step;
    }
    q.last = s.step >= program.steps.size();
    if (q.last) {
      s.in_run = false;
      ++s.issued;
      if (program.arrival == ArrivalKind::kBacklog) plan_run(p, s.issued, now_);
    }
    s.queue.push_back(q);
    if (s.queue.size() == 1) become_head(p);
  }

  void become_head(uint32_t p) {
    const Program& program = w_.programs[p];
    std::vector<uint32_t>& heads = vgpus_[program.vgpu].heads;
    auto place = heads.begin();
    while (place != heads.end() && w_.programs[*place].stream_priority >= program.stream_priority)
      ++place;
    heads.insert(place, p);
  }

  // The next run of a loop, `before` of whose runs are over. None if the simulation brought it
  // already, or if that was the last.
  void plan_run(uint32_t p, uint64_t before, double at) {
    const uint64_t runs = w_.programs[p].runs;
    ProgramState& s = programs_[p];
    if (s.arrived > before || (runs && s.arrived >= runs)) return;
    s.own_next = at;
  }

  void end_launch(uint32_t p) {
    const Program& program = w_.programs[p];
    ProgramState& s = programs_[p];
    const bool last = s.queue.front().last;
    s.queue.pop_front();
    std::erase(vgpus_[program.vgpu].heads, p);
    if (last) {
      const std::vector<uint64_t>& thinks = offered_[p].thinks_ns;
      const double think =
          static_cast<double>(s.ended < thinks.size() ? thinks[s.ended] : program.think_ns);
      ++s.ended;
      if (program.arrival == ArrivalKind::kClosed && loops_ == Loops::kOwnPace)
        plan_run(p, s.ended, now_ + think);
    }
    if (!s.queue.empty()) become_head(p);
    plan_host(p);
  }

  // SMs by weight among those with work; what one cannot use goes to the others.
  void divide() {
    double left = w_.gpu.sm_count * capacity_, weight = 0;
    open_.clear();
    for (size_t v = 0; v < vgpus_.size(); ++v) {
      vgpus_[v].sms = 0;
      if (vgpus_[v].heads.empty()) continue;
      open_.push_back(v);
      weight += vgpus_[v].weight;
    }
    for (bool capped = in_space(); capped;) {
      capped = false;
      const double left_now = left, weight_now = weight;
      std::erase_if(open_, [&](size_t v) {
        double cap = 0;
        for (const uint32_t p : vgpus_[v].heads) cap += width(p);
        if (left_now * vgpus_[v].weight / weight_now < cap) return false;
        vgpus_[v].sms = cap;
        left -= cap;
        weight -= vgpus_[v].weight;
        return capped = true;
      });
      capped = capped && !open_.empty();
    }
    for (const size_t v : open_) vgpus_[v].sms = left * vgpus_[v].weight / weight;
    for (VgpuState& v : vgpus_) set_speeds(v);
  }

  // Given whole, a vGPU has all SMs for its part of the time: narrow launches use it badly.
  void set_speeds(const VgpuState& v) {
    const double all = w_.gpu.sm_count * capacity_;
    double free = in_space() ? v.sms : all;
    const double part = in_space() ? 1 : v.sms / all;
    for (const uint32_t p : v.heads) {
      ProgramState& s = programs_[p];
      const double sms = std::min(free, width(p));
      free -= sms;
      s.speed = sms * part;
      s.ends = s.speed > 0 ? now_ + s.queue.front().work / s.speed : kNever;
    }
  }

  double next_event() const {
    double next = kNever;
    for (size_t v = 0; v < vgpus_.size(); ++v) {
      const std::vector<ShareChange>& changes = w_.vgpus[v].changes;
      if (vgpus_[v].changes < changes.size())
        next = std::min(next, static_cast<double>(changes[vgpus_[v].changes].at_ns));
    }
    for (uint32_t p = 0; p < programs_.size(); ++p) {
      const ProgramState& s = programs_[p];
      next = std::min({next, next_arrival(p), s.host_at, s.queue.empty() ? kNever : s.ends});
    }
    return next;
  }

  void serve_until(double t) {
    const double dt = t - now_;
    now_ = t;
    for (size_t v = 0; v < vgpus_.size(); ++v)
      if (!vgpus_[v].heads.empty()) served_[v] += vgpus_[v].sms * dt;
    for (uint32_t p = 0; p < programs_.size(); ++p) {
      ProgramState& s = programs_[p];
      if (s.queue.empty()) continue;
      s.queue.front().work = std::max(0.0, s.queue.front().work - s.speed * dt);
      if (s.ends <= t) end_launch(p);
    }
  }

  const Workload& w_;
  const Loops loops_;
  const double capacity_;
  const std::vector<Offered>& offered_;
  const std::function<double(uint32_t, uint32_t, uint64_t)>& mean_work_;
  std::vector<ProgramState> programs_;
  std::vector<VgpuState> vgpus_;
  std::vector<double> served_;
  std::vector<size_t> open_;  // scratch of divide()
  double now_ = 0;
};

}  // namespace

Fluid fluid_reference(const Workload& w, const std::vector<Offered>& offered,
                      const std::function<double(uint32_t, uint32_t, uint64_t)>& mean_work,
                      Loops loops, double capacity, uint64_t end_ns, uint64_t mark_ns,
                      uint64_t max_steps) {
  return FluidSystem(w, offered, mean_work, loops, capacity)
      .run(static_cast<double>(end_ns), static_cast<double>(mark_ns), max_steps);
}

}  // namespace sluice::policy::sim
