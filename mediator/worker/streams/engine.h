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
// Orders across streams (event waits, the legacy stream) are kept here, by holding until the other
// side is known to be complete; driver streams are all non-blocking, and no launch is ever queued
// behind a wait in the driver, so evicted launches never wait for held ones.
// What ends without being done is put back, and when everything physical of its stream has ended it
// is issued again, in order, under the generation of the next grant, before any new launch.
//
// Pure logic: no clock (`now_ns` is handed in), no lock (the owner's), no driver (EngineDriver), so
// that tests can evict at every point. Knows nothing of handles, rings and guests.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "abi/cuda_driver.h"
#include "mediator/worker/streams/driver_queue.h"
#include "mediator/worker/streams/gate.h"
#include "mediator/worker/streams/operation.h"

namespace sluice::worker {

enum class StreamKind {
  kLegacy,       // CUDA's NULL stream: ordered against every blocking stream of its context
  kBlocking,     // cuStreamCreate(CU_STREAM_DEFAULT)
  kNonBlocking,  // CU_STREAM_NON_BLOCKING
};

// How a physical launch that has ended left its logical launch.
enum class LaunchEnd {
  kDone,    // every task has run
  kLeft,    // tasks are left
  kStuck,   // tasks are left, none was run, and no eviction asked for that
  kNoRoom,  // the same, of a launch that is kept to a part of the SMs: none of its blocks came
            // there
  kWave,    // tasks are left that found no room on its part of the SMs; the others have run, and
            // nobody asked it to leave
  kFault    // it is unknown; the session's GPU work is over
};

// The driver as the engine sees it. Each call is quick and made under the owner's lock. CUresults
// other than CUDA_SUCCESS: is_sticky() ones end the session's GPU work, others that operation.
class EngineDriver {
 public:
  virtual ~EngineDriver() = default;
  // How `work`, a kLaunch or kOpaque that is given to the driver next, will be kept to the SMs of
  // `grant`.
  virtual Confinement confine(StreamId, OpKind kind, Work&, const Grant& grant, uint64_t now_ns) {
    (void)grant, (void)now_ns;
    return kind == OpKind::kLaunch ? Confinement::kBlocks : Confinement::kNone;
  }
  // A launch of the stream had better be held for a little while: then the hardware will confine
  // it.
  virtual bool wait_for_hardware(StreamId, const Grant& grant, uint64_t now_ns) {
    (void)grant, (void)now_ns;
    return false;
  }
  // Queues a physical launch on the SMs of `grant`. `pred`: its leaders must find this one done
  // before they fetch; null: nothing to wait for. `again`: the logical launch has been queued
  // before.
  virtual CUresult launch(StreamId stream, Work& work, const Grant& grant, const Work* pred,
                          bool again, uint64_t now_ns) = 0;
  // `work`, a kLaunch, is queued piece by piece: after launch() until more() has found it whole
  // nothing may be put behind it, and its stream's end is not its own.
  virtual bool comes_in_pieces(const Work&) const { return false; }
  // `work`'s blocks stay on their SMs until they are evicted, and somebody wants to know that.
  virtual bool stays_on_sms(const Work&) const { return false; }
  // What `work`, a kOpaque, takes on the GPU; 0: not known. And since when the driver has it.
  virtual uint64_t expected_ns(const Work&) const { return 0; }
  virtual uint64_t issued_ns(const Work&) const { return 0; }
  virtual void opaque_ended(Work&, bool contended, uint64_t now_ns) {
    (void)contended, (void)now_ns;
  }
  // Queues what may follow of such a launch. `stop`: nothing does, it ends with what is queued;
  // likewise once its generation has been evicted. *whole: everything that will be is queued.
  virtual CUresult more(StreamId, Work&, bool stop, uint64_t now_ns, bool* whole) {
    (void)stop, (void)now_ns;
    *whole = true;
    return CUDA_SUCCESS;
  }
  // A launch in flight, and a stream that it is in.
  struct Running {
    StreamId stream;
    Work* work;
  };
  // The evict word names SMs that these launches, all of them kept to parts, have to leave, `lost`
  // among them. *left: no block of theirs is on one of `lost`, and none that comes there will begin
  // a task. Called again until it is so.
  virtual CUresult narrow(std::span<const Running>, const SmSet& lost, bool* left) {
    (void)lost, (void)left;
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  // Queues a second grid of `work`, which runs on a part and is the only thing in its stream, so
  // that it goes on on all SMs of `grant`; what comes behind it in the stream waits for both.
  // NOT_SUPPORTED: it cannot be done for this one.
  virtual CUresult grow(StreamId, Work&, const Grant& grant, uint64_t now_ns) {
    (void)grant, (void)now_ns;
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  // Queues anything else that the driver has to see.
  virtual CUresult issue(StreamId stream, OpKind kind, Work& work, uint64_t now_ns) = 0;
  // Marks the end of what is queued in the driver's stream so far.
  virtual CUresult mark(StreamId stream, uint64_t* marker) = 0;
  // CUDA_SUCCESS: reached, and the marker is gone. CUDA_ERROR_NOT_READY: not yet.
  virtual CUresult query(uint64_t marker) = 0;
  // Whether everything that was queued in the driver's stream has ended, pieces too;
  // CUDA_ERROR_NOT_READY: not yet. Other errors: its context is broken, and nothing of it runs.
  virtual CUresult idle(StreamId) { return CUDA_SUCCESS; }
  // `work`'s newest physical launch has ended; is the logical launch done?
  virtual LaunchEnd launch_end(Work& work) = 0;
  // The operation with this token (not 0) is complete. Must not call back into the engine.
  virtual void complete(uint64_t token, CUresult status) = 0;
  // The stream has reached the host function with this token.
  virtual void reached_host_func(uint64_t token) = 0;
  // An asynchronous error of an operation that has no token.
  virtual void async_error(CUresult status) = 0;
  // A removed stream has nothing left in it.
  virtual void drained(StreamId stream) = 0;
};

// Errors after which the context is of no more use: CUDA returns them from every later call.
bool is_sticky(CUresult result);

struct EngineLimits {
  // Physical launches and operations queued in one driver stream. Deep enough to hide a completion
  // poll behind running work; each evicted launch in it costs an empty launch (about 3 us).
  uint32_t stream_depth = 64;
  // A marker covers at most so many operations, so that the queue is refilled before it runs dry.
  uint32_t marker_interval = 8;
  // Opaque launches in flight while nobody waits. While somebody does: one, or as many as are
  // expected to take so long together.
  uint32_t opaque_depth = 32;
  uint64_t opaque_contended_ns = 0;
  // kStuck in a row before a launch counts as failed. Should not happen at all; without the limit a
  // kernel that forges its control block would be relaunched for ever.
  uint32_t futile_launches = 100;
  // After kNoRoom the launch is tried again so much later, twice that after the next, and so on:
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
  // Is everything queued so far complete?
  bool idle(StreamId stream) const;

  // The program has done its host function. False: no such function is waiting.
  bool host_func_done(uint64_t token, uint64_t now_ns);

  // Collects what has ended, puts back what was evicted, submits what may go. Called by the
  // completion thread after gate changes and while anything is in flight.
  void poll(uint64_t now_ns);

  // A sticky error: everything queued completes with it, nothing is accepted any more. What the
  // driver still runs in any stream or context stays in flight to the gate until the driver says
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
  // Launches that are not done and that the GPU alone can bring about: not those behind a host
  // function or a value that the program has still to provide. It is what the gate reports as
  // demand, so that a vGPU whose program withholds an answer holds no GPU.
  uint32_t runnable() const;
  size_t queued() const { return queued_; }
  const Counters& counters() const { return counters_; }

 private:
  using Op = Operation;
  using State = OpState;
  // Whether operations of a stream are submitted.
  //
  //   flowing <--launch in pieces, whole--> open
  //      |  ^                                |  the front launch was evicted
  //      |  +-------- put back <-- draining <-- closing (until the pieces are closed)
  //      +--value wait submitted, complete--> blocked
  enum class Flow : uint8_t { kFlowing, kOpen, kClosing, kDraining, kBlocked };
  struct Stream {
    StreamId id = 0;
    ContextId context = 0;
    StreamKind kind = StreamKind::kNonBlocking;
    std::deque<Op> ops;            // not complete; the front is the oldest
    size_t next = 0;               // ops[0..next) are issued or passed
    size_t ended = 0;              // ops[0..ended) have been accounted as ended
    uint32_t launches_issued = 0;  // kLaunch among ops[0..next)
    DriverQueue queue;
    // Of `ops`, by seq: launches; operations that the program has to complete (kHostFunc,
    // kValueWait); waits for recordings that are not complete.
    std::deque<uint64_t> launch_seqs, program_seqs;
    std::deque<std::pair<uint64_t, std::shared_ptr<EventRecord>>> waits;
    Flow flow = Flow::kFlowing;
    uint64_t retry_ns = 0;  // draining: not put back before this
    bool removed = false;
    bool lingers = false;  // after a failure: launches may still run in the driver's stream
    bool open() const { return flow == Flow::kOpen || flow == Flow::kClosing; }
    bool draining() const { return flow == Flow::kDraining || flow == Flow::kClosing; }
    void drain() { flow = open() ? Flow::kClosing : Flow::kDraining; }
    bool drained =
        false;  // lingers, and the driver's stream is gone; its context's end is waited for
  };

  Op& append(Stream& s, OpKind kind, std::shared_ptr<Work> work, uint64_t token);
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
  bool may_submit(const Stream& s, const Op& op) const;
  bool enter_gate(Stream& s, Op& op, uint64_t now_ns);
  CUresult to_driver(Stream& s, Op& op, bool* pieces, uint64_t now_ns);
  CUresult launch(Stream& s, Op& op, bool* pieces, uint64_t now_ns);
  void submitted(Stream& s, Op& op, bool pieces, CUresult status, uint64_t now_ns);
  void put_back(Stream& s);
  void finish(Stream& s, CUresult status);
  void issue_failed(Op& op, CUresult status, uint64_t now_ns);
  // streams/demand.cc
  void demand_appended(Stream& s, const Op& op);
  void demand_finished(Stream& s, const Op& op);
  void update_demand();
  std::map<const Stream*, uint64_t> first_stalled() const;
  void linger(uint64_t now_ns);
  void change_sms(uint64_t now_ns);
  bool grow(Stream& s, Op& op, const Grant& to, uint64_t now_ns);
  uint32_t how_kept() const;
  bool opaque_may_go(const Work& work) const;
  uint64_t opaque_ns(const Work& work) const;

  EngineDriver& driver_;
  Gate& gate_;
  EngineLimits limits_;
  // Ordered by id, which is the order of creation: relaunches and tests are then deterministic.
  std::vector<std::unique_ptr<Stream>> streams_;
  std::unordered_map<StreamId, Stream*> by_id_;
  StreamId next_stream_ = 1;
  uint64_t next_seq_ = 1;
  size_t queued_ = 0;
  uint64_t physical_ = 0;
  uint32_t pacing_ = 0;  // streams that are open
  uint32_t launches_queued_ = 0;
  uint32_t program_ops_ = 0;   // in all streams' program_seqs
  bool demand_stale_ = false;  // the gate's demand has to be counted anew
  uint32_t lingering_ = 0;
  uint32_t opaque_in_flight_ = 0;
  uint64_t opaque_expected_ns_ = 0;  // of them together (opaque_ns)
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
