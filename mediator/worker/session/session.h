// Session: all that a sluice-worker is: one guest process's contexts, memory, modules and streams,
// its slot's rings, its gate, and the three threads that serve them.
//
//   decoder  takes records from the submit ring, checks them, and queues what they ask for. It
//   never
//            waits for the GPU, the driver's compiler, sluiced or the program.
//            It also drives the stream engine while work is in flight, unless it has to stop
//            reading.
//   engine   drives the stream engine otherwise, when a gate opens (relaunches) or moves, and reads
//   the
//            control socket.
//   jobs     makes the driver calls that may take long or have to follow a synchronisation: module
//            loads, memory, contexts.
// One lock (mutex_) guards tables and engine; it is held across driver calls that only queue work,
// never across those of the job thread. The guest is hostile: what it gets wrong in CUDA's terms it
// is told as CUDA would; what breaks the protocol ends the session (end()).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "abi/channel.h"
#include "abi/stub.h"
#include "mediator/base/fd.h"
#include "mediator/base/result.h"
#include "mediator/base/virtual_ranges.h"
#include "mediator/core/allocations.h"
#include "mediator/core/handles.h"
#include "mediator/core/quota_lease.h"
#include "mediator/core/worker_protocol.h"
#include "mediator/gpu/driver_api.h"
#include "mediator/ring/ring.h"
#include "mediator/ring/wait.h"
#include "mediator/worker/launch/cuda_streams.h"
#include "mediator/worker/launch/evict_forwarder.h"
#include "mediator/worker/launch/objects.h"
#include "mediator/worker/process/printed.h"
#include "mediator/worker/session/replies.h"
#include "mediator/worker/streams/engine.h"
#include "mediator/worker/streams/gate.h"

namespace sluice::worker {

// What a worker may hold for its guest in its own memory. Each bounds a queue that the guest fills.
struct SessionLimits {
  size_t queued_operations = 1u << 16;   // in streams; the decoder stops taking records at it ...
  size_t hard_operations = 1u << 18;     // ... unless a host function waits; here the session ends
  size_t jobs = 256;                     // for the job thread; the decoder stops taking records
  size_t parked_calls = 4096;            // that wait for streams, leases or extents; more end it
  uint64_t module_bytes = 256ull << 20;  // of one module's text
  uint32_t contexts = 8;                 // each costs hundreds of MB on a real GPU
  // A session that is asked to end while launches are in flight first waits so long for their ends:
  // one may be about to fault, which stops the GPU (146 to 151 ms on an H100) and would not be
  // known of. Shorter: guests hide their faults by leaving; longer: programs that are interrupted
  // in a long kernel hold what they have for so much longer.
  uint64_t see_out_ms = 200;
  // Without sluiced nobody says that the program has ended. One that asks for nothing for so long,
  // while nothing of it runs, is taken for ended, and its memory comes free.
  uint64_t orphan_ms = 60'000;
};

// What came with Start, mapped.
struct SessionParts {
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
  std::shared_ptr<ContextObject> context;  // null: none was current
};

class Session {
 public:
  explicit Session(SessionParts parts, SessionLimits limits = {});

  // Serves until the session ends; then the process exits, so this returns only in tests.
  void run();

  // Ends the session: the slot's header says why, sluiced hears of it (unless it asked), and the
  // process exits. Any thread; the first wins. Does not return.
  [[noreturn]] void end(CUresult code, const std::string& reason, bool asked = false);

 private:
  friend struct GenericCalls;

  // --- threads (session/threads.cc) ---
  void decoder_loop();
  void engine_loop();
  void job_loop();
  void post(std::function<void()> job);
  bool decoder_must_wait();
  void wake_decoder();
  // The decoder: looks out for a record, and for ends of launches, as long as that is likely to
  // pay. False: time to sleep.
  bool look_out(Spinner& records, Spinner& ends);
  // The decoder: drives the stream engine; whether it got on. Cheap while nothing is in flight.
  bool drive_engine();
  // The decoder: sleeps on its bell and `decoder_wake_`; meanwhile it looks for ends of launches
  // now and then while any are in flight. Returns how long it slept, in ns.
  uint64_t decoder_sleep();
  // The decoder is about to sleep for so long (0: it is back). `drives`: it looks after the engine.
  void set_decoder(bool drives, uint64_t sleep_ns);
  // With mutex_ held: how long to sleep now that nothing has ended for `nap_ns`.
  uint64_t next_nap(uint64_t nap_ns, bool got_on) const;
  // With mutex_ held, after the engine was given something: takes notice of a fault, and wakes the
  // engine thread if it sleeps too long for what is now under way.
  void after_engine();

  // --- control socket (session/session.cc) ---
  void send(worker_protocol::Message message);
  void on_control();
  void see_out();
  void on_lease_reply(const worker_protocol::Message& m);
  void on_extent_reply(const worker_protocol::Message& m);

  // --- decoding (calls/decode.cc) ---
  void decode(const sluice_record& record, std::span<const std::byte> body);
  void decode_generic(Call call, std::span<const std::byte> body);
  void decode_custom(Call call, std::span<const std::byte> body);
  void module_load(Call call, std::span<const std::byte> body);
  void function_get(Call call, std::span<const std::byte> body);
  void launch(Call call, std::span<const std::byte> body);
  void copy(Call call, std::span<const std::byte> body);
  void memset(Call call, std::span<const std::byte> body);
  void synchronize(Call call, std::span<const std::byte> body);
  void query(Call call, std::span<const std::byte> body);
  void event_record(Call call, std::span<const std::byte> body);
  void stream_wait(Call call, std::span<const std::byte> body);
  void stream_value(Call call, std::span<const std::byte> body);
  void host_func(Call call, std::span<const std::byte> body);
  void host_func_done(Call call, std::span<const std::byte> body);
  void extent_alloc(Call call, std::span<const std::byte> body);
  void extent_free(Call call, std::span<const std::byte> body);
  void run_generic(const Call& call, std::span<const std::byte> body);

  // --- modules (modules/load.cc; job thread) ---
  void load_module(const Call& call, std::string ptx, uint32_t log_bytes);
  void load_charged(const Call& call, const std::string& ptx, uint32_t log_bytes, uint64_t charged,
                    uint64_t once, uint64_t host);
  void get_function(const Call& call, uint64_t guest_module, const std::string& name,
                    uint32_t guest_flags, uint32_t state_bytes);

  // --- contexts (session/contexts.cc; job thread) ---
  CUresult open_context(CUcontext cu, CUdevice device, bool primary,
                        std::shared_ptr<ContextObject>* out);
  void close_context(const std::shared_ptr<ContextObject>& context);
  void make_green_context(const std::shared_ptr<ContextObject>& context);
  std::shared_ptr<StreamObject> make_stream(const std::shared_ptr<ContextObject>& context,
                                            StreamKind kind, unsigned guest_flags, int priority,
                                            CUresult* result);
  CUresult register_pages(ContextObject& c);
  void register_region(uint64_t offset, uint64_t bytes);

  // --- charges (session/charges.cc) ---
  // Calls `then(true)` with so much charged, or `then(false)` with nothing: at once, or on the job
  // thread when sluiced has answered. Without mutex_.
  void with_device_memory(uint64_t bytes, ChargeKind kind, std::function<void(bool charged)> then);
  void with_host_memory(uint64_t bytes, std::function<void(bool charged)> then);
  // With mutex_ held: gives back what the module or the context is charged, but for allocations.
  void release_module(ModuleObject& m);
  void release_context(ContextObject& c);
  // With mutex_ held: before a launch in `stream` that wants so much local memory a thread. Where
  // sluiced has to be asked first, the stream waits for that; then *grant says how it went.
  void charge_local(StreamObject& stream, uint64_t bytes_per_thread,
                    std::shared_ptr<LocalGrant>* grant);
  // With mutex_ held: charges a pool's growth to its context. False: not now; sluiced is asked for
  // later.
  bool pay_pool(ContextObject& c, uint64_t bytes);
  void settle_local(const std::shared_ptr<ContextObject>& context,
                    const std::shared_ptr<LocalGrant>& asked, bool may_ask);
  // What `limit` takes in the context beyond its value at first; max: more than there can be.
  static uint64_t limit_bytes(const ContextObject& c, CUlimit limit, uint64_t value);

  // --- helpers ---
  void answer(const Call& call, CUresult status, std::span<const std::byte> body = {});
  void send_printed(const Call& call);
  // With mutex_ held: a token whose completion runs `then` (under mutex_; it must not use the
  // engine).
  uint64_t park(std::function<void(CUresult)> then);
  void on_complete(uint64_t token, CUresult status);
  // With mutex_ held: runs `job` on the job thread when all that the context has queued is
  // complete.
  void post_after_sync(const std::shared_ptr<ContextObject>& context, std::function<void()> job);
  void post_after_sync_all(std::function<void()> job);
  // With mutex_ held: asks sluiced for more device memory; `then` runs on the engine thread.
  void ask_lease(uint64_t lacking, std::function<void(bool granted)> then,
                 worker_protocol::Resource resource = worker_protocol::kDeviceMemory);
  // With mutex_ held. 0 and 1: the legacy stream of the call's context, 2: its per-thread stream.
  std::shared_ptr<StreamObject> find_stream(const Call& call, uint64_t guest_stream,
                                            CUresult* error) const;
  bool owns_range(uint64_t guest_address, uint64_t guest_bytes) const;
  bool owns_region(uint64_t guest_offset, uint64_t guest_bytes) const;
  bool owns_device_rows(uint64_t address, uint64_t width, uint64_t pitch, uint64_t rows) const;
  void return_lease(uint64_t charged, ChargeKind kind = ChargeKind::kAllocations);
  void return_host_memory(uint64_t charged);
  [[noreturn]] void violation(const std::string& what) {
    end(CUDA_ERROR_UNKNOWN, "protocol violation: " + what);
  }
  SessionParts p_;
  const SessionLimits limits_;
  const gpu::DriverApi& api_;
  uint8_t* const region_;
  sluice_slot_header* const slot_;
  RingConsumer submit_;
  Replies replies_;
  Printed printed_;
  std::mutex printed_mutex_;  // taken last: pieces of text stay in order
  Fd decoder_wake_, engine_wake_;

  std::mutex mutex_;
  // All under mutex_:
  Gate gate_;
  EvictForwarder forwarder_;  // has a lock of its own
  CudaStreams streams_;
  StreamEngine engine_;
  HandleTable handles_;
  AllocationMap allocations_;
  VirtualRanges<std::shared_ptr<MemoryObject>> virtual_;
  QuotaLease quota_;       // device memory
  QuotaLease host_quota_;  // memory of the host
  std::map<CUdevice, std::shared_ptr<ContextObject>> primary_;
  uint32_t contexts_open_ = 0;
  ContextId next_context_ = 1;
  std::map<uint64_t, uint64_t> extents_;     // offset -> bytes, of the region: the session's
  std::map<uint64_t, uint64_t> registered_;  // offset -> bytes: pinned with the driver
  std::unordered_map<uint64_t, std::function<void(CUresult)>> parked_;
  uint64_t next_token_ = 1;
  std::unordered_map<uint64_t, uint64_t> host_funcs_;  // call id -> token
  struct LeaseWaiter {
    worker_protocol::Resource resource = worker_protocol::kDeviceMemory;
    uint64_t asked = 0, lacking = 0;
    std::function<void(bool granted)> then;
  };
  std::unordered_map<uint64_t, LeaseWaiter> lease_waiters_;
  bool pool_asked_ = false;  // a lease for pools is asked for
  std::unordered_map<uint64_t, Call> extent_waiters_;
  uint64_t next_request_ = 1;
  bool pages_registered_ = false;
  // While the decoder is awake, or something is in flight, it drives the engine, and the engine
  // thread is left asleep: waking it costs the decoder more than a launch, and on two processors it
  // would run in somebody's way.
  bool decoder_drives_ = true;
  // How long either is about to sleep (ns; 0: awake; max: until it is woken), and whether it was
  // woken.
  uint64_t decoder_sleep_ns_ = 0, engine_sleep_ns_ = 0;
  bool decoder_kicked_ = false, engine_kicked_ = false;

  std::atomic<uint64_t> queued_bytes_{0};  // parameters of launches that are not done
  std::atomic<int> sticky_{0};             // CUresult that every later call returns
  std::atomic<bool> sluiced_gone_{false};
  std::atomic<uint64_t> records_{0};  // decoded; the decoder's
  std::atomic<bool> decoder_waits_{false};
  // As of the last look: engine_.in_flight(); and whether somebody waits for what will end soon.
  std::atomic<bool> in_flight_{false}, end_is_near_{false};
  std::mutex job_mutex_;
  std::condition_variable job_ready_;
  std::deque<std::function<void()>> jobs_;
  void* zeros_ = nullptr;  // ControlPool's, mapped and registered once
  std::atomic<bool> ended_{false};
  std::mutex end_mutex_;
  std::thread engine_thread_, job_thread_;
};

}  // namespace sluice::worker
