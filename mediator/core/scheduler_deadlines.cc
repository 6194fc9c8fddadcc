// The scheduler's deadlines: who is ended for not leaving the GPU, and who is not.
//
// Two things are known of a session: what its worker reports, and, where the host can look at the
// GPU by itself (on_seen()), whether a context of it was at work at the time of a look. A look
// stands for the time since the one before. What it means:
//
// clang-format off
//   at work is                    | for that session             | for others that were told to leave
//   ------------------------------+------------------------------+-------------------------------------
//   a session of a vGPU that      | nothing                      | the deadline runs
//   holds a grant, or left just   |                              |
//   now                           |                              |
//   a session of a vGPU that      | `ungranted_ns` grows; it is  | the deadline stands still: their
//   holds none: it reported       | ended at evict_end_ns        | launches may not have begun
//   *left*, or was never granted  |                              |
//   nobody, nobody known, or      | -                            | the deadline runs: who reports
//   there is no look at all       |                              | launches in flight has not left
// clang-format on
//
// So a worker that reports *left* while its kernel runs on does not have its successor ended: it is
// ended itself. And who has not left gains nothing by reporting that its launches have not begun:
// no report enters this table. What it can gain is one evict_end_ns for each session that an
// accomplice sacrifices.
// Without looks (`sources = ["clock"]`, NVIDIA) only who reports launches in
// flight is ended. A kernel cannot write that report (abi/stub.h), so there a victim loses its
// session only to a *worker* that was taken over. The opposite rule, which would end the one who
// was there before, would let any kernel that spins have its honest predecessor ended.
//
// `ungranted_ns` shrinks as time passes (SchedulerConfig::ungranted_leak), so that the delays of an
// honest worker between its kernel's end and the engine's release never add up.
#include <algorithm>

#include "mediator/core/scheduler_impl.h"

namespace sluice::core {

void Scheduler::Impl::look_at_deadlines(uint64_t now_ns, ActionQueue& out) {
  for (size_t i = 0; i < leaving.size(); ++i) {
    const VgpuId v = leaving[i];
    Vgpu& g = vgpus[v];
    const uint64_t since_ns = now_ns - g.evict_ns - g.excused_ns;
    if (!g.warned && since_ns >= config.evict_warn_ns) {
      g.warned = true;
      ++g.overdue;
      log(out, LogEvent::kOverdue, v, since_ns);
      // A last look, should a ring have been lost to a worker's bug.
      for (SessionId s : g.sessions)
        if (sessions[s].leaving) read_report_of(out, s);
    }
    if (!g.end_sent && since_ns >= evict_end_ns(g)) {
      g.end_sent = true;
      for (SessionId s : g.sessions)
        if (sessions[s].leaving) end_session(out, s, EndReason::kDidNotLeave);
    }
  }
}

void Scheduler::Impl::see(uint64_t now_ns, SessionId running, ActionQueue& out) {
  const uint64_t stands_for_ns =
      seen_ns == 0 ? 0 : std::min(now_ns - seen_ns, config.longest_look_ns);
  seen_ns = now_ns;
  Session* x = session(running);
  // On time slices a gated vGPU has no deadline, and all are charged for what they use.
  if (!x || slices()) return;
  const Vgpu& g = vgpus[x->vgpu];
  if (g.holds || now_ns < g.left_ns + config.ungranted_grace_ns) return;

  const uint64_t leaked = (now_ns - x->ungranted_at_ns) / std::max(config.ungranted_leak, 1u);
  x->ungranted_ns = x->ungranted_ns - std::min(x->ungranted_ns, leaked) + stands_for_ns;
  x->ungranted_at_ns = now_ns;
  for (const VgpuId v : leaving) {
    Vgpu& other = vgpus[v];
    if (v != x->vgpu)
      other.excused_ns += std::min(stands_for_ns, now_ns - other.evict_ns - other.excused_ns);
  }
  if (x->ungranted_ns >= evict_end_ns(g)) end_session(out, running, EndReason::kRanUngranted);
}

void Scheduler::Impl::rearm(ActionQueue& out) {
  uint64_t next = policy_wake_ns;
  for (VgpuId v : leaving) {
    const Vgpu& g = vgpus[v];
    const uint64_t since_ns = g.evict_ns + g.excused_ns;
    if (!g.warned) next = std::min(next, since_ns + config.evict_warn_ns);
    if (!g.end_sent) next = std::min(next, since_ns + evict_end_ns(g));
  }
  if (next == armed_ns) return;
  armed_ns = next;
  out.push({.kind = Action::Kind::kWakeAt, .word = next});
}

}  // namespace sluice::core
