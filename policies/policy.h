// SPDX-License-Identifier: Apache-2.0
// The contract between a scheduling policy and whoever drives it (mediator/core's scheduler, the
// simulator, a test).
//
// A policy is a pure object: events go in with their time, actions come out. It has no clock, no
// I/O, no threads and no randomness but the seed in its config; the same events give the same
// actions. Its owner calls it from one thread. It knows vGPUs, sessions' launches and SMs; it knows
// nothing of gates, pages and workers, and it checks no untrusted value: its driver has done that.
//
// What the driver guarantees:
//   - times never go backwards; ids are small, dense and reused only after the removal event;
//   - before each event it reports through on_usage() what the vGPUs on the GPU have used since the
//     last report, so that a decision rests on measured time up to `now_ns`;
//   - each Run ends with exactly one on_left(), also when nobody asked for it (the vGPU's last
//     session ended); until then the vGPU holds its SMs;
//   - an Evict is answered by on_left() as soon as the vGPU has left, never inside the event. Where
//     SMs or launches are run apart, on_released() says which; it calls on_left() if it is not
//     overridden;
//   - a launch is announced by on_launch_queued() once it may run (it heads its stream; before the
//     on_arrival() of a vGPU that had no work). When it ends there come on_launch_done(), then
//     on_launch_queued() for its successor in the stream if that is there already, then on_idle()
//     if it was the vGPU's last, then on_released() for what was run for this launch alone (its SMs
//     are held until then);
//   - a driver that gives the GPU to vGPUs only as a whole (sluiced) reports all that a vGPU has
//     queued as one Launch with id 0: before on_arrival(), and again whenever it knows better.
//     Its figures replace the last ones, on_idle() ends it, and no on_launch_done() comes. They
//     rest on a guest's word.
// What a policy guarantees:
//   - on an exclusive preemptor, SM ranges of vGPUs that hold the GPU never overlap: it evicts,
//     waits for on_left(), then runs the next;
//   - it runs nothing for a vGPU that is not there and evicts nothing that does not hold the GPU.
//     (The driver checks both and drops what breaks them, with a count.)
//
// Terms, the same in all of policies/ (fairness.md has what is promised of them)
//   backlogged   has work, queued or on the GPU; else idle
//   holder       a vGPU that has SMs, from a Run until on_left(); backlogged or not
//   contended    two or more are backlogged
//   entitlement  a backlogged vGPU's part of the GPU: its weight over the sum of the weights of all
//                that are backlogged. Over a time, of the GPU time that all of them used in it
//   vtime        GPU time that a vGPU has used, divided by its weight
//   V            the mean vtime of the backlogged vGPUs, by weight (EEVDF, Stoica and Abdel-Wahab
//                1995)
//   lag          entitlement less GPU time used: (V - vtime) * weight. A credit above 0, a debt
//                below; negated, the lead
//   turn         an uninterrupted hold of the GPU; the quantum is its planned length
//   hand-over    from the Evict to the next vGPU's work
//
// How to write one: docs/internals/policy-writers-guide.md.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::policy {

using VgpuId = uint32_t;
inline constexpr VgpuId kNoVgpu = std::numeric_limits<VgpuId>::max();
using LaunchId = uint64_t;  // running number, unique in the life of the driver; 0: the whole vGPU

// Weights are the operator's, 1..kMaxWeight. More than this would make the virtual time of the
// lightest vGPU so coarse that a single quantum could overtake a minute of the heaviest's.
inline constexpr uint32_t kMaxWeight = 10'000;
inline constexpr uint32_t kDefaultWeight = 100;
// Priorities are the operator's, 0 (lowest, default) .. kPriorityLevels - 1. A policy that honours
// them serves a higher level strictly first (EffiSha: only the superuser raises a priority).
// 32, because EffiSha's experiments use 0 to 30; each level costs a policy one queue.
inline constexpr uint32_t kPriorityLevels = 32;

// Half-open range of SMs [lo, hi), as in the evict word (abi/preempt.h).
struct SmRange {
  uint16_t lo = 0;
  uint16_t hi = 0xffff;  // 0xffff: all that there are
  bool operator==(const SmRange&) const = default;
};

// How soon a vGPU that is below its share should be served. Shortens or lengthens its turns; never
// changes its share.
enum class LatencyClass : uint8_t {
  kNormal,
  kLow,   // short turns; what it comes back with goes before others, within its share
  kBatch  // long turns; nobody is preempted for it before a turn is over
};
// Groups of vGPUs form a tree. 0 is the root; an operator's groups are 1..kMaxGroups-1.
using GroupId = uint32_t;
inline constexpr GroupId kRootGroup = 0;
inline constexpr uint32_t kMaxGroups = 1024;  // each has a row in a table
inline constexpr uint32_t kWholePermille = 1000;

// What the operator set for a vGPU. Read at each change; never guest-written. A policy whose row
// does not say `tree` ignores the minimum, the maximum and the group (parts/share_tree.h).
struct VgpuShare {
  uint32_t weight = kDefaultWeight;  // 1..kMaxWeight, among its siblings in the group
  uint32_t priority = 0;             // 0..kPriorityLevels-1
  LatencyClass latency = LatencyClass::kNormal;
  uint32_t target_p99_us = 0;  // of its wait below its share; 0: none
  uint32_t min_permille = 0;   // of the GPU, reserved while it is backlogged; 0: none
  uint32_t max_permille = 0;   // of the GPU, a hard cap; 0: none
  GroupId group = kRootGroup;
  bool operator==(const VgpuShare&) const = default;
};
// The same for a group, among the groups and vGPUs of its parent.
struct GroupShare {
  GroupId parent = kRootGroup;
  uint32_t weight = kDefaultWeight;
  uint32_t priority = 0;  // added to that of everything in it
  uint32_t min_permille = 0, max_permille = 0;
};
// How a vGPU's promises were kept, since it was added.
struct ShareFigures {
  uint64_t in_time = 0, late = 0;  // first service within target_p99_us, and after it
  uint64_t throttled = 0;          // times that its maximum stopped it
  uint64_t reserved = 0;           // times that its minimum put it before higher priorities
};

// The GPU as a policy sees it.
enum class PreemptorKind : uint8_t {
  kExclusive,    // takes Run and Evict: somebody holds SMs until he has left (draining)
  kProportional  // takes SetSlice: hardware time slices, all busy vGPUs are resident
};
struct Machine {
  uint32_t sm_count = 1;
  PreemptorKind preemptor = PreemptorKind::kExclusive;
  bool spatial = false;            // Run on a part of the SMs works
  uint64_t handover_ns = 200'000;  // first guess at the cost of one hand-over (GPU time lost, from
                                   // the evict to the next vGPU's work); on_handover() corrects it
  // What it costs to end a turn early where the vGPU that is interrupted goes on while the other
  // one pauses; 0: a hand-over.
  uint64_t preemption_ns = 0;
  // In space. SMs can be addressed so many at a time: ranges are whole units
  // (policies/parts/in_units.h).
  uint32_t sm_unit = 1;
  // How long *all* SMs of a vGPU stand still when some are added to its set or taken from it;
  // on_change() corrects it. 0: only those that change hands. Where there is such a cost,
  // policies space changes (policies/parts/pauses.h, wfq/spatial.cc).
  uint64_t change_ns = 0;
  // Bounds of a slice on a proportional preemptor. Below the floor the switches cost more than the
  // work; the ceiling is the hardware's register.
  uint64_t slice_floor_ns = 1'000'000;
  // The shortest that the hardware takes, for a vGPU that has the GPU alone; 0: as slice_floor_ns.
  uint64_t slice_least_ns = 0;
  // A switch costs only where two have work, and a kernel is stopped wherever it is: a vGPU that
  // has the GPU alone may have short slices, for the sake of expected visitors.
  bool slices_are_free_alone = false;
  uint64_t slice_ceiling_ns = 100'000'000;
};

struct Config {
  Machine machine;
  // The defaults of the next six are those of sluiced's configuration, too.
  uint64_t min_quantum_ns =
      1'000'000;  // a holder is not displaced by an equal before this (wfq: but by
                  // launches known to be short, and at the end of a turn that is shorter); smaller:
                  // less latency, more hand-overs than handover_loss allows where their cost is not
                  // measured yet. wfq in space goes by the measured cost alone
  uint64_t max_quantum_ns =
      30'000'000;               // bounds the harm of a very slow hand-over; larger: longer waits
  double handover_loss = 0.04;  // share of GPU time that hand-overs may cost: the quantum is
                                // at least the measured hand-over / this
  uint64_t latency_target_ns =
      40'000'000;  // all busy vGPUs of equal weight should have run within
                   // this; the quantum shrinks towards it with their number
  // Over a pause a vGPU keeps its credit, at most one quantum, less what V has gone on by; 0: any
  // pause forfeits it. The length itself means nothing any more.
  uint64_t short_gap_ns = 20'000'000;
  double max_lead_turns =
      2;  // wfq on time slices: for the sake of those that wait after each launch, one
          // whose kernel no gate stops is put ahead by so many turns of its own at most;
          // 0: nobody is, and those have one turn in a round
  // What the policies of the papers are configured by; 0: the policy's own default, its paper's.
  uint64_t quantum_ns = 0;  // rr, frs (least quantum), dprr (slice per priority step)
  uint64_t epoch_ns = 0;    // cfs, ffs (least epoch)
  double max_overhead = 0;  // ffs: throughput that preemptions may cost
  uint64_t seed = 1;        // for the policies that draw lots
};

// One logical launch, for policies that order or predict kernels. Unknown figures are 0.
struct Launch {
  LaunchId id = 0;  // 0: all that the vGPU has queued, see above
  VgpuId vgpu = kNoVgpu;
  uint32_t session = 0;          // launches of one session and stream run in order
  uint32_t stream_priority = 0;  // orders launches within their vGPU only, never across vGPUs
  bool evictable = true;         // false: opaque, leaves only by ending
  uint32_t tasks_total = 0;
  uint32_t tasks_done = 0;
  uint16_t sms_wanted = 0;
  uint64_t predicted_sm_ns = 0;  // whole launch when queued, remaining afterwards; the duration
                                 // model's (id 0: what remains of all)
  uint64_t run_predicted_sm_ns =
      0;                    // the same of the program's run that it belongs to: this launch
                            // and those known to follow (>= predicted_sm_ns where known)
  uint64_t preempt_ns = 0;  // what evicting this kernel has cost so far, on average
  uint64_t kernel = 0;      // stable hash of the kernel, the model's key
};

// GPU time that a vGPU used since the last report about it.
struct Usage {
  uint64_t sm_ns = 0;   // SM-nanoseconds: SMs held times time; whole GPU for 1 us = sm_count * 1000
  LaunchId launch = 0;  // 0: not by launch
  uint32_t tasks_done = 0;  // of that launch, since it began
};
struct VgpuUsage {
  VgpuId vgpu = kNoVgpu;
  Usage usage;
};

enum class LeftReason : uint8_t {
  kEvicted,  // asked to, work remains
  kIdle,     // nothing left to run
  kGone      // its sessions ended or were ended
};

struct Action {
  enum class Kind : uint8_t {
    kRun,       // vgpu (or one launch of it) holds `sms` from now on. `value`: it visits, before
                // others' turns, and so many ns of work of it are known; 0: it has its turn
    kEvict,     // vgpu (or launch) leaves `sms`; `next` may be prepared meanwhile. `value` 1:
                // its turn is not over, `next` interrupts it
    kSetSlice,  // proportional: `vgpu`'s busy workers share `value` ns of each round (0: gated,
                // nothing new of it starts)
    kWake       // on_wake() at `at_ns`; replaces an earlier kWake
  };
  Kind kind;
  VgpuId vgpu = kNoVgpu;
  VgpuId next = kNoVgpu;
  LaunchId launch = 0;
  SmRange sms = {};
  uint64_t value = 0;
  uint64_t at_ns = 0;

  static Action run(VgpuId v, SmRange sms = {}, LaunchId l = 0) {
    return {.kind = Kind::kRun, .vgpu = v, .launch = l, .sms = sms};
  }
  static Action evict(VgpuId v, VgpuId next = kNoVgpu, SmRange sms = {}, LaunchId l = 0) {
    return {.kind = Kind::kEvict, .vgpu = v, .next = next, .launch = l, .sms = sms};
  }
  static Action set_slice(VgpuId v, uint64_t slice_ns) {
    return {.kind = Kind::kSetSlice, .vgpu = v, .value = slice_ns};
  }
  static Action wake(uint64_t at_ns) { return {.kind = Kind::kWake, .at_ns = at_ns}; }
};
// The caller's, appended to in the order of execution; reused, so that a decision
// does not allocate.
using Actions = std::vector<Action>;

// For how long a vGPU has work each time, and none in between.
struct Rhythm {
  uint64_t burst_ns = 0, gap_ns = 0;  // means of the last ones; gap_ns 0: there was none
  uint64_t waited_ns = 0;             // when it had no more work the last time
};

// Override the events that matter; the others do nothing.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;

  // The set of vGPUs and what the operator gave them.
  virtual void on_vgpu_added(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) = 0;
  virtual void on_vgpu_changed(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) = 0;
  // Only v's weight is another, since others of its group came or went: to be taken into account
  // by the next decision, and none by itself.
  virtual void on_reweighed(uint64_t now_ns, VgpuId v, const VgpuShare& share, Actions& out) {
    on_vgpu_changed(now_ns, v, share, out);
  }
  // A group is new or has changed; it may have no members. Its parent is known.
  virtual void on_group(uint64_t, GroupId, const GroupShare&, Actions&) {}
  // v is idle and does not hold the GPU (the driver saw to it first).
  virtual void on_vgpu_removed(uint64_t now_ns, VgpuId v, Actions& out) = 0;

  // v has work, now and had none; v has none and had some. A vGPU may hold the GPU while idle
  // (nobody else wants it): evicting it then costs nothing.
  virtual void on_arrival(uint64_t now_ns, VgpuId v, Actions& out) = 0;
  virtual void on_idle(uint64_t now_ns, VgpuId v, Actions& out) = 0;

  // Launch by launch where the driver runs them so, all of a vGPU's together (id 0) where it does
  // not. Queued: it may run from now on.
  virtual void on_launch_queued(uint64_t, const Launch&, Actions&) {}
  virtual void on_launch_done(uint64_t, const Launch&, Actions&) {}

  // Measured time, see above. Only accounts: decisions belong to the event that follows.
  virtual void on_usage(uint64_t now_ns, VgpuId v, const Usage& usage) = 0;
  // Several of these reports, to be taken in this order. For policies under which many hold parts
  // of the GPU: one call for all of them instead of one each. The driver's memory, for the call.
  virtual void on_usages(uint64_t now_ns, std::span<const VgpuUsage> reports) {
    for (const VgpuUsage& r : reports) on_usage(now_ns, r.vgpu, r.usage);
  }
  // The same of use that makes no debt: while no other vGPU was backlogged, where
  // Machine::slices_are_free_alone. By the clock, of those for which hears_at_once().
  virtual void on_free_usage(uint64_t /*now_ns*/, VgpuId, const Usage&) {}
  // v had the GPU alone for a while, in which nothing was heard of it, and another one comes: how
  // v came and went meanwhile. By its own word.
  virtual void on_rhythm(uint64_t /*now_ns*/, VgpuId, const Rhythm&) {}
  // v is backlogged, and was not for a moment since the last event: too short for a host that was
  // busy. By its own word.
  virtual void on_missed_wait(uint64_t /*now_ns*/, VgpuId) {}
  // Whether it uses a report's launch and tasks: for one that does not, a driver leaves them 0.
  // Always the same answer.
  virtual bool reads_tasks() const { return true; }

  // v no longer holds anything. `handover` of the next Run starts here.
  virtual void on_left(uint64_t now_ns, VgpuId v, LeftReason why, Actions& out) = 0;
  // The same with what was left: `launch` as in the Run; `sms` is the Run's range, or the part of
  // it that an Evict named (one call for each contiguous range). Policies that run launches
  // or parts of the GPU override this one instead.
  virtual void on_released(uint64_t now_ns, VgpuId v, LaunchId launch, SmRange sms, LeftReason why,
                           Actions& out) {
    (void)launch, (void)sms;
    on_left(now_ns, v, why, out);
  }

  // What the last hand-over cost, from the evict to the next Run, plus the preemptor's start-up.
  virtual void on_handover(uint64_t, uint64_t /*cost_ns*/) {}

  // In space, where changes cost something (Machine::change_ns): so long a vGPU stood still because
  // its set of SMs had changed.
  virtual void on_change(uint64_t, uint64_t /*cost_ns*/) {}

  // The time of the last kWake has come.
  virtual void on_wake(uint64_t now_ns, Actions& out) = 0;

  // Whether `v`, which is idle, may begin a short visit before the policy hears of its arrival.
  virtual bool comes_unasked(VgpuId) const { return false; }
  // Whether `v`, which has work, may run in what the holder leaves of the GPU; and who of those
  // that wait would do so best, where `queues` says of one that it leaves no gaps itself. If one
  // fills already, `fills`, the answer is that one unless another should take its place. Who fills
  // is charged, and the policy chooses it later as if it had not run.
  using Queues = std::function<bool(VgpuId)>;
  virtual bool may_fill(VgpuId) const { return false; }
  virtual VgpuId fills_best(const Queues& /*queues*/, VgpuId /*fills*/) const { return kNoVgpu; }
  // Whether the policy is to hear at once when `v` has work and when it has none, even where nobody
  // else wants the GPU.
  virtual bool hears_at_once(VgpuId) const { return false; }

  // For `sluicectl policy` and tests.
  virtual uint64_t quantum_ns() const { return 0; }

  // Admission. How long a vGPU of class `low` that is below its share waits at most beside
  // `low_vgpus` others of that class, but for what cannot be preempted; 0: no bound is known.
  virtual uint64_t wait_bound_ns(uint32_t /*low_vgpus*/) const { return 0; }
  // Why these shares cannot be promised; empty: they can. `v` may be kNoVgpu: a new one.
  virtual std::string refuses(VgpuId /*v*/, const VgpuShare&) const { return {}; }
  virtual std::string refuses_group(GroupId, const GroupShare&) const { return {}; }
  virtual ShareFigures figures(VgpuId) const { return {}; }
};

// One row per policy (registry.inc).
struct Registration {
  std::string_view name;
  std::string_view summary;  // one line, with its source
  std::unique_ptr<Policy> (*make)(const Config&);
  bool exclusive = false;  // works on that kind of preemptor
  bool proportional = false;
  // Promises that tests hold it to, and what its driver must know.
  bool preempts = true;  // false: evicts nobody who works, so kernels may keep their own form
  bool starvation_free = false;  // every launch ends, whatever the others do
  bool launches = false;  // goes by on_launch_queued(): its driver reads launches and predicts them
  bool follows_weights = false;  // shares of backlogged vGPUs of one priority go by weight
  bool tree = false;  // follows groups, minimum and maximum (parts/share_tree.h), latency classes
  bool parts =
      false;  // gives parts of the GPU where Machine::spatial, also without knowing launches
};
// All rows, the default first. Static storage.
const std::vector<Registration>& registry();
// Null if there is no such policy.
const Registration* find_policy(std::string_view name);

}  // namespace sluice::policy
