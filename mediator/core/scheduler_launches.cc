// What the scheduler tells its policy of launches: for each vGPU all that its sessions have queued, together
// (policy.h, Launch::id 0), since what sluiced gives and takes is the gate of a whole vGPU.
//
// The lengths are hints: core/progress.h reads them from records that a worker and its kernels write. Launches
// without a prediction (opaque ones, kernels not seen before, more than there are records) count with the mean
// that the vGPU's launches took so far by the scheduler's own clock.
#include <algorithm>

#include "mediator/core/scheduler_impl.h"

namespace sluice::core {

namespace {
constexpr uint64_t kMostSmNs = 1ull << 50;  // days of a whole GPU, as in policies/
}

void Scheduler::Impl::take_hints(SessionId s, const std::optional<LaunchHints>& hints) {
  if (!uses_launches || !hints) return;
  Session& x = sessions[s];
  x.hints = *hints;
  x.hints.predicted = std::min(x.hints.predicted, x.report.guest_demand);
  x.hints.remaining_ns = x.hints.predicted ? std::min(x.hints.remaining_ns, kMostSmNs) : 0;
  x.hints.preempt_ns = std::min(x.hints.preempt_ns, config.evict_end_ns);
  Vgpu& g = vgpus[x.vgpu];
  if (g.tell_due) return;
  g.tell_due = true;
  tells_due.push_back(x.vgpu);
}

void Scheduler::Impl::tell_launches(uint64_t now_ns, VgpuId v, ActionQueue& out) {
  if (!uses_launches) return;
  Vgpu& g = vgpus[v];
  uint64_t remaining_ns = 0, unpredicted = 0, preempt_ns = 0;
  for (const SessionId s : g.sessions) {
    const Session& x = sessions[s];
    if (!x.wants) continue;
    remaining_ns = std::min(remaining_ns + x.hints.remaining_ns, kMostSmNs);
    // Between its end on the GPU and its worker's notice a launch is in flight and nothing is queued.
    unpredicted += x.report.guest_demand - std::min(x.hints.predicted, x.report.guest_demand);
    preempt_ns = std::max(preempt_ns, x.hints.preempt_ns);
  }
  const double sm_ns = static_cast<double>(remaining_ns) * sm_count() +
                       static_cast<double>(unpredicted) * g.mean_launch_sm_ns;
  const auto told = static_cast<uint64_t>(std::min(sm_ns, static_cast<double>(kMostSmNs)));
  if (told == g.told_sm_ns && preempt_ns == g.told_preempt_ns) return;
  g.told_sm_ns = told;
  g.told_preempt_ns = preempt_ns;
  const policy::Launch all{.vgpu = v,
                           .predicted_sm_ns = told,
                           .run_predicted_sm_ns = told,
                           .preempt_ns = preempt_ns};
  ask(now_ns, out, [&](policy::Actions& a) { policy->on_launch_queued(now_ns, all, a); });
}

bool Scheduler::Impl::tell_what_is_due(uint64_t now_ns, ActionQueue& out) {
  while (!tells_due.empty()) {
    const VgpuId v = tells_due.back();
    tells_due.pop_back();
    Vgpu& g = vgpus[v];
    g.tell_due = false;
    // Of who is not known to be busy yet, or not to be any more, turn_busy() and turn_idle() speak.
    if (!g.present || !g.busy || !g.wants()) continue;
    tell_launches(now_ns, v, out);
    return true;
  }
  return false;
}

// A time of work begins or ends: how long were its launches, by our clock? (As many as its worker says.)
void Scheduler::Impl::mark_busy(uint64_t now_ns, VgpuId v, bool busy) {
  if (!uses_launches) return;
  flush_usage(now_ns);
  Vgpu& g = vgpus[v];
  const uint64_t done = launches_done(g);
  if (!busy) {
    const uint64_t launches = done - std::min(done, g.busy_launches_done);
    const uint64_t used = g.charged_sm_ns - g.busy_charged_sm_ns;
    if (launches > 0) {
      const double mean = static_cast<double>(used) / static_cast<double>(launches);
      g.mean_launch_sm_ns += (mean - g.mean_launch_sm_ns) / (g.mean_launch_sm_ns > 0 ? 4 : 1);
    }
    g.told_sm_ns = g.told_preempt_ns = 0;
  }
  g.busy_charged_sm_ns = g.charged_sm_ns;
  g.busy_launches_done = done;
}

uint64_t Scheduler::Impl::launches_done(const Vgpu& g) const {
  uint64_t done = g.old_done;
  for (const SessionId s : g.sessions) scheduler_detail::add_counter(done, sessions[s].report.guest_launches_done);
  return done;
}

bool Scheduler::wants_hints(SessionId s) const {
  if (!impl_->uses_launches) return false;
  const auto* x = impl_->session(s);
  // On the way out nobody decides by them, and whoever comes next waits for the report.
  return x && !x->leaving;
}

}  // namespace sluice::core
