// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/memory/charges.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "mediator/base/clock.h"

namespace sluice::worker {

namespace wp = worker_protocol;

namespace {
uint64_t times(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<uint64_t>::max() : product;
}
}  // namespace

uint64_t bytes_of_all_threads(const ContextObject& c, uint64_t bytes_per_thread) {
  return times(bytes_per_thread, c.shape.threads_at_once);
}

uint64_t limit_bytes(const ContextObject& c, CUlimit limit, uint64_t value) {
  const auto it = c.charged.limits.find(limit);
  const uint64_t usual = it == c.charged.limits.end() ? 0 : it->second.usual;
  const uint64_t beyond = value - std::min(value, usual);
  return limit == CU_LIMIT_STACK_SIZE ? bytes_of_all_threads(c, beyond) : beyond;
}

void Charges::with_device_memory(uint64_t bytes, ChargeKind kind, std::function<void(bool)> then) {
  const uint64_t charge = bytes == 0 ? 0 : QuotaLease::charge_for(bytes);
  if ((bytes != 0 && charge == 0) || charge > limits_.device_bytes) return then(false);
  {
    std::lock_guard lock(parts_.mutex);
    QuotaLease& device = parts_.control.device();
    if (!device.charge(charge, kind)) {
      return ask_lease(device.lacking(charge), [this, bytes, kind, then](bool granted) {
        owner_.post_job([this, bytes, kind, then, granted] {
          if (!granted) return then(false);
          with_device_memory(bytes, kind, then);
        });
      });
    }
  }
  then(true);
}

void Charges::with_host_memory(uint64_t bytes, std::function<void(bool)> then) {
  if (bytes > limits_.host_bytes) return then(false);
  {
    std::lock_guard lock(parts_.mutex);
    QuotaLease& host = parts_.control.host();
    if (!host.charge(bytes, ChargeKind::kModules)) {
      return ask_lease(
          host.lacking(bytes),
          [this, bytes, then](bool granted) {
            owner_.post_job([this, bytes, then, granted] {
              if (!granted) return then(false);
              with_host_memory(bytes, then);
            });
          },
          wp::kHostMemory);
    }
  }
  then(true);
}

void Charges::with_context_place(std::function<void(bool)> then) {
  with_one(wp::kContextPlaces, ChargeKind::kContexts, std::move(then));
}

void Charges::with_leave_to_load(std::function<void(bool)> then) {
  if (!limits_.paces_loads) return then(true);
  with_one(wp::kModuleLoads, ChargeKind::kAllocations, std::move(then));
}

void Charges::with_one(wp::Resource resource, ChargeKind kind, std::function<void(bool)> then) {
  {
    std::lock_guard lock(parts_.mutex);
    if (!parts_.control.quota(resource).charge(1, kind))
      return ask_lease(
          1,
          [this, resource, kind, then](bool granted) {
            owner_.post_job([this, resource, kind, then, granted] {
              granted ? with_one(resource, kind, then) : then(false);
            });
          },
          resource);
  }
  then(true);
}

void Charges::ask_lease(uint64_t lacking, std::function<void(bool)> then, wp::Resource resource) {
  if (resource == wp::kDeviceMemory && parts_.memory.freed.has_passed()) {
    owner_.post_job([this, then = std::move(then)] {
      owner_.release_freed_memory();
      then(true);
    });
    return;
  }
  if (parts_.control.lost()) {
    owner_.post_job([then = std::move(then)] { then(false); });
    return;
  }
  if (parts_.control.leases_waiting() >= limits_.parked_calls) owner_.on_too_many_parked();
  parts_.control.ask_lease(resource, lacking, std::move(then));
}

bool Charges::pay_pool(ContextObject& c, uint64_t bytes) {
  if (parts_.control.device().charge(bytes, ChargeKind::kContexts)) {
    c.charged.own += bytes;
    return true;
  }
  if (!pool_lease_asked_ && !parts_.control.lost()) {
    pool_lease_asked_ = true;
    ask_lease(parts_.control.device().lacking(bytes), [this](bool) {
      std::lock_guard lock(parts_.mutex);
      pool_lease_asked_ = false;
    });
  }
  return false;
}

void Charges::charge_held(uint64_t operations, uint64_t bodies_bytes) {
  const MemoryTable& memory = parts_.memory;
  ControlLink& control = parts_.control;
  const uint64_t wanted = HeldMemory::chargeable(
      {parts_.handles.live(), memory.allocations.size() + memory.mappings.mapping_count(),
       textures.load(), operations, bodies_bytes});
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
          std::lock_guard lock(parts_.mutex);
          held_.state = granted ? HeldMemory::State::kSettled : HeldMemory::State::kRefused;
          held_.refused_ns = monotonic_ns();
          owner_.on_held_answered(granted);
          parts_.handles.set_closed(held_.refused());
        },
        wp::kHostMemory);
  }
  parts_.handles.set_closed(held_.refused());
}

void Charges::release_allocation(const Allocation& a) {
  if (const auto wire = parts_.memory.shared.forget(a.address))
    parts_.control.end_share(*wire, a.charged_bytes);
  else
    release_device(a.charged_bytes);
}

void Charges::release_module(ModuleObject& m) {
  if (m.charged != 0) release_device(m.charged, ChargeKind::kModules);
  if (m.charged_host != 0) parts_.control.release_host(m.charged_host);
  m.charged = m.charged_host = 0;
  for (const auto& clones : m.of_clones) release_module(*clones);
}

void Charges::release_context(ContextObject& c) {
  release_device(c.charged.own, ChargeKind::kContexts);
  parts_.control.release_places(c.charged.places);
  release_device(bytes_of_all_threads(c, c.charged.local_bytes), ChargeKind::kLocalMemory);
  for (const auto& [limit, of] : c.charged.limits) release_device(of.charged, ChargeKind::kLimits);
  for (const auto& m : c.kept_modules) release_module(*m);
  c.charged.own = c.charged.local_bytes = c.charged.places = 0;
  c.charged.limits.clear();
  c.kept_modules.clear();
}

}  // namespace sluice::worker
