// SPDX-License-Identifier: Apache-2.0
// EngineDriver: the driver as the stream engine sees it (launch/cuda_streams.h; tests have their
// own). Implemented by one object per session and called under its lock.
#pragma once

#include <cstdint>
#include <span>

#include "abi/cuda_driver.h"
#include "mediator/base/sm_set.h"
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
  // How `work`, a kLaunch, kOpaque or kBulk that is given to the driver next, will be kept to the
  // SMs of `grant`.
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
  // These, of one stream and in its order, are known to have ended, all at once.
  virtual void opaque_ended(StreamId, std::span<Work* const>, bool contended, uint64_t now_ns) {
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
  // Has the GPU write `value` behind what is queued in the driver's stream so far: a word that only
  // the program relies on. False: it cannot be.
  virtual bool write_end_word(StreamId, uint64_t address, uint32_t value) {
    (void)address, (void)value;
    return false;
  }
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

}  // namespace sluice::worker
