// SharedGpu: this process's hold on the GPU file (gpu_file.h): context slots, the engine's queue,
// status registers, device memory accounting. One per process, owned by the library's state.
//
// The engine goes to one context at a time, first come first served: a context takes a ticket,
// waits until nobody is on the engine and nobody alive has a smaller ticket, and puts its name in
// the holder word. The dead are ejected by those who wait. Every word of the file may be changed by
// others at any time.
//
// Threads: all members may be called from any thread; request, try_acquire, release and withdraw of
// one slot must not race with one another (the engine calls them under its lock). It knows nothing
// of kernels.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"
#include "mediator/softgpu/config.h"
#include "mediator/softgpu/gpu_file.h"

namespace sluice::softgpu {

class SharedGpu {
 public:
  // Opens or creates config.gpu_file, or an anonymous one. A file that is not a GPU file is
  // refused, never overwritten. A new file is readable by all, writable by its owner and group.
  static Result<std::unique_ptr<SharedGpu>> open(const Config& config);
  ~SharedGpu();
  SharedGpu(const SharedGpu&) = delete;
  SharedGpu& operator=(const SharedGpu&) = delete;

  uint32_t sms() const { return state_->sms; }
  uint32_t blocks_per_sm() const { return state_->blocks_per_sm; }
  uint64_t memory_bytes() const { return state_->memory_bytes; }
  static uint32_t tsgid(unsigned slot) { return slot + 1; }

  // A free context slot (also one whose owner died; what it held is freed). Error: all taken.
  Result<unsigned> join();
  // Gives the slot back. It must neither wait nor hold.
  void leave(unsigned slot);

  // Charges device memory to a context: false if the GPU, with what all live contexts have, is
  // full.
  bool reserve_memory(unsigned slot, uint64_t bytes);
  void release_memory(unsigned slot, uint64_t bytes);
  uint64_t free_memory();

  // The queue. request: take a ticket. try_acquire: take the engine if it is this slot's turn; with
  // `out_of_turn` whoever is before it loses its place (for when they do not come; they stand in
  // line again when they next try). release: leave the engine and call the next. withdraw: leave
  // the queue.
  void request(unsigned slot);
  bool try_acquire(unsigned slot, bool out_of_turn = false);
  void release(unsigned slot);
  void withdraw(unsigned slot);
  // Whether any context but this one stands in the queue.
  bool others_waiting(unsigned slot) const;
  bool engine_free() const { return state_->holder.load() == 0; }
  void count_kernel(unsigned slot) {
    state_->contexts[slot].kernels.fetch_add(1, std::memory_order_relaxed);
  }

  // Waiting: read bell(), try, then wait_bell(what was read), so that no ring is lost. False: the
  // time ran out (then call eject_dead).
  uint32_t bell() const { return my_bell().load(); }
  bool wait_bell(uint32_t seen, std::chrono::milliseconds timeout);
  void ring_self();
  // Removes contexts whose process has died from the engine and from the queue.
  void eject_dead();

 private:
  SharedGpu() = default;
  bool try_lock(off_t byte);
  void lock_wait(off_t byte);
  void unlock(off_t byte);
  bool is_locked_by_others(off_t byte) const;
  bool is_alive(unsigned slot) const;
  void ring(unsigned process);
  uint64_t memory_in_use();
  std::atomic<uint32_t>& my_bell() const { return state_->bells[process_].word; }
  std::atomic<uint32_t>& status0() const;

  Fd fd_;
  void* mapping_ = nullptr;
  GpuState* state_ = nullptr;
  unsigned process_ = 0;
  std::atomic<uint64_t> own_slots_{0};
  std::mutex memory_mutex_;                  // kMemoryLock excludes processes, this one threads
  uint64_t acquired_ns_[kMaxContexts] = {};  // by the slot's holder
};

}  // namespace sluice::softgpu
