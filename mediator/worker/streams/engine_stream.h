// SPDX-License-Identifier: Apache-2.0
// EngineStream: one stream of the program as the stream engine keeps it: its operations, and how
// far the driver has come with them.
//
//   ops   | ended        | issued or passed | held                  |
//         0           `ended`            `next`                ops.size()
//
// Owned by StreamEngine; no lock of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mediator/worker/streams/driver_queue.h"
#include "mediator/worker/streams/engine_driver.h"
#include "mediator/worker/streams/operation.h"

namespace sluice::worker {

struct EngineStream {
  // Whether operations of a stream are submitted.
  //
  //   flowing <--launch in pieces, whole--> open
  //      |  ^                                |  the front launch was evicted
  //      |  +-------- put back <-- draining <-- closing (until the pieces are closed)
  //      +--value wait submitted, complete--> blocked
  enum class Flow : uint8_t { kFlowing, kOpen, kClosing, kDraining, kBlocked };

  StreamId id = 0;
  ContextId context = 0;
  StreamKind kind = StreamKind::kNonBlocking;
  std::deque<Operation> ops;     // not complete; the front is the oldest
  size_t next = 0;               // ops[0..next) are issued or passed
  size_t ended = 0;              // ops[0..ended) have been accounted as ended
  uint32_t launches_issued = 0;  // kLaunch among ops[0..next)
  DriverQueue queue;
  // Of `ops`, by seq: launches; operations that the program has to complete (kHostFunc,
  // kValueWait); waits for recordings that are not complete.
  std::deque<uint64_t> launch_seqs, program_seqs;
  std::deque<std::pair<uint64_t, std::shared_ptr<EventRecord>>> waits;
  Flow flow = Flow::kFlowing;
  uint32_t generation = 0;  // of the newest grant under which something was submitted
  uint64_t retry_ns = 0;    // draining: not put back before this
  bool removed = false;
  bool lingers = false;  // after a failure: launches may still run in the driver's stream
  // lingers, and the driver's stream is gone; its context's end is waited for
  bool drained = false;

  bool open() const { return flow == Flow::kOpen || flow == Flow::kClosing; }
  bool draining() const { return flow == Flow::kDraining || flow == Flow::kClosing; }
  void drain() { flow = open() ? Flow::kClosing : Flow::kDraining; }
};

// All streams of a session. Ordered by id, which is the order of creation: relaunches and tests are
// then deterministic.
struct EngineStreams {
  std::vector<std::unique_ptr<EngineStream>> all;
  std::unordered_map<StreamId, EngineStream*> by_id;
};

}  // namespace sluice::worker
