// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/session/decoder.h"

#include <sys/prctl.h>

#include <algorithm>

#include "mediator/base/clock.h"
#include "mediator/base/peer_socket.h"
#include "mediator/worker/session/polling.h"
#include "mediator/worker/session/worker_session.h"

namespace sluice::worker {

namespace wp = worker_protocol;

namespace {
// Records decoded in a row before the engine is polled, and polls of the ring between two polls of
// the engine: an event query costs some 0.1 us, on a real GPU up to 1 us.
constexpr uint32_t kRecordsPerPoll = 16;
constexpr uint32_t kRingPollsPerPoll = 8;
// A program that waits for an end makes no calls meanwhile. Only where there are processors to
// spare: a spin with this few polls rarely yields its own.
constexpr uint32_t kRingPollsNearEnd = 1;
// The shortest sleep and wake-up on a virtual machine, whose timers are slow.
constexpr uint64_t kSleepCostNs = 80'000;
}  // namespace

Decoder::Decoder(WorkerSession& session, const SessionSetup& setup, Decode decode)
    : s_(session),
      decode_(decode),
      submit_(submit_ring(setup.region, setup.start.slot),
              Bell::for_eventfd(setup.fds[wp::kWakeFd].get()), true, GiveBack::kLate),
      end_word_(setup.region, setup.start.staging_offset, setup.start.staging_bytes),
      for_records_(setup.start.call_spin_us),
      for_ends_(std::max(Spinner::longest_us(), setup.start.spin_us)),
      for_gates_(Spinner::longest_us()),
      call_spin_us_(setup.start.call_spin_us),
      end_spin_us_(setup.start.spin_us),
      budget_us_(setup.start.call_spin_us),
      end_budget_us_(setup.start.spin_us) {}

void Decoder::loop() {
  // A sleep's length is given to the microsecond; the default slack would add 50.
  ::prctl(PR_SET_TIMERSLACK, 1000);
  RecordBuffer record;
  Replies& replies = s_.answers.replies;
  for (uint32_t n = 1;; ++n) {
    if (const char* why = replies.failure()) s_.violation(why);
    if (queues_full()) {
      sleep_until_resumed();
      continue;
    }
    switch (submit_.pop(record)) {
      case Pop::kRecord:
        take(record);
        // A program that never pauses must not keep its own launches from being refilled.
        if (n % kRecordsPerPoll == 0) {
          if (replies.waiting()) replies.flush();
          poll_engine();
        }
        break;
      case Pop::kBroken:
        s_.violation(submit_.broken_reason());
      case Pop::kEmpty: {
        if (replies.waiting()) replies.flush();
        if (spin()) break;
        if (!submit_.arm()) break;
        replies.arm();
        const uint64_t slept_ns = sleep();
        for_records_.slept(slept_ns);
        for_ends_.found_after(slept_ns - std::min(slept_ns, kSleepCostNs));
        replies.disarm();
        submit_.disarm();
        break;
      }
    }
  }
}

void Decoder::take(const RecordBuffer& record) {
  records_.store(records() + 1, std::memory_order_relaxed);
  decode_(s_, record.record(), record.body());
}

bool Decoder::spin() {
  const Outlook& outlook = s_.work.outlook;
  uint32_t polls = 0;
  const auto poll_ring = [&] {
    if (submit_.readable()) return true;
    const bool near = Spinner::may_spin_for_long() && outlook.end_is_near();
    if (near && word_tells(polls)) return ++polls, false;
    if (++polls % (near ? kRingPollsNearEnd : kRingPollsPerPoll) == 0) poll_engine();
    return false;
  };
  // What it has just decoded may wait for the gate: sluiced has been rung, and answers by the word.
  if (outlook.at_gate()) {
    const uint64_t closed = s_.work.gate.word();
    if (for_gates_.spin([&] { return submit_.readable() || s_.work.gate.word() != closed; }) &&
        s_.work.gate.word() != closed)
      poll_engine();
  }
  if (const uint32_t us = call_spin_us_.load(std::memory_order_relaxed); us != budget_us_)
    for_records_.set_budget(budget_us_ = us);
  if (const uint32_t us = end_spin_us_.load(std::memory_order_relaxed); us != end_budget_us_)
    for_ends_.set_budget(std::max(Spinner::longest_us(), end_budget_us_ = us));
  if (for_records_.spin(poll_ring)) return true;
  // The end that somebody waits for is found here sooner than by the engine thread.
  while (outlook.end_is_near()) {
    bool progress = false;
    const auto poll = [&] {
      return submit_.readable() || (!word_tells(++polls) && (progress |= poll_engine()));
    };
    if (!for_ends_.spin(poll)) return false;
    if (submit_.readable()) return true;
  }
  return false;
}

bool Decoder::word_tells(uint32_t poll) {
  return (s_.work.gate.word() & SLUICE_GRANT_CONTENDED) == 0 && end_word_.tells(poll);
}

bool Decoder::poll_engine() {
  if (!s_.work.outlook.in_flight() && !s_.work.outlook.at_gate()) return false;
  std::unique_lock lock(s_.mutex, std::try_to_lock);
  if (!lock) return false;  // another thread polls
  const size_t before = s_.work.engine.queued();
  s_.work.engine.poll(monotonic_ns());
  s_.after_engine();
  return s_.work.engine.queued() != before;
}

// The end may come earlier than it is due, so sleeps are no longer than otherwise.
bool Decoder::poll_to_the_end(uint64_t* sleep_ns) {
  const uint64_t end_ns = s_.work.outlook.end_ns();
  if (end_ns == 0) return false;
  uint64_t now_ns = monotonic_ns();
  if (now_ns + kBeforeEndNs < end_ns) {
    *sleep_ns = std::min(*sleep_ns, end_ns - kBeforeEndNs - now_ns);
    return false;
  }
  for (; now_ns < end_ns + kAfterEndNs; now_ns = monotonic_ns()) {
    if (submit_.readable()) return true;
    if (poll_engine()) return false;
  }
  return false;
}

uint64_t Decoder::sleep() {
  pollfd fds[] = {{s_.setup.fds[wp::kBellFd].get(), POLLIN, 0},
                  {s_.pollers.decoder.bell(), POLLIN, 0}};
  const uint64_t from = monotonic_ns();
  uint64_t sleep_ns = 0;
  bool progress = true;
  while ((fds[0].revents | fds[1].revents) == 0) {
    if (s_.work.outlook.in_flight()) {
      {
        std::lock_guard lock(s_.mutex);
        sleep_ns = s_.work.back_off(sleep_ns, progress);
      }
      if (poll_to_the_end(&sleep_ns)) return monotonic_ns() - from;
      about_to_sleep(true, sleep_ns);
      sleep_on(fds, 2, sleep_ns);
      about_to_sleep(true, 0);
      progress = poll_engine();
    } else {
      about_to_sleep(false, kForeverNs);
      sleep_on(fds, 2, kForeverNs);
      about_to_sleep(true, 0);
      break;
    }
  }
  const uint64_t slept_ns = monotonic_ns() - from;
  drain_eventfd(fds[0].fd);
  drain_eventfd(fds[1].fd);
  return slept_ns;
}

void Decoder::sleep_until_resumed() {
  about_to_sleep(false, kForeverNs);
  pollfd fds[] = {{s_.pollers.decoder.bell(), POLLIN, 0}};
  sleep_on(fds, 1, kForeverNs);
  drain_eventfd(fds[0].fd);
  about_to_sleep(true, 0);
}

void Decoder::about_to_sleep(bool polls, uint64_t sleep_ns) {
  std::lock_guard lock(s_.mutex);
  s_.pollers.decoder_sleeps(polls, sleep_ns);
  if (sleep_ns != 0) s_.after_engine();
}

bool Decoder::queues_full() {
  const SessionLimits& limits = s_.setup.limits;
  QueueBounds& bounds = s_.work.queued;
  {
    std::lock_guard lock(s_.mutex);
    if (s_.charges.held_is_refused() || --records_to_held_look_ == 0) {
      s_.charge_held();
      records_to_held_look_ = kRecordsPerHeldLook;
    }
    if (s_.work.waiting.calls() >= limits.parked_calls)
      s_.end(CUDA_ERROR_OUT_OF_MEMORY,
             "more than " + std::to_string(limits.parked_calls) + " calls wait for their answers");
    const QueueBounds::Queued queued = s_.queued_now();
    if (bounds.full(queued)) {
      if (!queued.waits_for_program) {
        bounds.stop_decoder();
        return true;
      }
      // What a host function waits for may stand behind these records: they have to be read.
      if (const std::string why = bounds.breach(queued); !why.empty())
        s_.end(CUDA_ERROR_OUT_OF_MEMORY, why);
    }
  }
  return s_.jobs.full(limits.jobs, [&] { bounds.stop_decoder(); });
}

}  // namespace sluice::worker
