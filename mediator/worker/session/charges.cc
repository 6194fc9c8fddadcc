// Memory that a session takes besides its allocations: it is charged before it is taken, and asked
// of sluiced where the session's lease does not hold it (core/quota_lease.h).
#include <algorithm>
#include <limits>

#include "mediator/base/clock.h"
#include "mediator/worker/session/session.h"

namespace sluice::worker {

namespace wp = worker_protocol;

namespace {
uint64_t times(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<uint64_t>::max() : product;
}
}  // namespace

void Session::with_device_memory(uint64_t bytes, ChargeKind kind, std::function<void(bool)> then) {
  const uint64_t charge = bytes == 0 ? 0 : QuotaLease::charge_for(bytes);
  if ((bytes != 0 && charge == 0) || charge > p_.start.memory_limit_bytes) return then(false);
  {
    std::lock_guard lock(mutex_);
    if (!quota_.charge(charge, kind)) {
      return ask_lease(quota_.lacking(charge), [this, bytes, kind, then](bool granted) {
        post([this, bytes, kind, then, granted] {
          if (!granted) return then(false);
          with_device_memory(bytes, kind, then);
        });
      });
    }
  }
  then(true);
}

void Session::with_host_memory(uint64_t bytes, std::function<void(bool)> then) {
  if (bytes > p_.start.host_memory_bytes) return then(false);
  {
    std::lock_guard lock(mutex_);
    if (!host_quota_.charge(bytes, ChargeKind::kModules)) {
      return ask_lease(
          host_quota_.lacking(bytes),
          [this, bytes, then](bool granted) {
            post([this, bytes, then, granted] {
              if (!granted) return then(false);
              with_host_memory(bytes, then);
            });
          },
          wp::kHostMemory);
    }
  }
  then(true);
}

void Session::release_module(ModuleObject& m) {
  if (m.charged != 0) return_lease(m.charged, ChargeKind::kModules);
  if (m.charged_host != 0) return_host_memory(m.charged_host);
  m.charged = m.charged_host = 0;
}

void Session::release_context(ContextObject& c) {
  return_lease(c.charged, ChargeKind::kContexts);
  return_lease(times(c.local_bytes, c.threads_at_once), ChargeKind::kLocalMemory);
  for (const auto& [limit, of] : c.limits) return_lease(of.charged, ChargeKind::kLimits);
  for (const auto& m : c.kept_modules) release_module(*m);
  c.charged = c.local_bytes = 0;
  c.limits.clear();
  c.kept_modules.clear();
}

uint64_t Session::limit_bytes(const ContextObject& c, CUlimit limit, uint64_t value) {
  const auto it = c.limits.find(limit);
  const uint64_t usual = it == c.limits.end() ? 0 : it->second.usual;
  const uint64_t beyond = value - std::min(value, usual);
  return limit == CU_LIMIT_STACK_SIZE ? times(beyond, c.threads_at_once) : beyond;
}

bool Session::pay_pool(ContextObject& c, uint64_t bytes) {
  if (quota_.charge(bytes, ChargeKind::kContexts)) {
    c.charged += bytes;
    return true;
  }
  if (!pool_asked_ && !sluiced_gone_) {
    pool_asked_ = true;
    ask_lease(quota_.lacking(bytes), [this](bool) {
      std::lock_guard lock(mutex_);
      pool_asked_ = false;
    });
  }
  return false;
}

// With mutex_ held: settles `asked`, or asks sluiced for what is missing.
void Session::settle_local(const std::shared_ptr<ContextObject>& context,
                           const std::shared_ptr<LocalGrant>& asked, bool may_ask) {
  ContextObject& c = *context;
  const uint64_t wanted = asked->bytes_per_thread;
  const uint64_t more = times(wanted - std::min(wanted, c.local_bytes), c.threads_at_once);
  if (c.closed) {
    asked->refused = true;
  } else if (more != 0) {
    if (quota_.charge(more, ChargeKind::kLocalMemory)) {
      c.local_bytes = wanted;
    } else if (may_ask && more <= p_.start.memory_limit_bytes) {
      return ask_lease(quota_.lacking(more), [this, context, asked](bool granted) {
        std::lock_guard lock(mutex_);
        settle_local(context, asked, granted);  // somebody else may have used what was granted
        if (!asked->answered->complete) return;
        return_lease(0, ChargeKind::kLocalMemory);  // what was leased for nothing
        engine_.poll(monotonic_ns());
        after_engine();
      });
    } else {
      asked->refused = true;
    }
  }
  if (c.local_asked == asked) c.local_asked = nullptr;
  asked->answered->complete = true;
}

void Session::charge_local(StreamObject& stream, uint64_t bytes_per_thread,
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
    engine_.submit_wait(stream.id, (*grant)->answered, monotonic_ns());
}

}  // namespace sluice::worker
