// SPDX-License-Identifier: Apache-2.0
// EngineThread: the session's thread that polls the stream engine when the decoder does not
// (pollers.h), relaunches when the gate opens or changes, brings evictions to contexts, and reads
// sluiced's messages. When sluiced is gone it ends the session once the program has asked for
// nothing for long.
//
// Owned by the WorkerSession. loop() is the thread; `forwarder` as its header says.
#pragma once

#include <cstdint>

#include "mediator/core/worker_protocol.h"
#include "mediator/worker/launch/evict_forwarder.h"
#include "mediator/worker/memory/control_link.h"
#include "mediator/worker/process/slice_setter.h"

namespace sluice::worker {

class WorkerSession;
struct SessionSetup;

class EngineThread {
 public:
  EngineThread(WorkerSession& session, const SessionSetup& setup);

  [[noreturn]] void loop();

  EvictForwarder forwarder;

 private:
  struct Quiet {
    uint64_t records = 0, since_ns = 0;  // this many records were taken, and no more since then
  };
  void end_if_quiet(bool busy, Quiet& quiet);
  // Polls once, and says how long to sleep. `sleep_ns`: of the sleep before. True: work is queued.
  bool poll(bool gate_changed, uint64_t* sleep_ns);
  void on_control();
  void on_control_lost();
  // What waits for the message, to be called without the session's lock; empty: nothing does.
  ControlLink::Ready on_message(const worker_protocol::Message& message, Fd file);
  // Nothing new is launched; waits for what is on the GPU, if that is soon, and reports its faults.
  void drain_at_end();
  void set_time_slice(uint64_t ns);  // on the thread of slices_

  WorkerSession& s_;
  uint64_t last_sleep_ns_, progress_ = 0;
  bool reports_slices_ = true;  // not yet that slices were not taken; the thread of slices_
  SliceSetter slices_{[this](uint64_t ns) { set_time_slice(ns); }};
};

}  // namespace sluice::worker
