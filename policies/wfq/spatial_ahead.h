// SPDX-License-Identifier: Apache-2.0
// The order of vGPUs by how far ahead they are, for wfq in space (wfq/spatial.cc, which explains
// it): the holders' rows, and from whom an SM may be taken, or when. Its own; it reads and
// compares, and takes nothing.
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

  int64_t lead(const Row& row) const { return clock_[row.vgpu].vtime + row.beyond; }

  // A decision has ended, in which virtual times stay as they are; or all rows are new.
  void forget_order() { leaders_level_ = kUnordered, questions_ = 0; }
  // Of its level, whoever is ahead of the key most and has had an SM for its turn; the first of
  // them. From a decision's second question on, vGPUs whose turns are over are kept in order.
  std::pair<VgpuId, int64_t> furthest_ahead(const Wanted& wanted) {
    turns_.pass(wanted.now_ns);
    Leader most{.lead = wanted.key, .place = 0};  // one that has as much is not ahead
    const auto look = [&](uint32_t place) {
      const Row& row = holders_[place];
      if (row.level != wanted.level || row.vgpu == wanted.by || !wanted.ripe(row)) return;
      if (const Leader l{lead(row), place, row.vgpu}; l > most) most = l;
    };
    if (wanted.urgent)
      for (uint32_t i = 0; i < holders_.size(); ++i) look(i);
    else if (questions_++ == 0)
      for (const VgpuId v : turns_.over()) look(own_[v].place);
    else
      most = first_leader(wanted);
    return {most.vgpu, most.lead - wanted.key};
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
    const int64_t by = lead(row) - wanted.key;
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
    if (leaders_level_ == row.level) put({lead(row), o.place, v});
  }
  uint64_t oldest(VgpuId v) const {
    if (steady_)
      return own_[v].sms.empty() ? kNever : own_[v].changed_ns;  // sets are what is to last
    uint64_t ns = kNever;
    for (const uint16_t i : own_[v].sms) ns = std::min(ns, sm_[i].since_ns);
    return ns;
  }

  // A holder that may be asked, as it was when it was put in order; of equal ones the first.
  struct Leader {
    int64_t lead = 0;
    uint32_t place = kNowhere;
    VgpuId vgpu = kNoVgpu;
    bool operator<(const Leader& o) const {
      return lead != o.lead ? lead < o.lead : place > o.place;
    }
    bool operator>(const Leader& o) const { return o < *this; }
  };
  static constexpr int32_t kUnordered = kIdle - 1;

  Leader first_leader(const Wanted& wanted) {
    if (leaders_level_ != wanted.level) {
      leaders_level_ = wanted.level;
      leaders_.clear();
      for (const VgpuId v : turns_.over())
        leaders_.push_back({lead(holders_[own_[v].place]), own_[v].place, v});
      std::make_heap(leaders_.begin(), leaders_.end());
    }
    Leader first{.lead = wanted.key}, asks;
    while (!leaders_.empty() && leaders_.front().lead > wanted.key) {
      const Leader l = leaders_.front();
      const bool asked = is_as_ordered(l);
      if (asked && l.vgpu != wanted.by) {
        first = l;
        break;
      }
      if (asked) asks = l;
      std::pop_heap(leaders_.begin(), leaders_.end());
      leaders_.pop_back();
    }
    if (asks.vgpu != kNoVgpu) put(asks);  // others may take of it
    return first;
  }
  void put(const Leader& l) {
    leaders_.push_back(l);
    std::push_heap(leaders_.begin(), leaders_.end());
  }
  // What has changed since has been put in anew.
  bool is_as_ordered(const Leader& l) const {
    const uint32_t place = own_[l.vgpu].place;
    if (place == kNowhere || !turns_.is_over(l.vgpu)) return false;
    const Row& row = holders_[place];
    return row.level == leaders_level_ && lead(row) == l.lead;
  }

  std::vector<Sm> sm_;
  Rows holders_;  // with held SMs
  Turns turns_;   // of the holders
  // Within a decision: a heap of those of that level whose turns are over, and of what they were.
  std::vector<Leader> leaders_;
  int32_t leaders_level_ = kUnordered;
  uint32_t questions_ = 0;
};

}  // namespace sluice::policy::wfq_spatial
