// SPDX-License-Identifier: Apache-2.0
// Operation: one thing that a program queued in a stream, and how far it has come.
//
// Owned by its Stream in the engine, used under the engine's owner's lock. Calls nothing.
//
//   held ----> submitted ----> ended ----> (complete: leaves its stream)
//    | | |        ^  ^           |
//    | | +-> open-+  +-evicted <-+         open: a launch that is submitted in pieces
//    | |       ^----------'
//    | +----> passed, reached              waits; host functions
//    +------> failed                       the driver refused it; also from evicted
//
// may_become() is the whole table; set_state() checks it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "abi/cuda_driver.h"
#include "mediator/base/check.h"
#include "mediator/worker/streams/gate.h"

namespace sluice::worker {

using StreamId = uint32_t;
using ContextId = uint32_t;

// What an operation does; opaque to the engine. Destroyed when the operation is complete
// and no launch behind it names it as its predecessor any more.
struct Work {
  virtual ~Work() = default;
};

// One recording of an event. `complete` becomes true, once, when everything before it in its stream
// is complete. A CUDA event is the newest of its recordings.
struct EventRecord {
  bool complete = false;
  CUresult status = CUDA_SUCCESS;
  std::vector<uint64_t> waiting;  // tokens to complete with it
  // The recording's place: its stream, and its order of submission in the session. 0: it is no
  // operation of a stream (somebody else completes it).
  StreamId stream = 0;
  uint64_t seq = 0;
};

enum class OpKind {
  kLaunch,     // evictable
  kOpaque,     // a launch that runs to its end once begun
  kWork,       // copy, fill, value write: runs by itself, needs no grant
  kBulk,       // the same with a grant: copies on the device and fills beyond FreeBulk
  kValueWait,  // the driver's stream stops until a word has a value
  kRecord,     // event record
  kWait,       // wait for a recording (never given to the driver)
  kNotify,     // completes when everything before it has; never given to the driver
  kHostFunc,   // the program has to do something before the stream goes on
};

// How a launch is kept to a part of the SMs.
enum class Confinement {
  kNone,      // it runs on any
  kBlocks,    // its blocks check on which SM they are: its SMs may change while it runs
  kHardware,  // by the driver's stream (launch/sms/green_contexts.h), until it has ended
};

enum class OpState : uint8_t {
  kHeld,       // never submitted
  kReached,    // host function: the program was notified and has not answered
  kPassed,     // wait: the recording is complete
  kFailed,     // the driver refused it
  kOpen,       // launch: submitted in part, more pieces follow
  kSubmitted,  // in the driver's queue
  kEnded,      // physical work over; whether the launch is done is asked in stream order
  kEvicted,    // launch: ended with remaining tasks, to be submitted again
};

constexpr bool may_become(OpState from, OpState to) {
  switch (to) {
    case OpState::kHeld:
      return false;
    case OpState::kReached:
    case OpState::kPassed:
      return from == OpState::kHeld;
    case OpState::kFailed:
    case OpState::kOpen:
      return from == OpState::kHeld || from == OpState::kEvicted;
    case OpState::kSubmitted:
      return from == OpState::kHeld || from == OpState::kEvicted || from == OpState::kOpen;
    case OpState::kEnded:
      return from == OpState::kSubmitted;
    case OpState::kEvicted:
      return from == OpState::kEnded;
  }
  return false;
}

// A notification of several streams: complete when all of them have come so far.
struct NotifyGroup {
  uint32_t remaining;
};

// The newest submission of an operation to the driver.
struct Flight {
  uint64_t item = 0;  // place in the driver's queue, from 0
  Confinement confinement = Confinement::kNone;
  Grant grant;                 // the SMs are those where it may be now
  Grant second;                // of its second grid; generation 0: it has none
  std::shared_ptr<Work> pred;  // kept while the submission names it
};

struct Operation {
  OpKind kind;
  OpState state = OpState::kHeld;
  uint64_t seq = 0;  // order of submission in the session
  uint64_t token = 0;
  CUresult status = CUDA_SUCCESS;
  uint32_t futile = 0;  // submissions in a row that ran no task
  std::shared_ptr<Work> work;
  std::shared_ptr<EventRecord> record;
  std::shared_ptr<NotifyGroup> group;
  Flight flight;

  void set_state(OpState to) {
    SLUICE_CHECK(may_become(state, to));
    state = to;
  }
  bool is_launch() const { return kind == OpKind::kLaunch || kind == OpKind::kOpaque; }
  bool needs_grant() const { return is_launch() || kind == OpKind::kBulk; }
  bool in_flight() const { return state == OpState::kOpen || state == OpState::kSubmitted; }
};

}  // namespace sluice::worker
