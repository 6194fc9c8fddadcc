// SPDX-License-Identifier: Apache-2.0
// StreamWork: what a program has queued in its streams, from the operation that is submitted to the
// answer of the call that waits for it.
//
//   submitted --> engine: the stream rule --gate open--> streams: the driver --> polled as complete
//                                                                                      |
//   answered  <-- waiting: the calls that wait for it  <-------------------------------+
//
// `queued` bounds it, `outlook` is what the decoder knows of it without the lock. After each change
// of the engine's queues WorkerSession::after_engine() is called.
//
// Owned by the WorkerSession, used under its lock, but for `outlook`, `queued.bytes` and
// gate.word().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "abi/stub.h"
#include "mediator/worker/launch/cuda_streams.h"
#include "mediator/worker/launch/objects.h"
#include "mediator/worker/session/answers.h"
#include "mediator/worker/session/outlook.h"
#include "mediator/worker/session/queue_bounds.h"
#include "mediator/worker/session/session_setup.h"
#include "mediator/worker/session/waiting_calls.h"
#include "mediator/worker/streams/engine.h"
#include "mediator/worker/streams/free_bulk.h"
#include "mediator/worker/streams/gate.h"

namespace sluice::worker {

class StreamWork {
 public:
  // `setup` outlives this.
  StreamWork(const SessionSetup& setup, Answers& answers);

  Gate gate;
  CudaStreams streams;
  StreamEngine engine;
  WaitingCalls waiting;
  QueueBounds queued;
  Outlook outlook;

  // What is no launch. `token` (0: none) is completed with it.
  void submit(const StreamObject& stream, std::shared_ptr<StreamCall> work, uint64_t token);
  // Once all that the context has queued is complete, or has failed.
  void when_done(const ContextObject& context, WaitingCalls::Then then);

  // How long to sleep when the sleep before was `last_ns`. Polls back off while nothing completes.
  uint64_t back_off(uint64_t last_ns, bool progressed);
  // While work is in flight: for how long its poller sleeps at most. Longer than some time only if
  // nothing has happened since back_off() said so.
  uint64_t longest_sleep_ns() const;
  // Changes with whatever happens.
  uint64_t progress() const;
  // After a poll: `outlook`, and the chain that the launches form, as of now.
  void follow();
  void publish_counters(sluice_report_header& report);

 private:
  uint64_t next_sleep_ns(uint64_t last_ns, bool progressed) const;

  FreeBulk free_bulk_;
  uint64_t sleep_ns_ = 0, slept_at_ = 0;  // of back_off() last: its answer, and progress()
};

}  // namespace sluice::worker
