// SPDX-License-Identifier: Apache-2.0
// Memory whose end or beginning waits for a stream: what a program has freed in stream order, and
// local memory that a launch has to be charged for first.
#include "mediator/base/clock.h"
#include "mediator/worker/session/worker_session.h"

namespace sluice::worker {

bool WorkerSession::keep_freed(const Allocation& a, const StreamObject& stream) {
  constexpr uint64_t kPart = 4;  // of what the vGPU may have
  if (a.charged_bytes == 0 ||
      memory.freed.charged_bytes() + a.charged_bytes > setup.start.memory_limit_bytes / kPart)
    return false;
  const uint64_t now_ns = monotonic_ns();
  const bool first = memory.freed.empty();
  const uint64_t block = memory.freed.add(a, stream.id, now_ns);
  if (block == 0) return false;
  work.engine.notify_stream(
      stream.id, work.waiting.add_own([this, block](CUresult) { memory.freed.passed(block); }),
      now_ns);
  if (first) jobs.post([] {});  // the job thread sees to it from now on
  return true;
}

bool WorkerSession::release_freed() {
  std::vector<Allocation> taken;
  {
    std::lock_guard lock(mutex);
    taken = memory.freed.take_passed(monotonic_ns());
  }
  give_back(taken);
  return !taken.empty();
}

// While the GPU works the driver would wait for it, and the next allocations with it.
void WorkerSession::release_old_memory(uint64_t now_ns) {
  constexpr uint64_t kBusyAges = 10;
  std::vector<Allocation> taken;
  {
    std::lock_guard lock(mutex);
    const uint64_t ages = work.engine.queued() == 0 ? 1 : kBusyAges;
    taken = memory.freed.take_passed(now_ns, ages * FreedMemory::kKeptNs);
  }
  give_back(taken);
}

void WorkerSession::give_back(const std::vector<Allocation>& taken) {
  for (const Allocation& a : taken) {
    std::shared_ptr<ContextObject> owner;
    {
      std::lock_guard lock(mutex);
      owner = handles.find<ContextObject>(SLUICE_HANDLE_CONTEXT, a.owner);
    }
    if (owner && make_current(api, owner->cu) == CUDA_SUCCESS) (void)api.cuMemFree(a.address);
    std::lock_guard lock(mutex);
    charges.release_device(a.charged_bytes);
  }
}

// With mutex held: settles `asked`, or asks sluiced for what is missing.
void WorkerSession::settle_local(const std::shared_ptr<ContextObject>& context,
                                 const std::shared_ptr<LocalGrant>& asked, bool may_ask) {
  ContextObject& c = *context;
  const uint64_t wanted = asked->bytes_per_thread;
  const uint64_t more = bytes_of_all_threads(c, wanted - std::min(wanted, c.charged.local_bytes));
  if (c.closed) {
    asked->refused = true;
  } else if (more != 0) {
    if (control.device().charge(more, ChargeKind::kLocalMemory)) {
      c.charged.local_bytes = wanted;
    } else if (may_ask && more <= setup.start.memory_limit_bytes) {
      return charges.ask_lease(
          control.device().lacking(more), [this, context, asked](bool granted) {
            std::lock_guard lock(mutex);
            settle_local(context, asked, granted);  // somebody else may have used what was granted
            if (!asked->answered->complete) return;
            charges.release_device(0, ChargeKind::kLocalMemory);  // what was leased for nothing
            work.engine.poll(monotonic_ns());
            after_engine();
          });
    } else {
      asked->refused = true;
    }
  }
  if (c.charged.local_asked == asked) c.charged.local_asked = nullptr;
  asked->answered->complete = true;
}

void WorkerSession::charge_local(StreamObject& stream, uint64_t bytes_per_thread,
                                 std::shared_ptr<LocalGrant>* grant) {
  ContextObject& c = *stream.context;
  if (bytes_per_thread <= c.charged.local_bytes) return;
  if (!c.charged.local_asked || c.charged.local_asked->bytes_per_thread < bytes_per_thread) {
    auto asked = std::make_shared<LocalGrant>();
    asked->bytes_per_thread = bytes_per_thread;
    c.charged.local_asked = asked;
    settle_local(stream.context, asked, true);
    *grant = std::move(asked);
  } else {
    *grant = c.charged.local_asked;
  }
  if (!(*grant)->answered->complete)
    work.engine.submit_wait(stream.id, (*grant)->answered, monotonic_ns());
}

}  // namespace sluice::worker
