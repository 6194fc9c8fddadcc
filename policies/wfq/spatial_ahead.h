// SPDX-License-Identifier: Apache-2.0
// Who is ahead of whom, for wfq in space (wfq/spatial.cc, which explains it): the holders' rows,
// and from whom an SM may be taken, or when. Its own; it reads and compares, and takes nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "policies/wfq/spatial_figures.h"
#include "policies/wfq/spatial_rows.h"

namespace sluice::policy::wfq_spatial {

class Ahead : protected Figures {
 protected:
  explicit Ahead(const Config& config) : Figures(config), sm_(sms_) {}

  void drop_holder(VgpuId v) {
    Own& o = own_[v];
    if (o.held || o.place == kNowhere) return;
    turns_.remove(v);
    if (const VgpuId moved = holders_.drop(o.place); moved != kNoVgpu) own_[moved].place = o.place;
    o.place = kNowhere;
  }

  int64_t lead(const Row& row, const Wanted& wanted) const {
    return clock_[row.vgpu].vtime + row.beyond - wanted.key;
  }

  // Of its level, whoever is ahead of the key most and has had an SM for its turn; the first of
  // them.
  std::pair<VgpuId, int64_t> furthest_ahead(const Wanted& wanted) {
    VgpuId victim = kNoVgpu;
    int64_t most = 0;
    uint32_t first = kNowhere;
    const auto look = [&](uint32_t place) {
      const Row& row = holders_[place];
      const int64_t by = lead(row, wanted);
      if (row.level != wanted.level || row.vgpu == wanted.by || by <= 0 || !wanted.ripe(row))
        return;
      if (by > most || (by == most && place < first)) victim = row.vgpu, most = by, first = place;
    };
    if (wanted.urgent) {
      for (uint32_t i = 0; i < holders_.size(); ++i) look(i);
      return {victim, most};
    }
    turns_.pass(wanted.now_ns);
    for (const VgpuId v : turns_.over()) look(own_[v].place);
    return {victim, most};
  }
  // When the first may be asked, at their present speeds; at most wake_ns.
  uint64_t when_ahead(const Wanted& wanted, uint64_t wake_ns) {
    if (wanted.urgent) return when_ahead(wanted, holders_.end(), wake_ns);
    for (const VgpuId v : turns_.over()) when_ahead(wanted, holders_[own_[v].place], wake_ns);
    turns_.going_on([&](VgpuId v, uint64_t end_ns) {
      if (end_ns < wake_ns) when_ahead(wanted, holders_[own_[v].place], wake_ns);
      return end_ns < wake_ns;
    });
    return wake_ns;
  }
  uint64_t when_ahead(const Wanted& wanted, const Row* end, uint64_t wake_ns) const {
    for (const Row* row = holders_.begin(); row != end; ++row) when_ahead(wanted, *row, wake_ns);
    return wake_ns;
  }
  void when_ahead(const Wanted& wanted, const Row& row, uint64_t& wake_ns) const {
    if (row.level != wanted.level || row.vgpu == wanted.by) return;
    const int64_t by = lead(row, wanted);
    const uint64_t ripe_ns = row.oldest_ns + wanted.turn_ns(row);
    if (ripe_ns >= wake_ns || (by > 0 && ripe_ns <= wanted.now_ns)) return;
    const double until = by > 0 ? 0 : std::min(static_cast<double>(1 - by) * row.ns_per_lead, 1e12);
    wake_ns = std::min(wake_ns, std::max(ripe_ns, wanted.now_ns + static_cast<uint64_t>(until)));
  }
  // What exchange() has to know of a holder, after something of it has changed.
  void write_row(VgpuId v) {
    const Own& o = own_[v];
    Row& row = holders_[o.place];
    holders_.set_level(
        row, clock_[v].backlogged() ? static_cast<int32_t>(clock_[v].share.priority) : kIdle);
    row.oldest_ns = oldest(v);
    row.ns_per_lead = 1 / (static_cast<double>(std::max(o.held + o.leaving, 1u)) * o.per_weight);
    row.held = o.held;
    row.per_weight = o.per_weight;
    row.known_to_sm_ns = o.known_to_sm_ns, row.idle_at_sm_ns = o.idle_at_sm_ns;
    row.drain = static_cast<int64_t>(o.drain_ns * o.per_weight);
    turns_.set(v, turn_end(row));
  }
  uint64_t oldest(VgpuId v) const {
    if (steady_)
      return own_[v].sms.empty() ? kNever : own_[v].changed_ns;  // sets are what is to last
    uint64_t ns = kNever;
    for (const uint16_t i : own_[v].sms) ns = std::min(ns, sm_[i].since_ns);
    return ns;
  }

  std::vector<Sm> sm_;
  Rows holders_;  // with held SMs
  Turns turns_;   // of the holders
};

}  // namespace sluice::policy::wfq_spatial
