// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/streams/gate.h"

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
  if (shut_) return false;
  uint64_t beat = std::max(started_ns_, __atomic_load_n(&host_->heartbeat_ns, __ATOMIC_RELAXED));
  return now_ns > beat && now_ns - beat > kStaleHeartbeatNs;
}

bool Gate::open(uint64_t now_ns) const { return (grant() & SLUICE_GRANT_OPEN) || stale(now_ns); }

bool Gate::contended() const { return grant() & SLUICE_GRANT_CONTENDED; }

bool Gate::calling_back() const {
  if (flights_.empty()) return false;
  const uint64_t g = grant();
  return (g & SLUICE_GRANT_RECALL) && flights_.front().generation < SLUICE_GRANT_GENERATION(g) &&
         kept_generation_ < SLUICE_GRANT_GENERATION(g);
}

bool Gate::keeping(Grant* to) const {
  if (!calling_back()) return false;
  const uint64_t g = grant();
  constexpr uint64_t kWanted =
      SLUICE_GRANT_OPEN | SLUICE_GRANT_RECALL | SLUICE_GRANT_KEEP | SLUICE_GRANT_PART;
  if ((g & kWanted) != kWanted || whole_generation_ >= SLUICE_GRANT_GENERATION(g)) return false;
  *to = read_open_grant(g);
  return true;
}

void Gate::kept(uint32_t generation, uint64_t now_ns) {
  kept_generation_ = generation;
  note_if_left(grant(), now_ns);
}

void Gate::call_back_whole(uint32_t generation) {
  whole_generation_ = generation;
  __atomic_store_n(&report_->recall, generation - 1, __ATOMIC_SEQ_CST);
  ring_();
}

void Gate::set_keeps(uint32_t flags) {
  if (flags == keeps_) return;
  keeps_ = flags;
  __atomic_store_n(&report_->keeps, flags, __ATOMIC_SEQ_CST);
}

// The set cannot change while it is read: sluiced writes that half of the page again only after
// this generation has left, and it has not while this launch is counted in flight.
Grant Gate::read_open_grant(uint64_t word) const {
  Grant g;
  g.generation = std::max(1u, SLUICE_GRANT_GENERATION(word));
  g.part = word & SLUICE_GRANT_PART;
  g.level = SLUICE_GRANT_LEVEL(word);
  g.fill = word & SLUICE_GRANT_FILL;
  g.standby = word & SLUICE_GRANT_STANDBY;
  for (uint32_t i = 0; g.part && i < SmSet::kWords; ++i)
    g.sms.set_word(i, __atomic_load_n(&host_->sms[g.generation & 1][i], __ATOMIC_SEQ_CST));
  return g;
}

bool Gate::enter(uint64_t now_ns, Grant* to) {
  if (in_flight_ == 0) {
    in_flight_since_ns_ = now_ns;
    __atomic_store_n(&report_->in_flight_ns, now_ns, __ATOMIC_RELAXED);
  }
  ++in_flight_;
  store_in_flight();
  uint64_t g = grant();
  if (g & SLUICE_GRANT_OPEN) {
    *to = read_open_grant(g);
  } else if (stale(now_ns)) {
    // Just above the last eviction, so that the launch does not leave at once, and below whatever a
    // restarted sluiced hands out, so that it can evict it.
    uint64_t evict = __atomic_load_n(&signal_->evict, __ATOMIC_SEQ_CST);
    *to = {.generation = std::max(static_cast<uint32_t>(evict), SLUICE_GRANT_GENERATION(g)) + 1,
           .part = false,
           .sms = {},
           .level = 0,
           .fill = false,
           .standby = false};
  } else {
    --in_flight_;
    store_in_flight();
    // sluiced may have seen the count above and now waits for it to fall.
    note_if_left(g, now_ns);
    return false;
  }
  if (flights_.empty() || flights_.back().generation < to->generation)
    flights_.push_back({to->generation, 0});
  ++flights_.back().count;
  // sluiced may have counted this launch as one of the generation that it recalled.
  note_if_left(g, now_ns);
  return true;
}

bool Gate::peek(Grant* to) const {
  const uint64_t g = grant();
  if (!(g & SLUICE_GRANT_OPEN)) return false;
  *to = read_open_grant(g);
  return grant() == g;  // or the set may have been written anew meanwhile
}

void Gate::runs_anywhere(const Grant& under) {
  if (under.part) count_unconfined(1);
}

void Gate::leave(uint64_t now_ns, bool confined, const Grant& of) {
  SLUICE_CHECK(in_flight_ > 0);
  if (--in_flight_ == 0) {
    flight_ns_ += now_ns - std::min(in_flight_since_ns_, now_ns);
    __atomic_store_n(&report_->flight_ns, flight_ns_, __ATOMIC_RELAXED);
  }
  auto flight = flights_.begin();
  while (flight != flights_.end() && flight->generation < of.generation) ++flight;
  SLUICE_CHECK(flight != flights_.end());
  if (--flight->count == 0) flights_.erase(flight);
  store_in_flight();
  if (of.part && !confined) count_unconfined(-1);
  note_if_left(grant(), now_ns);
}

void Gate::count_unconfined(int change) {
  const bool before = unconfined_ != 0;
  unconfined_ += static_cast<uint32_t>(change);
  __atomic_store_n(&report_->unconfined, unconfined_, __ATOMIC_SEQ_CST);
  if (before != (unconfined_ != 0)) ring_();
}

void Gate::note_if_left(uint64_t grant, uint64_t now_ns) {
  uint32_t generation = SLUICE_GRANT_GENERATION(grant);
  if (grant & SLUICE_GRANT_OPEN) {
    if (!(grant & SLUICE_GRANT_RECALL)) return;
    if (!flights_.empty() && kept_generation_ < generation)
      generation = std::min(generation, flights_.front().generation);
    --generation;
  } else if (in_flight_ != 0) {
    return;
  }
  if (generation <= left_generation_) return;
  left_generation_ = generation;
  __atomic_store_n(&report_->left_ns, now_ns, __ATOMIC_RELAXED);
  __atomic_store_n(&report_->left_generation, generation, __ATOMIC_RELEASE);
  ring_();
}

void Gate::set_demand(uint32_t demand, uint64_t now_ns) {
  if (demand == demand_) return;
  uint32_t before = demand_;
  demand_ = demand;
  if (demand == 0 || before == 0) note_rhythm(now_ns);
  __atomic_store_n(&report_->demand, demand, __ATOMIC_SEQ_CST);
  if (before == 0) {
    const uint64_t g = grant();
    if (!(g & SLUICE_GRANT_OPEN) || (g & SLUICE_GRANT_STANDBY)) ring_();
  } else if (demand == 0) {
    if (grant() & SLUICE_GRANT_CONTENDED) ring_();
  }
}

void Gate::note_rhythm(uint64_t now_ns) {
  const auto store = [](uint64_t& to, uint64_t ns) { __atomic_store_n(&to, ns, __ATOMIC_RELAXED); };
  if (demand_ == 0) {
    rhythm_.end(now_ns);
    __atomic_store_n(&report_->idles, ++idles_, __ATOMIC_RELAXED);
    store(report_->burst_ns, rhythm_.burst_ns());
  } else {
    rhythm_.begin(now_ns);
    store(report_->gap_ns, rhythm_.gap_ns());
  }
  store(report_->demand_changed_ns, now_ns);
}

void Gate::reset(uint64_t now_ns) {
  in_flight_ = 0;
  flights_.clear();
  store_in_flight();
  if (unconfined_ != 0) count_unconfined(-static_cast<int>(unconfined_));
  note_if_left(grant(), now_ns);
  set_demand(0, now_ns);
}

}  // namespace sluice::worker
