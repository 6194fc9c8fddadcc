// SPDX-License-Identifier: Apache-2.0
// WorkerSession: the state of a sluice-worker: one guest process's contexts, memory, modules and
// streams, its slot's rings, its gate, and the three threads that serve them.
//
//   decoder  (decoder.h)        takes records, checks them, queues their work; never waits
//   engine   (engine_thread.h)  polls the stream engine when the decoder does not; hears sluiced
//   jobs     (job_queue.h)      makes the driver calls that may take long or have to follow a
//                               synchronisation: module loads, memory, contexts
//
// Its parts are public: the handlers of calls/ and modules/ work on them. One lock (`mutex`) guards
// all parts listed below it. It is held across driver calls that only queue work, never across
// those of the job thread.
//
// The guest is hostile. A CUDA error is answered as CUDA would; a breach of the protocol ends the
// session (end()).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "mediator/core/handles.h"
#include "mediator/gpu/driver_api.h"
#include "mediator/worker/launch/objects.h"
#include "mediator/worker/memory/charges.h"
#include "mediator/worker/memory/control_link.h"
#include "mediator/worker/memory/memory_table.h"
#include "mediator/worker/memory/pinned_memory.h"
#include "mediator/worker/session/answers.h"
#include "mediator/worker/session/decoder.h"
#include "mediator/worker/session/engine_thread.h"
#include "mediator/worker/session/job_queue.h"
#include "mediator/worker/session/pollers.h"
#include "mediator/worker/session/session_setup.h"
#include "mediator/worker/session/slot_header.h"
#include "mediator/worker/session/stream_work.h"

namespace sluice::worker {

// One call of the guest from its record to its answer. Cheap to copy.
struct Call {
  uint64_t call_id = 0;
  uint16_t opcode = 0;
  uint16_t flags = 0;
  bool is_job = false;                     // on the job thread, where the driver may take its time
  std::shared_ptr<ContextObject> context;  // null: none was current
  std::shared_ptr<GreenObject> green;      // of `context`; null: the context itself is current
};

// The contexts that are open.
struct ContextTable {
  std::map<CUdevice, std::shared_ptr<ContextObject>> primary;
  uint32_t open = 0;  // primary ones and others
  ContextId next_id = 1;
};

class WorkerSession : private Charges::Owner {
 public:
  WorkerSession(SessionSetup setup, Decoder::Decode decode);

  // Serves until the session ends; then the process exits, so this does not return.
  [[noreturn]] void run();

  // Ends the session: the slot's header says why, sluiced hears of it (unless it asked), and the
  // process exits. Any thread; the first wins. Does not return.
  [[noreturn]] void end(CUresult code, const std::string& reason, bool asked = false);
  [[noreturn]] void violation(const std::string& what) {
    end(CUDA_ERROR_UNKNOWN, "protocol violation: " + what);
  }

  // Its threads poll for so long before they sleep, from the next time on. Any thread.
  void spin_for(uint32_t calls_us, uint32_t others_us) {
    decoder.spin_for(calls_us, others_us);
    job_spin_us_.store(others_us, std::memory_order_relaxed);
  }

  // --- answers ---
  void answer(const Call& call, CUresult status, std::span<const std::byte> body = {});
  // With `mutex` held: runs `job` on the job thread when all that the context, or every context,
  // has queued is complete.
  void post_after_sync(const std::shared_ptr<ContextObject>& context, std::function<void()> job);
  void post_after_sync_all(std::function<void()> job);
  // With `mutex` held, after a change of the engine's queues: publishes its state, notices a fault,
  // and wakes the thread that would sleep too long for what is now in flight.
  void after_engine();
  // Queues work that is no launch, and answers the call: with `wait` when the work is complete.
  void submit_work(const Call& call, const StreamObject& stream, std::shared_ptr<StreamCall> work,
                   bool wait);
  // With `mutex` held: the device's address of the slot's end word, if the GPU is to write it for
  // one more wait (abi/end_word.h), or 0.
  uint64_t end_word() const;
  // With `mutex` held. 0 and 1: the legacy stream of the call's context, 2: its per-thread stream.
  // Where a green context is current: its default stream, and none.
  std::shared_ptr<StreamObject> find_stream(const Call& call, uint64_t guest_stream,
                                            CUresult* error) const;

  // --- contexts (contexts.cc; job thread, without `mutex`) ---
  CUresult open_context(CUcontext cu, CUdevice device, bool primary,
                        std::shared_ptr<ContextObject>* out);
  void close_context(const std::shared_ptr<ContextObject>& context);
  std::shared_ptr<StreamObject> make_stream(const std::shared_ptr<ContextObject>& context,
                                            StreamKind kind, unsigned guest_flags, int priority,
                                            CUresult* result,
                                            const std::shared_ptr<GreenObject>& green = nullptr);
  // Any context that is open, to make driver calls in that need one; or null. With `mutex` held.
  std::shared_ptr<ContextObject> any_context() const;
  // Pins an extent if a context is open.
  void pin_extent(uint64_t offset, uint64_t bytes);

  // --- memory in the order of streams (stream_memory.cc) ---
  // With `mutex` held: before a launch in `stream` that wants this much local memory a thread.
  // Where sluiced has to be asked first, the stream waits for that; then *grant says how it went.
  void charge_local(StreamObject& stream, uint64_t bytes_per_thread,
                    std::shared_ptr<LocalGrant>* grant);
  // With `mutex` held: memory that its program has freed in the order of this stream stays with the
  // session for a while (FreedMemory). False: it does not.
  bool keep_freed(const Allocation& allocation, const StreamObject& stream);
  // Job thread: gives it back to the driver, as far as no work is queued that uses it. False: there
  // was none.
  bool release_freed();

  // --- for its threads, with `mutex` held ---
  QueueBounds::Queued queued_now() const;
  void charge_held();
  void wake_decoder_if_stopped();

  // --- parts ---
  SessionSetup setup;
  const gpu::DriverApi& api;
  SlotHeader slot;
  Answers answers;
  JobQueue jobs;
  PinnedMemory pinned;         // job thread
  std::atomic<int> sticky{0};  // CUresult that every later call returns

  std::mutex mutex;
  // All under `mutex`, but for what their headers say:
  ControlLink control;
  StreamWork work;
  HandleTable handles;
  MemoryTable memory;
  ContextTable contexts;
  Charges charges;
  Pollers pollers;

  Decoder decoder;
  EngineThread engine_thread;

 private:
  void job_loop();
  void release_old_memory(uint64_t now_ns);  // of `memory.freed`
  void give_back(const std::vector<Allocation>& taken);
  void settle_local(const std::shared_ptr<ContextObject>& context,
                    const std::shared_ptr<LocalGrant>& asked, bool may_ask);
  void send_printed(const Call& call);
  // With `mutex` held: the session's first fault.
  void on_fault(CUresult error);
  struct ContextRemains;
  void forget_handles(ContextObject* context, ContextRemains* remains);
  void forget_context(const std::shared_ptr<ContextObject>& context, ContextRemains* remains);
  CUresult enter_context(const std::shared_ptr<ContextObject>& context, CUresult so_far);
  void make_green_context(const std::shared_ptr<ContextObject>& context);

  void release_freed_memory() override { (void)release_freed(); }
  void on_too_many_parked() override { violation("too many calls wait for memory"); }
  void on_held_answered(bool granted) override;
  void post_job(JobQueue::Job job) override { jobs.post(std::move(job)); }

  std::atomic<uint32_t> job_spin_us_{setup.start.spin_us};
};

}  // namespace sluice::worker
