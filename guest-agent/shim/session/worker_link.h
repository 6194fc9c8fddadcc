// SPDX-License-Identifier: Apache-2.0
// The process's session with its worker: sends calls, collects completions.
//
// One per process, made by the first successful cuInit and never destroyed (programs call CUDA from
// their last destructors; when the process ends, its socket closes and the host frees everything).
// Any thread may call anything. Two locks, never held together with a third of ours:
//   submit: orders the records of all threads in the submit ring
//   complete: the table of outstanding calls
// Completions come in any order. Of the threads that wait, one leads: it spins, sleeps, takes
// completions out of the ring and hands them out; the others sleep on their own condition
// variables. When the leader has what it waited for, it wakes another to lead. A program with
// nobody waiting spends nothing on completions.
//
// When the session ends (the worker died, the vGPU was taken away, the agent stopped), every call,
// waiting or new, returns the slot's error, and the reason appears once on stderr. In the child of
// a fork there is no session; calls return CUDA_ERROR_NOT_INITIALIZED, as CUDA's do.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "abi/cuda_driver.h"
#include "abi/wire.h"
#include "guest-agent/shim/session/known_idle.h"
#include "guest-agent/shim/session/trace.h"
#include "guest-agent/transport/channel.h"
#include "mediator/ring/ring.h"
#include "mediator/ring/wait.h"
#include "mediator/ring/wait_forecast.h"

namespace sluice::guest {

// A call whose answer somebody waits for. The waiter's, on its stack.
struct Pending {
  uint64_t id = 0;
  bool done = false;  // under the complete lock
  CUresult status = CUDA_SUCCESS;
  std::vector<std::byte> body;  // what followed the completion's header, with its padding
  std::condition_variable wake;
  KnownIdle::Mark mark;    // what is known to have ended if it succeeds
  uint32_t end_word = 0;   // what the GPU may write at its end (abi/end_word.h); 0: nothing
  bool word_seen = false;  // the waiter's

  // The reply as a struct; false: it is shorter.
  template <class T>
  bool read(T& to, size_t at = 0) const {
    if (at > body.size() || body.size() - at < sizeof to) return false;
    std::memcpy(&to, body.data() + at, sizeof to);
    return true;
  }
};

// The calling thread's current context, and what its records name in its place: a green context of
// it, or itself (sluice_record.context).
struct GreenScope {
  uint64_t context, green;
};
GreenScope& green_scope();

class WorkerLink {
 public:
  explicit WorkerLink(std::unique_ptr<Channel> channel);

  // The process's session, null before open() succeeded or in a forked child (`*why` says which).
  static WorkerLink* current(CUresult* why);
  // Joins the vGPU if that has not been done. CUDA_ERROR_NO_DEVICE and a message if it fails.
  // `pinned_ranges` is called at the session's end: the ranges of the region (offset, bytes) that
  // the program may still read.
  using PinnedRanges = std::vector<std::pair<uint64_t, uint64_t>>;
  using FindPinnedRanges = PinnedRanges (*)();
  static CUresult open(FindPinnedRanges pinned_ranges);
  // Threads of libcuda's own. Only who holds callbacks() runs functions of the program's.
  static std::atomic<unsigned>& own_threads() {
    static std::atomic<unsigned> count{0};
    return count;
  }
  static std::mutex& callbacks() {
    static std::mutex mutex;
    return mutex;
  }

  // Queues a record whose body `write(std::byte*)` writes (front to back, `bytes` of it, into
  // shared memory that must not be read). NO_REPLY: an error surfaces later (take_deferred).
  template <class Write>
  CUresult post(uint16_t opcode, uint64_t context, size_t bytes, Write&& write,
                const Effect& effect) {
    return submit(opcode, SLUICE_RECORD_NO_REPLY, context, 0, bytes, write, effect, nullptr);
  }
  template <class Write>
  CUresult post(uint16_t opcode, uint64_t context, size_t bytes, Write&& write) {
    return post(opcode, context, bytes, write, effect_of(opcode));
  }
  // `mark`, if there is one: what is known to have ended once this call has. Read by the link.
  template <class Body>
  CUresult post(uint16_t opcode, uint64_t context, const Body& body,
                KnownIdle::Mark* mark = nullptr) {
    Traced traced(opcode, body);
    const auto write = [&](std::byte* to) { std::memcpy(to, &body, sizeof body); };
    return traced.end(submit(opcode, SLUICE_RECORD_NO_REPLY, context, 0, sizeof body, write,
                             effect_of(opcode, body), mark),
                      true);
  }
  KnownIdle::Mark mark_of(const KnownIdle::Mark& mark) {
    std::lock_guard lock(submit_mutex_);
    return mark;
  }
  // What `mark` stands for has ended without an error, if it is still what was `seen` before.
  void ended(const KnownIdle::Mark& mark, const KnownIdle::Mark& seen) {
    std::lock_guard lock(submit_mutex_);
    if (mark == seen) known_idle_.ended(mark);
  }

  // Queues a call whose answer wait(pending) collects. If this fails there is nothing to wait for.
  template <class Write>
  CUresult start(uint16_t opcode, uint64_t context, size_t bytes, Write&& write, Pending& pending,
                 const Effect& effect) {
    if (CUresult r = enlist(pending); r != CUDA_SUCCESS) return r;
    // Of work that the answer only says is queued it tells nothing.
    KnownIdle::Mark* mark = tells_of_ends(effect) ? &pending.mark : nullptr;
    const CUresult r = submit(opcode, 0, context, pending.id, bytes, write, effect, mark);
    if (r != CUDA_SUCCESS) forget(pending);
    return r;
  }
  template <class Body>
  CUresult start(uint16_t opcode, uint64_t context, const Body& body, Pending& pending) {
    return start(
        opcode, context, sizeof body, [&](std::byte* to) { std::memcpy(to, &body, sizeof body); },
        pending, effect_of(opcode, body));
  }
  // Sleeps until the answer is there; returns its status.
  CUresult wait(Pending& pending);

  template <class Write>
  CUresult call(uint16_t opcode, uint64_t context, size_t bytes, Write&& write, Pending& pending) {
    if (CUresult r = start(opcode, context, bytes, write, pending, effect_of(opcode));
        r != CUDA_SUCCESS)
      return r;
    return wait(pending);
  }
  template <class Body>
  CUresult call(uint16_t opcode, uint64_t context, const Body& body, Pending& pending) {
    Traced traced(opcode, body);
    CUresult r = start(opcode, context, body, pending);
    if (r == CUDA_SUCCESS) r = wait(pending);
    return traced.end(r);
  }
  template <class Body>
  CUresult call(uint16_t opcode, uint64_t context, const Body& body) {
    Pending pending;
    return call(opcode, context, body, pending);
  }

  // Waits for a stream, a context or an event. The GPU's word may end it before the answer comes.
  CUresult synchronize(uint64_t context, sluice_synchronize body);

  // Queues a call whose answer nobody waits for by itself: `done` runs on whichever thread takes it
  // out of the ring (also when the session ends), with the call's id. It must not call the session.
  // After an error of this function it runs, at once or soon, unless the session had ended before.
  using Done = std::function<void(uint64_t call_id, CUresult status)>;
  template <class Body>
  CUresult start_detached(uint16_t opcode, uint64_t context, const Body& body, Done done) {
    return start_detached(opcode, context, body, std::move(done), effect_of(opcode, body));
  }
  template <class Body>
  CUresult start_detached(uint16_t opcode, uint64_t context, const Body& body, Done done,
                          const Effect& effect) {
    Traced traced(opcode, body);
    uint64_t call_id = 0;
    if (CUresult r = enlist_detached(std::move(done), call_id); r != CUDA_SUCCESS) return r;
    const CUresult r = submit(
        opcode, 0, context, call_id, sizeof body,
        [&](std::byte* to) { std::memcpy(to, &body, sizeof body); }, effect, nullptr);
    if (r != CUDA_SUCCESS) cancel_detached(call_id, r);
    return traced.end(r, true);
  }

  // Whether all that was queued in the context is known to have ended, but for early copies.
  bool idle(uint64_t context);
  // The same with early copies, in a living session: the guest then answers queries and waits for
  // streams, events and the context by itself.
  bool all_ended(uint64_t context) {
    return early_.load(std::memory_order_relaxed) == 0 && dead() == CUDA_SUCCESS &&
           !channel_->ended() && idle(context);
  }
  // An early copy: one in the legacy stream, from memory that has been read, whose call returns at
  // once. What follows it in its stream needs nothing; whatever else is submitted waits for its
  // end, so that no other stream meets the memory before. `done` as above; idle(context) holds.
  template <class Body>
  CUresult start_early(uint16_t opcode, uint64_t context, const Body& body, Done done) {
    begin_early(context);
    auto ended = [this, done = std::move(done)](uint64_t id, CUresult r) {
      early_.fetch_sub(1, std::memory_order_relaxed);
      done(id, r);
    };
    return start_detached(opcode, context, body, std::move(ended), Effect{Effect::kEarly, 0});
  }

  // Takes completions that are already there, if no other thread does; never sleeps.
  void poll();
  // Sleeps until `ready` (evaluated under the complete lock, again after each batch of completions)
  // holds or the session has ended.
  void wait_until(const std::function<bool()>& ready);

  // The first error of an earlier call that nobody waited for, once; CUDA_SUCCESS if there is none.
  CUresult take_deferred();
  // The calling thread is the library's own: deferred errors are left to the program's threads.
  static void leave_deferred();
  // For the answer of a synchronising call: its own error, else a deferred one.
  CUresult with_deferred(CUresult status) {
    const CUresult deferred = take_deferred();
    const bool fine = status == CUDA_SUCCESS || status == CUDA_ERROR_NOT_READY;
    const CUresult answer = fine && deferred != CUDA_SUCCESS ? deferred : status;
    if (is_fault(answer)) fault_.store(answer, std::memory_order_release);
    return answer;
  }
  void defer(CUresult status);  // remembers it as the first, if it is
  static bool is_fault(CUresult status) {
    return status == CUDA_ERROR_ILLEGAL_ADDRESS || status == CUDA_ERROR_LAUNCH_TIMEOUT ||
           status == CUDA_ERROR_ASSERT ||
           (status >= CUDA_ERROR_HARDWARE_STACK_ERROR && status <= CUDA_ERROR_LAUNCH_FAILED);
  }

  // For calls after the session's end: lets go of the device if the agent has gone too.
  void after_end();

  // A kernel of the session has faulted, and the program knows it: from then on all calls in its
  // contexts answer so. CUDA_SUCCESS: none has.
  CUresult fault() const { return static_cast<CUresult>(fault_.load(std::memory_order_acquire)); }
  void forget_fault() { fault_.store(CUDA_SUCCESS, std::memory_order_release); }

  // CUDA_SUCCESS while the session lives.
  CUresult dead() const { return static_cast<CUresult>(dead_.load(std::memory_order_acquire)); }

  Channel& channel() { return *channel_; }
  // Region offset of an address in the window.
  uint64_t offset_of(const void* address) const {
    return static_cast<uint64_t>(static_cast<const std::byte*>(address) - channel_->region());
  }

 private:
  struct Entry {
    uint64_t id = 0;             // 0: free
    Pending* pending = nullptr;  // null: detached
    Done done;
  };
  struct Sleeper {
    std::condition_variable* wake;
    Sleeper* next;
  };

  template <class Write>
  CUresult submit(uint16_t opcode, uint16_t flags, uint64_t context, uint64_t id, size_t bytes,
                  Write&& write, const Effect& effect, KnownIdle::Mark* mark) {
    const uint32_t total = record_bytes(bytes);
    if (early_.load(std::memory_order_relaxed) != 0) wait_for_early(context, effect);
    if (held(effect)) wait_until([&] { return !held(effect); });
    std::lock_guard lock(submit_mutex_);
    std::byte* to = reserve(total);
    if (to == nullptr) return dead();
    const KnownIdle::Mark known = known_idle_.record(context, effect);
    if (mark != nullptr) *mark = known;
    sluice_record record{};
    record.bytes = total;
    record.opcode = opcode;
    record.flags = flags;
    record.call_id = id != 0 ? id : kNobody;
    const GreenScope& scope = green_scope();
    record.context = context == scope.context ? scope.green : context;
    std::memcpy(to, &record, sizeof record);
    write(to + sizeof record);
    const size_t end = sizeof record + bytes;
    if (end < total) std::memset(to + end, 0, total - end);
    submit_.commit();
    submit_.publish();
    return CUDA_SUCCESS;
  }

  // The worker takes no more work until a host function has ended (sluice_slot_header.hold). An
  // early copy continues: other work waits for its end, the host function's included.
  bool held(const Effect& effect) const {
    return load_shared(channel_->header().hold) != 0 &&
           (effect.kind == Effect::kWork || effect.kind == Effect::kWaited) && !channel_->ended();
  }
  std::byte* reserve(uint32_t bytes);  // under submit_mutex_; null: the session is over
  // Until no early copy is under way, unless the record follows them in their stream.
  void wait_for_early(uint64_t context, const Effect& effect);
  void begin_early(uint64_t context);
  CUresult enlist(Pending& pending);
  void forget(Pending& pending);
  CUresult enlist_detached(Done done, uint64_t& id);
  void cancel_detached(uint64_t id, CUresult status);
  uint64_t take_entry(std::unique_lock<std::mutex>& lock, Pending* pending, Done done);
  void wait_until_locked(std::unique_lock<std::mutex>& lock, std::condition_variable& wake,
                         const std::function<bool()>& ready, Pending* own = nullptr);
  // One step of the leader's work, without a lock. `own`: its own call, if an end word may end it.
  void lead(bool may_sleep, Pending* own = nullptr);
  void sleep_for_completion(uint64_t began_ns, Pending* own);
  bool see_word(Pending* own) const;
  bool end_by_word(Pending& pending);
  bool sleep(uint64_t longest_ns);
  bool take_completions();  // leader; true: there was something
  void complete(const RecordBuffer& record);
  void fail(SessionEnd end);
  void check_end();

  // NO_REPLY records: unique among outstanding calls, and never in the table.
  static constexpr uint64_t kNobody = ~uint64_t{0};
  // Calls outstanding at once. The complete ring holds 8192 answers without a body, so that the
  // worker never waits for us to take them.
  static constexpr uint32_t kEntries = 1024;

  std::unique_ptr<Channel> channel_;
  FindPinnedRanges at_end_ = nullptr;
  std::atomic<bool> detached_{false};
  std::atomic<int> dead_{CUDA_SUCCESS};
  std::atomic<int> deferred_{CUDA_SUCCESS}, fault_{CUDA_SUCCESS};

  std::mutex submit_mutex_;
  RingProducer submit_;
  KnownIdle known_idle_;

  // Early copies under way, and the context that they are in.
  std::atomic<uint32_t> early_{0};
  std::atomic<uint64_t> early_context_{0};

  std::mutex complete_mutex_;
  bool leader_ = false;  // the flags and lists below: under complete_mutex_
  Sleeper* sleepers_ = nullptr;
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_entries_;
  uint64_t sequence_ = 0;
  uint32_t* end_word_ = nullptr;  // shared, the GPU's to write; null: there is none
  std::atomic<uint32_t> last_end_word_{0};
  RingConsumer completions_;  // this and below: the leader's
  RecordBuffer buffer_;
  Spinner spinner_;
  WaitForecast forecast_;
};

}  // namespace sluice::guest
