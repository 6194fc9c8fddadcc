#include "mediator/worker/gate.h"

#include <algorithm>

#include "mediator/base/check.h"

namespace sluice::worker {

Gate::Gate(const sluice_host_page* host, const sluice_signal_page* signal,
           sluice_report_header* report, uint64_t started_ns, std::function<void()> ring)
    : host_(host),
      signal_(signal),
      report_(report),
      started_ns_(started_ns),
      ring_(std::move(ring)) {}

void Gate::store_in_flight() {
  __atomic_store_n(&report_->in_flight, in_flight_, __ATOMIC_SEQ_CST);
}

bool Gate::stale(uint64_t now_ns) const {
  uint64_t beat = std::max(started_ns_, __atomic_load_n(&host_->heartbeat_ns, __ATOMIC_RELAXED));
  return now_ns > beat && now_ns - beat > kStaleHeartbeatNs;
}

bool Gate::open(uint64_t now_ns) const { return (grant() & SLUICE_GRANT_OPEN) || stale(now_ns); }

bool Gate::contended() const { return grant() & SLUICE_GRANT_CONTENDED; }

bool Gate::enter(uint64_t now_ns, uint32_t* generation) {
  ++in_flight_;
  store_in_flight();
  uint64_t g = grant();
  if (g & SLUICE_GRANT_OPEN) {
    *generation = std::max(1u, SLUICE_GRANT_GENERATION(g));
    return true;
  }
  if (stale(now_ns)) {
    // Just above the last eviction, so that the launch does not leave at once, and below whatever a
    // restarted sluiced hands out, so that it can evict it.
    uint64_t evict = __atomic_load_n(&signal_->evict, __ATOMIC_SEQ_CST);
    *generation = std::max(static_cast<uint32_t>(evict), SLUICE_GRANT_GENERATION(g)) + 1;
    return true;
  }
  --in_flight_;
  store_in_flight();
  // sluiced may have seen the count above and now waits for it to fall.
  note_if_left(g, now_ns);
  return false;
}

void Gate::leave(uint64_t now_ns, uint32_t count) {
  if (count == 0) return;
  SLUICE_CHECK(count <= in_flight_);
  in_flight_ -= count;
  store_in_flight();
  note_if_left(grant(), now_ns);
}

void Gate::note_if_left(uint64_t grant, uint64_t now_ns) {
  if (in_flight_ != 0 || (grant & SLUICE_GRANT_OPEN)) return;
  uint32_t generation = SLUICE_GRANT_GENERATION(grant);
  if (generation <= left_generation_) return;
  left_generation_ = generation;
  __atomic_store_n(&report_->left_ns, now_ns, __ATOMIC_RELAXED);
  __atomic_store_n(&report_->left_generation, generation, __ATOMIC_RELEASE);
  ring_();
}

void Gate::set_demand(uint32_t demand) {
  if (demand == demand_) return;
  uint32_t before = demand_;
  demand_ = demand;
  __atomic_store_n(&report_->demand, demand, __ATOMIC_SEQ_CST);
  if (before == 0) {
    if (!(grant() & SLUICE_GRANT_OPEN)) ring_();
  } else if (demand == 0) {
    if (grant() & SLUICE_GRANT_CONTENDED) ring_();
  }
}

void Gate::reset(uint64_t now_ns) {
  leave(now_ns, in_flight_);
  set_demand(0);
}

}  // namespace sluice::worker
