// SPDX-License-Identifier: Apache-2.0
// Charges: what a session pays for. Memory is charged before it is taken, from the session's leases
// (core/quota_lease.h); where they do not hold it, sluiced is asked for more.
//
//   with_*()       charges, then calls; asks first where that is necessary
//   pay_pool()     charges now or not at all
//   charge_held()  the host memory that objects and queued operations take by now
//   release_*()    ends a charge
//
// Owned by the WorkerSession. with_*(): job thread, without the session's lock, and what they call
// runs on that thread too. `textures`: any thread. The rest: under the session's lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>

#include "mediator/core/handles.h"
#include "mediator/core/worker_protocol.h"
#include "mediator/worker/launch/objects.h"
#include "mediator/worker/memory/control_link.h"
#include "mediator/worker/memory/held_memory.h"
#include "mediator/worker/memory/memory_table.h"

namespace sluice::worker {

class Charges {
 public:
  struct Limits {
    uint64_t device_bytes = 0, host_bytes = 0;  // of the vGPU
    bool paces_loads = false;                   // sluiced gives leave to load modules
    size_t parked_calls = 0;                    // that may wait for leases; more end the session
  };
  class Owner {
   public:
    // Job thread: gives freed memory back to the driver.
    virtual void release_freed_memory() = 0;
    virtual void on_too_many_parked() = 0;
    virtual void post_job(std::function<void()> job) = 0;  // for the job thread
    // With the session's lock held: sluiced has answered whether more may be held.
    virtual void on_held_answered(bool granted) = 0;

   protected:
    ~Owner() = default;
  };
  // The session's parts, which outlive this.
  struct Parts {
    std::mutex& mutex;
    ControlLink& control;
    HandleTable& handles;
    MemoryTable& memory;
  };

  Charges(Owner& owner, Parts parts, Limits limits)
      : owner_(owner), parts_(parts), limits_(limits) {}

  // Texture objects of all contexts.
  std::atomic<uint32_t> textures{0};

  // Calls `then(true)` with this much charged, or `then(false)` with nothing: at once, or on the
  // job thread when sluiced has answered.
  void with_device_memory(uint64_t bytes, ChargeKind kind, std::function<void(bool charged)> then);
  void with_host_memory(uint64_t bytes, std::function<void(bool charged)> then);
  // A place among the GPU's contexts.
  void with_context_place(std::function<void(bool charged)> then);
  // Leave to load a module, where that is paced.
  void with_leave_to_load(std::function<void(bool given)> then);

  // Asks sluiced for more; `then` runs on the engine thread, or on the job thread.
  void ask_lease(uint64_t lacking, std::function<void(bool granted)> then,
                 worker_protocol::Resource resource = worker_protocol::kDeviceMemory);
  // Charges a pool's growth to its context. False: not now; sluiced is asked for later.
  bool pay_pool(ContextObject& c, uint64_t bytes);

  // What was charged, of the module or context but for allocations.
  void release_device(uint64_t charged, ChargeKind kind = ChargeKind::kAllocations) {
    parts_.control.release_device(charged, kind);
  }
  // The same of an allocation, which others may have opened.
  void release_allocation(const Allocation& a);
  void release_module(ModuleObject& m);
  void release_context(ContextObject& c);

  // Now and then: charges what the session holds by now, or gives back. `operations` are in its
  // streams, `bodies_bytes` what waits with them.
  void charge_held(uint64_t operations, uint64_t bodies_bytes);
  // Nothing that is kept in the worker is to be made.
  bool held_is_refused() const { return held_.refused(); }

 private:
  // One unit of what is leased one at a time.
  void with_one(worker_protocol::Resource resource, ChargeKind kind,
                std::function<void(bool charged)> then);

  Owner& owner_;
  const Parts parts_;
  const Limits limits_;
  HeldMemory held_;
  bool pool_lease_asked_ = false;
};

// Local memory of all threads that a device runs at once.
uint64_t bytes_of_all_threads(const ContextObject& c, uint64_t bytes_per_thread);
// What `limit` takes in the context beyond its value at first; max: more than there can be.
uint64_t limit_bytes(const ContextObject& c, CUlimit limit, uint64_t value);

}  // namespace sluice::worker
