// SPDX-License-Identifier: Apache-2.0
// SharedGpu: this process's hold on the GPU file (gpu_file.h): context slots, the engine's queue,
// claims on SMs, status registers, context-switch log, device memory accounting. One per process,
// owned by the library's state.
//
// fcfs and timeslice: the engine goes to one context at a time, in the order of the queue: a
// context takes a ticket, waits until nobody is on the engine and nobody alive has a smaller
// ticket, and puts its name in the holder word. mps: all contexts run; each process claims what its
// blocks take of an SM. Waiting processes eject dead and stopped ones. Every word of the file may
// be changed by others at any time.
//
// Threads: all members may be called from any thread; what changes one slot's place (request,
// try_acquire, ..., withdraw) must not race with itself (the runner calls it under its lock). It
// knows nothing of kernels, and never sleeps but in wait_bell and for locks.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "kernels/exec/memory/fault.h"
#include "mediator/base/fd.h"
#include "mediator/base/result.h"
#include "mediator/softgpu/shared/gpu_file.h"
#include "mediator/softgpu/state/config.h"
#include "mediator/softgpu/state/model.h"

namespace sluice::softgpu {

class SharedGpu {
 public:
  // Opens or creates config.gpu_file, or an anonymous one. A file that is not a GPU file is
  // refused, never overwritten. A new file is readable by all, writable by its owner and group.
  static Result<std::unique_ptr<SharedGpu>> open(const Config& config);
  ~SharedGpu();
  SharedGpu(const SharedGpu&) = delete;
  SharedGpu& operator=(const SharedGpu&) = delete;

  const sluice_soft_info& info() const { return info_; }
  const GpuModel& model() const { return gpu_models()[info_.model]; }
  uint32_t sms() const { return info_.sms; }
  uint32_t blocks_per_sm() const { return info_.blocks_per_sm; }
  uint64_t memory_bytes() const { return info_.memory_bytes; }
  bool is_mps() const { return info_.mode == SLUICE_SOFT_MPS; }
  bool has_slices() const { return info_.mode == SLUICE_SOFT_TIMESLICE; }
  bool saves() const { return info_.preemption == SLUICE_SOFT_SAVE; }
  // How long it takes to save or restore this many bytes of state.
  uint64_t transfer_ns(uint64_t bytes) const;
  static uint32_t tsgid(unsigned slot) { return slot + 1; }

  // A free context slot (also one whose owner died; what it held is freed), with the SMs that this
  // process's percentage gives it (mps). Error: all taken.
  Result<unsigned> join();
  // Gives the slot back. It must neither wait nor hold.
  void leave(unsigned slot);
  // The channel's words; fields are read and written through `word`.
  sluice_soft_channel& channel(unsigned slot) const;
  template <class T>
  static std::atomic_ref<T> word(T& field) {
    return std::atomic_ref<T>(field);
  }
  // Whether the slot's blocks may use this SM.
  bool may_use(unsigned slot, uint32_t sm) const;

  // Charges device memory to a context: false if the GPU, with what all live contexts have, is
  // full.
  bool reserve_memory(unsigned slot, uint64_t bytes);
  void release_memory(unsigned slot, uint64_t bytes);
  uint64_t free_memory();

  // The queue. request: take a ticket. try_acquire: take the engine if it is this slot's turn; with
  // `out_of_turn` the slots before it lose their places (where they do not come; they queue again
  // when they next try). withdraw: leave the queue.
  void request(unsigned slot);
  bool try_acquire(unsigned slot, bool out_of_turn = false);
  void withdraw(unsigned slot);
  // Whether any context but this one stands in the queue.
  bool others_waiting(unsigned slot) const;
  bool engine_free() const { return state_->holder.load() == 0; }
  // False: somebody has taken this slot for dead or stopped, and the engine away from it.
  bool holds(unsigned slot) const;

  // The steps of a change of context, which the registers and the log tell. Coming: try_acquire;
  // begin_switch, whose nanoseconds the caller waits (0: its state is still in the engine, or
  // nobody's is); begin_restore if there is state to bring back, which takes transfer_ns;
  // show_running. Going: release, if it has nothing to run, and its state stays; or begin_save,
  // transfer_ns, and release_saved.
  uint64_t begin_switch(unsigned slot);
  void begin_restore(unsigned slot);
  void show_running(unsigned slot);
  void release(unsigned slot);
  void begin_save(unsigned slot);
  void release_saved(unsigned slot);
  bool is_resident(unsigned slot) const;

  // Time slices: when this slot's began and whether it is over.
  bool slice_is_over(unsigned slot) const;
  // Nanoseconds until the holder's slice is over; UINT64_MAX: it has none.
  uint64_t holders_slice_left_ns() const;
  // Calls the holder's attention if its slice is over.
  void nudge_holder();
  // The word that changes when this process should look what others want of it.
  std::atomic<uint32_t>& attention() const { return attention_of(process_); }

  // mps. start and end: the slot has work; registers and log tell. claim: room on an SM for a block
  // of such needs, false: there is none now, or it is left to others that find none.
  void start_beside(unsigned slot);
  void end_beside(unsigned slot);
  // While others find no room for blocks that are before these, they get none; nothing that runs is
  // taken off.
  bool claim(uint32_t sm, const SmLimits& limits, const SmClaim& needs, const Rank& rank = {});
  // The order of a grid that comes now.
  uint64_t take_order() { return state_->next_order.fetch_add(1) + 1; }
  void unclaim(uint32_t sm, const SmClaim& needs);
  void drop_claims();
  // mps: from gather() to gathered() all room that comes free on these SMs is this process's.
  // False: some of it is another's, or left to others that find none and are before these.
  bool gather(const SmSet& on, const Rank& rank = {});
  void gathered(const SmSet& on);
  // Grows when others have taken this process's claims away, because it stood still.
  uint32_t claims_epoch() const { return state_->processes[process_].epoch.load(); }
  // This process finds no room on SMs for blocks of these urgencies (0: none), the first of the
  // most urgent of which came as `order`: it is rung when some comes free. Holds until it says
  // otherwise.
  using Urgencies = std::array<uint8_t, kMaxSms>;
  void mark_starved(const Urgencies& at, uint64_t order = 0);
  void clear_starved();
  // What others find no room for there, the first of it that is before `rank`; nothing: none is.
  std::optional<Rank> starves_before(uint32_t sm, const Rank& rank) const;

  // A kernel's fault (shared_faults.cc). stop_for: every channel stands still for what a fault of
  // this kind takes, after what is left of earlier ones; only the first one of a context counts.
  // Nothing happens on a GPU that is not shared, and in mps mode. stalled_ns: for so long nothing
  // may run; 0: go on.
  void stop_for(unsigned slot, exec::FaultKind kind);
  uint64_t stalled_ns() const;
  // The same for so long, for what is no fault.
  void stand_still(uint64_t stall_ns);

  // Something runs. To be called more often than every stall_ms while this process has the engine
  // or claims.
  void beat() { state_->processes[process_].beat.fetch_add(1, std::memory_order_relaxed); }

  // Waiting: read bell(), try, then wait_bell(what was read), so that no ring is lost. False: the
  // time ran out. Call eject_absent() then, and now and then if it never does.
  uint32_t bell() const { return state_->processes[process_].bell.load(); }
  bool wait_bell(uint32_t seen, std::chrono::nanoseconds timeout);
  void ring_self() { ring(process_); }
  // Removes contexts whose process has died, or stands still, from the engine and from the queue.
  // Called now and then by a waiting process; what it has seen is remembered.
  void eject_absent();

 private:
  SharedGpu() = default;
  Result<void> initialise(const Config& config, const std::string& name);
  bool try_lock(off_t byte);
  void lock_wait(off_t byte);
  void unlock(off_t byte);
  bool is_locked_by_others(off_t byte) const;
  bool is_alive(unsigned slot) const;
  bool is_process_alive(unsigned process) const;
  void ring(unsigned process);
  uint64_t memory_in_use();
  void choose_sms(unsigned slot);
  uint64_t holder_word(unsigned slot) const;
  unsigned next_in_line(unsigned except) const;
  bool stands_still(unsigned process, uint64_t holding);
  void eject_holder(uint64_t holder);
  void eject_claims(unsigned process);
  bool release_gathered(const SmSet& on);
  uint64_t starving(uint32_t sm) const;
  Rank starving_rank(unsigned process, uint32_t sm) const;
  void show_beside();
  void log_switch(uint8_t tag, uint32_t tsgid, uint32_t pid);
  std::atomic<uint32_t>& status0() const;
  std::atomic<uint32_t>& attention_of(unsigned process) const;

  Fd fd_;
  std::byte* mapping_ = nullptr;
  // Copied from the file once it has been checked: the file is writable by every worker.
  sluice_soft_info info_{};
  GpuState* state_ = nullptr;
  unsigned process_ = kMaxProcesses;
  uint32_t thread_percentage_ = 100;
  uint32_t pid_ = 0;  // 0: getpid()
  std::atomic<uint64_t> own_slots_{0};
  std::atomic<uint64_t> faulted_{0};  // bit per own slot: its context has faulted
  bool shared_ = false;
  std::mutex memory_mutex_;                  // kMemoryLock excludes processes, this one threads
  uint64_t acquired_ns_[kMaxContexts] = {};  // by the slot's holder

  // What the beats of others were when last read.
  struct Watched {
    uint64_t beat = 0, holding = 0, since_ns = 0;
  };
  std::mutex watch_mutex_;
  Watched watched_[kMaxProcesses];
};

}  // namespace sluice::softgpu
