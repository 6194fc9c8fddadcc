// SPDX-License-Identifier: Apache-2.0
// wfq for proportional preemptors: the hardware alternates between the contexts of all backlogged
// vGPUs in time slices; this sets the slices and gates vGPUs that are ahead.
//
// Terms   round     each backlogged vGPU has one turn in it
//         turn      a slice and the switch to it, which is charged to the vGPU that it is made for
//         quantum   what a vGPU is entitled to in a round
//         rider     its kernel goes on behind a closed gate
//
// Rules, each a function of the same name below
//   mean_slice_ns()  just long enough to pay for a switch: handover / handover_loss
//   round_of()       long enough that the lightest vGPU has a turn in each (up to
//                    kLongestForAllNs), and a whole number of rounds in a second
//   slice_for()      the quantum, corrected once a round by a part of the lag
//   sits_out()       a vGPU is gated for a round if that leaves it closer to its entitlement than a
//                    turn would: nobody is further off than one turn. (LoGA's and NEON's disengaged
//                    fair queuing, with weights and turn by turn.) Leads add up to nothing, so that
//                    somebody is never gated
//   one_by_one()     while a vGPU that waits after its launches is owed half of what it uses, the
//                    others have turns one by one, the furthest behind first (as WF2Q and EEVDF),
//                    and it has one between any two of theirs
//   rides()          a rider has the shortest slice; it may lead by max_lead_turns of its turns,
//                    after which the others' turns are longer until it falls back
//   awaits()         one that has the GPU alone, or beside such as visit it only, has slices as
//                    short as the latency class of who may come wants: 0.2 ms for low, 1 ms for
//                    normal (where that costs nothing: Machine::slices_are_free_alone)
//   by_gates()       vGPUs that wait after each of many short launches have turns one by one, by
//                    their gates: the hardware would change between them at each launch. A turn is
//                    a quantum of wall time and goes on over its holder's waits
//                    (where Machine::slices_are_free_alone)
//   charge_waste()   GPU time that nobody uses while gates are shut is charged to those whose gates
//                    are open: claiming work that one has not costs what having it would
//   comes_for_nothing()  who claims work again and again, and uses nothing, is owed nothing
//   serve_bursts()   what one of class low comes back with has a long slice, and whoever it finds
//                    there short ones
//   may_pause()      the gates stay shut for a switch's length for one that may be back at once
//                    (ski rental); all such waiting costs kIdleLoss of the time
//
// Guarantee  while all are backlogged, over a window T: |got / entitled - 1| <= (slice + switch) /
//   (entitlement in T), that is n * handover / (handover_loss * T) for n equal vGPUs, and
//   (floor + switch) / (entitlement in T) for those below the floor. tests/sim/wfq_test.cc.
// Priorities are strict: lower levels are gated while a higher one is backlogged. No timer while
// one vGPU is backlogged alone. Cost: O(1) per event, O(backlogged) per round.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "mediator/base/check.h"
#include "policies/policy.h"
#include "policies/wfq/fair_clock.h"
#include "policies/wfq/forms.h"

namespace sluice::policy {
namespace {

class WfqSlices final : public Policy {
 public:
  explicit WfqSlices(const Config& config)
      : config_(config),
        clock_(with_credit(config), FairClock::Credit::kStays, FairClock::Debt::kLeaves),
        handover_ns_(static_cast<double>(config.machine.handover_ns)) {}
  std::string_view name() const override { return "wfq"; }

  void on_vgpu_added(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions&) override {
    clock_.add(v, share);
    if (v >= own_.size()) own_.resize(v + 1);
    own_[v] = Own{};
  }
  void on_vgpu_changed(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) override {
    // Who came as one of another class is expected as that no more.
    if (share.latency != clock_[v].share.latency)
      forget_visits(v, visits_[static_cast<size_t>(clock_[v].share.latency)]);
    clock_.change(v, share);
    if (clock_[v].backlogged()) tick(now_ns, out);
  }
  void on_vgpu_removed(uint64_t, VgpuId v, Actions&) override {
    SLUICE_CHECK(!clock_[v].backlogged());
    clock_.remove(v);
  }

  void on_arrival(uint64_t now_ns, VgpuId v, Actions& out) override {
    if (clock_[v].backlogged()) return;
    pass(now_ns);
    clock_.turn_busy(v);
    if (comes_for_nothing(now_ns, v)) forget_credit(v);
    note_gap(now_ns, v);
    begin_burst(now_ns, v);
    if (busy_.size() == 1 && long_alone(now_ns)) forget_burst(now_ns, busy_.front());
    own_[v].came_ns = now_ns;
    own_[v].kept_from_ns = now_ns;
    own_[v].place = static_cast<uint32_t>(busy_.size());
    busy_.push_back(v);
    if (busy_.size() == 1) alone_since_ns_ = now_ns;
    if (busy_.size() == 2) contended_since_ns_ = now_ns;
    const bool was_pausing = pausing_;
    end_pause(now_ns);
    if (back_soon(now_ns, v) && !was_pausing) {
      // Nothing has changed: the round goes on.
      return wake_at(round_ends_ns_, out);
    }
    // Whether its coming may change what the others get before the next round does: then all are
    // looked at.
    // Each new slice stops whoever runs (an H200): not for one that asks for nothing.
    if (config_.machine.slices_are_free_alone && busy_.size() == 2 && !was_pausing &&
        clock_[v].share.latency == LatencyClass::kBatch && top_.size() == 1 &&
        clock_[v].share.priority == top_priority_) {
      set(v, slice_for(v, 0), out);
      return wake_at(now_ns + own_[top_.front()].wanted_ns, out);
    }
    const bool anew = busy_.size() <= 2 || was_pausing || next_tick_ns_ <= now_ns;
    // Of a lower level: it waits, and the round goes on.
    if (!anew && clock_[v].share.priority < top_priority_) {
      gate(now_ns, v, true);
      return set(v, 0, out);
    }
    if (anew || by_gates_ || bursts(v) || (!one_by_one_ && comes_between(now_ns, v)) ||
        clock_[v].share.priority != top_priority_)
      return tick(now_ns, out);
    set(v, own_[v].gated ? 0 : slice_for(v, 0), out);
  }

  void on_idle(uint64_t now_ns, VgpuId v, Actions& out) override {
    if (!clock_[v].backlogged()) return;
    pass(now_ns);
    keep(now_ns, v);
    clock_.turn_idle(v);
    own_[v].waited_ns = now_ns;
    if (busy_.size() == 1 && long_alone(now_ns)) {
      // Another program now: no burst takes longer than it was busy.
      own_[v].burst_ns = std::min(own_[v].burst_ns, static_cast<double>(now_ns - own_[v].came_ns));
      forget_burst(now_ns, v);
    } else {
      own_[v].busy_ns = now_ns - own_[v].came_ns;
      note_burst(v);
      if (visits(now_ns, v)) note_visit(now_ns, v);
    }
    const uint32_t place = own_[v].place;
    busy_[place] = busy_.back();
    own_[busy_.back()].place = place;
    busy_.pop_back();
    if (busy_.size() == 1) alone_since_ns_ = now_ns;
    const bool had_gated = gated_ > 0;
    own_[v].idled_open = !own_[v].gated;
    if (returns_soon(v)) returning_ = v;
    if (own_[v].gated) --gated_, own_[v].gated = false;
    if (busy_.empty()) return;
    if (gated_ < busy_.size()) {  // somebody goes on
      if (busy_.size() != 1) return;
      if (!returns_soon(v)) return tick(now_ns, out);
      return wake_at(now_ns + kSoon * static_cast<uint64_t>(handover_ns_), out);
    }
    if (!had_gated) return tick(now_ns, out);
    // A wait shorter than half a switch is no chance for others.
    pauses_in_turn_ = (by_gates_ && v == turn_of_ && now_ns < turn_ends_ns_) || wait_is_short(v);
    if (!pauses_in_turn_ && !may_pause(now_ns)) return tick(now_ns, out);
    pausing_ = true;
    pause_since_ns_ = now_ns;
    wake_at(now_ns + static_cast<uint64_t>(handover_ns_), out);
  }

  void on_usage(uint64_t now_ns, VgpuId v, const Usage& usage) override {
    clock_.charge(v, usage.sm_ns);
    const double used_ns =
        static_cast<double>(usage.sm_ns) / std::max(config_.machine.sm_count, 1u);
    own_[v].used_at_ns = now_ns;
    own_[v].left_ns -= used_ns;
    own_[v].credit_ns = std::max(own_[v].credit_ns - used_ns, 0.0);
    own_[v].used_ns += used_ns;
    if (busy_.size() > 1 || kept_ns_ > 0) {
      own_[v].seen_ns += used_ns;
      seen_ns_ += used_ns;
    }
    if (own_[v].gated && now_ns > own_[v].gated_at_ns + kBegunNs)
      own_[v].rides_until_ns = now_ns + kRidesNs;
  }
  bool reads_tasks() const override { return false; }
  void on_left(uint64_t, VgpuId, LeftReason, Actions&) override {}
  void on_handover(uint64_t, uint64_t cost_ns) override {
    const double bound = static_cast<double>(config_.max_quantum_ns) * config_.handover_loss;
    handover_ns_ += (std::min(static_cast<double>(cost_ns), bound) - handover_ns_) / 8;
  }
  void on_wake(uint64_t now_ns, Actions& out) override {
    wake_ns_ = 0;
    end_pause(now_ns);
    tick(now_ns, out);
  }
  uint64_t quantum_ns() const override { return mean_slice_ns(); }

 private:
  // What a vGPU is owed over a gap is two mean slices at most: more would gate all others for as
  // long, of whom the light ones then have nothing for some of their rounds.
  static Config with_credit(Config c) {
    const double slice_ns =
        c.handover_loss > 0 ? 2 * static_cast<double>(c.machine.handover_ns) / c.handover_loss : 0;
    if (slice_ns > 0)
      c.max_quantum_ns = std::min(c.max_quantum_ns, static_cast<uint64_t>(slice_ns));
    return c;
  }
  struct Own {
    uint32_t place = 0;  // in busy_
    bool gated = false;
    uint64_t slice_ns = kUnset;
    uint64_t used_at_ns = 0;  // when it was last seen to use the GPU
    uint64_t wanted_ns = 0;   // in the round that begins
    uint64_t beside_ns = 0;   // the same, in the last round that it was not alone in
    uint64_t came_ns = 0,
             busy_ns = 0;    // when it turned busy last; for how long it was the last time
    uint64_t waited_ns = 0;  // when it turned idle last; 0: never
    double left_ns = 0;      // of the turn that it has been given while they have them one by one
    double lead_ns = 0;      // lead_of() when the last round began
    double order = 0;
    double used_ns = 0;        // since burst_ns was taken last, ...
    uint32_t bursts = 0;       // ... in which it turned idle so often
    double burst_ns = 0;       // what it uses from one time that it turns idle to the next, a mean
    double gap_ns = 0;         // for how long it is idle then, a mean
    bool idled_open = false;   // its gate was open when it turned idle
    uint64_t turn_ns = 0;      // when its last turn by gates began
    uint64_t gated_at_ns = 0;  // when that changed last
    uint64_t rides_until_ns = 0;  // a kernel that it had begun goes on behind a closed gate
    // charge_waste(): what its open gate kept of the GPU, and what it was seen to use meanwhile.
    uint64_t kept_from_ns = 0;
    double kept_ns = 0, seen_ns = 0;
    bool in_burst = false;  // bursts(), from when it came until its credit is used up
    double credit_ns = 0;
  };
  static constexpr uint64_t kUnset = ~0ull;
  static constexpr VgpuId kThoseThatStay = kNoVgpu - 1;  // turn_of_
  // Of more than these, one that chats is as well off between their slices, and each of its turns
  // has to wait for what all of them have in flight: 32 tenants lost 9 % instead of 5 (an H200).
  static constexpr size_t kMostThatStay = 3;
  static constexpr double kShortLaunches = 2.5;  // switches' lengths
  static constexpr double kLongestRoundNs = 1e9;
  static constexpr uint64_t kWaitsNs = 100'000'000;
  static constexpr uint64_t kAloneNs = 20'000'000;
  static constexpr uint64_t kExpectedNs = 1'000'000'000;
  static constexpr double kShortestBurst = 8;  // of a switch: less is not worth stopping others
  // Who uses the GPU so long after it was gated has a kernel that no gate stops; its next may be
  // one, too.
  static constexpr uint64_t kBegunNs = 30'000'000, kRidesNs = 10'000'000'000;
  // Fitted where one more or less of them matters: few would grow much, of many each is little.
  static constexpr double kWindowNs = 1e9, kFewRounds = 3, kManyRounds = 150;
  static constexpr double kLongestForAllNs = 60e6, kLongestForRidersNs = 150e6, kSpare = 1.1;

  uint64_t floor_ns() const { return std::max<uint64_t>(config_.machine.slice_floor_ns, 1); }
  uint64_t ceiling_ns() const { return std::max(config_.machine.slice_ceiling_ns, floor_ns()); }
  uint64_t mean_slice_ns() const {
    const double paid = config_.handover_loss > 0 ? handover_ns_ / config_.handover_loss : 0.0;
    return std::clamp(static_cast<uint64_t>(paid), floor_ns(),
                      std::max(config_.max_quantum_ns, floor_ns()));
  }
  // How long a round is, switches included. Long enough that the lightest has a turn in each, if
  // that is not long, and that those that no gate stops, and that are ahead, have no more than
  // their share; and a whole number of rounds in kWindowNs.
  double round_of(double busy, double weights, double lightest, double for_riders) const {
    double round = busy * (static_cast<double>(mean_slice_ns()) + handover_ns_);
    const double for_all = (static_cast<double>(floor_ns()) + handover_ns_) * weights / lightest;
    if (for_all > round && for_all <= kLongestForAllNs) round = kSpare * for_all;
    if (for_riders > round && for_riders <= kLongestForRidersNs) round = for_riders;
    const double rounds = std::floor(kWindowNs / round);
    return rounds >= kFewRounds && rounds <= kManyRounds ? kWindowNs / rounds : round;
  }
  // What v is owed of a round, the switch to it included.
  double quantum_ns(VgpuId v) const {
    return per_weight_ns_ * static_cast<double>(clock_[v].share.weight);
  }
  // That as a slice, corrected by what v is ahead. Never less than kShorter of its quantum: short
  // slices cost more switches.
  uint64_t slice_for(VgpuId v, double lead_ns) const {
    const double quantum = quantum_ns(v);
    const double turn =
        std::clamp(quantum - kGain * lead_ns, kShorter * quantum, kLonger * quantum);
    // Where use is work without its switches, slices are in proportion to weights.
    const double wanted =
        config_.machine.slices_are_free_alone ? turn * work_part_ : turn - handover_ns_;
    return std::clamp(static_cast<uint64_t>(std::max(wanted, 1.0)), floor_ns(), ceiling_ns());
  }
  // Whether v is closer to what it is owed at the end of a round without a turn than with its
  // shortest. Who is gated because others left it their time stays so until it is half a turn
  // behind: what it had begun runs on in floor slices, each with a switch.
  bool sits_out(VgpuId v, double lead_ns) const {
    const double quantum = quantum_ns(v),
                 turn = static_cast<double>(slice_for(v, 1e18)) + handover_ns_;
    const bool below_floor = turn >= quantum;
    return lead_ns + turn - quantum > (own_[v].gated && !below_floor ? -0.5 : 0.5) * turn;
  }

  // A log of the GPU's tells of use some milliseconds late, for several bursts at once.
  void note_burst(VgpuId v) {
    Own& o = own_[v];
    ++o.bursts;
    // Another program now: a burst is no longer than it was busy.
    if (config_.machine.slices_are_free_alone &&
        kOther * static_cast<double>(o.busy_ns) < o.burst_ns)
      o.burst_ns = 0;
    if (o.used_ns <= 0) return;
    o.burst_ns += (o.used_ns / o.bursts - o.burst_ns) / (o.burst_ns > 0 ? 4 : 1);
    o.used_ns = 0;
    o.bursts = 0;
  }
  // Who has the GPU alone is not asked when it turns idle: what it has used until now was no burst.
  bool long_alone(uint64_t now_ns) const {
    return config_.machine.slices_are_free_alone && now_ns - alone_since_ns_ > kAloneNs;
  }
  void forget_burst(uint64_t now_ns, VgpuId v) {
    own_[v].came_ns = now_ns;
    own_[v].used_ns = 0;
    own_[v].bursts = 0;
  }
  void note_gap(uint64_t now_ns, VgpuId v) {
    Own& o = own_[v];
    if (o.waited_ns == 0) return;
    const auto gap = static_cast<double>(std::min(now_ns - o.waited_ns, kWaitsNs));
    o.gap_ns += (gap - o.gap_ns) / (o.gap_ns > 0 ? 4 : 1);
  }
  // It waits after each of its long launches, for less than it takes to give the GPU to another: a
  // new slice for those that go on would cost them more, each stops whoever runs (an H200).
  bool returns_soon(VgpuId v) const {
    return config_.machine.slices_are_free_alone && own_[v].idled_open && own_[v].gap_ns > 0 &&
           own_[v].gap_ns < kSoon * handover_ns_ &&
           own_[v].burst_ns >= static_cast<double>(mean_slice_ns()) / 2 && has_slice(v);
  }
  bool has_slice(VgpuId v) const { return own_[v].slice_ns != kUnset && own_[v].slice_ns != 0; }
  // To keep the GPU for v while it waits costs next to nothing, less than half a switch.
  bool wait_is_short(VgpuId v) const {
    const Own& o = own_[v];
    return config_.machine.slices_are_free_alone && o.idled_open && o.gap_ns > 0 &&
           o.gap_ns < handover_ns_ / 2 && o.gap_ns < kShortWait * (o.burst_ns + o.gap_ns);
  }
  // Somebody is away for one of its short waits: who has the GPU meanwhile keeps the slice that it
  // has beside that one.
  bool awaits_return(uint64_t now_ns) const {
    return busy_.size() == 1 && returning_ != kNoVgpu && returning_ != busy_.front() &&
           now_ns < back_by_ns(returning_);
  }
  uint64_t back_by_ns(VgpuId v) const {
    return own_[v].waited_ns + kSoon * static_cast<uint64_t>(handover_ns_);
  }
  bool back_soon(uint64_t now_ns, VgpuId v) const {
    return returns_soon(v) && busy_.size() == 2 && !by_gates_ && gated_ == 0 &&
           round_ends_ns_ > now_ns && clock_[v].share.priority == top_priority_ &&
           now_ns < back_by_ns(v) && opened_for_ != v;
  }
  // It waits after each of many short launches, for less than a switch takes.
  bool chats(uint64_t now_ns, VgpuId v) const {
    const Own& o = own_[v];
    return o.waited_ns != 0 && now_ns - o.waited_ns < kWaitsNs && o.gap_ns < kSoon * handover_ns_ &&
           o.burst_ns > 0 && o.burst_ns < static_cast<double>(mean_slice_ns()) / 2;
  }

  // Its work is mostly over soon after it has come.
  bool visits(uint64_t now_ns, VgpuId v) const {
    const auto slice_ns = static_cast<double>(mean_slice_ns());
    const Own& o = own_[v];
    if (clock_[v].backlogged() && config_.machine.slices_are_free_alone &&
        static_cast<double>(now_ns - o.came_ns) > kStays * (slice_ns + handover_ns_))
      return false;
    if (o.burst_ns > 0) return o.burst_ns < slice_ns / kVisitsPerSlice;
    // Not measured yet: it was over within a slice of another's, of which it waited a part.
    return config_.machine.slices_are_free_alone && o.busy_ns > 0 &&
           static_cast<double>(o.busy_ns) < kLonger * slice_ns + kSoon * handover_ns_;
  }
  // Of class low, longer than a visit that waits for one short slice, after a pause, and paid for
  // when it came: by its share of the time, pauses included, of two latency targets and one at
  // most.
  bool bursts(VgpuId v) const { return own_[v].in_burst && own_[v].credit_ns > 0; }
  void begin_burst(uint64_t now_ns, VgpuId v) {
    Own& o = own_[v];
    const VgpuShare& share = clock_[v].share;
    const double part = static_cast<double>(share.weight) /
                        static_cast<double>(std::max<int64_t>(clock_.weight(share.priority), 1));
    const double most = std::min(2 * part, 1.0) * static_cast<double>(config_.latency_target_ns);
    o.credit_ns = std::min(o.credit_ns + part * static_cast<double>(now_ns - o.came_ns), most);
    o.in_burst = config_.machine.slices_are_free_alone && share.latency == LatencyClass::kLow &&
                 o.burst_ns >= kSoon * handover_ns_ && o.gap_ns >= kSoon * handover_ns_ &&
                 o.credit_ns >= o.burst_ns;
  }
  // It visits, and would not use half of what it is entitled to if it never waited: nobody has to
  // be gated for it.
  bool asks_little(uint64_t now_ns, VgpuId v, double weights) const {
    const Own& o = own_[v];
    return config_.machine.slices_are_free_alone && visits(now_ns, v) && o.gap_ns > 0 &&
           o.burst_ns / (o.burst_ns + o.gap_ns) < clock_[v].share.weight / weights / 2;
  }
  // Who came for a short while, by latency class: the last, and the last that was another.
  struct Visits {
    VgpuId last = kNoVgpu, other = kNoVgpu;
    uint64_t last_ns = 0, other_ns = 0;
  };
  void note_visit(uint64_t now_ns, VgpuId v) {
    Visits& visits = visits_[static_cast<size_t>(clock_[v].share.latency)];
    if (visits.last != v) visits.other = visits.last, visits.other_ns = visits.last_ns;
    visits.last = v, visits.last_ns = now_ns;
  }
  static void forget_visits(VgpuId v, Visits& visits) {
    if (visits.last == v)
      visits.last = std::exchange(visits.other, kNoVgpu), visits.last_ns = visits.other_ns;
    if (visits.other == v) visits.other = kNoVgpu;
  }
  // Of those that visit in this class, of any priority or of one above v's only.
  bool expects(uint64_t now_ns, VgpuId v, LatencyClass latency, bool above = false) const {
    const Visits& visits = visits_[static_cast<size_t>(latency)];
    const auto soon = [&](VgpuId who, uint64_t since_ns) {
      return who != kNoVgpu && who != v && now_ns - since_ns < kExpectedNs &&
             (!above || clock_[who].share.priority > clock_[v].share.priority);
    };
    return soon(visits.last, visits.last_ns) || soon(visits.other, visits.other_ns);
  }
  // The longest slice that those let v have. Who has a higher priority waits for it as one of class
  // low does.
  uint64_t awaits(uint64_t now_ns, VgpuId v) const {
    if (!config_.machine.slices_are_free_alone) return ceiling_ns();
    if (expects(now_ns, v, LatencyClass::kLow) || expects(now_ns, v, LatencyClass::kNormal, true) ||
        expects(now_ns, v, LatencyClass::kBatch, true))
      return std::max(floor_ns(), kForLowNs);
    if (expects(now_ns, v, LatencyClass::kNormal)) return std::max(floor_ns(), kForNormalNs);
    return ceiling_ns();
  }

  double lead_of(VgpuId v) const {
    return static_cast<double>(clock_.lead_sm_ns(v)) / std::max(config_.machine.sm_count, 1u);
  }
  double shortest_turn_ns() const { return static_cast<double>(floor_ns()) + handover_ns_; }
  // v has turned idle lately, and will have used less when it does so again than its part of a
  // round: a turn in each is not its share. Nor is that so short that the others would stop for
  // next to nothing.
  bool pauses(uint64_t now_ns, VgpuId v) const {
    return own_[v].waited_ns != 0 && now_ns - own_[v].waited_ns < kWaitsNs &&
           own_[v].burst_ns >= handover_ns_ / kShortestBurst && own_[v].burst_ns < quantum_ns(v);
  }
  bool comes_between(uint64_t now_ns, VgpuId v) const {
    return pauses(now_ns, v) && lead_of(v) < -own_[v].burst_ns / 2;
  }
  // In tick(), of those that do not pause: against each other, or all would be ahead where one that
  // pauses is owed something.
  double lead_among_rest(VgpuId v) const {
    return own_[v].lead_ns - clock_[v].share.weight / weight_of_rest_ * lead_of_rest_;
  }

  void set(VgpuId v, uint64_t slice_ns, Actions& out) {
    if (own_[v].slice_ns == slice_ns) return;
    // Small corrections cost more than they mend: they are made when they have added up. With a
    // tenth, programs that wait had 60 to 140 new slices a second for nothing.
    if (config_.machine.slices_are_free_alone && slice_ns != 0 && own_[v].slice_ns != 0 &&
        own_[v].slice_ns != kUnset &&
        std::max(slice_ns, own_[v].slice_ns) - std::min(slice_ns, own_[v].slice_ns) <
            own_[v].slice_ns / kSmallPart)
      return;
    own_[v].slice_ns = slice_ns;
    out.push_back(Action::set_slice(v, slice_ns));
  }
  void gate(uint64_t now_ns, VgpuId v, bool gated) {
    if (own_[v].gated == gated) return;
    own_[v].gated = gated;
    own_[v].gated_at_ns = now_ns;
    gated ? ++gated_ : --gated_;
  }
  void wake_at(uint64_t at_ns, Actions& out) {
    next_tick_ns_ = at_ns;
    if (wake_ns_ == at_ns) return;
    wake_ns_ = at_ns;
    out.push_back(Action::wake(at_ns));
  }

  static constexpr uint64_t kSoon = 2;  // switches' lengths
  static constexpr uint64_t kSmallPart = 5;
  // What a visitor is seen to use may be half of what it waits for others' slices.
  static constexpr double kVisitsPerSlice = 2;
  static constexpr double kOther = 4;  // bursts so much shorter are another program's
  // Who has been busy for so many slices does not visit, whatever it did before.
  static constexpr double kStays = 4;
  static constexpr uint64_t kForLowNs = 200'000, kForNormalNs = 1'000'000;
  static constexpr double kGain =
      0.25;  // of a round's error that the next round's slices take back
  static constexpr double kLeastWork = 0.5;
  static constexpr double kShortWait = 0.07;  // of the time between two launches
  static constexpr double kShorter = 0.75, kLonger = 1.25;
  // More times than one that waits after its shortest launches comes before a log tells of them.
  static constexpr uint32_t kEmptyBursts = 16;
  static constexpr uint64_t kEmptyNs = 100'000'000;
  static constexpr double kWasteCosts = 2;  // of what use costs
  // charge_waste(): looked at after so much of the GPU; what of it may be lost beyond switches;
  // what a log tells late, or more, and a machine that stands still for a moment.
  static constexpr double kWasteWindowNs = 20e6, kBearableWaste = 0.1, kLateNs = 30e6;
  static constexpr double kIdleLoss = 0.01;  // work conservation is at least what is left
  static constexpr double kPauseBurst = 8;   // hand-overs' lengths
  // A turn between two of one that waits, by what that one uses: or switches cost more than they
  // bring.
  static constexpr double kLeastOfBurst = 0.75;
  static constexpr double kTurnIsOver = 0.2;  // part of it that is not worth a turn of its own
  static constexpr double kRoundGrows =
      4;  // shortest turns that one is ahead for which a round grows
  bool may_pause(uint64_t now_ns) {
    pause_credit_ns_ += static_cast<double>(now_ns - credit_at_ns_) * kIdleLoss;
    pause_credit_ns_ = std::min(pause_credit_ns_, kPauseBurst * handover_ns_);
    credit_at_ns_ = now_ns;
    return pause_credit_ns_ >= handover_ns_;
  }
  void end_pause(uint64_t now_ns) {
    if (pausing_ && !pauses_in_turn_)
      pause_credit_ns_ -= static_cast<double>(now_ns - pause_since_ns_);
    pausing_ = false;
  }

  // It has come and gone many times, and was not seen to use anything: others are not gated for it.
  bool comes_for_nothing(uint64_t now_ns, VgpuId v) const {
    return own_[v].bursts >= kEmptyBursts && now_ns - own_[v].used_at_ns > kEmptyNs;
  }
  void forget_credit(VgpuId v) {
    const int64_t lead_sm_ns = clock_.lead_sm_ns(v);
    if (lead_sm_ns < 0) clock_.charge(v, static_cast<uint64_t>(-lead_sm_ns));
  }
  // v's open gate has kept its slice's part of the GPU until now.
  void keep(uint64_t now_ns, VgpuId v) {
    Own& o = own_[v];
    const uint64_t from_ns = std::max(std::exchange(o.kept_from_ns, now_ns), contended_since_ns_);
    if (o.gated || busy_.size() < 2 || open_slices_ns_ <= 0 || !has_slice(v)) return;
    o.kept_ns += static_cast<double>(now_ns - from_ns) *
                 std::min(static_cast<double>(o.slice_ns) / open_slices_ns_, 1.0);
  }
  // Some gates are open, and others want the GPU too.
  void pass(uint64_t now_ns) {
    const uint64_t from_ns = std::exchange(passed_ns_, now_ns);
    if (busy_.size() > 1 && open_slices_ns_ > 0) kept_ns_ += static_cast<double>(now_ns - from_ns);
  }
  // Since the last round. What nobody used beyond what switches cost and use that is told late is
  // charged to those who kept the GPU from others, each for what it did not use itself.
  void charge_waste(uint64_t now_ns) {
    pass(now_ns);
    for (const VgpuId v : busy_) keep(now_ns, v);
    if (kept_ns_ < kWasteWindowNs) return;
    const double bearable_ns = (1 - work_part_ + kBearableWaste) * kept_ns_;
    const double waste_ns = kept_ns_ - seen_ns_ - bearable_ns - waste_slack_ns_;
    waste_slack_ns_ = std::clamp(-waste_ns, 0.0, kLateNs);
    double unused_ns = 0;
    for (const VgpuId v : busy_) unused_ns += std::max(own_[v].kept_ns - own_[v].seen_ns, 0.0);
    for (const VgpuId v : busy_) {
      Own& o = own_[v];
      const double own_ns =
          std::max(std::exchange(o.kept_ns, 0) - std::exchange(o.seen_ns, 0), 0.0);
      if (waste_ns <= 0 || own_ns <= 0) continue;
      const double charged_ns = kWasteCosts * waste_ns * own_ns / unused_ns;
      clock_.charge(v, static_cast<uint64_t>(charged_ns * std::max(config_.machine.sm_count, 1u)));
    }
    kept_ns_ = seen_ns_ = 0;
  }

  // Decides who is gated and how long the others' slices are, until the round is over.
  void tick(uint64_t now_ns, Actions& out) {
    if (busy_.empty()) return;
    charge_waste(now_ns);
    decide(now_ns, out);
    open_slices_ns_ = 0;
    for (const VgpuId v : busy_)
      if (!own_[v].gated && has_slice(v)) open_slices_ns_ += static_cast<double>(own_[v].slice_ns);
  }
  void decide(uint64_t now_ns, Actions& out) {
    const bool was_gated = gated_ > 0;
    top_priority_ = kPriorityLevels - 1;
    while (clock_.busy(top_priority_) == 0) --top_priority_;

    // Lower levels are gated; the rest of a round is about the highest one only.
    double weights = 0, lightest = kMaxWeight;
    top_.clear();
    for (const VgpuId v : busy_) {
      if (clock_[v].share.priority != top_priority_) {
        gate(now_ns, v, true);
        continue;
      }
      top_.push_back(v);
      own_[v].lead_ns = lead_of(v);
      weights += clock_[v].share.weight;
      lightest = std::min<double>(lightest, clock_[v].share.weight);
    }
    double for_riders = 0;
    for (const VgpuId v : top_)
      if (rides(now_ns, v) && own_[v].lead_ns > kRoundGrows * shortest_turn_ns())
        for_riders = std::max(for_riders, shortest_turn_ns() * weights / clock_[v].share.weight);
    const double round =
        round_of(static_cast<double>(top_.size()), weights, lightest, kSpare * for_riders);
    per_weight_ns_ = round / weights;
    work_part_ = std::max(1 - static_cast<double>(top_.size()) * handover_ns_ / round, kLeastWork);

    // Those between whose turns others come, and how long the others' turns together must be at
    // least between two of theirs.
    bool some_come_between = false;
    double bursts_ns = 0, least_turn_ns = shortest_turn_ns();
    lead_of_rest_ = weight_of_rest_ = 0;
    rest_.clear();
    for (const VgpuId v : top_) {
      if (pauses(now_ns, v)) {
        some_come_between |= comes_between(now_ns, v);
        bursts_ns += own_[v].burst_ns + handover_ns_;
        least_turn_ns = std::max(least_turn_ns, kLeastOfBurst * own_[v].burst_ns + handover_ns_);
      } else {
        lead_of_rest_ += own_[v].lead_ns;
        weight_of_rest_ += clock_[v].share.weight;
        rest_.push_back(v);
      }
    }
    double cycle_ns = 0;
    for (const VgpuId v : rest_)
      if (rides(now_ns, v) && lead_among_rest(v) > config_.max_lead_turns * quantum_ns(v))
        cycle_ns = std::max(cycle_ns, shortest_turn_ns() * weights / clock_[v].share.weight);
    one_by_one_ =
        some_come_between && config_.max_lead_turns > 0 && rest_.size() > 1 && cycle_ns < round;
    double ends_ns = one_by_one_
                         ? one_by_one(now_ns, cycle_ns - bursts_ns, least_turn_ns) + bursts_ns
                         : all_in_turn(now_ns, round);
    if (config_.machine.slices_are_free_alone) ends_ns = by_gates(now_ns, ends_ns);
    for (const VgpuId v : busy_) set(v, own_[v].gated ? 0 : own_[v].wanted_ns, out);
    if (awaits_return(now_ns)) {
      opened_for_ = was_gated ? returning_ : opened_for_;
      return wake_at(back_by_ns(returning_), out);
    }
    opened_for_ = kNoVgpu;
    if (busy_.size() <= 1) return;
    round_ends_ns_ = now_ns + static_cast<uint64_t>(std::min(ends_ns, kLongestRoundNs));
    wake_at(round_ends_ns_, out);
  }
  bool rides(uint64_t now_ns, VgpuId v) const {
    return now_ns < own_[v].rides_until_ns && clock_[v].share.priority == top_priority_;
  }

  // Turns by gates, among those that chat and, where one of these fills its turn, the rest of those
  // that stay, together. Whoever has no turn is gated. Returns when to look again, as `ends_ns`
  // does.
  double by_gates(uint64_t now_ns, double ends_ns) {
    // Each of them may be away just now, between two launches.
    const auto back_ns = [&](VgpuId v) {
      return own_[v].waited_ns + static_cast<uint64_t>(handover_ns_);
    };
    std::erase_if(chatting_, [&](VgpuId v) {
      return clock_[v].backlogged() || now_ns >= back_ns(v) || !chats(now_ns, v) ||
             clock_[v].share.priority != top_priority_;
    });
    const size_t away = chatting_.size();
    staying_.clear();
    for (const VgpuId v : top_)
      if (chats(now_ns, v))
        chatting_.push_back(v);
      else if (!visits(now_ns, v))
        staying_.push_back(v);
    if (staying_.size() > kMostThatStay ||
        std::none_of(chatting_.begin(), chatting_.end(),
                     [&](VgpuId v) { return fills_its_turn(v); }))
      staying_.clear();
    by_gates_ = !staying_.empty() || (chatting_.size() >= 2 && chatting_.size() > away);
    if (!by_gates_) {
      turn_ends_ns_ = 0;
      return ends_ns;
    }
    const bool is_there = turn_of_ == kThoseThatStay ? !staying_.empty()
                                                     : std::find(chatting_.begin(), chatting_.end(),
                                                                 turn_of_) != chatting_.end();
    if (now_ns >= turn_ends_ns_ || !is_there) begin_turn(now_ns, away);
    for (size_t i = away; i < chatting_.size(); ++i)
      gate(now_ns, chatting_[i], chatting_[i] != turn_of_);
    if (turn_of_ == kThoseThatStay)
      return std::min(ends_ns, static_cast<double>(turn_ends_ns_ - now_ns));
    for (const VgpuId v : staying_) gate(now_ns, v, true);
    const bool is_away = !clock_[turn_of_].backlogged();
    return static_cast<double>(
        (is_away ? std::min(back_ns(turn_of_), turn_ends_ns_) : turn_ends_ns_) - now_ns);
  }
  // More of its turn is work than of slices that change at each of its launches. Of longer ones the
  // slices are.
  bool fills_its_turn(VgpuId v) const {
    return own_[v].gap_ns < own_[v].burst_ns &&
           own_[v].burst_ns < kShortLaunches * static_cast<double>(handover_ns_);
  }
  // Round robin among chatting_[first...] and those that stay. Who is ahead by more than a turn is
  // passed over, but not by all.
  void begin_turn(uint64_t now_ns, size_t first) {
    const auto ahead = [&](VgpuId v) { return own_[v].lead_ns > quantum_ns(v); };
    VgpuId next = kNoVgpu;
    for (size_t i = first; i < chatting_.size(); ++i) {
      const VgpuId v = chatting_[i];
      if (next == kNoVgpu ||
          (ahead(v) != ahead(next) ? ahead(next) : own_[v].turn_ns < own_[next].turn_ns))
        next = v;
    }
    double lead_ns = 0, turn_ns = 0;
    for (const VgpuId v : staying_) {
      lead_ns += own_[v].lead_ns;
      turn_ns += quantum_ns(v);
    }
    const bool all_ahead = lead_ns > turn_ns;
    if (next == kNoVgpu ||
        (!staying_.empty() &&
         (ahead(next) != all_ahead ? ahead(next) : staying_turn_ns_ < own_[next].turn_ns))) {
      turn_of_ = kThoseThatStay;
      staying_turn_ns_ = now_ns;
      turn_ends_ns_ =
          now_ns + static_cast<uint64_t>(std::clamp(turn_ns - kGain * lead_ns, kShorter * turn_ns,
                                                    kLonger * turn_ns));
      return;
    }
    turn_of_ = next;
    Own& o = own_[turn_of_];
    o.turn_ns = now_ns;
    turn_ends_ns_ = now_ns + slice_for(turn_of_, o.lead_ns) + static_cast<uint64_t>(handover_ns_);
  }

  // A round by the hardware. Returns how long it takes.
  double all_in_turn(uint64_t now_ns, double round) {
    VgpuId last = kNoVgpu;  // the one that is owed most, for its weight
    const auto stay =
        std::count_if(top_.begin(), top_.end(), [&](VgpuId v) { return !visits(now_ns, v); });
    const bool several_stay = stay > 1;
    double least = 0, ends_ns = 0, weights = 0;
    for (const VgpuId v : top_) weights += clock_[v].share.weight;
    const bool some_ask_little =
        stay == 1 && busy_.size() > 1 && std::all_of(top_.begin(), top_.end(), [&](VgpuId v) {
          return !visits(now_ns, v) || asks_little(now_ns, v, weights);
        });
    for (const VgpuId v : top_) {
      const double lead_ns =
          pauses(now_ns, v) || rest_.size() < 2 ? own_[v].lead_ns : lead_among_rest(v);
      // Who had its turn just now is ahead by half of it, who waits for it behind: neither is
      // anything to mend.
      const double gone = std::min(static_cast<double>(now_ns - own_[v].used_at_ns) / round, 1.0);
      gate(now_ns, v, sits_out(v, std::min(lead_ns, lead_ns - quantum_ns(v) * (0.5 - gone))));
      own_[v].left_ns = 0;
      // Alone, the hardware has nobody to switch to; a long slice would only make a newcomer wait.
      own_[v].wanted_ns = busy_.size() == 1 ? mean_slice_ns() : slice_for(v, lead_ns);
      if (busy_.size() > 1)
        own_[v].beside_ns = own_[v].wanted_ns;
      else if (awaits_return(now_ns) && own_[v].beside_ns != 0)
        own_[v].wanted_ns = has_slice(v) ? own_[v].slice_ns : own_[v].beside_ns;
      if (some_ask_little) {
        gate(now_ns, v, false);
        own_[v].wanted_ns = visits(now_ns, v) ? slice_for(v, 0) : mean_slice_ns();
      }
      if (!several_stay && !awaits_return(now_ns))
        own_[v].wanted_ns = std::min(own_[v].wanted_ns, awaits(now_ns, v));
      const double turns = lead_ns / clock_[v].share.weight;
      if (last == kNoVgpu || turns < least) last = v, least = turns;
    }
    gate(now_ns, last, false);
    // Slices that change at each burst cost several that stay more than it gains.
    if (std::count_if(top_.begin(), top_.end(),
                      [&](VgpuId v) { return !visits(now_ns, v) && !bursts(v); }) <= 1)
      serve_bursts(now_ns);
    for (const VgpuId v : top_)
      if (!own_[v].gated) ends_ns += static_cast<double>(own_[v].wanted_ns) + handover_ns_;
    return ends_ns;
  }

  // It has a long slice, and no gate: the other has short ones.
  void serve_bursts(uint64_t now_ns) {
    if (busy_.size() < 2 ||
        std::none_of(top_.begin(), top_.end(), [&](VgpuId v) { return bursts(v); }))
      return;
    for (const VgpuId v : top_) {
      Own& o = own_[v];
      if (bursts(v)) gate(now_ns, v, false);
      o.wanted_ns = bursts(v) ? std::max(o.wanted_ns, mean_slice_ns())
                              : std::min(o.wanted_ns, std::max(floor_ns(), kForLowNs));
    }
  }

  // The next turn of those that do not pause, or as many as fit into `budget_ns`. Returns how long
  // they take.
  double one_by_one(uint64_t now_ns, double budget_ns, double least_turn_ns) {
    for (const VgpuId v : top_) {
      if (!pauses(now_ns, v)) continue;
      own_[v].wanted_ns = slice_for(v, own_[v].lead_ns);
      gate(now_ns, v, own_[v].lead_ns > own_[v].burst_ns / 2);
    }
    for (const VgpuId v : rest_) {
      Own& o = own_[v];
      const double lead_ns = lead_among_rest(v);
      o.wanted_ns = slice_for(v, lead_ns + quantum_ns(v) / 2);
      const double turn = static_cast<double>(o.wanted_ns) + handover_ns_;
      if (o.gated || o.left_ns < kTurnIsOver * turn) o.left_ns = 0;
      o.order = (o.left_ns > 0 ? -kLongestRoundNs * kMaxWeight : 0) +
                (lead_ns + turn / 2) / clock_[v].share.weight;
    }
    std::sort(rest_.begin(), rest_.end(), [&](VgpuId a, VgpuId b) {
      return own_[a].order != own_[b].order ? own_[a].order < own_[b].order : a < b;
    });
    double ends_ns = 0;
    for (const VgpuId v : rest_) {
      Own& o = own_[v];
      const bool first = v == rest_.front(), goes_on = o.left_ns > 0;
      double turn = goes_on ? o.left_ns : static_cast<double>(o.wanted_ns) + handover_ns_;
      if (first && !goes_on && budget_ns < turn) {  // as short as those that wait want it
        turn = std::min(turn, std::max(budget_ns, least_turn_ns));
        o.wanted_ns = static_cast<uint64_t>(turn - handover_ns_);
      }
      const bool due = goes_on || lead_among_rest(v) + turn / 2 < quantum_ns(v);
      const bool opens = first || (due && budget_ns > turn / 2);
      gate(now_ns, v, !opens);
      o.left_ns = opens ? turn : 0;
      if (opens) budget_ns -= turn, ends_ns += turn;
    }
    return ends_ns;
  }

  const Config config_;
  FairClock clock_;
  std::vector<Own> own_;
  std::vector<VgpuId> busy_;  // in no order
  size_t gated_ = 0;          // of busy_
  uint32_t top_priority_ = 0;
  double per_weight_ns_ = 0;  // turn per weight in this round
  double work_part_ = 1;      // of a round; the rest are its switches
  double handover_ns_;
  uint64_t alone_since_ns_ = 0;      // the only one of busy_, if there is one
  uint64_t contended_since_ns_ = 0;  // two or more, since then
  uint64_t passed_ns_ = 0;           // kept_ns_ is known until then
  uint64_t next_tick_ns_ = 0, wake_ns_ = 0, round_ends_ns_ = 0;
  double open_slices_ns_ = 0;         // as the last round began
  double kept_ns_ = 0, seen_ns_ = 0;  // charge_waste(): of all
  double waste_slack_ns_ = kLateNs;   // waste that is borne yet
  double pause_credit_ns_ = 0;
  uint64_t credit_at_ns_ = 0, pause_since_ns_ = 0;
  std::vector<VgpuId> top_;   // those of busy_ of the highest level, as the last round began
  std::vector<VgpuId> rest_;  // those of them that do not pause
  std::array<Visits, 3> visits_;
  double lead_of_rest_ = 0, weight_of_rest_ = 0;
  bool by_gates_ = false;  // those that chat have turns one by one: ...
  std::vector<VgpuId> chatting_;
  std::vector<VgpuId> staying_;   // and the rest that stays has one together
  VgpuId turn_of_ = kNoVgpu;      // ... this one, or kThoseThatStay, ...
  VgpuId returning_ = kNoVgpu;    // waited last for a short while after a long launch
  VgpuId opened_for_ = kNoVgpu;   // ... and somebody's gate was opened meanwhile
  uint64_t turn_ends_ns_ = 0;     // ... until then
  uint64_t staying_turn_ns_ = 0;  // when the last turn of those that stay began
  bool pauses_in_turn_ = false;   // pausing_, within a turn by gates
  bool one_by_one_ = false;       // the rest have their turns one by one
  bool pausing_ =
      false;  // all who are busy are gated, for the sake of one that may be back at once
};

}  // namespace

std::unique_ptr<Policy> make_wfq_slices(const Config& config) {
  return std::make_unique<WfqSlices>(config);
}

}  // namespace sluice::policy
