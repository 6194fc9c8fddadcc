// SPDX-License-Identifier: Apache-2.0
// Memory that a session takes besides its allocations: it is charged before it is taken, and asked
// of sluiced where the session's lease does not hold it (core/quota_lease.h).
#include <algorithm>
#include <limits>

#include "mediator/base/clock.h"
#include "mediator/worker/session/worker_session.h"

namespace sluice::worker {

namespace wp = worker_protocol;

namespace {
uint64_t times(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<uint64_t>::max() : product;
}
}  // namespace

void WorkerSession::with_device_memory(uint64_t bytes, ChargeKind kind,
                                       std::function<void(bool)> then) {
  const uint64_t charge = bytes == 0 ? 0 : QuotaLease::charge_for(bytes);
  if ((bytes != 0 && charge == 0) || charge > setup.start.memory_limit_bytes) return then(false);
  {
    std::lock_guard lock(mutex);
    if (!control.device().charge(charge, kind)) {
      return ask_lease(control.device().lacking(charge), [this, bytes, kind, then](bool granted) {
        jobs.post([this, bytes, kind, then, granted] {
          if (!granted) return then(false);
          with_device_memory(bytes, kind, then);
        });
      });
    }
  }
  then(true);
}

void WorkerSession::with_host_memory(uint64_t bytes, std::function<void(bool)> then) {
  if (bytes > setup.start.host_memory_bytes) return then(false);
  {
    std::lock_guard lock(mutex);
    if (!control.host().charge(bytes, ChargeKind::kModules)) {
      return ask_lease(
          control.host().lacking(bytes),
          [this, bytes, then](bool granted) {
            jobs.post([this, bytes, then, granted] {
              if (!granted) return then(false);
              with_host_memory(bytes, then);
            });
          },
          wp::kHostMemory);
    }
  }
  then(true);
}

void WorkerSession::with_leave_to_load(std::function<void(bool)> then) {
  if (setup.start.paced & wp::kPacedModules) {
    std::lock_guard lock(mutex);
    if (!control.quota(wp::kModuleLoads).charge(1))
      return ask_lease(
          1,
          [this, then](bool granted) {
            jobs.post([this, then, granted] { granted ? with_leave_to_load(then) : then(false); });
          },
          wp::kModuleLoads);
  }
  then(true);
}

void WorkerSession::ask_lease(uint64_t lacking, std::function<void(bool)> then,
                              wp::Resource resource) {
  if (resource == wp::kDeviceMemory && freed.has_passed()) {
    jobs.post([this, then = std::move(then)] {
      release_freed();
      then(true);
    });
    return;
  }
  if (control.lost()) {
    jobs.post([then = std::move(then)] { then(false); });
    return;
  }
  if (control.leases_waiting() >= limits.parked_calls) violation("too many calls wait for memory");
  control.ask_lease(resource, lacking, std::move(then));
}

bool WorkerSession::keep_freed(const Allocation& a, const StreamObject& stream) {
  constexpr uint64_t kPart = 4;  // of what the vGPU may have
  if (a.charged_bytes == 0 ||
      freed.charged_bytes() + a.charged_bytes > setup.start.memory_limit_bytes / kPart)
    return false;
  const uint64_t now_ns = monotonic_ns();
  const bool first = freed.empty();
  const uint64_t block = freed.add(a, stream.id, now_ns);
  if (block == 0) return false;
  engine.notify_stream(stream.id, waiting.add_own([this, block](CUresult) { freed.passed(block); }),
                       now_ns);
  if (first) jobs.post([] {});  // the job thread sees to it from now on
  return true;
}

bool WorkerSession::release_freed() {
  std::vector<Allocation> taken;
  {
    std::lock_guard lock(mutex);
    taken = freed.take_passed(monotonic_ns());
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
    const uint64_t ages = engine.queued() == 0 ? 1 : kBusyAges;
    taken = freed.take_passed(now_ns, ages * FreedMemory::kKeptNs);
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
    release_device(a.charged_bytes);
  }
}

void WorkerSession::charge_held() {
  const uint64_t wanted = HeldMemory::chargeable(
      {handles.live(), memory.allocations.size() + memory.mappings.mapping_count(), textures.load(),
       engine.queued(), queued_bytes.load()});
  const auto settle = [&] {
    held_.state = HeldMemory::State::kSettled;
    held_.charged = wanted;
  };
  if (held_.asked()) return;
  if (wanted + kHeldStepBytes < held_.charged)
    control.release_host(held_.charged - wanted), settle();
  if (wanted <= held_.charged) {
    held_.state = HeldMemory::State::kSettled;
  } else if (control.host().charge(wanted - held_.charged, ChargeKind::kModules)) {
    settle();
  } else if (!control.lost() && held_.ask(monotonic_ns())) {
    ask_lease(
        control.host().lacking(wanted - held_.charged),
        [this](bool granted) {
          std::lock_guard lock(mutex);
          held_.state = granted ? HeldMemory::State::kSettled : HeldMemory::State::kRefused;
          held_.refused_ns = monotonic_ns();
          if (granted) charge_held();
          handles.set_closed(held_.refused());
          wake_decoder_if_stopped();
        },
        wp::kHostMemory);
  }
  handles.set_closed(held_.refused());
}

void WorkerSession::release_allocation(const Allocation& a) {
  if (const auto wire = shared.forget(a.address))
    control.end_share(*wire, a.charged_bytes);
  else
    release_device(a.charged_bytes);
}

void WorkerSession::release_module(ModuleObject& m) {
  if (m.charged != 0) release_device(m.charged, ChargeKind::kModules);
  if (m.charged_host != 0) control.release_host(m.charged_host);
  m.charged = m.charged_host = 0;
  for (const auto& clones : m.of_clones) release_module(*clones);
}

void WorkerSession::release_context(ContextObject& c) {
  release_device(c.charged, ChargeKind::kContexts);
  release_device(times(c.local_bytes, c.threads_at_once), ChargeKind::kLocalMemory);
  for (const auto& [limit, of] : c.limits) release_device(of.charged, ChargeKind::kLimits);
  for (const auto& m : c.kept_modules) release_module(*m);
  c.charged = c.local_bytes = 0;
  c.limits.clear();
  c.kept_modules.clear();
}

uint64_t WorkerSession::limit_bytes(const ContextObject& c, CUlimit limit, uint64_t value) {
  const auto it = c.limits.find(limit);
  const uint64_t usual = it == c.limits.end() ? 0 : it->second.usual;
  const uint64_t beyond = value - std::min(value, usual);
  return limit == CU_LIMIT_STACK_SIZE ? times(beyond, c.threads_at_once) : beyond;
}

bool WorkerSession::pay_pool(ContextObject& c, uint64_t bytes) {
  if (control.device().charge(bytes, ChargeKind::kContexts)) {
    c.charged += bytes;
    return true;
  }
  if (!pool_lease_asked_ && !control.lost()) {
    pool_lease_asked_ = true;
    ask_lease(control.device().lacking(bytes), [this](bool) {
      std::lock_guard lock(mutex);
      pool_lease_asked_ = false;
    });
  }
  return false;
}

// With mutex held: settles `asked`, or asks sluiced for what is missing.
void WorkerSession::settle_local(const std::shared_ptr<ContextObject>& context,
                                 const std::shared_ptr<LocalGrant>& asked, bool may_ask) {
  ContextObject& c = *context;
  const uint64_t wanted = asked->bytes_per_thread;
  const uint64_t more = times(wanted - std::min(wanted, c.local_bytes), c.threads_at_once);
  if (c.closed) {
    asked->refused = true;
  } else if (more != 0) {
    if (control.device().charge(more, ChargeKind::kLocalMemory)) {
      c.local_bytes = wanted;
    } else if (may_ask && more <= setup.start.memory_limit_bytes) {
      return ask_lease(control.device().lacking(more), [this, context, asked](bool granted) {
        std::lock_guard lock(mutex);
        settle_local(context, asked, granted);  // somebody else may have used what was granted
        if (!asked->answered->complete) return;
        release_device(0, ChargeKind::kLocalMemory);  // what was leased for nothing
        engine.poll(monotonic_ns());
        after_engine();
      });
    } else {
      asked->refused = true;
    }
  }
  if (c.local_asked == asked) c.local_asked = nullptr;
  asked->answered->complete = true;
}

void WorkerSession::charge_local(StreamObject& stream, uint64_t bytes_per_thread,
                                 std::shared_ptr<LocalGrant>* grant) {
  ContextObject& c = *stream.context;
  if (bytes_per_thread <= c.local_bytes) return;
  if (!c.local_asked || c.local_asked->bytes_per_thread < bytes_per_thread) {
    auto asked = std::make_shared<LocalGrant>();
    asked->bytes_per_thread = bytes_per_thread;
    c.local_asked = asked;
    settle_local(stream.context, asked, true);
    *grant = std::move(asked);
  } else {
    *grant = c.local_asked;
  }
  if (!(*grant)->answered->complete)
    engine.submit_wait(stream.id, (*grant)->answered, monotonic_ns());
}

}  // namespace sluice::worker
