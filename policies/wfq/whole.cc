// SPDX-License-Identifier: Apache-2.0
#include "policies/wfq/whole.h"

#include <utility>

namespace sluice::policy {

WfqWhole::WfqWhole(const Config& config)
    : config_(config),
      clock_(config),
      credits_(config.machine.sm_count),
      length_(config),
      budget_(config.handover_loss) {}

// ---- events -----------------------------------------------------------------------------------

void WfqWhole::on_vgpu_added(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions&) {
  clock_.add(v, share);
  if (v >= work_.size()) {
    work_.resize(v + 1);
    pauses_.resize(v + 1);
  }
  amends_.add(v);
  waiting_.add(v, clock_[v].vtime);
  work_[v] = {};
  pauses_[v] = {};
  // Or who is made anew again and again would come with a burst each time.
  credits_.add(now_ns, v, share, latency(v) == LatencyClass::kLow ? 0 : most(v));
}

void WfqWhole::on_vgpu_changed(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) {
  on_reweighed(now_ns, v, share, out);
  decide(now_ns, out);
}

void WfqWhole::on_reweighed(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions&) {
  let_go(now_ns);
  const bool waited = waits(v);
  if (waited) stop_waiting(v);
  settle(now_ns, v);
  const VgpuShare before = clock_[v].share;
  clock_.change(v, share);
  amends_.changed(v, before.weight);
  credits_.change(v, clock_[v].share);
  waiting_.due[v] = clock_[v].vtime;
  if (v == holder_) hold_.turn.overrun_ns = 0;
  // What it held at another level is no turn at this one: others that are due need not wait.
  if (v == holder_ && before.priority != level(v)) hold_.turn.start_ns = 0;
  if (waited) wait(now_ns, v);
}

void WfqWhole::on_vgpu_removed(uint64_t, VgpuId v, Actions&) {
  SLUICE_CHECK(v != holder_ && !clock_[v].backlogged());
  amends_.end(v);
  credits_.remove(v);
  clock_.remove(v);
}

void WfqWhole::on_arrival(uint64_t now_ns, VgpuId v, Actions& out) {
  if (clock_[v].backlogged()) return;
  settle(now_ns, v);
  amends_.became_busy(now_ns, v);
  const uint64_t lingered_ns = end_pause(now_ns, v);
  const int64_t before = clock_[v].vtime;
  clock_.turn_busy(v);
  credits_.turn_busy(v);
  // After lingering, the turn goes on.
  waiting_.due[v] = lingered_ns ? waiting_.due[v] + clock_[v].vtime - before : clock_[v].vtime;
  waiting_.since_ns[v] = now_ns;
  pauses_[v].had_no_turn = v != holder_;
  pauses_[v].had_credit = true;
  if (v != holder_) wait(now_ns, v);
  decide(now_ns, out);
}

void WfqWhole::on_launch_queued(uint64_t now_ns, const Launch& launch, Actions& out) {
  const VgpuId v = launch.vgpu;
  work_[v].report(launch);
  settle(now_ns, v);
  if (!waits(v)) return;
  stop_waiting(v);
  wait(now_ns, v);
  decide(now_ns, out);
}

void WfqWhole::on_idle(uint64_t now_ns, VgpuId v, Actions& out) {
  if (!clock_[v].backlogged()) return;
  note_burst(v);
  const bool lingers = v == holder_ && hold_.state == Hold::kHeld && linger(now_ns, v);
  clock_.turn_idle(v);
  credits_.turn_idle(now_ns, v);
  let_go(now_ns);
  if (waits(v)) stop_waiting(v);
  amends_.became_idle(now_ns, v);
  work_[v] = {};
  pauses_[v].since_ns = now_ns;
  pauses_[v].charged_sm_ns = 0;
  if (lingers) {
    hold_.state = Hold::kLingers;
    hold_.keep_until_ns = now_ns + keep_ns(v);
    if (!pays_its_pauses(v)) idling_.begin(now_ns);
  }
  decide(now_ns, out);
}

void WfqWhole::on_usage(uint64_t, VgpuId v, const Usage& usage) {
  credits_.pay(v, level(v), static_cast<double>(usage.sm_ns));
  if (!clock_[v].backlogged()) pauses_[v].charged_sm_ns += usage.sm_ns;
  if (v == holder_ && clock_[v].backlogged()) work_[v].use(usage.sm_ns);
  if (v == holder_ && hold_.state == Hold::kDrains) {
    hold_.drain_sm_ns = std::min(hold_.drain_sm_ns + usage.sm_ns, FairClock::kMaxUsage);
    return;  // on_left() says at what time it is charged
  }
  amends_.use(v, usage.sm_ns, [this](VgpuId i, uint64_t sm_ns) { charge(i, sm_ns); });
  charge(v, usage.sm_ns);
}

void WfqWhole::charge(VgpuId v, uint64_t sm_ns) {
  const int64_t back = clock_.charge(v, sm_ns);
  if (back) {
    if (holder_ != kNoVgpu && level(holder_) == level(v))
      hold_.turn.rank = std::max(hold_.turn.rank - back, -FairClock::kRebaseAt);
    for (VgpuId i = 0; i < work_.size(); ++i)
      if (level(i) == level(v)) waiting_.rebase(i, back);
  }
  if (waits(v)) {  // charged beside the holder
    if (is_off(v, waiting_.due[v], quantum(v))) waiting_.due[v] = clock_[v].vtime;
    waiting_.rank[v] = rank(v);
    waiting_.levels[level(v)].by_rank.update(v);
  }
}

void WfqWhole::on_left(uint64_t now_ns, VgpuId v, LeftReason, Actions& out) {
  if (v != holder_) return;
  if (hold_.state == Hold::kLingers) stop_lingering(now_ns);
  if (hold_.state == Hold::kDrains) end_drain(now_ns);
  if (clock_[v].backlogged()) waiting_.due[v] = next_due();
  if (!hold_.interrupted) waiting_.since_ns[v] = now_ns;
  holder_ = kNoVgpu;
  hold_.state = Hold::kFree;
  if (clock_[v].backlogged()) wait(now_ns, v);
  decide(now_ns, out);
}

void WfqWhole::on_wake(uint64_t now_ns, Actions& out) {
  wake_ns_ = 0;
  decide(now_ns, out);
}

// Who is likely to have the next turn; where its launches are short, one that queues instead: the
// gaps between its own launches would leave the GPU idle. At the end of a pause that is
// filled the holder waits for others' blocks, and pays for what these use meanwhile: where its
// launches take much longer than its pauses it has the GPU alone, most so where it would linger.
VgpuId WfqWhole::fills_best(const Queues& queues, VgpuId fills) const {
  if (fills != kNoVgpu) return behind(fills, queues);
  if (holder_ != kNoVgpu && pauses_[holder_].gap_ns != 0) {
    const uint64_t from = pauses_shortly(holder_) ? kFillsFromKept : kFillsFrom;
    if (pauses_[holder_].gap_ns * sms() < work_[holder_].reported / from) return kNoVgpu;
  }
  for (uint32_t i = kPriorityLevels; i-- > 0;) {
    const Waiting::Level& waiting = waiting_.levels[i];
    if (waiting.by_rank.empty()) continue;
    if (!waiting.bursts.empty()) return waiting.bursts.top();
    const VgpuId next = waiting.short_ones.empty() ? behind(waiting.by_rank.top(), queues)
                                                   : waiting.short_ones.top();
    if (work_[next].reported > kFillsWithGaps * longest_keep_ns() * sms()) return next;
    const VgpuId last = least_served(i, queues);
    return last == kNoVgpu ? next : last;
  }
  return kNoVgpu;
}

// The least served of those that queue, if it is behind v by more than a turn; otherwise v. Ranks
// do not show that: whoever fills is charged, but keeps its place in the order of turns.
VgpuId WfqWhole::behind(VgpuId v, const Queues& queues) const {
  const VgpuId last = least_served(level(v), queues);
  const int64_t turn = virtual_ns(v, quantum(v));
  return last != kNoVgpu && clock_[last].vtime < clock_[v].vtime - turn ? last : v;
}

// Of those that wait and keep launches queued.
VgpuId WfqWhole::least_served(uint32_t level, const Queues& queues) const {
  VgpuId last = kNoVgpu;
  waiting_.levels[level].by_rank.descend([&](VgpuId v) {
    if ((last == kNoVgpu || clock_[v].vtime < clock_[last].vtime) && queues(v)) last = v;
    return true;
  });
  return last;
}

uint64_t WfqWhole::quantum_ns() const {  // at equal weights, for people
  uint32_t busy = 1;
  for (uint32_t i = 0; i < kPriorityLevels; ++i) busy = std::max(busy, clock_.busy(i));
  return length_.of(1.0 / busy);
}

// ---- rules ------------------------------------------------------------------------------------

WfqWhole::Next WfqWhole::next(uint64_t now_ns) {
  for (uint32_t i = kPriorityLevels; i-- > 0;) {
    Waiting::Level& waiting = waiting_.levels[i];
    if (waiting.by_rank.empty()) continue;
    const VgpuId first = waiting.by_rank.top();
    if (const VgpuId v = first_burst(now_ns, i); v != kNoVgpu) {
      if (v == first || !turn_is_overdue(first) || bursts_before(v, first) || covered(v))
        return {v, /*before_its_turn=*/true};
    }
    if (!waiting.short_ones.empty() && turn_is_overdue(first)) {
      const VgpuId v = before_overdue(first);
      return v == kNoVgpu ? Next{first} : Next{v, /*before_its_turn=*/true};
    }
    while (!waiting.short_ones.empty()) {
      const VgpuId v = waiting.short_ones.top();
      if (goes_first(v)) return {v, /*before_its_turn=*/true};
      // Too far ahead of V: until its next turn it is like the others.
      waiting.short_ones.remove(v);
      watch(now_ns, v);
    }
    return {first};
  }
  return {};
}

// The shortest of those that have credit.
VgpuId WfqWhole::first_burst(uint64_t now_ns, uint32_t level) {
  auto& of_level = waiting_.levels[level].bursts;
  while (!of_level.empty()) {
    const VgpuId v = of_level.top();
    if (bursts(v)) return v;
    of_level.remove(v);
    wait_like_others(now_ns, v);
  }
  return kNoVgpu;
}

// Patience is by entitlement: a light vGPU would take minutes to miss what a heavy one does.
bool WfqWhole::turn_is_overdue(VgpuId v) const {
  if (lag_exceeds_quantum(v)) return true;
  const VgpuShare& share = clock_[v].share;
  const auto weights = static_cast<double>(std::max<int64_t>(clock_.weight(share.priority), 1));
  const double of_equal = share.weight * clock_.busy(share.priority) / weights;
  return credits_.has_waited(v, most(v) * std::min(of_equal, 1.0));
}

// Of those that may go before it, one precedes another only if its work is at most half as long. If
// any difference were enough, the longest of many would be served last every time. A launch that
// others interrupt is also taken for longer than it is, which would keep its vGPU last.
VgpuId WfqWhole::before_overdue(VgpuId overdue) const {
  VgpuId best = kNoVgpu;
  waiting_.levels[level(overdue)].short_ones.descend([&](VgpuId v) {
    const bool shorter = best == kNoVgpu || work_[v].rest <= work_[best].rest / 2;
    if (shorter && covered(v)) best = v;
    return best != v;
  });
  return best;
}

// By then its sure credit has come to what it wants, unless higher priorities run meanwhile.
void WfqWhole::watch(uint64_t now_ns, VgpuId v) {
  const KnownWork& w = work_[v];
  if (w.rest == 0 || static_cast<double>(w.used + w.rest) > sure_burst(v)) return;
  settle(now_ns, v);
  const double in_ns = credits_.sure_in_ns(v, static_cast<double>(w.rest));
  waiting_.covered_at_ns[v] =
      now_ns + std::max(static_cast<uint64_t>(std::max(in_ns, 0.0)) + 1, TurnLength::kTickNs);
  waiting_.uncovered.push(v);
}

void WfqWhole::look_again(uint64_t now_ns) {
  while (!waiting_.uncovered.empty() &&
         waiting_.covered_at_ns[waiting_.uncovered.top()] <= now_ns) {
    const VgpuId v = waiting_.uncovered.top();
    waiting_.uncovered.remove(v);
    settle(now_ns, v);
    waiting_.levels[level(v)].short_ones.push(v);
  }
}

int64_t WfqWhole::next_due() const {
  const uint64_t turn_ns = quantum(holder_);
  const int64_t due = waiting_.due[holder_] + virtual_ns(holder_, turn_ns);
  return is_off(holder_, due, turn_ns) ? clock_[holder_].vtime : due;
}

uint64_t WfqWhole::quantum(VgpuId v) const {
  const VgpuShare& share = clock_[v].share;
  const auto weights = static_cast<double>(std::max<int64_t>(clock_.weight(share.priority), 1));
  const uint64_t turn_ns = length_.of(std::min(static_cast<double>(share.weight) / weights, 1.0));
  // Shorter turns are as many more (EEVDF's slice): the share stays.
  if (share.latency == LatencyClass::kLow)
    return std::max(turn_ns / kClassFactor, std::min(turn_ns, length_.least_quantum()));
  if (share.latency == LatencyClass::kBatch)
    return std::max(turn_ns, std::min(turn_ns * kClassFactor, config_.max_quantum_ns));
  return turn_ns;
}

uint64_t WfqWhole::correct(uint64_t turn_ns) const {
  const double most = static_cast<double>(turn_ns) / 2;
  return turn_ns - static_cast<uint64_t>(std::clamp(hold_.turn.overrun_ns, 0.0, most)) +
         static_cast<uint64_t>(std::clamp(-hold_.turn.overrun_ns, 0.0, most));
}

bool WfqWhole::preempts(uint64_t now_ns, const Next& n, uint64_t quantum_ns) {
  // One that came back and would end sooner on a fluid GPU waits no longer than a short one.
  const bool came_first = pauses_[n.vgpu].gap_ns && waiting_.rank[n.vgpu] < hold_.turn.rank &&
                          latency(n.vgpu) != LatencyClass::kBatch;
  if (!came_first && !n.before_its_turn) return false;
  if (!came_first && hold_.turn.was_overdue && !covered(n.vgpu) && !bursts_before(n.vgpu, holder_))
    return false;
  if (handover_ns() >= quantum_ns) return false;
  if (holder_goes_first() && !shorter(n) && !bursts_before(n.vgpu, holder_)) return false;
  return budget_.affords(now_ns, preemption_ns());
}

uint64_t WfqWhole::finish() const {
  const uint64_t rest_ns = rest_of_holder_ns();
  return rest_ns > 0 && rest_ns <= handover_ns() ? handover_ns() : 0;
}

bool WfqWhole::linger(uint64_t now_ns, VgpuId v) {
  if (!pauses_shortly(v)) return false;
  const Next n = next(now_ns);
  if (n.vgpu == kNoVgpu) return false;
  if (!pays_its_pauses(v) && !idling_.affords(now_ns, keep_ns(v), length_.handover_ns()))
    return false;
  if (level(n.vgpu) != level(v)) return level(n.vgpu) < level(v);
  // If it were here now, it would go on.
  if (n.before_its_turn || waiting_.due[n.vgpu] < waiting_.due[v]) return false;
  return held_ns(now_ns) < quantum(v) || waiting_.due[n.vgpu] > next_due();
}

// ---- decisions --------------------------------------------------------------------------------

void WfqWhole::decide(uint64_t now_ns, Actions& out) {
  if (hold_.state == Hold::kDrains) return;  // on_left() decides
  settle_holder_and_first(now_ns);
  look_again(now_ns);
  hold_back(now_ns);
  Next n = next(now_ns);
  if (n.vgpu != kNoVgpu && hold_.state == Hold::kFree) {
    begin(now_ns, n, out);
    n = next(now_ns);
  }
  if (n.vgpu == kNoVgpu) return wait_for_amends(now_ns, out);
  const bool above = level(n.vgpu) > level(holder_);
  if (hold_.state == Hold::kLingers && now_ns < hold_.keep_until_ns && !above)
    return wake_at(hold_.keep_until_ns, out);
  if (!clock_[holder_].backlogged() || above) return evict(now_ns, n.vgpu, above, out);
  if (level(n.vgpu) < level(holder_)) return wait_for_amends(now_ns, out);

  const uint64_t turn_ns = quantum(holder_);
  uint64_t length_ns = std::min(length_.least_quantum(), turn_ns);
  if (!n.before_its_turn && waiting_.due[n.vgpu] >= waiting_.due[holder_])
    length_ns = correct(turn_ns);
  const bool preempt = preempts(now_ns, n, length_ns);
  if (preempt) length_ns = preempt_after_ns(n);
  length_ns += finish();
  if (!shorter(n)) length_ns = protect(now_ns, length_ns);
  if (bursts_before(holder_, n.vgpu)) length_ns = std::max(length_ns, held_ns(now_ns) + burst_ns());

  if (held_ns(now_ns) >= length_ns) {
    // At equal due times the one that waits goes first: it has waited longer.
    if (n.before_its_turn || waiting_.rank[n.vgpu] <= rank(holder_, next_due())) {
      if (preempt) budget_.spend();
      return evict(now_ns, n.vgpu, preempt && held_ns(now_ns) < correct(turn_ns), out);
    }
    waiting_.due[holder_] = next_due();
    hold_.turn.was_overdue = false;
    start_turn(now_ns);
  }
  uint64_t at_ns = hold_.turn.start_ns + length_ns;
  if (!waiting_.uncovered.empty())
    at_ns = std::min(at_ns, waiting_.covered_at_ns[waiting_.uncovered.top()]);
  if (!held_back_.empty()) at_ns = std::min(at_ns, amends_end_ns(now_ns));
  wake_at(at_ns, out);
}

void WfqWhole::settle(uint64_t now_ns, VgpuId v) {
  const bool backlogged = clock_[v].backlogged();
  // What class low had alone is free. Beside others it is not: each pause would earn a little
  // credit anew, and with it another burst.
  const bool alone = clock_.busy(level(v)) <= (backlogged ? 1u : 0u);
  if (latency(v) == LatencyClass::kLow && alone) credits_.forgive(v);
  pauses_[v].had_credit &= credits_[v] > 0;
  credits_.earn(now_ns, v, clock_[v].share, part(v), backlogged, most_credit(v), sure_burst(v));
}

// Among the backlogged and itself.
double WfqWhole::part(VgpuId v) const {
  const VgpuShare& share = clock_[v].share;
  const int64_t others =
      clock_.weight(share.priority) - (clock_[v].backlogged() ? share.weight : 0);
  return static_cast<double>(share.weight) / static_cast<double>(others + share.weight);
}

void WfqWhole::settle_holder_and_first(uint64_t now_ns) {
  if (holder_ != kNoVgpu) settle(now_ns, holder_);
  for (uint32_t i = kPriorityLevels; i-- > 0;)
    if (const auto& waiting = waiting_.levels[i].by_rank; !waiting.empty())
      return settle(now_ns, waiting.top());
}

void WfqWhole::begin(uint64_t now_ns, const Next& n, Actions& out) {
  stop_waiting(n.vgpu);
  holder_ = n.vgpu;
  kept_free_ns_ = 0;
  end_amends(holder_);
  pauses_[holder_].had_no_turn = false;
  hold_.state = Hold::kHeld;
  hold_.turn.was_overdue = turn_is_overdue(holder_);
  start_turn(now_ns);
  out.push_back(Action::run(holder_));
  if (std::exchange(hold_.interrupted, false) || n.before_its_turn) {
    const auto longest = static_cast<uint64_t>(sure_burst(holder_));
    uint64_t visit = std::min(work_[holder_].rest, longest);
    if (bursts(holder_)) visit = std::max(visit, static_cast<uint64_t>(credits_[holder_]));
    out.back().value = std::max<uint64_t>(visit / sms(), 1);
  }
}

void WfqWhole::start_turn(uint64_t now_ns) {
  waiting_.begin_turn(holder_);
  hold_.turn.start_ns = now_ns;
  hold_.turn.rank = rank(holder_);
  const auto ahead = static_cast<double>(clock_[holder_].vtime - waiting_.due[holder_]);
  hold_.turn.overrun_ns =
      ahead * clock_[holder_].share.weight /
      (static_cast<double>(FairClock::kScale) * static_cast<double>(std::max<uint64_t>(sms(), 1)));
}

void WfqWhole::evict(uint64_t now_ns, VgpuId next, bool early, Actions& out) {
  if (hold_.state == Hold::kLingers) stop_lingering(now_ns);
  hold_.state = Hold::kDrains;
  hold_.evicted_ns = now_ns;
  hold_.drain_sm_ns = 0;
  out.push_back(Action::evict(holder_, next));
  out.back().value = early;
  hold_.interrupted = early;
}

void WfqWhole::wake_at(uint64_t at_ns, Actions& out) {
  if (wake_ns_ == at_ns) return;
  wake_ns_ = at_ns;
  out.push_back(Action::wake(at_ns));
}

void WfqWhole::wait(uint64_t now_ns, VgpuId v) {
  waiting_.rank[v] = rank(v);
  waiting_.levels[level(v)].by_rank.push(v);
  if (bursts(v))
    waiting_.levels[level(v)].bursts.push(v);
  else
    wait_like_others(now_ns, v);
}

void WfqWhole::wait_like_others(uint64_t now_ns, VgpuId v) {
  if (is_short(v) || covered(v))
    waiting_.levels[level(v)].short_ones.push(v);
  else
    watch(now_ns, v);
}

// Those that have always had work keep the order of a round, once they are in it. By their previous
// due times all that began at once would have a turn each before a heavy one had its first. A burst
// is measured against half a round, for a newcomer finds half of them due: against a whole one, or
// none, more sleepers of drawn populations get less than their entitlement.
int64_t WfqWhole::rank(VgpuId v, int64_t due) const {
  const bool keeps_order = pauses_[v].gap_ns == 0 && waiting_.turn_of[v] != 0;
  if (keeps_order || work_[v].rest == 0) return due;
  const uint64_t rest_ns = work_[v].rest / std::max<uint64_t>(sms(), 1);
  const uint64_t burst_ns = std::min(rest_ns, quantum(v));
  const double busy = std::max(clock_.busy(level(v)), 1u);
  const auto weights = static_cast<double>(std::max<int64_t>(clock_.weight(level(v)), 1));
  const double round_sm_ns =
      static_cast<double>(length_.of(1 / busy)) * busy * static_cast<double>(sms());
  const auto half = static_cast<int64_t>(round_sm_ns / 2 * FairClock::kScale / weights);
  return due + virtual_ns(v, burst_ns) - half;
}

int64_t WfqWhole::virtual_ns(VgpuId v, uint64_t ns) const {
  const double sm_ns = static_cast<double>(ns) * static_cast<double>(sms());
  return static_cast<int64_t>(sm_ns * FairClock::kScale / clock_[v].share.weight);
}

// Its vtime is further from `due` than half a turn.
bool WfqWhole::is_off(VgpuId v, int64_t due, uint64_t turn_ns) const {
  return std::abs(clock_[v].vtime - due) > virtual_ns(v, turn_ns) / 2;
}

// ---- pauses -----------------------------------------------------------------------------------

void WfqWhole::note_burst(VgpuId v) {
  Pause& p = pauses_[v];
  const uint64_t burst_ns = work_[v].used / std::max<uint64_t>(sms(), 1);
  p.burst_ns = p.burst_ns ? (p.burst_ns * 3 + burst_ns) / 4 : burst_ns;
}

// v is back. Returns for how long it lingered: it pays for that like for use, or pausing would be a
// way to hold the GPU for nothing.
uint64_t WfqWhole::end_pause(uint64_t now_ns, VgpuId v) {
  Pause& p = pauses_[v];
  const uint64_t gap_ns = std::max<uint64_t>(std::min(now_ns - p.since_ns, kLongestGapNs), 1);
  if (p.since_ns) p.gap_ns = p.gap_ns ? (p.gap_ns * 3 + gap_ns) / 4 : gap_ns;
  if (v != holder_ || hold_.state != Hold::kLingers) return 0;
  const uint64_t used_sm_ns = gap_ns * sms();
  if (used_sm_ns > p.charged_sm_ns) clock_.charge(v, used_sm_ns - p.charged_sm_ns);
  stop_lingering(now_ns);
  return gap_ns;
}

void WfqWhole::stop_lingering(uint64_t now_ns) {
  idling_.stop(now_ns);
  hold_.state = Hold::kHeld;
}

}  // namespace sluice::policy
