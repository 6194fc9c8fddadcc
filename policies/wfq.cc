// wfq: start-time weighted fair queuing over measured GPU time, the default policy.
//
// Virtual times: fair_clock.h. The vGPU with the smallest runs; after a quantum the next decision is made. So
// the virtual times of vGPUs that have work stay within a quantum of each other, and their shares follow
// their weights.
//   - Order is by the virtual time at which a turn is *due*: the last one's and a turn's length beyond, as long as that is within
//     half a turn of the virtual time that was measured, and else the measured one. By how much a turn was too long - each
//     ends when its tasks do - the next one is shorter. So who goes after whom stays as it is from round to round, and a vGPU's
//     turns come at even distances (by measured virtual times each round would have another order: an error of a turn).
//   - Turns are a whole number of parts of what is owed in kWindowNs, a second: then any second holds as many of them, and is off
//     by what they are uneven only. Without it, by a turn more or less. Who is owed less than kFewTurns of them in a second has as
//     many shorter ones, or two, or one: the bound asks for one (docs/notes/2026-11-22-policies.md), and all of these together cost little.
//   - The quantum is at least the measured hand-over / handover_loss. Above that a turn is as short as kCheapLoss of the time in
//     hand-overs allows, but no shorter than its part by weight of kPreciseNs (a second holds a turn more or less of each: n turns
//     of 10 ms / n are 1 % of it) and no longer than its part of latency_target; min and max bound it.
//     A waiting vGPU that was due before the holder's turn (it came back owed) waits for that least quantum at most.
//   - Short launches are protected, where the driver tells launches and their predicted times: a vGPU whose
//     work since it turned busy fits into the least quantum, and will not take it further than that ahead of V, goes
//     before the others, shortest first; and a holder whose known rest is shorter than a hand-over may end it. Eligibility by V bounds what this
//     can cost anybody (as in EEVDF): who claims to be short and is not is ahead of V after one quantum,
//     and then waits like everybody. The holder makes room as soon as it had a hand-over's length, if the hand-overs that
//     handover_loss allows have not been spent on short ones yet (a token bucket); after its least quantum otherwise.
//   - Disengaged: while one vGPU alone has work there is no timer and nothing to decide.
//   - Who turns idle while others wait loses the GPU at once (work conservation), unless it is its turn still and by experience it is
//     back sooner than the GPU could be given away: a tenant that waits after each of its launches. It keeps it then and pays for it; all
//     such waiting costs kIdleLoss of the time at most. If it waits longer it is owed when it comes back, and the holder makes room as
//     for a short launch, out of the same budget.
//   - Priorities are strict: a higher level runs first and takes the GPU at once; V and quantum are
//     each level's own. Starving lower levels is then what the operator asked for.
// Time that a vGPU takes to leave (or a long opaque launch) is charged to it like any other, without
// bound: it waits that much longer for its next turn.
//
// wfq-srt is this with one rule more: the shortest known work goes first, whatever its length, and takes the GPU at once from a longer one
// (srt; by may_interrupt()'s budget). It pays for that out of a credit that grows by its share of the time, max_quantum_ns of the GPU at
// most, and for all together kSrtTargets latency targets: shares hold, a long one waits for the others' credits at most, and a lie buys as much as the truth.
//
// This file is the form for exclusive preemptors that give the whole GPU to one at a time; make_wfq() gives
// wfq_spatial.cc where parts of it can be given, and wfq_slices.cc on a proportional one.
#include <algorithm>
#include <cmath>
#include <vector>

#include "mediator/base/check.h"
#include "policies/fair_clock.h"
#include "policies/in_units.h"
#include "policies/indexed_heap.h"
#include "policies/policy.h"
#include "policies/srt_credit.h"

namespace sluice::policy {
namespace {

class Wfq final : public Policy {
 public:
  Wfq(const Config& config, bool shortest_first)
      : config_(config), shortest_first_(shortest_first), clock_(config), credits_(config.machine.sm_count),
        handover_ns_(static_cast<double>(config.machine.handover_ns)) {
    waiting_.reserve(kPriorityLevels);
    short_.reserve(kPriorityLevels);
    for (uint32_t i = 0; i < kPriorityLevels; ++i) {
      waiting_.emplace_back(Less{&due_, &turn_of_});
      short_.emplace_back(ShortLess{&known_});
    }
  }
  std::string_view name() const override { return shortest_first_ ? "wfq-srt" : "wfq"; }

  void on_vgpu_added(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions&) override {
    clock_.add(now_ns, v, share);
    if (v >= turn_of_.size()) turn_of_.resize(v + 1), due_.resize(v + 1), known_.resize(v + 1), spent_.resize(v + 1), told_.resize(v + 1), pauses_.resize(v + 1);
    turn_of_[v] = 0;
    due_[v] = clock_[v].vtime;
    known_[v] = spent_[v] = told_[v] = 0;
    pauses_[v] = {};
    credits_.add(now_ns, v, clock_[v].share.priority, most_credit(v));
  }

  void on_vgpu_changed(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) override {
    const bool waits = waiting(v).contains(v);
    if (waits) stop_waiting(v);
    earn(now_ns, v);
    clock_.change(v, share);
    credits_.change_level(v, clock_[v].share.priority);
    due_[v] = clock_[v].vtime;
    lead_ns_ = v == holder_ ? 0 : lead_ns_;
    if (waits) wait(v);
    decide(now_ns, out);
  }

  void on_vgpu_removed(uint64_t, VgpuId v, Actions&) override {
    SLUICE_CHECK(v != holder_ && !clock_[v].busy);
    clock_.remove(v);
  }

  void on_arrival(uint64_t now_ns, VgpuId v, Actions& out) override {
    if (clock_[v].busy) return;
    earn(now_ns, v);
    const uint64_t gap_ns = end_pause(now_ns, v);
    const int64_t before = clock_[v].vtime;
    clock_.turn_busy(now_ns, v);
    due_[v] = gap_ns ? due_[v] + clock_[v].vtime - before : clock_[v].vtime;  // the turn goes on
    if (v != holder_) wait(v);
    decide(now_ns, out);
  }

  void on_launch_queued(uint64_t now_ns, const Launch& launch, Actions& out) override {
    const VgpuId v = launch.vgpu;
    const uint64_t run = std::min(launch.run_predicted_sm_ns, FairClock::kMaxUsage);
    if (launch.id == 0)
      known_[v] = run;
    else
      known_[v] = run ? std::max(known_[v], run)  // this launch and what is known to follow it
                      : std::min(known_[v] + launch.predicted_sm_ns, FairClock::kMaxUsage);
    told_[v] = spent_[v] + known_[v];
    earn(now_ns, v);
    if (!waiting(v).contains(v)) return;
    stop_waiting(v);
    wait(v);
    decide(now_ns, out);
  }

  void on_idle(uint64_t now_ns, VgpuId v, Actions& out) override {
    if (!clock_[v].busy) return;
    const bool kept = v == holder_ && !leaving_ && is_worth_keeping(now_ns, v);
    clock_.turn_idle(now_ns, v);
    if (waiting(v).contains(v)) stop_waiting(v);
    known_[v] = spent_[v] = told_[v] = 0;
    pauses_[v].since_ns = now_ns;
    pauses_[v].charged_sm_ns = 0;
    kept_until_ns_ = kept ? now_ns + kept_for_ns(v) : 0;
    decide(now_ns, out);
  }

  void on_usage(uint64_t, VgpuId v, const Usage& usage) override {
    const int64_t back = clock_.charge(v, usage.sm_ns);
    if (shortest_first_) credits_.pay(v, clock_[v].share.priority, static_cast<double>(usage.sm_ns));
    if (!clock_[v].busy) pauses_[v].charged_sm_ns += usage.sm_ns;
    if (v == holder_ && clock_[v].busy) {
      known_[v] -= std::min(known_[v], usage.sm_ns);
      spent_[v] = std::min(spent_[v] + std::min(usage.sm_ns, FairClock::kMaxUsage), FairClock::kMaxUsage);
    }
    if (back)
      for (VgpuId i = 0; i < due_.size(); ++i)
        if (clock_[i].share.priority == clock_[v].share.priority)
          due_[i] = std::max(due_[i] - back, -FairClock::kRebaseAt);  // a turn may have begun many of these ago
    if (waiting(v).contains(v)) {  // charged beside the holder
      if (is_off(v, due_[v], turn_of(v))) due_[v] = clock_[v].vtime;
      waiting(v).update(v);
    }
  }
  bool reads_tasks() const override { return false; }

  void on_left(uint64_t now_ns, VgpuId v, LeftReason, Actions& out) override {
    if (v != holder_) return;
    stop_keeping(now_ns);
    if (clock_[v].busy) due_[v] = next_due();
    holder_ = kNoVgpu;
    leaving_ = false;
    if (clock_[v].busy) wait(v);
    decide(now_ns, out);
  }

  void on_handover(uint64_t, uint64_t cost_ns) override {
    // Clipped at what max_quantum_ns can pay for, so that one stuck eviction does not lengthen
    // everybody's quantum for long.
    const double bound = static_cast<double>(config_.max_quantum_ns) * config_.handover_loss;
    const double cost = std::min(static_cast<double>(cost_ns), bound);
    handover_ns_ += (cost - handover_ns_) / 8;
    // Turns do not follow each of them: a number of turns in a second that changed all the time would make them uneven.
    slow_handover_ns_ += (cost - slow_handover_ns_) / std::min(++handovers_, 64u);
    if (slow_handover_ns_ > 1.25 * turn_handover_ns_ || slow_handover_ns_ < 0.8 * turn_handover_ns_)
      turn_handover_ns_ = slow_handover_ns_;
  }

  void on_wake(uint64_t now_ns, Actions& out) override {
    wake_ns_ = 0;
    decide(now_ns, out);
  }

  uint64_t quantum_ns() const override {
    uint32_t busy = 0;
    for (uint32_t i = 0; i < kPriorityLevels; ++i) busy = std::max(busy, clock_.busy(i));
    return quantum_for(busy);
  }

 private:
  struct Less {
    const std::vector<int64_t>* due;
    const std::vector<uint64_t>* turn_of;
    bool operator()(uint32_t a, uint32_t b) const {
      const int64_t x = (*due)[a], y = (*due)[b];
      if (x != y) return x < y;
      // Who ran last goes last, or an eviction that took no time would give it the GPU right back.
      const uint64_t s = (*turn_of)[a], t = (*turn_of)[b];
      return s != t ? s < t : a < b;
    }
  };
  struct ShortLess {
    const std::vector<uint64_t>* known;
    bool operator()(uint32_t a, uint32_t b) const {
      return (*known)[a] != (*known)[b] ? (*known)[a] < (*known)[b] : a < b;
    }
  };
  bool is_short(VgpuId v) const {
    return (known_[v] > 0 || nearly_done(v)) && spent_[v] + known_[v] <= short_ns(v) * config_.machine.sm_count;
  }
  // It has used what it was told to need, and not much more: predictions leave out starts and are off by something. Taken away now, it would
  // wait with next to nothing left.
  bool nearly_done(VgpuId v) const {
    return shortest_first_ && told_[v] > 0 &&
           spent_[v] <= told_[v] + told_[v] / 4 + 2 * static_cast<uint64_t>(handover_ns_) * config_.machine.sm_count;
  }
  uint64_t short_ns(VgpuId v) const {
    if (!shortest_first_) return least_quantum();
    const uint64_t all_ns = kSrtTargets * config_.latency_target_ns;  // what all together may have gone first by
    return std::max(std::min(config_.max_quantum_ns, all_ns / std::max(clock_.busy(clock_[v].share.priority), 1u)), least_quantum());
  }
  // When its work is done it will be ahead of V by that length at most. (V falls when one that is ahead turns idle, so
  // who came at V may be a little ahead without having run.)
  bool eligible(VgpuId v) const {
    if (shortest_first_) return credits_[v] >= static_cast<double>(known_[v]);
    return clock_.lead_sm_ns(v) + static_cast<int64_t>(known_[v]) <=
           static_cast<int64_t>(short_ns(v) * config_.machine.sm_count);
  }
  double most_credit(VgpuId v) const { return static_cast<double>(short_ns(v)) * config_.machine.sm_count; }
  void earn(uint64_t now_ns, VgpuId v) {
    if (!shortest_first_) return;
    const VgpuShare& share = clock_[v].share;
    const int64_t others = clock_.weight(share.priority) - (clock_[v].busy ? share.weight : 0);
    const double part = static_cast<double>(share.weight) / static_cast<double>(others + share.weight);
    credits_.earn(now_ns, v, share.priority, part, clock_[v].busy, most_credit(v));
  }
  bool has_waited(VgpuId v) const { return shortest_first_ && credits_.has_waited(v, most_credit(v)); }
  void wait(VgpuId v) {
    waiting(v).push(v);
    if (is_short(v)) short_[clock_[v].share.priority].push(v);
  }
  void stop_waiting(VgpuId v) {
    waiting(v).remove(v);
    auto& s = short_[clock_[v].share.priority];
    if (s.contains(v)) s.remove(v);
  }
  IndexedHeap<Less>& waiting(VgpuId v) { return waiting_[clock_[v].share.priority]; }

  uint64_t least_quantum() const { return least_quantum(handover_ns_); }
  uint64_t least_quantum(double handover_ns) const {
    const double from_handover = config_.handover_loss > 0 ? handover_ns / config_.handover_loss : 0.0;
    return std::max(std::min(std::max(config_.min_quantum_ns, static_cast<uint64_t>(from_handover)), config_.max_quantum_ns), kTickNs);
  }
  // The holder's part of the latency target by weight: who is owed little gets it in short turns, or a
  // single one would put it ahead for long.
  uint64_t turn_of(VgpuId v) const {
    const VgpuShare& share = clock_[v].share;
    const double part = static_cast<double>(share.weight) /
                        static_cast<double>(std::max<int64_t>(clock_.weight(share.priority), 1));
    return turn_for(std::min(part, 1.0));
  }
  // The same at equal weights, for people.
  uint64_t quantum_for(uint32_t busy) const { return turn_for(1.0 / std::max(busy, 1u)); }
  uint64_t turn_for(double part) const {
    const double cheap = std::max(part * kPreciseNs, turn_handover_ns_ / kCheapLoss);
    const double wanted = std::min(part * static_cast<double>(config_.latency_target_ns), cheap);
    // With what it takes to leave, which is charged too. Few turns in a second are left as they are: fitted, they would grow much.
    const double turn = std::max(wanted, static_cast<double>(least_quantum(turn_handover_ns_))) + turn_handover_ns_;
    const double owed = part * kWindowNs, turns = std::floor(owed / turn);
    if (turns >= kFewTurns) return std::min(static_cast<uint64_t>(owed / turns), std::max(config_.max_quantum_ns, kTickNs));
    return std::min(static_cast<uint64_t>(light_turn(owed, turn)), std::max(config_.max_quantum_ns, kTickNs));
  }
  // Of one that is owed so little in a second that it holds less than kFewTurns of `turn`: up to as many shorter ones. They are few
  // and cost all together what handover_loss leaves; each is some hand-overs long at least. Once their cost is known.
  double light_turn(double owed, double turn) const {
    if (config_.handover_loss <= 0) return turn;
    // Too long a turn before that is known takes it a second for each part of a second that it was owed.
    if (handovers_ < kKnownHandovers) return std::min(turn, std::max(static_cast<double>(config_.min_quantum_ns), owed / kFewTurns));
    const double least = turn_handover_ns_ / config_.handover_loss + turn_handover_ns_;
    const double turns = std::clamp(std::floor(owed / least), 1.0, kFewTurns);
    return std::clamp(owed / turns, kLeastHandovers * turn_handover_ns_, turn);
  }
  int64_t virtual_ns(VgpuId v, uint64_t ns) const {
    return static_cast<int64_t>(static_cast<double>(ns) * config_.machine.sm_count * FairClock::kScale / clock_[v].share.weight);
  }
  // Its virtual time is further from this than half a turn.
  bool is_off(VgpuId v, int64_t due, uint64_t turn_ns) const {
    return std::abs(clock_[v].vtime - due) > virtual_ns(v, turn_ns) / 2;
  }
  // When the holder's next turn is due.
  int64_t next_due() const {
    const uint64_t turn_ns = turn_of(holder_);
    const int64_t due = due_[holder_] + virtual_ns(holder_, turn_ns);
    return is_off(holder_, due, turn_ns) ? clock_[holder_].vtime : due;
  }

  // best() asks what it has missed.
  void earn_of_first(uint64_t now_ns) {
    for (uint32_t i = kPriorityLevels; i-- > 0;)
      if (!waiting_[i].empty()) return earn(now_ns, waiting_[i].top());
  }
  // The waiting vGPU that should run next, or kNoVgpu. `because_short`: it goes before who is owed more.
  VgpuId best(bool& because_short) {
    because_short = false;
    for (uint32_t i = kPriorityLevels; i-- > 0;) {
      if (waiting_[i].empty()) continue;
      if (!short_[i].empty() && has_waited(waiting_[i].top())) return waiting_[i].top();
      while (!short_[i].empty()) {
        const VgpuId v = short_[i].top();
        because_short = eligible(v);
        if (because_short) return v;
        short_[i].remove(v);  // too far ahead of V: until its next turn it is like the others
      }
      return waiting_[i].top();
    }
    return kNoVgpu;
  }

  // Hand-overs before the least quantum that short launches may cost: handover_loss of the time, kShortBurst at once.
  static constexpr double kPreciseNs = 10e6;
  // No turn is shorter, whatever the configuration says: with turns of nothing it would be asked again at the same time for ever.
  static constexpr uint64_t kTickNs = 10'000;
  static constexpr double kWindowNs = 1e9;
  static constexpr double kFewTurns = 3;
  static constexpr uint64_t kSrtTargets = 4;
  static constexpr uint32_t kKnownHandovers = 16;
  static constexpr double kLeastHandovers = 4;
  static constexpr double kCheapLoss = 0.01;
  static constexpr double kShortBurst = 4;
  bool may_interrupt(uint64_t now_ns) {
    const double earned = static_cast<double>(now_ns - tokens_at_ns_) * config_.handover_loss / std::max(handover_ns_, 1.0);
    tokens_ = std::min(tokens_ + earned, kShortBurst);
    tokens_at_ns_ = now_ns;
    return tokens_ >= 1;
  }

  void decide(uint64_t now_ns, Actions& out) {
    if (leaving_) return;  // on_left() decides
    if (holder_ != kNoVgpu) earn(now_ns, holder_);
    if (shortest_first_) earn_of_first(now_ns);
    bool next_short = false;
    VgpuId next = best(next_short);
    if (next == kNoVgpu) return;
    if (holder_ == kNoVgpu) {
      stop_waiting(next);
      holder_ = next;
      has_waited_ = has_waited(next);
      start_slice(now_ns);
      out.push_back(Action::run(holder_));
      next = best(next_short);
      if (next == kNoVgpu) return;
    }
    const FairClock::Vgpu& h = clock_[holder_];
    const FairClock::Vgpu& n = clock_[next];
    if (!h.busy && now_ns < kept_until_ns_ && n.share.priority <= h.share.priority) return wake_at(kept_until_ns_, out);
    if (!h.busy || n.share.priority > h.share.priority) {
      stop_keeping(now_ns);
      return evict(next, out);
    }
    if (n.share.priority < h.share.priority) return;
    const auto handover_ns = static_cast<uint64_t>(handover_ns_);
    const uint64_t turn_ns = turn_of(holder_);
    uint64_t quantum = std::min(least_quantum(), turn_ns);
    if (!next_short && due_[next] >= due_[holder_])
      quantum = turn_ns - static_cast<uint64_t>(std::clamp(lead_ns_, 0.0, static_cast<double>(turn_ns) / 2)) +
                static_cast<uint64_t>(std::clamp(-lead_ns_, 0.0, static_cast<double>(turn_ns) / 2));
    // Who came back and is owed waits no longer than a short one: it may pause after each of its launches.
    const bool came_owed = pauses_[next].gap_ns && due_[next] < due_[holder_];
    const bool goes_first = is_short(holder_) && eligible(holder_);
    // Of two short ones the shorter goes first where they may be long; not for less than a hand-over.
    const bool shorter = shortest_first_ && next_short && known_[next] + handover_ns * config_.machine.sm_count < known_[holder_];
    const bool interrupts = ((next_short && !has_waited_) || came_owed) && handover_ns < quantum && (!goes_first || shorter) && may_interrupt(now_ns);
    if (interrupts) quantum = shortest_first_ ? 0 : handover_ns;
    // What ends sooner than it could be evicted, ends.
    const uint64_t rest_ns = known_[holder_] / std::max(config_.machine.sm_count, 1u);
    if (rest_ns > 0 && rest_ns <= handover_ns) quantum += handover_ns;
    if (shortest_first_ && goes_first && !shorter) quantum = std::max(quantum, now_ns - slice_start_ns_ + std::max(rest_ns, handover_ns) + kTickNs);
    if (now_ns - slice_start_ns_ >= quantum) {
      // At equal virtual times the one that waits goes first: it has waited longer.
      if (next_short || due_[next] <= next_due()) {
        if (interrupts) tokens_ -= 1;
        return evict(next, out);
      }
      due_[holder_] = next_due();
      has_waited_ = false;
      start_slice(now_ns);
    }
    wake_at(slice_start_ns_ + quantum, out);
  }
  void wake_at(uint64_t at_ns, Actions& out) {
    if (wake_ns_ == at_ns) return;
    wake_ns_ = at_ns;
    out.push_back(Action::wake(at_ns));
  }

  // ---- pauses: who waits after each launch keeps the GPU while it is its turn -----------------------
  struct Pause {
    uint64_t since_ns = 0;       // when it turned idle last
    uint64_t gap_ns = 0;         // how long it has been idle so far between its launches, a mean; 0: not known
    uint64_t charged_sm_ns = 0;  // since it turned idle, by its driver
  };
  static constexpr double kIdleLoss = 0.009;  // of the time, for all keeping together: work conservation is at least what is left
  static constexpr double kIdleBurst = 8;     // hand-overs' lengths
  static constexpr uint64_t kLeastKeepNs = 20'000;    // where hand-overs are cheap because those who leave are idle
  static constexpr uint64_t kLongestGapNs = 4'000'000;  // that a mean remembers
  // By experience it is back before the GPU could be given away, and if it were here now it would go on.
  bool is_worth_keeping(uint64_t now_ns, VgpuId v) {
    const uint64_t gap_ns = pauses_[v].gap_ns;
    if (gap_ns == 0 || gap_ns > longest_keep_ns()) return false;
    bool next_short = false;
    const VgpuId next = best(next_short);
    if (next == kNoVgpu) return false;
    idle_credit_ns_ = std::min(idle_credit_ns_ + static_cast<double>(now_ns - idle_credit_at_ns_) * kIdleLoss, kIdleBurst * handover_ns_);
    idle_credit_at_ns_ = now_ns;
    if (idle_credit_ns_ < static_cast<double>(kept_for_ns(v))) return false;
    if (clock_[next].share.priority != clock_[v].share.priority) return clock_[next].share.priority < clock_[v].share.priority;
    if (next_short || due_[next] < due_[v]) return false;
    return now_ns - slice_start_ns_ < turn_of(v) || due_[next] > next_due();
  }
  uint64_t kept_for_ns(VgpuId v) const {  // ski rental: at most what giving it away would cost
    return std::max<uint64_t>(std::min(4 * pauses_[v].gap_ns, longest_keep_ns()), 1);
  }
  uint64_t longest_keep_ns() const { return std::max(static_cast<uint64_t>(handover_ns_), kLeastKeepNs); }
  void stop_keeping(uint64_t now_ns) {
    if (kept_until_ns_) idle_credit_ns_ -= static_cast<double>(now_ns - pauses_[holder_].since_ns);
    kept_until_ns_ = 0;
  }
  // v is back. Returns for how long it was kept: it pays for that like for use, or pausing would be a way to hold the GPU
  // for nothing.
  uint64_t end_pause(uint64_t now_ns, VgpuId v) {
    Pause& p = pauses_[v];
    const uint64_t gap_ns = std::max<uint64_t>(std::min(now_ns - p.since_ns, kLongestGapNs), 1);
    if (p.since_ns) p.gap_ns = p.gap_ns ? (p.gap_ns * 3 + gap_ns) / 4 : gap_ns;
    if (v != holder_ || leaving_ || kept_until_ns_ == 0) return 0;
    const uint64_t used_sm_ns = gap_ns * config_.machine.sm_count;
    if (used_sm_ns > p.charged_sm_ns) clock_.charge(v, used_sm_ns - p.charged_sm_ns);
    stop_keeping(now_ns);
    return gap_ns;
  }

  void start_slice(uint64_t now_ns) {
    turn_of_[holder_] = ++turns_;
    slice_start_ns_ = now_ns;
    lead_ns_ = static_cast<double>(clock_[holder_].vtime - due_[holder_]) * clock_[holder_].share.weight /
               (static_cast<double>(FairClock::kScale) * std::max(config_.machine.sm_count, 1u));
  }

  void evict(VgpuId next, Actions& out) {
    leaving_ = true;
    out.push_back(Action::evict(holder_, next));
  }

  const Config config_;
  const bool shortest_first_;
  FairClock clock_;
  std::vector<int64_t> due_;                  // virtual time of the turn that each waits for, or has
  std::vector<uint64_t> turn_of_;             // number of each one's last turn, 0: none since it was added
  std::vector<uint64_t> known_;               // predicted rest of the launches told, SM-ns; 0: not known
  SrtCredits credits_;                        // wfq-srt
  bool has_waited_ = false;                   // ... the holder's turn is one that it had missed: no short one interrupts it
  std::vector<uint64_t> told_;                // what both were when they were told last
  std::vector<uint64_t> spent_;               // used since it turned busy, SM-ns
  std::vector<IndexedHeap<Less>> waiting_;    // by priority: busy and not the holder
  std::vector<IndexedHeap<ShortLess>> short_;  // those of them that are short and may go first
  VgpuId holder_ = kNoVgpu;
  bool leaving_ = false;
  uint64_t turns_ = 0;
  uint64_t slice_start_ns_ = 0;
  double lead_ns_ = 0;      // by how much the turns before the holder's present one were too long
  uint64_t wake_ns_ = 0;  // last wake asked for
  double handover_ns_;
  double slow_handover_ns_ = handover_ns_, turn_handover_ns_ = handover_ns_;
  uint32_t handovers_ = 0;
  std::vector<Pause> pauses_;
  uint64_t kept_until_ns_ = 0;  // the holder pauses and keeps the GPU until then; 0: it does not
  double idle_credit_ns_ = 0;
  uint64_t idle_credit_at_ns_ = 0;
  double tokens_ = kShortBurst;
  uint64_t tokens_at_ns_ = 0;
};

}  // namespace

std::unique_ptr<Policy> make_wfq(const Config& config) {
  if (config.machine.preemptor == PreemptorKind::kProportional) return make_wfq_slices(config);
  if (config.machine.spatial && config.machine.sm_count > 1) return in_units(config, make_wfq_spatial);
  return std::make_unique<Wfq>(config, false);
}
std::unique_ptr<Policy> make_wfq_srt(const Config& config) { return std::make_unique<Wfq>(config, true); }

}  // namespace sluice::policy
