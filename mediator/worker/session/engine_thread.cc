// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/session/engine_thread.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "mediator/base/clock.h"
#include "mediator/base/log.h"
#include "mediator/base/peer_socket.h"
#include "mediator/worker/process/channel_groups.h"
#include "mediator/worker/session/polling.h"
#include "mediator/worker/session/worker_session.h"

namespace sluice::worker {

namespace wp = worker_protocol;

EngineThread::EngineThread(WorkerSession& session, const SessionSetup& setup)
    : forwarder(setup.api, setup.start.signal, setup.signal),
      s_(session),
      last_sleep_ns_(kPollFirstNs) {}

void EngineThread::loop() {
  ::prctl(PR_SET_NAME, "sluice-engine");
  ::prctl(PR_SET_TIMERSLACK, 1000);
  ControlLink& control = s_.control;
  Quiet quiet;
  bool gate_changed = false;
  for (;;) {
    uint64_t sleep_ns = kForeverNs;
    forwarder.forward();
    const bool busy = poll(gate_changed, &sleep_ns);
    if (control.lost()) end_if_quiet(busy, quiet);
    pollfd fds[] = {{s_.setup.fds[wp::kGateFd].get(), POLLIN, 0},
                    {s_.pollers.engine_thread.bell(), POLLIN, 0},
                    {control.lost() ? -1 : control.socket(),
                     static_cast<short>(control.full() ? POLLIN | POLLOUT : POLLIN), 0}};
    sleep_on(fds, 3, sleep_ns);
    gate_changed = fds[0].revents != 0;
    if (gate_changed) {
      drain_trusted_wake(fds[0].fd);
      last_sleep_ns_ = kPollFirstNs;
    }
    if (fds[1].revents) {
      drain_eventfd(fds[1].fd);
      last_sleep_ns_ = kPollFirstNs;
    }
    if (fds[2].revents & POLLOUT) control.flush();
    if (fds[2].revents & ~POLLOUT) on_control();
  }
}

bool EngineThread::poll(bool gate_changed, uint64_t* sleep_ns) {
  std::lock_guard lock(s_.mutex);
  StreamWork& work = s_.work;
  work.engine.poll(monotonic_ns());
  const uint64_t progress = work.progress();
  if (work.engine.in_flight() && s_.pollers.decoder_polls()) {
    // The gate has changed, perhaps to evict what is in flight: its end is due.
    if (gate_changed) s_.pollers.decoder.wake_from(kPollFirstNs);
  } else if (work.engine.in_flight()) {
    *sleep_ns = last_sleep_ns_ = work.back_off(last_sleep_ns_, progress != progress_);
  } else if (work.engine.held_by_gate()) {
    *sleep_ns = kPollGateNs;
  }
  progress_ = progress;
  const bool busy = work.engine.queued() != 0;
  if (s_.control.lost()) *sleep_ns = std::min(*sleep_ns, kPollOrphanNs);
  s_.pollers.engine_thread.about_to_sleep(*sleep_ns);
  s_.after_engine();
  const QueueBounds::Queued queued = s_.queued_now();
  if (!work.queued.full(queued) || queued.waits_for_program) s_.wake_decoder_if_stopped();
  return busy;
}

void EngineThread::end_if_quiet(bool busy, Quiet& quiet) {
  const uint64_t records = s_.decoder.records(), now = monotonic_ns();
  if (busy || records != quiet.records || quiet.since_ns == 0)
    quiet = {records, now};
  else if (now - quiet.since_ns > s_.setup.limits.orphan_ms * 1'000'000)
    s_.end(CUDA_ERROR_DEVICE_UNAVAILABLE, "sluiced is gone, and the program asks for nothing");
}

void EngineThread::on_control() {
  constexpr int kMessagesPerPoll = 16;
  for (int i = 0; i < kMessagesPerPoll; ++i) {
    wp::Message m;
    Fd file;
    switch (s_.control.receive(&m, &file)) {
      case ControlLink::Received::kNothing:
        return;
      case ControlLink::Received::kMalformed:
        continue;
      case ControlLink::Received::kLost:
        return on_control_lost();
      case ControlLink::Received::kMessage:
        break;
    }
    if (const ControlLink::Ready ready = on_message(m, std::move(file))) ready();
  }
}

// The session goes on: when sluiced's heartbeat is stale the gate counts as open.
void EngineThread::on_control_lost() {
  log::warning("sluiced has closed the control socket");
  std::vector<ControlLink::Ready> refusals;
  {
    std::lock_guard lock(s_.mutex);
    refusals = s_.control.refuse_all();
  }
  for (const auto& refuse : refusals) refuse();
}

ControlLink::Ready EngineThread::on_message(const wp::Message& m, Fd file) {
  switch (m.type) {
    case wp::Type::kLeaseReply: {
      std::lock_guard lock(s_.mutex);
      return s_.control.on_lease_reply(m);
    }
    case wp::Type::kExtentReply: {
      std::lock_guard lock(s_.mutex);
      return s_.control.on_extent_reply(m);
    }
    case wp::Type::kShareReply:
    case wp::Type::kOpenReply: {
      std::lock_guard lock(s_.mutex);
      return s_.control.on_shared_reply(m, std::move(file));
    }
    case wp::Type::kTimeSlice:
      slices_.want(m.bytes);
      return {};
    case wp::Type::kSpin:
      s_.spin_for(static_cast<uint32_t>(m.bytes), static_cast<uint32_t>(m.offset));
      return {};
    case wp::Type::kEnd:
      drain_at_end();
      s_.end(static_cast<CUresult>(m.code), m.text, true);
    default:
      log::warning("unexpected message {} from sluiced", static_cast<uint32_t>(m.type));
      return {};
  }
}

// Contexts without a slice of ours have the driver's own, so that vGPU has another share than it is
// to have: reported once.
void EngineThread::set_time_slice(uint64_t ns) {
  ChannelGroups& groups = ChannelGroups::of_process();
  const size_t set = groups.set_slice(ns);
  if (set != 0 && set == groups.count()) return;
  if (!std::exchange(reports_slices_, false)) return;
  log::warning("vgpu {} slot {}: {} of {} channel groups have taken a time slice of {} us",
               s_.setup.start.vgpu, s_.setup.start.slot, set, groups.count(), ns / 1000);
}

void EngineThread::drain_at_end() {
  const uint64_t until_ns = monotonic_ns() + s_.setup.limits.drain_at_end_ms * 1'000'000;
  for (;;) {
    {
      std::lock_guard lock(s_.mutex);
      StreamEngine& engine = s_.work.engine;
      s_.work.gate.shut();
      engine.poll(monotonic_ns());
      s_.after_engine();
      if (!engine.in_flight() || s_.sticky.load() != 0 || monotonic_ns() >= until_ns) return;
    }
    ::usleep(200);
  }
}

}  // namespace sluice::worker
