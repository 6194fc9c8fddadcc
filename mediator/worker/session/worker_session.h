// SPDX-License-Identifier: Apache-2.0
// WorkerSession: all that a sluice-worker is: one guest process's contexts, memory, modules and
// streams, its slot's rings, its gate, and the three threads that serve them.
//
//   decoder  takes records from the submit ring, checks them, and queues what they ask for. It
//            never waits for the GPU, the driver's compiler, sluiced or the program. While it is
//            awake, or work is in flight, it also polls the stream engine.
//   engine   polls the stream engine otherwise; relaunches when a gate opens or changes; reads the
//            control socket.
//   jobs     makes the driver calls that may take long or have to follow a synchronisation: module
//            loads, memory, contexts.
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
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "abi/channel.h"
#include "abi/stub.h"
#include "mediator/base/fd.h"
#include "mediator/core/handles.h"
#include "mediator/core/worker_protocol.h"
#include "mediator/gpu/driver_api.h"
#include "mediator/ring/ring.h"
#include "mediator/ring/wait.h"
#include "mediator/ring/wait_forecast.h"
#include "mediator/worker/launch/cuda_streams.h"
#include "mediator/worker/launch/evict_forwarder.h"
#include "mediator/worker/launch/objects.h"
#include "mediator/worker/process/printed.h"
#include "mediator/worker/process/slice_setter.h"
#include "mediator/worker/session/control_link.h"
#include "mediator/worker/session/freed_memory.h"
#include "mediator/worker/session/held_memory.h"
#include "mediator/worker/session/job_queue.h"
#include "mediator/worker/session/memory_table.h"
#include "mediator/worker/session/pinned_memory.h"
#include "mediator/worker/session/replies.h"
#include "mediator/worker/session/shared_memory.h"
#include "mediator/worker/session/sleeper.h"
#include "mediator/worker/session/waiting_calls.h"
#include "mediator/worker/streams/engine.h"
#include "mediator/worker/streams/free_bulk.h"
#include "mediator/worker/streams/gate.h"

namespace sluice::worker {

// What a worker may hold for its guest in its own memory. Each bounds a queue that the guest fills.
struct SessionLimits {
  size_t queued_operations = 1u << 16;  // in streams; the decoder stops taking records at it ...
  // ... unless a host function waits: then the program is asked to stop. If it does not, the
  // session ends here.
  size_t hard_operations = 1u << 18;
  size_t jobs = 256;                     // for the job thread; the decoder stops taking records
  size_t parked_calls = 4096;            // that wait for streams, leases or extents; more end it
  uint64_t module_bytes = 256ull << 20;  // of one module's text
  uint32_t contexts = 8;                 // each costs hundreds of MB on a real GPU
  // A session that is asked to end while launches are in flight first waits so long for their ends:
  // one may be about to fault, which stops the GPU (146 to 151 ms on an H100) and would not be
  // known of. Shorter: guests hide their faults by leaving; longer: programs that are interrupted
  // in a long kernel hold what they have for so much longer.
  uint64_t drain_at_end_ms = 200;
  // Without sluiced nobody reports the program's end. One that asks for nothing for so long, while
  // nothing of it runs, is taken for ended, and its memory comes free.
  uint64_t orphan_ms = 60'000;
};

// What came with Start, mapped.
struct SessionSetup {
  worker_protocol::Start start;
  Fd control;
  std::vector<Fd> fds;  // by worker_protocol::StartFd
  void* region = nullptr;
  const sluice_host_page* host = nullptr;
  const sluice_signal_page* signal = nullptr;
  sluice_report_header* report = nullptr;
  sluice_launch_records* records = nullptr;  // the only one that kernels may write
  gpu::DriverApi api;
  Fd printed;  // Printed::capture()'s
};

// One call of the guest from its record to its answer. Cheap to copy.
struct Call {
  uint64_t call_id = 0;
  uint16_t opcode = 0;
  uint16_t flags = 0;
  bool is_job = false;                     // on the job thread, where the driver may take its time
  std::shared_ptr<ContextObject> context;  // null: none was current
  std::shared_ptr<GreenObject> green;      // of `context`; null: the context itself is current
};

// The body of a record that is not done at once. It counts among what the session has queued.
class KeptBody {
 public:
  KeptBody(std::atomic<uint64_t>& queued_bytes, std::span<const std::byte> body)
      : queued_bytes_(queued_bytes), bytes_(body.begin(), body.end()) {
    queued_bytes_ += bytes_.size();
  }
  ~KeptBody() { queued_bytes_ -= bytes_.size(); }
  KeptBody(const KeptBody&) = delete;
  KeptBody& operator=(const KeptBody&) = delete;
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::atomic<uint64_t>& queued_bytes_;
  const std::vector<std::byte> bytes_;
};

// The contexts that are open.
struct ContextTable {
  std::map<CUdevice, std::shared_ptr<ContextObject>> primary;
  uint32_t open = 0;  // primary ones and others
  ContextId next_id = 1;
};

class WorkerSession {
 public:
  // Decodes one record, whose body is a private copy: calls/decode.cc.
  using Decode = void (*)(WorkerSession&, const sluice_record&, std::span<const std::byte> body);

  WorkerSession(SessionSetup setup, SessionLimits limits, Decode decode);

  // Serves until the session ends; then the process exits, so this does not return.
  void run();

  // Ends the session: the slot's header says why, sluiced hears of it (unless it asked), and the
  // process exits. Any thread; the first wins. Does not return.
  [[noreturn]] void end(CUresult code, const std::string& reason, bool asked = false);
  [[noreturn]] void violation(const std::string& what) {
    end(CUDA_ERROR_UNKNOWN, "protocol violation: " + what);
  }

  // --- answers ---
  void answer(const Call& call, CUresult status, std::span<const std::byte> body = {});
  // With `mutex` held: runs `job` on the job thread when all that the context, or every context,
  // has queued is complete.
  void post_after_sync(const std::shared_ptr<ContextObject>& context, std::function<void()> job);
  void post_after_sync_all(std::function<void()> job);
  // With `mutex` held, after the engine was given something: publishes its state, notices a fault,
  // and wakes whoever sleeps too long for what is now under way.
  void after_engine();
  // Queues what is no launch, and answers the call: with `wait` when it is complete.
  void submit_work(const Call& call, const StreamObject& stream, std::shared_ptr<Work> work,
                   bool wait);
  // With `mutex` held: asks the program for the clones of this function, as far as it knows them.
  void want_clones(uint64_t function);
  // With `mutex` held: the device's address of the slot's end word, if the GPU is to write it for
  // one more wait (abi/end_word.h), or 0.
  uint64_t end_word() const;
  // Decoder: the GPU is going to write this there.
  void expect_word(uint32_t guest_word) { expected_word_ = guest_word, looks_behind_word_ = 0; }
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

  // --- charges (charges.cc) ---
  // Calls `then(true)` with so much charged, or `then(false)` with nothing: at once, or on the job
  // thread when sluiced has answered. Without `mutex`.
  void with_device_memory(uint64_t bytes, ChargeKind kind, std::function<void(bool charged)> then);
  void with_host_memory(uint64_t bytes, std::function<void(bool charged)> then);
  // Leave to load a module, where that is paced.
  void with_leave_to_load(std::function<void(bool given)> then);
  // With `mutex` held: asks sluiced for more; `then` runs on the engine thread.
  void ask_lease(uint64_t lacking, std::function<void(bool granted)> then,
                 worker_protocol::Resource resource = worker_protocol::kDeviceMemory);
  // With `mutex` held: releases what was charged, of the module or context but for allocations.
  void release_device(uint64_t charged, ChargeKind kind = ChargeKind::kAllocations) {
    control.release_device(charged, kind);
  }
  // The same of an allocation, which others may have opened.
  void release_allocation(const Allocation& a);
  void release_module(ModuleObject& m);
  void release_context(ContextObject& c);
  // With `mutex` held: before a launch in `stream` that wants so much local memory a thread. Where
  // sluiced has to be asked first, the stream waits for that; then *grant says how it went.
  void charge_local(StreamObject& stream, uint64_t bytes_per_thread,
                    std::shared_ptr<LocalGrant>* grant);
  // With `mutex` held: memory that its program has freed in the order of this stream stays with the
  // session for a while (FreedMemory). False: it does not.
  bool keep_freed(const Allocation& allocation, const StreamObject& stream);
  // Job thread: gives it back to the driver, as far as no work is queued that uses it. False: there
  // was none.
  bool release_freed();
  // With `mutex` held, now and then: charges what the session holds by now, or gives back.
  void charge_held();
  // With `mutex` held. True: nothing that is kept in the worker is to be made.
  bool held_is_refused() const { return held_.refused(); }
  // What `limit` takes in the context beyond its value at first; max: more than there can be.
  static uint64_t limit_bytes(const ContextObject& c, CUlimit limit, uint64_t value);

  // --- parts ---
  SessionSetup setup;
  const SessionLimits limits;
  const gpu::DriverApi& api;
  uint8_t* const region;
  Replies replies;
  Printed printed;
  JobQueue jobs;
  PinnedMemory pinned;  // job thread
  // sluiced's answer to the call that the job thread makes again (calls/ipc_calls.cc); job thread.
  struct SharedReply {
    worker_protocol::Message message;
    std::shared_ptr<Fd> file;
  };
  std::optional<SharedReply> shared_reply;
  std::atomic<int> sticky{0};  // CUresult that every later call returns
  // Parameters of launches that are not done, bodies of calls that wait.
  std::atomic<uint64_t> queued_bytes{0};
  std::atomic<uint32_t> textures{0};  // of all contexts
  EvictForwarder forwarder;

  std::mutex mutex;
  // All under `mutex`:
  ControlLink control;
  Gate gate;
  CudaStreams streams;
  StreamEngine engine;
  FreeBulk free_bulk;
  HandleTable handles;
  MemoryTable memory;
  FreedMemory freed;
  SharedMemory shared;
  ContextTable contexts;
  WaitingCalls waiting;

 private:
  // --- decoder (decoder_thread.cc) ---
  void decoder_loop();
  // Whether the guest has queued as much as it may. Its records then stay in its ring.
  bool queues_full();
  // With `mutex` held: at so many in the streams the decoder stops taking records.
  size_t most_operations() const;
  // With `mutex` held: so many parts `of` what the streams may hold are taken.
  bool streams_full(uint32_t part, uint32_t of) const;
  // With `mutex` held, while a host function waits for the program: why no more may; empty: it may.
  std::string too_much_waits(size_t queued) const;
  void wake_decoder_if_stopped();
  // Spins for a record, and for ends of launches that somebody waits for, as long as that is likely
  // to pay. False: time to sleep.
  bool spin(Spinner& records, Spinner& ends, Spinner& gates);
  // The program will know of the end by its word, or has just done so: nobody waits for the engine.
  bool word_tells(uint32_t looks);
  // Polls the stream engine; whether anything completed. Cheap while nothing is in flight.
  bool poll_engine();
  // Sleeps until it is woken; polls now and then while work is in flight. Returns for how long, ns.
  bool poll_to_the_end(uint64_t* sleep_ns);
  uint64_t decoder_sleep();
  // The decoder is about to sleep for so long (0: it is back). `polls`: it polls the engine.
  void set_decoder(bool polls, uint64_t sleep_ns);

  // --- engine and jobs (engine_thread.cc) ---
  void engine_loop();
  struct Quiet {
    uint64_t records = 0, since_ns = 0;  // so many records were taken, and no more since then
  };
  void end_if_quiet(bool busy, Quiet& quiet);
  void job_loop();
  void release_old_memory(uint64_t now_ns);  // of `freed`
  void give_back(const std::vector<Allocation>& taken);
  // With `mutex` held: how long to sleep when the sleep before was `last_ns`. Polls back off while
  // nothing completes.
  uint64_t back_off(uint64_t last_ns, bool progress) const;
  void publish_counters();
  // With `mutex` held: when what somebody waits for is expected to end; 0: not known.
  uint64_t expected_end_ns() const;
  void follow_waits();
  void follow_hold();  // with `mutex` held: asks the program to stop, or lets it go on
  void on_control();
  // Nothing new is launched; waits for what is on the GPU, if that is soon, and reports its faults.
  void drain_at_end();
  void set_time_slice(uint64_t ns);  // on the thread of slices_

  // --- others ---
  void send_printed(const Call& call);
  void send_text(const std::string& text, sluice_printed_to to);  // with `printed_mutex_` held

  CUresult enter_context(const std::shared_ptr<ContextObject>& context, CUresult so_far);
  void make_green_context(const std::shared_ptr<ContextObject>& context);
  // With `mutex` held: charges a pool's growth to its context. False: not now; sluiced is asked for
  // later.
  bool pay_pool(ContextObject& c, uint64_t bytes);
  void settle_local(const std::shared_ptr<ContextObject>& context,
                    const std::shared_ptr<LocalGrant>& asked, bool may_ask);

  const Decode decode_;
  sluice_slot_header* const slot_;
  RingConsumer submit_;
  std::mutex printed_mutex_;                            // taken last: pieces of text stay in order
  uint32_t expected_word_ = 0, looks_behind_word_ = 0;  // decoder; 0: none
  Sleeper decoder_, engine_thread_sleeper_;
  // While the decoder is awake, or something is in flight, it polls the engine, and the engine
  // thread is left asleep: waking it costs the decoder more than a launch, and on two processors it
  // would run in somebody's way. Under `mutex`.
  bool decoder_polls_ = true;
  bool says_slices_ = true;        // not yet that slices were not taken; the thread of slices_
  bool pool_lease_asked_ = false;  // a lease for pools is asked for; under `mutex`
  HeldMemory held_;                // under `mutex`
  uint32_t records_to_held_look_ = kRecordsPerHeldLook;  // decoder
  uint32_t wants_ = 0;                                   // calls of want_clones(); under `mutex`
  bool holds_program_ = false;                           // slot_->hold; under `mutex`
  std::atomic<uint64_t> records_decoded_{0};
  std::atomic<bool> decoder_stopped_{false};  // queues_full()
  // As of the last poll: work is in flight; somebody waits for an end that is near.
  std::atomic<bool> in_flight_{false}, end_is_near_{false}, at_gate_{false};
  std::atomic<uint64_t> expected_end_ns_{0};  // of what somebody waits for; 0: not known
  // How long waits take, and since when there is one; 0: there is none. Under `mutex`.
  WaitForecast waits_;
  uint64_t wait_began_ns_ = 0;
  std::atomic<bool> ended_{false};
  std::thread engine_thread_, job_thread_;
  SliceSetter slices_{[this](uint64_t ns) { set_time_slice(ns); }};
};

}  // namespace sluice::worker
