// SPDX-License-Identifier: Apache-2.0
// The engine thread and the job thread; and what is published whenever the engine was polled.
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "mediator/base/clock.h"
#include "mediator/base/log.h"
#include "mediator/base/peer_socket.h"
#include "mediator/worker/limits.h"
#include "mediator/worker/process/channel_groups.h"
#include "mediator/worker/session/polling.h"
#include "mediator/worker/session/worker_session.h"

namespace sluice::worker {

namespace wp = worker_protocol;

void WorkerSession::job_loop() {
  ::prctl(PR_SET_NAME, "sluice-jobs");
  Spinner spinner(Spinner::may_spin_for_long() ? setup.start.spin_us : 0);
  uint64_t looked_ns = monotonic_ns();
  for (;;) {
    bool keeps = false;
    {
      std::lock_guard lock(mutex);
      keeps = !freed.empty();
    }
    const auto patience = keeps ? std::chrono::nanoseconds(FreedMemory::kKeptNs)
                                : std::chrono::nanoseconds(std::chrono::hours(1));
    if (const auto job = jobs.take(spinner, patience)) (*job)();
    wake_decoder_if_stopped();
    if (const uint64_t now_ns = monotonic_ns(); now_ns - looked_ns >= FreedMemory::kKeptNs) {
      looked_ns = now_ns;
      if (keeps) release_old_memory(now_ns);
    }
  }
}

uint64_t WorkerSession::back_off(uint64_t last_ns, bool progress) const {
  if (engine.pacing()) return kPollWindowsNs;
  const bool urgent = !waiting.empty() || !gate.open(monotonic_ns()) || gate.calling_back();
  if (progress) return urgent ? kPollFirstNs : kPollUrgentNs;
  return std::min(last_ns * 2, urgent ? kPollUrgentNs : kPollMostNs);
}

void WorkerSession::publish_counters() {
  const auto& c = engine.counters();
  sluice_report_header& h = *setup.report;
  const auto publish = [](uint64_t& to, uint64_t n) { __atomic_store_n(&to, n, __ATOMIC_RELAXED); };
  publish(h.launches, c.launches);
  publish(h.launches_done, c.launches_done);
  publish(h.evictions, c.evictions);
  publish(h.relaunches, c.relaunches);
  publish(h.opaque_launches, c.opaque);
  publish(h.whole_launches, streams.planner().whole());
  publish(h.narrowed, c.narrowed);
  publish(h.grown, c.grown);
  publish(h.green_launches, streams.confinement().green.launches);
  publish(h.green_contexts, streams.confinement().green.made);
  publish(h.part_launches, streams.confinement().green.parts);
}

void WorkerSession::follow_waits() {
  if (waiting.empty() == (wait_began_ns_ == 0)) return;
  const uint64_t now_ns = monotonic_ns();
  if (wait_began_ns_ != 0) waits_.took(now_ns - wait_began_ns_);
  wait_began_ns_ = waiting.empty() ? 0 : now_ns;
}

// As long as the program's waits before, or by what is known of the launches.
uint64_t WorkerSession::expected_end_ns() const {
  const bool follows = wait_began_ns_ != 0 && Spinner::may_spin_for_long();
  const uint64_t takes_ns = follows ? waits_.expected_ns() : 0;
  return takes_ns != 0 ? wait_began_ns_ + takes_ns : engine.expected_end_ns();
}

void WorkerSession::after_engine() {
  if (engine.error() != CUDA_SUCCESS && sticky.load() == 0) {
    sticky.store(engine.error());
    __atomic_store_n(&setup.report->error, static_cast<uint64_t>(engine.error()), __ATOMIC_RELAXED);
    log::warning("vgpu {} slot {}: {}", setup.start.vgpu, setup.start.slot,
                 gpu::describe(engine.error()));
    signal_eventfd(setup.fds[wp::kRingFd].get());
    // What its other contexts have on the GPU would go on, and each may stop the GPU once more.
    if (contexts.open > 1)
      end(engine.error(),
          "a kernel of it failed (" + gpu::describe(engine.error()) + "); it had several contexts");
  }
  publish_counters();
  follow_hold();
  streams.follow_chain(gate.demand(), gate.open(monotonic_ns()));

  const bool in_flight = engine.in_flight();
  in_flight_.store(in_flight, std::memory_order_relaxed);
  follow_waits();
  const bool near = in_flight && !waiting.empty() && engine.queued() <= kNearOperations;
  expected_end_ns_.store(near ? expected_end_ns() : 0, std::memory_order_relaxed);
  at_gate_.store(engine.held_by_gate(), std::memory_order_relaxed);
  end_is_near_.store(near, std::memory_order_relaxed);
  if (in_flight) {
    const uint64_t longest_ns = engine.pacing()   ? kPollWindowsNs
                                : waiting.empty() ? kPollGateNs - 1
                                                  : kPollUrgentNs;
    (decoder_polls_ ? decoder_ : engine_thread_sleeper_).wake_from(longest_ns);
  } else if (engine.held_by_gate()) {
    engine_thread_sleeper_.wake_from(kForeverNs - 1);
  }
}

// The decoder may not stop: what it would leave in the ring may be the host function's end. So the
// program is asked to stop (sluice_slot_header.hold), well before the bound that ends the session.
void WorkerSession::follow_hold() {
  const size_t queued = engine.queued();
  if (!holds_program_) {
    if (!streams_full(1, 1) || !engine.waits_for_program()) return;
  } else if (queued != 0 && streams_full(7, 8)) {
    return;
  }
  holds_program_ = !holds_program_;
  store_shared(slot_->hold, uint32_t{holds_program_}, std::memory_order_release);
  if (!holds_program_) signal_eventfd(setup.fds[wp::kWakeFd].get());
}

// sluiced is gone: ends the session once the program has asked for nothing, and nothing of it has
// run, for long.
void WorkerSession::end_if_quiet(bool busy, Quiet& quiet) {
  const uint64_t records = records_decoded_.load(std::memory_order_relaxed), now = monotonic_ns();
  if (busy || records != quiet.records || quiet.since_ns == 0)
    quiet = {records, now};
  else if (now - quiet.since_ns > limits.orphan_ms * 1'000'000)
    end(CUDA_ERROR_DEVICE_UNAVAILABLE, "sluiced is gone, and the program asks for nothing");
}

void WorkerSession::engine_loop() {
  ::prctl(PR_SET_NAME, "sluice-engine");
  ::prctl(PR_SET_TIMERSLACK, 1000);
  uint64_t last_sleep_ns = kPollFirstNs, seen = 0;
  Quiet quiet;
  bool gate_changed = false;
  for (;;) {
    uint64_t sleep_ns = kForeverNs;
    bool busy = false;
    forwarder.forward();
    {
      std::lock_guard lock(mutex);
      engine.poll(monotonic_ns());
      const uint64_t progress = engine.counters().launches_done + engine.counters().relaunches +
                                waiting.next_token() + engine.queued();
      if (engine.in_flight() && decoder_polls_) {
        // The gate has changed, perhaps to evict what is in flight: its end is due.
        if (gate_changed) decoder_.wake_from(kPollFirstNs);
      } else if (engine.in_flight()) {
        sleep_ns = last_sleep_ns = back_off(last_sleep_ns, progress != seen);
      } else if (engine.held_by_gate()) {
        sleep_ns = kPollGateNs;
      }
      seen = progress;
      busy = engine.queued() != 0;
      if (control.lost()) sleep_ns = std::min(sleep_ns, kPollOrphanNs);
      engine_thread_sleeper_.about_to_sleep(sleep_ns);
      after_engine();
      if (!streams_full(1, 1) || engine.waits_for_program()) wake_decoder_if_stopped();
    }
    if (control.lost()) end_if_quiet(busy, quiet);
    pollfd fds[] = {{setup.fds[wp::kGateFd].get(), POLLIN, 0},
                    {engine_thread_sleeper_.bell(), POLLIN, 0},
                    {control.lost() ? -1 : control.socket(),
                     static_cast<short>(control.full() ? POLLIN | POLLOUT : POLLIN), 0}};
    sleep_on(fds, 3, sleep_ns);
    gate_changed = fds[0].revents != 0;
    if (gate_changed) {
      drain_trusted_wake(fds[0].fd);
      last_sleep_ns = kPollFirstNs;
    }
    if (fds[1].revents) {
      drain_eventfd(fds[1].fd);
      last_sleep_ns = kPollFirstNs;
    }
    if (fds[2].revents & POLLOUT) control.flush();
    if (fds[2].revents & ~POLLOUT) on_control();
  }
}

void WorkerSession::on_control() {
  constexpr int kMessagesPerPoll = 16;
  for (int i = 0; i < kMessagesPerPoll; ++i) {
    wp::Message m;
    Fd file;
    switch (control.receive(&m, &file)) {
      case ControlLink::Received::kNothing:
        return;
      case ControlLink::Received::kMalformed:
        continue;
      case ControlLink::Received::kLost: {
        // The session goes on: when sluiced's heartbeat is stale the gate counts as open.
        log::warning("sluiced has closed the control socket");
        std::vector<ControlLink::Ready> refusals;
        {
          std::lock_guard lock(mutex);
          refusals = control.refuse_all();
        }
        for (const auto& refuse : refusals) refuse();
        return;
      }
      case ControlLink::Received::kMessage:
        break;
    }
    ControlLink::Ready ready;
    switch (m.type) {
      case wp::Type::kLeaseReply: {
        std::lock_guard lock(mutex);
        ready = control.on_lease_reply(m);
        break;
      }
      case wp::Type::kExtentReply: {
        std::lock_guard lock(mutex);
        ready = control.on_extent_reply(m);
        break;
      }
      case wp::Type::kShareReply:
      case wp::Type::kOpenReply: {
        std::lock_guard lock(mutex);
        ready = control.on_shared_reply(m, std::move(file));
        break;
      }
      case wp::Type::kTimeSlice:
        slices_.want(m.bytes);
        break;
      case wp::Type::kEnd:
        drain_at_end();
        end(static_cast<CUresult>(m.code), m.text, true);
      default:
        log::warning("unexpected message {} from sluiced", static_cast<uint32_t>(m.type));
    }
    if (ready) ready();
  }
}

// Contexts without a slice of ours have the driver's own, so that vGPU has another share than it is
// to have: said once.
void WorkerSession::set_time_slice(uint64_t ns) {
  ChannelGroups& groups = ChannelGroups::of_process();
  const size_t set = groups.set_slice(ns);
  if (set != 0 && set == groups.count()) return;
  if (!std::exchange(says_slices_, false)) return;
  log::warning("vgpu {} slot {}: {} of {} channel groups have taken a time slice of {} us",
               setup.start.vgpu, setup.start.slot, set, groups.count(), ns / 1000);
}

void WorkerSession::drain_at_end() {
  const uint64_t until_ns = monotonic_ns() + limits.drain_at_end_ms * 1'000'000;
  for (;;) {
    {
      std::lock_guard lock(mutex);
      gate.shut();
      engine.poll(monotonic_ns());
      after_engine();
      if (!engine.in_flight() || sticky.load() != 0 || monotonic_ns() >= until_ns) return;
    }
    ::usleep(200);
  }
}

}  // namespace sluice::worker
