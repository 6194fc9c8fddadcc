// SPDX-License-Identifier: Apache-2.0
// wfq for proportional preemptors: the hardware alternates between the contexts of all backlogged
// vGPUs in time slices; this sets the slices and gates vGPUs that are ahead.
//
// Terms   round     each backlogged vGPU has one turn in it
//         turn      a slice and the switch to it, which is charged to the vGPU that it is made for
//         quantum   what a vGPU is entitled to in a round
//         rider     its kernel goes on behind a closed gate
//
// Rules, each in the file of policies/wfq/slices/ that is named, or below
//   lengths.h      a mean slice is just long enough to pay for a switch: handover / handover_loss.
//                  A round is long enough that the lightest vGPU has a turn in each, and a whole
//                  number of rounds in a second. Short rounds are a third longer where no vGPU has
//                  come or gone lately and none is expected (is_calm()). A slice is the quantum,
//                  corrected once a round by a part of the lag
//   gpu.h          sits_out(): a vGPU is gated for a round if that leaves it closer to its
//                  entitlement than a turn would: nobody is further off than one turn. (LoGA's and
//                  NEON's disengaged fair queuing, with weights and turn by turn.) Leads add up to
//                  nothing, so that somebody is never gated
//   habit.h        which vGPUs visit, pause, chat, return soon: learnt from when each has work, and
//                  of one that was alone from what its worker says (on_rhythm())
//   one_by_one.h   while a vGPU that waits after its launches lags by half of a burst, the
//                  others have turns one by one, and it has one between any two of theirs
//   stay_turns.h   beside visitors, and where some wait after long launches, those that stay have
//                  turns one by one, by their gates: a visit waits for a slice of one of them
//   riders.h       a rider has the shortest slices; once it leads by a few turns the others' turns
//                  are longer until it falls back
//   expected_visits.h  one that has the GPU alone, or beside such as visit it only, has slices as
//                  short as the latency class of who may come wants
//   gate_turns.h   vGPUs that wait after each of many short launches have turns one by one, by
//                  their gates: the hardware would change between them at each launch
//   waste.h        GPU time that nobody uses while gates are shut is charged to vGPUs whose gates
//                  are open. One that claims work again and again, and uses nothing, keeps no
//                  credit (forget_credit())
//   burst.h        a vGPU of class low that comes back has a long slice, those that it finds there
//                  short ones (serve_bursts())
//   pause_budget.h the gates stay shut for a switch's length for one that may be back at once
//
// Guarantee  while all are backlogged, over a window T: |got / entitled - 1| <= (slice + switch) /
//   (entitlement in T), that is n * handover / (handover_loss * T) for n equal vGPUs (1.35 times
//   that in the longer rounds), and (floor + switch) / (entitlement in T) for those below the
//   floor. tests/sim/wfq_test.cc.
// Priorities are strict: lower levels are gated while a higher one is backlogged. No timer while
// one vGPU is backlogged alone. Cost: O(backlogged) per round, and per arrival while several are
// backlogged that have no turns one by one; else O(1) per event.
#include <algorithm>
#include <utility>
#include <vector>

#include "mediator/base/check.h"
#include "policies/policy.h"
#include "policies/wfq/forms.h"
#include "policies/wfq/slices/burst.h"
#include "policies/wfq/slices/expected_visits.h"
#include "policies/wfq/slices/gate_turns.h"
#include "policies/wfq/slices/gpu.h"
#include "policies/wfq/slices/one_by_one.h"
#include "policies/wfq/slices/pause_budget.h"
#include "policies/wfq/slices/riders.h"
#include "policies/wfq/slices/stay_turns.h"
#include "policies/wfq/slices/waste.h"

namespace sluice::policy {
namespace {

using slices::Habit;
using slices::SlicedVgpu;
using slices::SliceLengths;

class WfqSlices final : public Policy {
 public:
  explicit WfqSlices(const Config& config) : gpu_(config) {}
  std::string_view name() const override { return "wfq"; }

  void on_vgpu_added(uint64_t, VgpuId v, const VgpuShare& share, Actions&) override {
    gpu_.add(v, share);
  }
  void on_vgpu_changed(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) override {
    // Who came as one of another class is expected as that no more.
    if (share.latency != gpu_.share(v).latency) expected_.forget(v);
    gpu_.clock.change(v, share);
    if (gpu_.clock[v].backlogged()) tick(now_ns, out);
  }
  void on_reweighed(uint64_t, VgpuId v, const VgpuShare& share, Actions&) override {
    gpu_.clock.change(v, share);  // the round goes on
  }
  void on_group(uint64_t, GroupId group, const GroupShare& share, Actions&) override {
    gpu_.clock.set_group(group, share.parent);
  }
  void on_vgpu_removed(uint64_t, VgpuId v, Actions&) override {
    SLUICE_CHECK(!gpu_.clock[v].backlogged());
    gpu_.clock.remove(v);
  }

  void on_arrival(uint64_t now_ns, VgpuId v, Actions& out) override {
    if (gpu_.clock[v].backlogged()) return;
    note_arrival(now_ns, v);
    const bool was_pausing = pause_.end(now_ns);
    // Nothing has changed: the round goes on.
    if (is_back_soon(now_ns, v) && !was_pausing) return wake_at(round_ends_ns_, out);
    // Each new slice stops whoever runs (an H200): not for one that asks for nothing.
    if (!was_pausing && is_batch_beside_one(v)) {
      set(v, gpu_.slice_for(v, 0), out);
      return wake_at(now_ns + gpu_[gpu_.top.front()].wanted_ns, out);
    }
    const bool anew = gpu_.busy.size() <= 2 || was_pausing || next_tick_ns_ <= now_ns;
    // Of a lower level: it waits, and the round goes on.
    if (!anew && gpu_.share(v).priority < gpu_.top_priority) {
      gpu_.gate(now_ns, v, true);
      return set(v, 0, out);
    }
    if (anew || changes_round(now_ns, v)) return tick(now_ns, out);
    gpu_[v].lead_ns = gpu_.lead_of(v);
    gpu_.gate(now_ns, v, stay_turns_.has_to_wait(v));
    const uint64_t slice_ns =
        stay_turns_.active() ? stay_turns_.slice_ns(now_ns, v) : gpu_.slice_for(v, 0);
    set(v, gpu_[v].gated ? 0 : slice_ns, out);
  }

  void on_idle(uint64_t now_ns, VgpuId v, Actions& out) override {
    if (!gpu_.clock[v].backlogged()) return;
    const bool had_gated = gpu_.gated > 0;
    note_idle(now_ns, v);
    if (gpu_.busy.empty()) return;
    if (stay_turns_.runs(v)) {  // a wait shorter than half a switch ends no turn
      if (!gpu_.habit(v).wait_is_short(gpu_.lengths)) return tick(now_ns, out);
      return wake_at(now_ns + static_cast<uint64_t>(gpu_.lengths.handover_ns()), out);
    }
    if (gpu_.gated < gpu_.busy.size()) {  // somebody goes on
      if (gpu_.busy.size() != 1) return;
      if (!gpu_.returns_soon(v)) return tick(now_ns, out);
      return wake_at(back_by_ns(v), out);
    }
    if (!had_gated) return tick(now_ns, out);
    // A wait shorter than half a switch is no chance for others.
    const bool paid =
        gate_turns_.is_turn_of(now_ns, v) || gpu_.habit(v).wait_is_short(gpu_.lengths);
    const double handover_ns = gpu_.lengths.handover_ns();
    if (!pause_.begin(now_ns, paid, handover_ns)) return tick(now_ns, out);
    wake_at(now_ns + static_cast<uint64_t>(handover_ns), out);
  }

  void on_usage(uint64_t now_ns, VgpuId v, const Usage& usage) override {
    gpu_.clock.charge(v, usage.sm_ns);
    const double used_ns = static_cast<double>(usage.sm_ns) / gpu_.sms();
    SlicedVgpu& o = gpu_[v];
    o.habit.note_use(now_ns, used_ns);
    o.left_ns -= used_ns;
    o.credit_ns = std::max(o.credit_ns - used_ns, 0.0);
    waste_.on_use(v, used_ns);
    if (!o.gated) return;
    o.used_gated_ns += used_ns;
    const double begun_ns = gpu_.lengths.free_alone() ? kBegunUseNs : 0;
    if (now_ns > o.gated_at_ns + kBegunNs && o.used_gated_ns > begun_ns)
      o.rides_until_ns = now_ns + kRidesNs;
  }
  void on_rhythm(uint64_t now_ns, VgpuId v, const Rhythm& rhythm) override {
    gpu_[v].habit.take(rhythm);
    if (!gpu_.habit(v).visits(now_ns, false, gpu_.lengths)) return;
    expected_.note(now_ns, v);
    gpu_[v].stays = false;
  }
  void on_missed_wait(uint64_t now_ns, VgpuId v) override {
    if (!gpu_.clock[v].backlogged() || is_long_alone(now_ns)) return;
    gpu_[v].habit.came_lately.add(now_ns, 1);
    if (gpu_.has_its_share(now_ns, v)) return;
    gpu_[v].habit.waited_ns = now_ns;
    gpu_[v].habit.note_gap(now_ns);
    note_burst(now_ns, v);
    gpu_[v].habit.came_ns = now_ns;
  }
  bool reads_tasks() const override { return false; }
  void on_left(uint64_t now_ns, VgpuId v, LeftReason, Actions& out) override {
    if (stay_turns_.on_left(v)) tick(now_ns, out);
  }
  void on_handover(uint64_t, uint64_t cost_ns) override { gpu_.lengths.learn(cost_ns); }
  void on_wake(uint64_t now_ns, Actions& out) override {
    wake_ns_ = 0;
    pause_.end(now_ns);
    tick(now_ns, out);
  }
  uint64_t quantum_ns() const override { return gpu_.lengths.mean_slice_ns(); }

 private:
  static constexpr double kLongestRoundNs = 1e9;
  static constexpr uint64_t kAloneNs = 20'000'000;
  // A vGPU that uses the GPU so long after it was gated has a kernel that no gate stops; its next
  // may be one, too. Where kernels are not evicted, a few launches that it had begun are none.
  static constexpr double kBegunUseNs = 50e6;
  static constexpr uint64_t kBegunNs = 30'000'000, kRidesNs = 10'000'000'000;
  static constexpr uint64_t kSmallPart = 5;  // of a slice
  static constexpr uint64_t kCalmAfterNs = 100'000'000;

  // ---- who comes and goes -----------------------------------------------------------------------
  void note_arrival(uint64_t now_ns, VgpuId v) {
    waste_.pass(now_ns);
    gpu_.clock.turn_busy(v);
    Habit& habit = gpu_[v].habit;
    if (habit.comes_for_nothing(now_ns)) forget_credit(v);
    habit.note_gap(now_ns);
    habit.came_lately.add(now_ns, 1);
    changed_ns_ = now_ns;
    slices::begin_burst(gpu_, now_ns, v);
    if (is_long_alone(now_ns)) gpu_[gpu_.busy.front()].habit.forget_burst(now_ns);
    habit.came_ns = now_ns;
    gpu_.enter(v);
    waste_.on_arrival(now_ns, v);
    if (gpu_.busy.size() == 1) alone_since_ns_ = now_ns;
  }
  void note_idle(uint64_t now_ns, VgpuId v) {
    waste_.pass(now_ns);
    waste_.keep(now_ns, v);
    gpu_.clock.turn_idle(v);
    SlicedVgpu& o = gpu_[v];
    Habit& habit = o.habit;
    habit.waited_ns = now_ns;
    if (is_long_alone(now_ns)) {
      // Another program now: no burst takes longer than it was busy.
      habit.burst_ns = std::min(habit.burst_ns, static_cast<double>(now_ns - habit.came_ns));
      habit.forget_burst(now_ns);
    } else {
      note_burst(now_ns, v);
    }
    gpu_.leave(v);
    if (gpu_.busy.size() == 1) alone_since_ns_ = now_ns;
    changed_ns_ = now_ns;
    habit.idled_open = !o.gated;
    if (gpu_.returns_soon(v)) returning_ = v;
    if (o.gated) --gpu_.gated, o.gated = false;
  }
  void note_burst(uint64_t now_ns, VgpuId v) {
    Habit& habit = gpu_[v].habit;
    habit.busy_ns = now_ns - habit.came_ns;
    habit.note_busy(now_ns);
    habit.note_burst(gpu_.lengths);
    const bool visits = gpu_.visits(now_ns, v) && !gpu_.asks_much(now_ns, v);
    if (visits) gpu_[v].stays = false;
    // A burst does not wait for long slices either.
    if (visits || gpu_[v].in_burst) expected_.note(now_ns, v);
  }
  // A vGPU that has the GPU alone is not asked when it becomes idle: what it has used until now was
  // no burst.
  bool is_long_alone(uint64_t now_ns) const {
    return gpu_.busy.size() == 1 && gpu_.lengths.free_alone() &&
           now_ns - alone_since_ns_ > kAloneNs;
  }
  // Others are not gated for it.
  void forget_credit(VgpuId v) {
    const int64_t lead_sm_ns = gpu_.clock.lead_sm_ns(v);
    if (lead_sm_ns < 0) gpu_.clock.charge(v, static_cast<uint64_t>(-lead_sm_ns));
  }
  bool is_batch_beside_one(VgpuId v) const {
    return gpu_.lengths.free_alone() && gpu_.busy.size() == 2 &&
           gpu_.share(v).latency == LatencyClass::kBatch && gpu_.top.size() == 1 &&
           gpu_.share(v).priority == gpu_.top_priority;
  }
  // v's coming may change what the others get before the next round does.
  bool changes_round(uint64_t now_ns, VgpuId v) {
    if (stay_turns_.active() && gpu_.share(v).priority == gpu_.top_priority)
      return !stay_turns_.holder_is_there();
    return gate_turns_.active() || slices::bursts(gpu_, v) || stay_turns_.begin_with(now_ns, v) ||
           (!one_by_one_.active() && gpu_.comes_between(now_ns, v)) ||
           gpu_.share(v).priority != gpu_.top_priority;
  }

  // ---- one that is away for a short wait after a long launch ------------------------------------
  uint64_t back_by_ns(VgpuId v) const {
    return gpu_.habit(v).waited_ns +
           SliceLengths::kSoon * static_cast<uint64_t>(gpu_.lengths.handover_ns());
  }
  // The vGPU that has the GPU meanwhile keeps the slice that it has beside that one.
  bool awaits_return(uint64_t now_ns) const {
    return gpu_.busy.size() == 1 && returning_ != kNoVgpu && returning_ != gpu_.busy.front() &&
           now_ns < back_by_ns(returning_);
  }
  bool is_back_soon(uint64_t now_ns, VgpuId v) const {
    return gpu_.returns_soon(v) && gpu_.busy.size() == 2 && !gate_turns_.active() &&
           gpu_.gated == 0 && round_ends_ns_ > now_ns &&
           gpu_.share(v).priority == gpu_.top_priority && now_ns < back_by_ns(v) &&
           opened_for_ != v;
  }

  // ---- actions ----------------------------------------------------------------------------------
  void set(VgpuId v, uint64_t slice_ns, Actions& out) {
    if (gpu_[v].slice_ns == slice_ns || is_small_correction(v, slice_ns)) return;
    gpu_[v].slice_ns = slice_ns;
    out.push_back(Action::set_slice(v, slice_ns));
  }
  // Small corrections cost more than they mend: they are made when they have added up. With a
  // tenth, programs that wait had 60 to 140 new slices a second for nothing.
  bool is_small_correction(VgpuId v, uint64_t slice_ns) const {
    if (!gpu_.lengths.free_alone() || slice_ns == 0 || !gpu_.has_slice(v)) return false;
    const uint64_t now_ns = gpu_[v].slice_ns;
    return std::max(slice_ns, now_ns) - std::min(slice_ns, now_ns) < now_ns / kSmallPart;
  }
  void wake_at(uint64_t at_ns, Actions& out) {
    next_tick_ns_ = at_ns;
    if (wake_ns_ == at_ns) return;
    wake_ns_ = at_ns;
    out.push_back(Action::wake(at_ns));
  }

  // ---- a round ----------------------------------------------------------------------------------
  // Decides who is gated and how long the others' slices are, until the round is over.
  void tick(uint64_t now_ns, Actions& out) {
    if (gpu_.busy.empty()) return;
    waste_.charge(now_ns);
    decide(now_ns, out);
    waste_.begin_round();
  }
  void decide(uint64_t now_ns, Actions& out) {
    const bool was_gated = gpu_.gated > 0;
    find_top(now_ns);
    double lightest = kMaxWeight;
    for (const VgpuId v : gpu_.top) lightest = std::min<double>(lightest, gpu_.share(v).weight);
    const double weights = gpu_.weight_of_top;
    const double round = gpu_.lengths.begin_round(
        gpu_.top.size(), weights, lightest, slices::RiderRounds::least_ns(gpu_, now_ns, weights),
        is_calm(now_ns));
    const double ends_ns = begin_round(now_ns, round, weights);
    for (const VgpuId v : gpu_.busy) set(v, gpu_[v].gated ? 0 : gpu_[v].wanted_ns, out);
    if (awaits_return(now_ns)) {
      opened_for_ = was_gated ? returning_ : opened_for_;
      return wake_at(back_by_ns(returning_), out);
    }
    opened_for_ = kNoVgpu;
    if (gpu_.busy.size() <= 1) return;
    round_ends_ns_ = now_ns + static_cast<uint64_t>(std::min(ends_ns, kLongestRoundNs));
    wake_at(round_ends_ns_, out);
  }
  // Returns in how many ns it has to be looked at again.
  double begin_round(uint64_t now_ns, double round, double weights) {
    if (stay_turns_.applies(now_ns)) return stay_turns_.begin_round(now_ns);
    const double ends_ns = one_by_one_.applies(now_ns, round, weights)
                               ? one_by_one_.begin_round(now_ns)
                               : all_in_turn(now_ns, round);
    return gpu_.lengths.free_alone() ? gate_turns_.begin_round(now_ns, ends_ns) : ends_ns;
  }
  // Lower levels are gated; the rest of a round is about the highest one only.
  void find_top(uint64_t now_ns) {
    gpu_.find_top();
    for (const VgpuId v : gpu_.busy)
      if (gpu_.share(v).priority != gpu_.top_priority) gpu_.gate(now_ns, v, true);
  }
  // Nobody has come or gone lately, and nobody is expected.
  bool is_calm(uint64_t now_ns) const {
    return gpu_.lengths.free_alone() && now_ns - changed_ns_ > kCalmAfterNs &&
           std::all_of(gpu_.busy.begin(), gpu_.busy.end(), [&](VgpuId v) {
             return expected_.longest_slice_ns(now_ns, v) == gpu_.lengths.ceiling_ns();
           });
  }
  // A round by the hardware. Returns how long it takes.
  double all_in_turn(uint64_t now_ns, double round) {
    const auto stay = std::count_if(gpu_.top.begin(), gpu_.top.end(),
                                    [&](VgpuId v) { return !gpu_.visits(now_ns, v); });
    const bool visitors_ask_little =
        stay == 1 && gpu_.busy.size() > 1 && all_visitors_ask_little(now_ns);
    VgpuId last = kNoVgpu;  // the furthest behind, for its weight
    double least = 0;
    for (const VgpuId v : gpu_.top) {
      const double lead_ns = gpu_.pauses(now_ns, v) || gpu_.rest.size() < 2
                                 ? gpu_[v].lead_ns
                                 : gpu_.lead_among_rest(v);
      // A vGPU that had its turn just now is ahead by half of it, one that waits for it is behind:
      // neither is anything to mend.
      const double gone =
          std::min(static_cast<double>(now_ns - gpu_.habit(v).used_at_ns) / round, 1.0);
      const double mended_ns = lead_ns - gpu_.quantum_ns(v) * (0.5 - gone);
      gpu_.gate(now_ns, v, gpu_.sits_out(v, std::min(lead_ns, mended_ns)));
      gpu_[v].left_ns = 0;
      gpu_[v].wanted_ns = slice_in_turn(now_ns, v, lead_ns);
      if (visitors_ask_little) {
        gpu_.gate(now_ns, v, false);
        gpu_[v].wanted_ns =
            gpu_.visits(now_ns, v) ? gpu_.slice_for(v, 0) : gpu_.lengths.mean_slice_ns();
      }
      if (stay <= 1 && !awaits_return(now_ns))
        gpu_[v].wanted_ns = std::min(gpu_[v].wanted_ns, expected_.longest_slice_ns(now_ns, v));
      const double turns = lead_ns / gpu_.share(v).weight;
      if (last == kNoVgpu || turns < least) last = v, least = turns;
    }
    gpu_.gate(now_ns, last, false);
    serve_bursts(now_ns);
    double ends_ns = 0;
    for (const VgpuId v : gpu_.top)
      if (!gpu_[v].gated)
        ends_ns += static_cast<double>(gpu_[v].wanted_ns) + gpu_.lengths.handover_ns();
    return ends_ns;
  }
  // Alone, the hardware has nobody to switch to; a long slice would only make a newcomer wait.
  uint64_t slice_in_turn(uint64_t now_ns, VgpuId v, double lead_ns) {
    SlicedVgpu& o = gpu_[v];
    if (gpu_.busy.size() > 1) return o.beside_ns = gpu_.slice_for(v, lead_ns);
    if (awaits_return(now_ns) && o.beside_ns != 0)
      return gpu_.has_slice(v) ? o.slice_ns : o.beside_ns;
    return gpu_.lengths.mean_slice_ns();
  }
  // None that visits would use half of its entitlement if it never waited: nobody has to be gated
  // for them.
  bool all_visitors_ask_little(uint64_t now_ns) const {
    double weights = 0;
    for (const VgpuId v : gpu_.top) weights += gpu_.share(v).weight;
    return std::all_of(gpu_.top.begin(), gpu_.top.end(), [&](VgpuId v) {
      if (!gpu_.visits(now_ns, v)) return true;
      return gpu_.lengths.free_alone() &&
             gpu_.habit(v).asks_less_than_half(gpu_.share(v).weight / weights);
    });
  }

  // A burst has a long slice, and no gate: the other has short ones. Slices that change at each
  // burst cost several that stay more than it gains.
  void serve_bursts(uint64_t now_ns) {
    const auto bursts = [&](VgpuId v) { return slices::bursts(gpu_, v); };
    const auto stays = [&](VgpuId v) { return !gpu_.visits(now_ns, v) && !bursts(v); };
    if (std::count_if(gpu_.top.begin(), gpu_.top.end(), stays) > 1) return;
    if (gpu_.busy.size() < 2 || std::none_of(gpu_.top.begin(), gpu_.top.end(), bursts)) return;
    for (const VgpuId v : gpu_.top) {
      uint64_t& wanted_ns = gpu_[v].wanted_ns;
      if (bursts(v)) {
        gpu_.gate(now_ns, v, false);
        wanted_ns = std::max(wanted_ns, gpu_.lengths.mean_slice_ns());
      } else {
        wanted_ns = std::min(wanted_ns, gpu_.lengths.beside_low_ns());
      }
    }
  }

  slices::SlicedGpu gpu_;
  slices::WasteMeter waste_{gpu_};
  slices::ExpectedVisits expected_{gpu_};
  slices::StayTurns stay_turns_{gpu_, expected_};
  slices::OneByOne one_by_one_{gpu_};
  slices::GateTurns gate_turns_{gpu_};
  slices::PauseBudget pause_;
  uint64_t alone_since_ns_ = 0;  // the only one of gpu_.busy, if there is one
  uint64_t changed_ns_ = 0;      // when one came or went last
  uint64_t next_tick_ns_ = 0, wake_ns_ = 0, round_ends_ns_ = 0;
  VgpuId returning_ = kNoVgpu;   // waited last for a short while after a long launch, ...
  VgpuId opened_for_ = kNoVgpu;  // ... and somebody's gate was opened meanwhile
};

}  // namespace

std::unique_ptr<Policy> make_wfq_slices(const Config& config) {
  return std::make_unique<WfqSlices>(config);
}

}  // namespace sluice::policy
