// SPDX-License-Identifier: Apache-2.0
// EvictForwarder: carries the evict word from the signal page, where sluiced stores it, into device
// memory, for the signals that need it (worker_protocol::Signal: stream write; copy, as FRS has
// it).
//
// One word and one stream of the highest priority for each context. Owned by the session. The
// engine thread calls forward() when sluiced has rung; contexts come and go on the job thread; a
// lock of its own, held only for calls that queue work, keeps an eviction from waiting behind a
// launch being queued. The words are monotone and nothing is ever cleared, so one that comes late
// or twice does no harm. They lie in memory that a kernel of the session could write, as a proxy's
// copy does: a session that keeps itself from leaving is dealt with by sluiced's deadlines.
#pragma once

#include <mutex>
#include <vector>

#include "abi/stub.h"
#include "mediator/core/worker_protocol.h"
#include "mediator/gpu/driver_api.h"

namespace sluice::worker {

class EvictForwarder {
 public:
  EvictForwarder(const gpu::DriverApi& api, worker_protocol::Signal signal,
                 const sluice_signal_page* page)
      : api_(api), signal_(signal), page_(page) {}

  // A context, which is current, has been opened: *word is the evict word as its kernels address
  // it, or 0 if they read the signal page (then nothing is done here). Waits until the word is
  // there.
  CUresult open(CUcontext context, CUdeviceptr* word);
  // Before the context is destroyed. One that was never opened here is ignored.
  void close(CUcontext context);
  // Sends the page's word to every context that has not got it yet. Makes their contexts current.
  void forward();

 private:
  struct Target {
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    CUdeviceptr word = 0;
    uint64_t sent = 0;
  };
  CUresult send(Target& target, uint64_t word);

  const gpu::DriverApi& api_;
  const worker_protocol::Signal signal_;
  const sluice_signal_page* page_;
  std::mutex mutex_;
  std::vector<Target> targets_;
};

}  // namespace sluice::worker
