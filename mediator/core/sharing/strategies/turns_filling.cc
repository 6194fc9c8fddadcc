// SPDX-License-Identifier: Apache-2.0
// Turns, filling: who runs below a holder that leaves the GPU idle.
#include <algorithm>

#include "mediator/core/sharing/sharing.h"
#include "mediator/core/sharing/strategies/turns.h"

namespace sluice::core {

bool Turns::leaves_gaps(VgpuId v) const {
  return v != policy::kNoVgpu && vgpus_[v].state == TurnState::kTurn &&
         wants_one_launch(v, sharing_.config.policy_config.latency_target_ns);
}

// Its blocks do not make room for others as they end.
bool Turns::keeps_sms(VgpuId v) const {
  const VgpuState& g = sharing_.vgpus[v];
  return std::any_of(g.sessions.begin(), g.sessions.end(), [&](SessionId s) {
    return sharing_.sessions[s].report.guest_keeps & SLUICE_KEEPS_SMS;
  });
}

// v's turn is over, and it has more to do; the turn of `next` will leave gaps. Not those between
// long launches: whether these are worth filling is known when they are there (fills_best()).
bool Turns::may_fill_below(VgpuId v, VgpuId next) const {
  const uint64_t short_ns = sharing_.config.visit_ns;
  return next != policy::kNoVgpu && vgpus_[v].level == kTurnLevel &&
         wants_one_launch(next, short_ns) && !wants_one_launch(v, short_ns) &&
         sharing_.policy->may_fill(v);
}

bool Turns::may_linger(VgpuId v) const {
  const VgpuState& g = sharing_.vgpus[v];
  return g.backlogged() && !g.paused && sharing_.policy->may_fill(v);
}

void Turns::let_linger(uint64_t until_ns) {
  linger_until_ns_ = until_ns;
  holder_had_done_ = launches_done(holder());
}

// Beyond their time: if a launch of the holder has ended since, which blocks without end below
// would not let begin.
bool Turns::may_go_on_lingering() const {
  const VgpuId h = holder();
  return leaves_gaps(h) && vgpus_[h].level > kTurnLevel && launches_done(h) != holder_had_done_ &&
         std::all_of(lingering_.begin(), lingering_.end(),
                     [&](VgpuId v) { return vgpus_[v].level == kTurnLevel && may_linger(v); });
}

VgpuId Turns::fills_best(VgpuId fills) const {
  const auto queues = [this](VgpuId w) { return !vgpus_[w].waits && launches_wanted(w) > 1; };
  return sharing_.policy->fills_best(queues, fills);
}

// One that waits for its turn begins below the holder. False: nobody does.
bool Turns::open_filler(uint64_t now_ns, ActionQueue& out) {
  const VgpuId h = holder();
  if (!lingering_.empty() || !leaves_gaps(h) || sharing_.reports.outstanding()) return false;
  // Its gaps are its own (SLUICE_GRANT_FILL).
  if (sharing_.vgpus[h].share.latency == policy::LatencyClass::kLow) return false;
  const VgpuId v = fills_best(policy::kNoVgpu);
  if (v == policy::kNoVgpu || v == h || vgpus_[v].state != TurnState::kOut) return false;
  if (!may_linger(v) || keeps_sms(v) || !has_place(v, kTurnLevel)) return false;
  settle(now_ns);
  if (vgpus_[h].level == kTurnLevel) rise(h, out);
  vgpus_[v].level = kTurnLevel;
  vgpus_[v].fills = true;
  grant(now_ns, v, out);
  vgpus_[v].state = TurnState::kLingering;
  lingering_.push_back(v);
  let_linger(now_ns + sharing_.config.linger_ns);
  settle(now_ns);
  return true;
}

// One that has nothing left to do, so that another may fill, that may not go on, or that has filled
// for long enough. False: there is none.
bool Turns::close_filler(uint64_t now_ns, ActionQueue& out) {
  if (lingering_.empty() || sharing_.reports.outstanding()) return false;
  const bool compares = now_ns >= compares_ns_;
  if (compares) compares_ns_ = now_ns + sharing_.config.linger_ns;
  return close_one(now_ns, lingering_, out, [&](VgpuId v) {
    return sharing_.vgpus[v].paused || (vgpus_[v].fills && !may_linger(v)) ||
           (compares && fills_best(v) != v);
  });
}

// The holder is above those that fill, from its next launch on. What it has launched came first.
void Turns::rise(VgpuId v, ActionQueue& out) {
  vgpus_[v].level = kAboveTurns;
  vgpus_[v].risen_at = launches_done(v) + launches_left(v);
  renew_grants(v, out);
}

// What the holder launches now comes after what those that fill have launched.
void Turns::note_progress(uint64_t now_ns, VgpuId v) {
  const bool filled =
      std::any_of(lingering_.begin(), lingering_.end(), [&](VgpuId w) { return vgpus_[w].fills; });
  if (!filled || v != holder() || launches_done(v) == holder_had_done_) return;
  if (launches_left(v) > 1 || vgpus_[v].recall) return;
  vgpus_[v].opened_ns = now_ns;
}

uint64_t Turns::launches_done(VgpuId v) const {
  return v == policy::kNoVgpu ? 0 : sum_of(v, &ReportSnapshot::guest_launches_done);
}

}  // namespace sluice::core
