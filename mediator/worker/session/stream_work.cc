// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/session/stream_work.h"

#include <algorithm>
#include <utility>

#include "mediator/base/clock.h"
#include "mediator/ring/wait.h"
#include "mediator/worker/limits.h"
#include "mediator/worker/session/polling.h"

namespace sluice::worker {

namespace wp = worker_protocol;

namespace {

LoopSettings loop_settings(const wp::Start& start) {
  LoopSettings s;
  s.target_us = start.chunk_target_us;
  s.fixed_chunk = static_cast<uint16_t>(start.fixed_chunk);
  s.admission_us = start.admission_us;
  s.window_us = start.window_us;
  // An eviction does not wait for windows there, so the next one is queued as soon as it can be.
  if (start.turns_by_priority != 0) s.window_lead_us = start.window_us;
  s.whole_us = start.turn_whole_us;
  if (start.nvidia == 0) s.leave_ps = kSoftwareLeavePs;
  return s;
}

EngineLimits engine_limits(const wp::Start& start) {
  EngineLimits l;
  if (start.turns_by_priority != 0)
    l.opaque_contended_ns = kTurnOpaqueNs, l.opaque_lead_ns = kTurnLeadNs;
  l.slices = start.time_slices != 0;
  return l;
}
}  // namespace

StreamWork::StreamWork(const SessionSetup& setup, Answers& answers)
    : gate(setup.host, setup.signal, setup.report, monotonic_ns(),
           [fd = setup.fds[wp::kRingFd].get()] { ring_wake(fd); }),
      streams(setup.api, setup.start.signal == wp::Signal::kProxy, loop_settings(setup.start),
              setup.signal, setup.records,
              {[this](uint64_t token, CUresult status) { waiting.complete(token, status); },
               [this](uint64_t token) { waiting.complete(token, CUDA_SUCCESS); },
               [&answers](CUresult status) { answers.replies.send(0, 0, status); }}),
      engine(streams, gate, engine_limits(setup.start)),
      queued(setup.limits.queued_operations, setup.limits.hard_operations),
      outlook(Spinner::may_spin_for_long()) {
  if (setup.start.spatial_sms != 0) streams.planner().expect_parts();
  if (setup.start.turns_by_priority != 0) streams.planner().expect_turns();
  if (setup.start.time_slices != 0) streams.planner().expect_slices();
}

void StreamWork::submit(const StreamObject& stream, std::shared_ptr<StreamCall> work,
                        uint64_t token) {
  const uint64_t now = monotonic_ns(), bytes = work->is_within() ? work->bytes() : 0;
  const OpKind kind = bytes == 0 || free_bulk_.take(now, bytes) ? OpKind::kWork : OpKind::kBulk;
  engine.submit(stream.id, kind, std::move(work), token, now);
}

void StreamWork::when_done(const ContextObject& context, WaitingCalls::Then then) {
  engine.notify_context(context.id, waiting.add(std::move(then)), monotonic_ns());
}

uint64_t StreamWork::back_off(uint64_t last_ns, bool progressed) {
  sleep_ns_ = next_sleep_ns(last_ns, progressed);
  slept_at_ = progress();
  return sleep_ns_;
}

uint64_t StreamWork::next_sleep_ns(uint64_t last_ns, bool progressed) const {
  if (engine.pacing()) return kPollWindowsNs;
  const bool recalled = !gate.open(monotonic_ns()) || gate.calling_back();
  const bool urgent = recalled || !waiting.empty();
  if (progressed) return urgent ? kPollFirstNs : kPollUrgentNs;
  if (recalled) return std::min(last_ns * 2, kPollUrgentNs);
  return longer_sleep_ns(last_ns, urgent ? kPollUrgentNs : kPollMostNs);
}

uint64_t StreamWork::longest_sleep_ns() const {
  if (engine.pacing()) return kPollWindowsNs;
  if (waiting.empty()) return kPollGateNs - 1;
  return slept_at_ == progress() ? std::max(sleep_ns_, kPollUrgentNs) : kPollUrgentNs;
}

uint64_t StreamWork::progress() const {
  return engine.counters().launches_done + engine.counters().relaunches + waiting.next_token() +
         engine.queued();
}

void StreamWork::follow() {
  if (streams.follows_chain()) streams.follow_chain(gate.demand(), gate.open(monotonic_ns()));
  outlook.follow({engine.in_flight(), engine.held_by_gate(), !waiting.empty(), engine.queued()},
                 monotonic_ns, [this] { return engine.expected_end_ns(); });
}

void StreamWork::publish_counters(sluice_report_header& report) {
  const auto& c = engine.counters();
  const auto publish = [](uint64_t& to, uint64_t n) { __atomic_store_n(&to, n, __ATOMIC_RELAXED); };
  publish(report.launches, c.launches);
  publish(report.launches_done, c.launches_done);
  publish(report.evictions, c.evictions);
  publish(report.relaunches, c.relaunches);
  publish(report.opaque_launches, c.opaque);
  publish(report.whole_launches, streams.planner().whole());
  publish(report.narrowed, c.narrowed);
  publish(report.grown, c.grown);
  publish(report.green_launches, streams.confinement().green.launches);
  publish(report.green_contexts, streams.confinement().green.made);
  publish(report.part_launches, streams.confinement().green.parts);
}

}  // namespace sluice::worker
