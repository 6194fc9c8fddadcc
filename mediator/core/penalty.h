// SPDX-License-Identifier: Apache-2.0
// Penalty: what one vGPU's faults and forced ends have cost its neighbours, and when it may use the
// GPU again. The back-off of sluiced.
//
// A kernel that faults stops the whole GPU (146 to 151 ms for an address that is not mapped, H100,
// contexts of their own), and so does one that does not leave (deadlines.evict_end_ms). Each
// session can do that once, so a vGPU that has done it opens no sessions for a while and launches
// nothing from those it has.
//
//   debt     stall that the vGPU has caused while others were there, less what it has worked off:
//            kForgiven of the time that passes (150 ms in a minute)
//   worst    the longest stall that a single fault may cause
//
//   state    | may open sessions | its other sessions | until
//   ---------+-------------------+--------------------+-----------------------------------------
//   kClear   | yes               | run                |
//   kWaiting | no                | launch nothing     | kDelay * debt after its last offence
//   kBarred  | no                | are ended          | debt + worst fits into kMost again
//
//            kClear --offence--> kWaiting, or kBarred where another fault would not fit into kMost
//            kWaiting --offence--> kWaiting or kBarred;  kWaiting, kBarred --time--> kClear
//
// The bound in seconds. Each offence is followed by kDelay times its cost in which none of the vGPU
// can follow, so from its first moment on it costs others one offence and 3 % of the time.
// The bound in minutes. A vGPU that is not barred cannot raise its debt beyond kMost by faults, and
// a barred one has no session. So in any time T its faults cost at most kMost + kForgiven * T. In a
// minute that is 1.05 + 0.15 s = 2 % of it; over hours 0.25 %. A vGPU that does not leave costs
// others evict_end_ms at most: on an NVIDIA GPU 500 ms by default, on the software GPU 2 s, which
// alone is 3.3 % of a minute. The debt of that is bounded (kMostAtOnce), and the next deadlines are
// shorter (deadline_ns). A full deadline is back when the debt is gone, after kMostAtOnce /
// kForgiven = 3 minutes: 2 s in 3 minutes are 1.1 %, and 5 minutes of any mix stay below 2 %.
//
// An offence while no other vGPU has a session, nor had one in the last kAlone, costs nobody
// anything: it is counted, and adds no debt. Nor does the back-off hold then.
//
// Pure: no clock, time is an argument (ns, must not go back). Owned by a vGPU; a guest's reboot
// does not change it, and a vGPU that is made anew for the same owner takes it over (Daemon). One
// thread. No errors.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace sluice::core {

enum class Offence : uint8_t {
  kFault,        // a kernel of it faulted
  kDidNotLeave,  // its work did not leave the GPU when it had to: whoever ended it
  kForcedEnd,    // ended otherwise by force: protocol broken, worker died of a signal
};
std::string_view to_string(Offence offence);

class Penalty {
 public:
  enum class State : uint8_t { kClear, kWaiting, kBarred };

  // ns of debt that a second works off. More: the wait at the limit is shorter, and less of the
  // minute's 2 % is left for kMost.
  static constexpr uint64_t kForgivenPerSecond = 2'500'000;
  // The debt at which no session may be open. 2 % of a minute less what a minute forgives.
  static constexpr uint64_t kMost = 60'000'000'000 / 50 - 60 * kForgivenPerSecond;
  // Waits are this many times the debt: others lose 3 % meanwhile. A first crash (78 or 150 ms)
  // waits for 2.6 or 5 s. Less: others lose more in the first seconds; the bound in minutes stays.
  static constexpr uint64_t kDelay = 33;
  // Debt of one offence at most. Less: spins are cheaper in the long run; more: the first one bars.
  static constexpr uint64_t kMostAtOnce = 450'000'000;
  // Debt of a forced end: a worker started and ended for nothing. 0.8 s forgive it.
  static constexpr uint64_t kForcedEndCost = 2'000'000;
  // Others that had a session this long ago still count: else one could open its sessions in the
  // gaps between a neighbour's programs.
  static constexpr uint64_t kAlone = 60'000'000'000;

  // What a vGPU owes, in the monotonic time of its host's boot.
  struct Owed {
    uint64_t debt_ns = 0, at_ns = 0;  // the debt as of then
    uint64_t wait_until_ns = 0;
  };

  explicit Penalty(uint64_t worst_ns) : worst_ns_(worst_ns) {}
  // Of a vGPU that an earlier sluiced had.
  Penalty(uint64_t worst_ns, const Owed& owed) : worst_ns_(worst_ns), owed_(owed) {}
  const Owed& owed() const { return owed_; }

  // `cost_ns`: for how long the GPU stood still; `harmed`: somebody else was there (see kAlone).
  // kBarred as the answer: its sessions have to be ended now.
  State on_offence(uint64_t now_ns, Offence offence, uint64_t cost_ns, bool harmed);
  // Its work stood still for longer than was known when the offence was noted.
  State add_cost(uint64_t now_ns, uint64_t cost_ns, bool harmed);

  State state(uint64_t now_ns) const;
  // Absolute; `now_ns` or earlier: sessions may be opened. Nobody is asked whether others are
  // there.
  uint64_t opens_at_ns(uint64_t now_ns) const;
  // The deadline of an eviction of this vGPU: `full_ns` with no debt, `least_ns` from kMostAtOnce
  // on, between the two in proportion.
  uint64_t deadline_ns(uint64_t now_ns, uint64_t full_ns, uint64_t least_ns) const;

  uint64_t debt_ns(uint64_t now_ns) const;
  uint64_t faults() const { return faults_; }
  uint64_t forced_ends() const { return forced_ends_; }  // kDidNotLeave and kForcedEnd
  uint64_t fault_stall_ns() const { return fault_stall_ns_; }

 private:
  void add_debt(uint64_t now_ns, uint64_t cost_ns);

  uint64_t worst_ns_;
  Owed owed_;
  uint64_t faults_ = 0, forced_ends_ = 0, fault_stall_ns_ = 0;
};
std::string_view to_string(Penalty::State state);

// Neighbours: which vGPUs have sessions, or had some a moment ago, and whose work was ended because
// it did not leave the GPU. One for all; owned by the daemon.
class Neighbours {
 public:
  // Ending one MPS client whose kernel runs faults the others within some 0.2 s (an H100). More:
  // two vGPUs that work together have so much longer for a fault of one after the end of the other.
  static constexpr uint64_t kAftermath = 1'000'000'000;

  void opened(uint32_t vgpu) { ++of(vgpu).open; }
  void closed(uint32_t vgpu, uint64_t now_ns);
  void forget(uint32_t vgpu) { of(vgpu) = {}; }
  // Whether one but `vgpu` has a session, or had one within Penalty::kAlone.
  bool others(uint32_t vgpu, uint64_t now_ns) const;
  // `vgpu`'s work was ended: it did not leave.
  void did_not_leave(uint32_t vgpu, uint64_t now_ns);
  // Whether a fault of `vgpu` may be what that did, to another, within kAftermath.
  bool may_be_hit(uint32_t vgpu, uint64_t now_ns) const;

 private:
  struct Row {
    uint32_t open = 0;
    bool ever = false;
    uint64_t closed_ns = 0;  // when the last one was
    bool stayed = false;
    uint64_t stayed_ns = 0;  // when it was ended for that last
  };
  Row& of(uint32_t vgpu);
  std::vector<Row> rows_;  // by vGPU
};

}  // namespace sluice::core
