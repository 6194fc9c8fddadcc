// SPDX-License-Identifier: Apache-2.0
// The decoder: takes records, and polls for ends of launches between them.
#include <sys/prctl.h>

#include <algorithm>

#include "abi/end_word.h"
#include "mediator/base/clock.h"
#include "mediator/base/peer_socket.h"
#include "mediator/worker/limits.h"
#include "mediator/worker/session/polling.h"
#include "mediator/worker/session/worker_session.h"

namespace sluice::worker {

namespace wp = worker_protocol;

namespace {
// Records decoded in a row before the engine is polled, and polls of the ring between two polls of
// the engine: an event query costs some 0.1 us, on a real GPU up to 1 us.
constexpr uint32_t kRecordsPerPoll = 16;
constexpr uint32_t kRingPollsPerPoll = 8;
// Who waits for an end asks for nothing meanwhile. Only where there are processors to spare: a spin
// of so many polls offers its own seldom.
constexpr uint32_t kRingPollsNearEnd = 1;
// Where the program's wait ends by a word of the GPU's: the engine is polled seldom before it is
// there, since a fault writes none, and then first of all the next record is expected. The question
// that finds an end takes the driver more than a microsecond, which a record would wait for.
constexpr uint32_t kRingPollsBeforeWord = 64, kRingPollsBehindWord = 32;
// What the shortest sleep and waking from it add on a virtual machine, where a timer is slow.
constexpr uint64_t kSleepCostNs = 80'000;
}  // namespace

void WorkerSession::decoder_loop() {
  // A sleep's length is given to the microsecond; the default slack would add 50.
  ::prctl(PR_SET_TIMERSLACK, 1000);
  RecordBuffer record;
  Spinner records(setup.start.spin_us), ends(Spinner::longest_us()), gates(Spinner::longest_us());
  for (uint32_t n = 1;; ++n) {
    if (const char* why = replies.failure()) violation(why);
    if (queues_full()) {
      set_decoder(false, kForeverNs);
      pollfd fds[] = {{decoder_.bell(), POLLIN, 0}};
      sleep_on(fds, 1, kForeverNs);
      drain_eventfd(decoder_.bell());
      set_decoder(true, 0);
      continue;
    }
    switch (submit_.pop(record)) {
      case Pop::kRecord:
        records_decoded_.store(records_decoded_.load(std::memory_order_relaxed) + 1,
                               std::memory_order_relaxed);
        decode_(*this, record.record(), record.body());
        // A program that never pauses must not keep its own launches from being refilled.
        if (n % kRecordsPerPoll == 0) {
          if (replies.waiting()) replies.flush();
          poll_engine();
        }
        break;
      case Pop::kBroken:
        violation(submit_.broken_reason());
      case Pop::kEmpty: {
        if (replies.waiting()) replies.flush();
        if (spin(records, ends, gates)) break;
        if (!submit_.arm()) break;
        replies.arm();
        const uint64_t slept_ns = decoder_sleep();
        records.slept(slept_ns);
        ends.found_after(slept_ns - std::min(slept_ns, kSleepCostNs));
        replies.disarm();
        submit_.disarm();
        break;
      }
    }
  }
}

bool WorkerSession::spin(Spinner& records, Spinner& ends, Spinner& gates) {
  uint32_t polls = 0;
  const auto poll_ring = [&] {
    if (submit_.readable()) return true;
    const bool near = Spinner::may_spin_for_long() && end_is_near_.load(std::memory_order_relaxed);
    if (near && word_tells(polls)) return ++polls, false;
    if (++polls % (near ? kRingPollsNearEnd : kRingPollsPerPoll) == 0) poll_engine();
    return false;
  };
  // What it has just decoded may wait for the gate: sluiced has been rung, and answers by the word.
  if (at_gate_.load(std::memory_order_relaxed)) {
    const uint64_t closed = gate.word();
    if (gates.spin([&] { return submit_.readable() || gate.word() != closed; }) &&
        gate.word() != closed)
      poll_engine();
  }
  if (records.spin(poll_ring)) return true;
  // The end that somebody waits for is found here sooner than by the engine thread.
  while (end_is_near_.load(std::memory_order_relaxed)) {
    bool progress = false;
    const auto poll = [&] {
      return submit_.readable() || (!word_tells(++polls) && (progress |= poll_engine()));
    };
    if (!ends.spin(poll)) return false;
    if (submit_.readable()) return true;
  }
  return false;
}

// The word lies where the program, too, can write it. It tells nothing but when to poll.
bool WorkerSession::word_tells(uint32_t looks) {
  if (expected_word_ == 0 || (gate.word() & SLUICE_GRANT_CONTENDED) != 0) return false;
  const uint64_t at = sluice_end_word_offset(setup.start.staging_offset, setup.start.staging_bytes);
  const auto& word = *reinterpret_cast<const uint32_t*>(region + at);
  if (load_shared(word) != expected_word_) return looks % kRingPollsBeforeWord != 0;
  if (++looks_behind_word_ < kRingPollsBehindWord) return true;
  expected_word_ = 0;
  return false;
}

bool WorkerSession::poll_engine() {
  if (!in_flight_.load(std::memory_order_relaxed) && !at_gate_.load(std::memory_order_relaxed))
    return false;
  std::unique_lock lock(mutex, std::try_to_lock);
  if (!lock) return false;  // another thread polls
  const size_t before = engine.queued();
  engine.poll(monotonic_ns());
  after_engine();
  return engine.queued() != before;
}

// The end of what somebody waits for is expected at a known time: no sleep goes on beyond it, and
// around it the engine is polled. It may come earlier, so sleeps are no longer than otherwise.
// True: the program asks for something.
bool WorkerSession::poll_to_the_end(uint64_t* sleep_ns) {
  const uint64_t end_ns = expected_end_ns_.load(std::memory_order_relaxed);
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

uint64_t WorkerSession::decoder_sleep() {
  pollfd fds[] = {{setup.fds[wp::kBellFd].get(), POLLIN, 0}, {decoder_.bell(), POLLIN, 0}};
  const uint64_t from = monotonic_ns();
  uint64_t sleep_ns = 0;
  bool progress = true;
  while ((fds[0].revents | fds[1].revents) == 0) {
    if (in_flight_.load(std::memory_order_relaxed)) {
      {
        std::lock_guard lock(mutex);
        sleep_ns = back_off(sleep_ns, progress);
      }
      if (poll_to_the_end(&sleep_ns)) return monotonic_ns() - from;
      set_decoder(true, sleep_ns);
      sleep_on(fds, 2, sleep_ns);
      set_decoder(true, 0);
      progress = poll_engine();
    } else {
      set_decoder(false, kForeverNs);
      sleep_on(fds, 2, kForeverNs);
      set_decoder(true, 0);
      break;
    }
  }
  const uint64_t slept_ns = monotonic_ns() - from;
  drain_eventfd(fds[0].fd);
  drain_eventfd(fds[1].fd);
  return slept_ns;
}

void WorkerSession::set_decoder(bool polls, uint64_t sleep_ns) {
  std::lock_guard lock(mutex);
  decoder_polls_ = polls;
  decoder_.about_to_sleep(sleep_ns);
  if (sleep_ns != 0) after_engine();
}

size_t WorkerSession::most_operations() const {
  return held_.refused() ? kRefusedOperations : limits.queued_operations;
}

bool WorkerSession::streams_full(uint32_t part, uint32_t of) const {
  return engine.queued() >= most_operations() / of * part ||
         queued_bytes >= kQueuedParameterBytes / of * part;
}

std::string WorkerSession::too_much_waits(size_t queued) const {
  if (held_.refused())
    return "what waits for a host function takes more of the host's memory than the vGPU has left "
           "(vgpu.host_memory)";
  if (queued >= limits.hard_operations)
    return "more than " + std::to_string(limits.hard_operations) +
           " operations wait for a host function";
  if (queued_bytes >= kMostParameterBytes)
    return "parameters that wait for a host function take more than " +
           std::to_string(kMostParameterBytes >> 20) + " MiB";
  return "";
}

bool WorkerSession::queues_full() {
  {
    std::lock_guard lock(mutex);
    const size_t queued = engine.queued();
    if (held_.refused() || --records_to_held_look_ == 0) {
      charge_held();
      records_to_held_look_ = kRecordsPerHeldLook;
    }
    if (waiting.calls() >= limits.parked_calls)
      end(CUDA_ERROR_OUT_OF_MEMORY,
          "more than " + std::to_string(limits.parked_calls) + " calls wait for their answers");
    if (streams_full(1, 1)) {
      if (!engine.waits_for_program()) {
        decoder_stopped_.store(true);
        return true;
      }
      // What a host function waits for may stand behind these records: they have to be read.
      if (const std::string why = too_much_waits(queued); !why.empty())
        end(CUDA_ERROR_OUT_OF_MEMORY, why);
    }
  }
  return jobs.full(limits.jobs, [this] { decoder_stopped_.store(true); });
}

void WorkerSession::wake_decoder_if_stopped() {
  if (decoder_stopped_.exchange(false)) decoder_.wake();
}

}  // namespace sluice::worker
