// SPDX-License-Identifier: Apache-2.0
// Turns: one vGPU at a time has the turn, and the hardware lets its blocks go first. For a GPU on
// which contexts of several processes run side by side and stream priorities hold across them (MPS;
// the software GPU in mode mps). Source: measured on an H100, docs/decisions/0011-turns.md.
//
// A turn does not wait until the vGPU before has left the GPU: it is granted at once, at a level of
// priority. Blocks of a higher level take each SM as blocks of lower ones end; of equal levels the
// launch that came first goes first. What a vGPU has left when its turn ends keeps its level.
//
//   level  whose
//   2      a visit: the policy lets it go before another's turn (Action::value says for how long),
//          and each of its launches takes visit_ns at most
//   1      a visit of longer launches; a turn of one short launch; a turn before which another has
//          left *much* at 0, or one of a lower priority has left something there
//   0      any other turn
//
// What a vGPU of class low launches above level 0 keeps others out of its gaps (SLUICE_GRANT_FILL);
// at level 0 its worker prepares for that.
//
// Much is more than one launch, if together they take more than the policy's latency target, or an
// unknown time. (To go above others' launches is expensive for a vGPU with short ones: at each gap
// between two of them blocks from below take the SMs.) A grant at level 0 or 1 waits until each of
// the others has one launch left there, which came first. Of two the second would run behind the
// newcomer's first: the hardware takes the next launch of a stream up when the one before it has
// ended, and by then the newcomer's waits.
//
// A vGPU that a visit interrupts *lingers*: its gates stay open below the visitor. If it soon has
// its turn again, nothing has changed for it. linger_ns after the visit should be over its gates
// close, and the visitor goes down to a turn's level.
//
// A holder that waits for each of its launches, and for none longer than a latency target, *leaves
// gaps*: the GPU is idle until its program knows of each end, or until Sharing does and the next
// vGPU has begun. Others *fill* these: who lingers goes on, and if nobody does, the vGPU that the
// policy would choose next begins below the holder. It lingers then, and its turn finds it at work.
// What that brings: 0011-turns.md.
//
// A vGPU that ends a visit without work left is on *standby*: its gates stay open at the visit's
// level, for launches that are expected to be short (SLUICE_GRANT_STANDBY). So its next visit
// begins without asking, 35 us sooner on an H200. Sharing hears of the visit by a ring, charges the
// visitor for the time until then, and refunds that to the vGPU that was charged. The policy
// decides which vGPUs may (comes_unasked()).
//
//   state       event                                                            next
//   kOut        the policy runs it                                               kTurn
//   kOut        the policy runs it, and others have too much left at its level   kWaiting
//   kWaiting    they have left that                                              kTurn
//   kWaiting    evicted                                                          kOut
//   kTurn       a visit interrupts it, below which it can be, and its blocks     kLingering
//               make room for others as they end (SLUICE_KEEPS_SMS is not set)
//   kTurn       evicted after a visit, with nothing left to do                   kStandby
//   kTurn       evicted otherwise: its gates close, its launches are evicted     kLeaving
//   kTurn       its turn is over, the next vGPU leaves gaps, and it is at        kLingering
//               level 0 and may fill
//   kOut        the holder leaves gaps, nobody lingers, and it would have the    kLingering
//               next turn: its gates open at level 0, and the holder is above
//   kLingering  the policy runs it again; if it leaves gaps itself, it is above  kTurn
//               level 0 from its next launch on
//   kLingering  it fills and has nothing left to do, or is paused; another one   kLeaving
//               that waits is behind it by more than a turn (fills_best())
//   kLingering  linger_ns after the visit should be over, unless the holder      kLeaving
//               leaves gaps and one of its launches has ended since, or the
//               turn is of another that is not above it: its gates close
//   kStandby    the policy runs it, for a visit                                  kTurn
//   kStandby    it has work and the policy does not run it for a visit; it may   kLeaving
//               not come unasked any more; it is paused: its gates close
//   kLeaving    all its sessions have drained                                    kOut
//   kLeaving    the policy runs it: granted anew, what is older drains (recall)  kTurn
//   any         its last session is gone                                         kOut
//
// Charging: at each moment one vGPU *runs*, whom the hardware lets go first: the highest level; of
// equals who has left something before the holder, in the order in which they left, unless another
// one's only launch is known to have come before (came_before()). The clock charges the holder for
// the whole GPU. Where another one runs, that one is charged instead: it is late, or fills what the
// holder leaves idle.
//
// Most gaps are over when a message about them comes. So each report of who runs says for how long
// its launches were in flight in all, and what is left of the time since the last one was gaps. The
// one *below* runs in them. Its report is read then: it is charged for the gaps, as far as its own
// launches were in flight, and who ran before it gets that back. The rest was idle time of the GPU,
// which is the holder's.
//
// If the one of the highest level does not leave for evict_warn_ns, it may never have begun: blocks
// below that do not end keep their SMs. So from then on it is *stuck*, and of those below whose
// gates opened before its did and that have something in flight, the one whose gates opened first
// is its *blocker*, whose deadline runs as if that one ran. The stuck one is charged all the same,
// or long launches in the place of short ones would be at its neighbours' cost. If a session of its
// blocker is ended and it does not leave then either, it has no blocker any more. One that is not
// *proven*, as it has left in time less than kProven times since a session of it was ended, has no
// blocker that is: else a newcomer's kernel without end, where it goes above what others have left,
// would have one of them ended first.
//
// A vGPU that leaves has a deadline, in which time that others ran does not count. If its next turn
// comes before it has left, it continues to leave, perhaps for many turns. Its deadline restarts
// when all that it had launched before the first of them has left.
//
// Owned by Sharing as its strategy, one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "mediator/core/sharing/hold_times.h"
#include "mediator/core/sharing/sharing.h"
#include "mediator/core/sharing/strategy.h"

namespace sluice::core {

class Turns final : public SharingStrategy {
 public:
  explicit Turns(Sharing& sharing) : sharing_(sharing) {}

  bool run(uint64_t now_ns, const policy::Action& action, ActionQueue& out) override;
  bool evict(uint64_t now_ns, const policy::Action& action, ActionQueue& out) override;

  bool gates_open(VgpuId v) const override;
  uint64_t extra_flags(VgpuId v) const override;
  uint32_t charged_sms(VgpuId v) const override;
  VgpuId runs_beside() const override { return runs_ == holder() ? policy::kNoVgpu : runs_; }
  void charge_stall(uint64_t now_ns, VgpuId v, uint64_t stall_ns) override {
    holds_.charge_stall(now_ns, v, stall_ns);
  }

  void settle_time(uint64_t now_ns) override { settle(now_ns); }
  void on_stayed(VgpuId v) override { vgpus_[v].in_time = 0; }

  void on_vgpu_added(VgpuId v) override;
  void on_drained(uint64_t now_ns, VgpuId v, ActionQueue& out) override;
  void on_report(uint64_t now_ns, SessionId s, ActionQueue&) override;
  void on_session_removed(uint64_t now_ns, SessionId s, ActionQueue& out) override;
  bool advance(uint64_t now_ns, ActionQueue& out) override;
  uint64_t next_ns() const override { return lingering_.empty() ? kNever : linger_until_ns_; }

 private:
  static constexpr uint32_t kTurnLevel = 0, kAboveTurns = 1, kVisit = 2;
  // More: newcomers are blamed for longer for who keeps them from beginning; fewer: who has had a
  // turn or two is believed.
  static constexpr uint32_t kProven = 8;
  enum class TurnState : uint8_t { kOut, kWaiting, kTurn, kLingering, kStandby, kLeaving };
  struct Turn {
    TurnState state = TurnState::kOut;
    uint32_t level = 0;  // of its newest grant
    // Of what it launched; not `level` until what is older has drained or, where it was raised
    // above those that fill, `risen_at` launches have ended.
    uint32_t runs_level = 0;
    uint64_t risen_at = 0;
    uint32_t left_level = 0;    // in leaving_: of the oldest that it has left
    uint64_t left_ns = 0;       // ... when its gates had closed behind that
    uint32_t closed_level = 0;  // of the newest grant when its gates closed last
    bool recall = false;        // launches of older generations drain while its gates are open
    bool fills = false;         // kLingering: it was let in while another had the turn
    bool cleared_for = false;   // a session of its blocker was ended
    bool waits = false;         // for each launch: it was idle since it wanted more than one
    uint64_t opened_ns = 0;     // when its gates opened, for the oldest of what it has in flight
    // None of what it has in flight came before. Its workers say so where it came unasked: for
    // charging, never for deadlines.
    uint64_t since_ns = 0;
    uint64_t sent_ns = 0;    // ... nor before this, if it has one launch in flight
    uint64_t had_done = 0;   // launches, then
    uint64_t heard_ns = 0;   // kStandby: when it was known to have come; 0: it has not
    uint64_t closed_ns = 0;  // kLeaving: since then
    // When its report was read last: for how long its launches had been in flight in all. Since
    // then: for how long it ran, by the clock, while another vGPU was below it.
    uint64_t flight_ns = 0, above_ns = 0;
    // While it is below: gaps of `gaps_of` that nobody has been charged for yet, and for how long
    // its own launches were in flight, less what it has been charged for.
    uint64_t gaps_ns = 0, below_ns = 0;
    VgpuId gaps_of = policy::kNoVgpu;
    uint32_t in_time = 0;  // how often it has left in time; see kProven
  };

  void grant(uint64_t now_ns, VgpuId v, ActionQueue& out);
  void close(uint64_t now_ns, VgpuId v, ActionQueue& out);
  // The first one of `open` that must close, taken out of it. False: there is none.
  template <class MustClose>
  bool close_one(uint64_t now_ns, std::vector<VgpuId>& open, ActionQueue& out, MustClose must) {
    const auto at = std::find_if(open.begin(), open.end(), must);
    if (at == open.end()) return false;
    const VgpuId v = *at;
    settle(now_ns);
    open.erase(at);
    close(now_ns, v, out);
    settle(now_ns);
    return true;
  }
  // Of its sessions.
  void renew_grants(VgpuId v, ActionQueue& out);
  void read_reports(VgpuId v, ActionQueue& out);
  template <class Count>
  uint64_t sum_of(VgpuId v, Count ReportSnapshot::*count) const {
    uint64_t sum = 0;
    for (const SessionId s : sharing_.vgpus[v].sessions) sum += sharing_.sessions[s].report.*count;
    return sum;
  }
  void stop_lingering(uint64_t now_ns, ActionQueue& out);
  void close_lingering_from(uint64_t now_ns, uint32_t level, ActionQueue& out);
  bool leaves_gaps(VgpuId v) const;
  bool keeps_sms(VgpuId v) const;
  bool may_fill_below(VgpuId v, VgpuId next) const;
  bool may_linger(VgpuId v) const;
  void let_linger(uint64_t until_ns);
  bool may_go_on_lingering() const;
  VgpuId fills_best(VgpuId fills) const;
  bool open_filler(uint64_t now_ns, ActionQueue& out);
  bool close_filler(uint64_t now_ns, ActionQueue& out);
  void rise(VgpuId v, ActionQueue& out);
  void note_progress(uint64_t now_ns, VgpuId v);
  void note_unasked(uint64_t now_ns, VgpuId v, ActionQueue& out);
  uint64_t launches_done(VgpuId v) const;
  bool may_stand_by(VgpuId v) const;
  void stand_by(VgpuId v, ActionQueue& out);
  void accept(uint64_t now_ns, VgpuId v, ActionQueue& out);
  bool dismiss(uint64_t now_ns, ActionQueue& out);
  void charge_unasked(uint64_t now_ns, VgpuId v, VgpuId instead);
  bool go_down(ActionQueue& out);
  void release(uint64_t now_ns, VgpuId v, ActionQueue& out);
  uint32_t turn_level(VgpuId v) const;
  uint32_t visit_level(VgpuId v) const;
  bool has_place(VgpuId v, uint32_t level) const;
  bool wants_one_launch(VgpuId v, uint64_t longest_ns) const;
  bool has_left_at(VgpuId v, uint32_t level) const;
  uint64_t launches_wanted(VgpuId v) const;
  uint64_t launches_left(VgpuId v) const;
  uint64_t in_flight_since_ns(VgpuId v) const;
  uint64_t flight_ns(uint64_t now_ns, VgpuId v) const;
  bool has_left_much(VgpuId v) const;
  VgpuId holder() const;
  bool is_leaving(VgpuId v) const;

  VgpuId runner() const;
  VgpuId first_but(VgpuId but) const;
  bool came_before(VgpuId v, VgpuId w) const;
  VgpuId blocker_of(uint64_t now_ns, VgpuId v) const;
  bool proven(VgpuId v) const { return vgpus_[v].in_time >= kProven; }
  void settle(uint64_t now_ns);
  void count_above(uint64_t now_ns);
  void charge_gaps(uint64_t now_ns, VgpuId v, ActionQueue& out);
  void change_runner(uint64_t now_ns, VgpuId next);
  void begin_leaving(uint64_t now_ns, VgpuId v);
  void set_oldest(uint64_t now_ns, VgpuId v, uint32_t level);

  Sharing& sharing_;
  HoldTimes holds_{sharing_};
  std::vector<Turn> vgpus_;        // by VgpuId
  std::vector<VgpuId> lingering_;  // rarely more than one
  uint64_t linger_until_ns_ = 0;   // of all of them
  uint64_t compares_ns_ = 0;       // when close_filler() compares them next with those that wait
  uint64_t holder_had_done_ = 0;   // launches, when that was set
  std::vector<VgpuId> standing_by_;
  std::vector<VgpuId> leaving_;        // by Turn::left_ns
  std::vector<uint32_t> due_;          // by SessionId, in leaving_: the generation of the oldest
  VgpuId released_ = policy::kNoVgpu;  // its turn is over, and the policy has to hear of it
  bool goes_down_ = false;             // the holder, as soon as it has a place
  VgpuId runs_ = policy::kNoVgpu;      // since settled_ns_; its clock runs
  uint64_t settled_ns_ = 0;
  VgpuId below_ = policy::kNoVgpu;    // runs in the gaps of runs_
  uint64_t counted_ns_ = 0;           // Turn::above_ns is up to date as of then
  VgpuId blocker_ = policy::kNoVgpu;  // of runs_, which is stuck
};

}  // namespace sluice::core
