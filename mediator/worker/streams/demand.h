// SPDX-License-Identifier: Apache-2.0
// Demand: how many launches can run without the program's help. The gate reports it to sluiced.
//
// A launch is stalled if the program has to do something first: an operation before it, in its
// stream or in one that it is ordered behind, is a host function or a wait for a value, and not
// complete. Only the others are reported. Otherwise a program that withholds an answer would count
// as backlogged, and hold its share of the GPU idle.
//
// Counted incrementally while no operation needs the program; otherwise recounted by update().
//
// Owned by StreamEngine; no lock of its own.
#pragma once

#include <cstdint>
#include <map>

#include "mediator/worker/streams/engine_stream.h"
#include "mediator/worker/streams/gate.h"

namespace sluice::worker {

class Demand {
 public:
  explicit Demand(Gate& gate) : gate_(gate) {}

  void appended(EngineStream& s, const Operation& op, uint64_t now_ns);
  // A stream waits for a recording: what is behind it may be stalled now.
  void wait_appended() { stale_ = program_ops_ != 0; }
  // `op` was the oldest of its stream.
  void finished(EngineStream& s, const Operation& op, uint64_t now_ns);
  uint32_t runnable(const EngineStreams& streams) const;
  void update(const EngineStreams& streams, uint64_t now_ns);

 private:
  static std::map<const EngineStream*, uint64_t> first_stalled(const EngineStreams& streams);

  Gate& gate_;
  uint32_t launches_ = 0;
  uint32_t program_ops_ = 0;  // in all streams' program_seqs
  bool stale_ = false;        // the gate's demand has to be recounted
};

}  // namespace sluice::worker
