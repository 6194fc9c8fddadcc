// SPDX-License-Identifier: Apache-2.0
// Decoder: the session's thread that takes records from the submit ring, checks them, and queues
// their work. It never waits for the GPU, the driver's compiler, sluiced or the program.
// While it is awake, or work is in flight, it also polls the stream engine (pollers.h).
//
//   records in the ring   decoded, one after the other
//   none                  spins for one, for ends that somebody waits for, and for the gate; then
//                         sleeps, and polls now and then while work is in flight
//   queues are full       sleeps until something has completed (queue_bounds.h)
//
// Owned by the WorkerSession. loop() is the thread; expect_word() is called on it by the handlers
// of calls/; records() any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "abi/wire.h"
#include "mediator/ring/ring.h"
#include "mediator/ring/wait.h"
#include "mediator/worker/limits.h"
#include "mediator/worker/session/end_word.h"

namespace sluice::worker {

class WorkerSession;
struct SessionSetup;

class Decoder {
 public:
  // Decodes one record, whose body is a private copy: calls/decode.cc.
  using Decode = void (*)(WorkerSession&, const sluice_record&, std::span<const std::byte> body);

  Decoder(WorkerSession& session, const SessionSetup& setup, Decode decode);

  [[noreturn]] void loop();

  // The GPU is going to write this to the end word.
  void expect_word(uint32_t guest_word) { end_word_.expect(guest_word); }
  // The end word's address, which the device has, too; 0: there is none.
  uint64_t end_word() const { return end_word_.address(); }
  // It polls this long for the program's next call, and for an end that is waited for, from the
  // next time on. Any thread.
  void spin_for(uint32_t calls_us, uint32_t ends_us) {
    call_spin_us_.store(calls_us, std::memory_order_relaxed);
    end_spin_us_.store(ends_us, std::memory_order_relaxed);
  }
  // Records taken so far.
  uint64_t records() const { return records_.load(std::memory_order_relaxed); }

 private:
  void take(const RecordBuffer& record);
  // Whether the program has queued as much as it may. Its records then stay in its ring.
  bool queues_full();
  // Spins for a record, and for ends of launches that somebody waits for, as long as that is likely
  // to pay. False: time to sleep.
  bool spin();
  // The program has seen the end in its word, so that no call waits for the engine's poll.
  bool word_tells(uint32_t poll);
  // Polls the stream engine; whether anything completed. Cheap while nothing is in flight.
  bool poll_engine();
  // Polls until the end that a call waits for, if that is due within the sleep; otherwise shortens
  // the sleep to before it. True: a record has come.
  bool poll_to_the_end(uint64_t* sleep_ns);
  // Sleeps until it is woken; polls now and then while work is in flight. Returns for how long, ns.
  uint64_t sleep();
  void sleep_until_resumed();
  // It is about to sleep for `sleep_ns` (0: it is awake). `polls`: it polls the engine.
  void about_to_sleep(bool polls, uint64_t sleep_ns);

  WorkerSession& s_;
  const Decode decode_;
  RingConsumer submit_;
  EndWord end_word_;
  Spinner for_records_, for_ends_, for_gates_;
  std::atomic<uint32_t> call_spin_us_, end_spin_us_;
  uint32_t budget_us_, end_budget_us_;  // for_records_'s, for_ends_'s
  std::atomic<uint64_t> records_{0};
  uint32_t records_to_held_look_ = kRecordsPerHeldLook;
};

}  // namespace sluice::worker
