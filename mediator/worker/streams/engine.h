// SPDX-License-Identifier: Apache-2.0
// StreamEngine: what a session's CUDA streams have queued, and when each of it may go to the
// driver, so that evicting a launch in the middle never lets anything behind it run too early.
//
// The rule (docs/internals/life-of-a-launch.md). To the program a stream is CUDA's: in order, the
// legacy stream ordered against the blocking ones. To the driver a stream is a queue of *physical*
// work into which the engine puts
//  - consecutive evictable launches eagerly, each naming its predecessor (`pred`): should that one
//    have been evicted, the ones behind leave at once without running a task;
//  - everything else (copies, events, opaque launches, ...) only when every evictable launch before
//    it in the stream is known to be done, because it cannot check a predecessor; behind it
//    launches may be queued again at once, since the driver's own order keeps them behind it.
// Orders across streams (event waits, the legacy stream) are kept here: work is held until what it
// follows is known to be complete. Driver streams are non-blocking, and no launch is ever queued
// behind a wait in the driver, so evicted launches never wait for held ones.
// A launch that ends without being done is put back. When all physical work of its stream has ended
// it is issued again, in order, under the generation of the next grant, before any new launch.
//
// Pure logic: no clock (`now_ns` is handed in), no lock (the owner's), no driver (EngineDriver), so
// that tests can evict at every point. Knows nothing of handles, rings and guests.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "abi/cuda_driver.h"
#include "mediator/worker/streams/demand.h"
#include "mediator/worker/streams/engine_driver.h"
#include "mediator/worker/streams/engine_stream.h"
#include "mediator/worker/streams/gate.h"
#include "mediator/worker/streams/opaque_limit.h"
#include "mediator/worker/streams/operation.h"
#include "mediator/worker/streams/slice_queue.h"

namespace sluice::worker {

struct EngineLimits {
  // Physical launches and operations queued in one driver stream. Deep enough to hide a completion
  // poll behind running work; each evicted launch in it costs an empty launch (about 3 us).
  uint32_t stream_depth = 64;
  // A marker covers at most this many operations, so that the queue is refilled before it runs dry.
  uint32_t marker_interval = 16;
  // Opaque launches in flight while nobody waits. While somebody does: one, or as many as are
  // expected to take `opaque_contended_ns` together. With that at 0, 50 ms from a new grant, too:
  // two, or as many as end within 2 ms (slice_queue.h). Else a vGPU that pauses for less than 1 ms
  // would wait for all that are queued meanwhile.
  uint32_t opaque_depth = 32;
  bool slices = false;  // contexts share by time slices: slice_queue.h
  uint64_t opaque_contended_ns = 0;
  // ... or two, when the first is expected to end within this; 0: one. Shorter: the GPU pauses
  // until the engine has seen the end; longer: an eviction more often finds two.
  uint64_t opaque_lead_ns = 0;
  // kStuck in a row before a launch counts as failed. Should not happen at all; without the limit a
  // kernel that forges its control block would be relaunched without end.
  uint32_t futile_launches = 100;
  // After kNoRoom the launch is tried again this much later, twice that after the next, and so on:
  // its SMs are full of what its own vGPU runs in other streams. Shorter: more launches for
  // nothing.
  uint64_t retry_first_ns = 50'000;
  uint64_t retry_most_ns = 2'000'000;
  // Launches in flight that stay where they are while their session's SMs change; with more they
  // are called back. Each costs the driver some calls, about as much as issuing it again.
  uint32_t most_kept = 16;
};

class StreamEngine {
 public:
  struct Counters {
    uint64_t launches = 0;  // logical, evictable and opaque
    uint64_t launches_done = 0;
    uint64_t evictions = 0;   // launches that ran and ended before they were done
    uint64_t relaunches = 0;  // physical launches after the first
    uint64_t opaque = 0;
    uint64_t narrowed = 0;  // changes of the SMs under which launches stayed
    uint64_t grown = 0;     // second grids
  };

  StreamEngine(EngineDriver& driver, Gate& gate, EngineLimits limits = {});

  StreamId add_stream(ContextId context, StreamKind kind);
  // Nothing more will be submitted; what is queued still runs. driver.drained() follows.
  void remove_stream(StreamId stream);

  // Queues an operation. `token` 0: nobody waits for this one.
  void submit(StreamId stream, OpKind kind, std::shared_ptr<Work> work, uint64_t token,
              uint64_t now_ns);
  // kRecord: returns the recording. `work` is handed to driver.issue.
  std::shared_ptr<EventRecord> submit_record(StreamId stream, std::shared_ptr<Work> work,
                                             uint64_t now_ns);
  // The stream goes on when `record` is complete (null: an event never recorded; no wait).
  void submit_wait(StreamId stream, std::shared_ptr<EventRecord> record, uint64_t now_ns);

  // Completes `token` when everything queued so far in the stream, the context, or for the
  // recording is complete; possibly before it returns.
  void notify_stream(StreamId stream, uint64_t token, uint64_t now_ns);
  void notify_context(ContextId context, uint64_t token, uint64_t now_ns);
  void notify_record(const std::shared_ptr<EventRecord>& record, uint64_t token);
  // For a call that waits for the stream, or for the context, before notify_*(): the GPU writes
  // `value` when everything queued so far has ended. Only if all of it is in one stream and in the
  // driver's queue, and none of it can be evicted or has failed; otherwise false, and nothing
  // happens. Once the word is written, poll() finds all of it complete.
  bool write_end_word(StreamId stream, uint64_t address, uint32_t value, uint64_t now_ns);
  bool write_end_word_of_context(ContextId context, uint64_t address, uint32_t value,
                                 uint64_t now_ns);
  // Is everything queued so far complete?
  bool idle(StreamId stream) const;

  // The program has done its host function. False: no such function is waiting.
  bool host_func_done(uint64_t token, uint64_t now_ns);

  // Collects what has ended, puts back what was evicted, submits what may go. Called by the
  // completion thread after gate changes and while anything is in flight.
  void poll(uint64_t now_ns);

  // A sticky error: everything queued completes with it, nothing is accepted any more. What the
  // driver still runs in any stream or context stays in flight to the gate until the driver reports
  // that it has ended.
  void fail(CUresult error, uint64_t now_ns);
  // After a failure, around the end of a context: nothing is asked about its streams any more; with
  // it all has ended.
  void context_ends(ContextId context);
  void context_gone(ContextId context, uint64_t now_ns);
  CUresult error() const { return error_; }

  // Something is in the driver's queues: poll soon. Otherwise the gate or the program is waited
  // for. True while a launch waits to be tried again, or waits for the hardware.
  bool in_flight() const {
    return physical_ != 0 || lingering_ != 0 || retrying_ || waits_for_hardware_;
  }
  // A launch in flight is queued piece by piece: poll within some microseconds.
  bool pacing() const { return pacing_ != 0; }
  // A launch waits for the gate.
  bool held_by_gate() const { return held_by_gate_; }
  // When all that a stream has in the driver's queue is expected to have ended, of the streams the
  // first; 0: not known.
  uint64_t expected_end_ns() const;
  // A host function waits for the program.
  bool waits_for_program() const { return host_funcs_waiting_ != 0; }
  // Launches that are not done and that the GPU alone can bring about (Demand).
  uint32_t runnable() const { return demand_.runnable(streams_); }
  size_t queued() const { return queued_; }
  const Counters& counters() const { return counters_; }

 private:
  using Op = Operation;
  using State = OpState;
  using Stream = EngineStream;
  using Flow = EngineStream::Flow;
  Op& append(Stream& s, OpKind kind, std::shared_ptr<Work> work, uint64_t token, uint64_t now_ns);
  Stream& at(StreamId id);
  bool clear_across(const Stream& s, uint64_t seq) const;
  bool collect(Stream& s, uint64_t now_ns);
  bool retire(Stream& s, uint64_t now_ns);
  bool advance(Stream& s, bool relaunches_only, uint64_t now_ns);
  void settle(uint64_t now_ns);
  void mark_if_due(Stream& s, uint64_t now_ns, bool at_once = false);
  bool feed(Stream& s, uint64_t now_ns);
  bool launch_over(Stream& s, Op& op, uint64_t now_ns);
  void reach(Op& op);
  bool may_submit(const Stream& s, const Op& op, uint64_t now_ns);
  bool may_go_unasked(const Op& op) const;
  bool enter_gate(Stream& s, Op& op, uint64_t now_ns);
  CUresult to_driver(Stream& s, Op& op, bool* pieces, uint64_t now_ns);
  CUresult launch(Stream& s, Op& op, bool* pieces, uint64_t now_ns);
  void submitted(Stream& s, Op& op, bool pieces, CUresult status, uint64_t now_ns);
  void put_back(Stream& s);
  bool ends_with_queue(const Stream& s) const;
  void finish(Stream& s, CUresult status, uint64_t now_ns);
  void issue_failed(Op& op, CUresult status, uint64_t now_ns);
  void linger(uint64_t now_ns);
  void change_sms(uint64_t now_ns);
  bool grow(Stream& s, Op& op, const Grant& to, uint64_t now_ns);
  uint32_t how_kept() const;

  EngineDriver& driver_;
  Gate& gate_;
  EngineLimits limits_;
  EngineStreams streams_;
  Demand demand_;
  OpaqueLimit opaque_;
  SliceQueue slice_queue_;   // instead of opaque_ on time slices; beside it where the GPU is whole
  uint32_t seen_grant_ = 0;  // the generation that it last heard of there
  OpaqueLimit bulk_;         // the same of kBulk: a kernel may wait for a copy
  StreamId next_stream_ = 1;
  uint64_t next_seq_ = 1;
  size_t queued_ = 0;
  std::vector<Work*> originals_;  // collect()'s own
  uint64_t physical_ = 0;
  uint32_t pacing_ = 0;  // streams that are open
  uint32_t lingering_ = 0;
  uint32_t host_funcs_waiting_ = 0;
  bool held_by_gate_ = false;
  bool retrying_ = false;
  bool waits_for_hardware_ = false;
  bool settling_ = false;
  CUresult error_ = CUDA_SUCCESS;
  CUresult pending_error_ = CUDA_SUCCESS;  // sticky, met while walking the streams
  Counters counters_;
};

}  // namespace sluice::worker
