// SPDX-License-Identifier: Apache-2.0
// Turns: one vGPU at a time has the turn, and the hardware lets its blocks go first. For a GPU on
// which contexts of several processes run side by side and stream priorities hold across them (MPS;
// the software GPU in mode mps). Source: measured on an H100, docs/decisions/0011-turns.md.
//
// Nobody waits until the vGPU before has left the GPU: the next one is granted at once, at a level
// of priority of its own. Whose turn was taken *lingers*: its gates stay open and its launches fill
// what the turn leaves idle. If its turn comes back soon, as after the visit of a light tenant,
// nothing has changed for it: no launch was evicted.
//
//   level  whose
//   2      a visit: whoever has the turn while another lingers
//   0, 1   other turns: 1 if what others have not finished is at 0, else 0
//
// After linger_ns the gates of who lingers close, and the visitor goes down to a turn's level.
// What was launched before stays at its level: if that is below the holder's it waits there until
// its own turn comes; if it is above it runs to its end first, and its vGPU is charged for that.
//
//   state       event                                                            next
//   kOut        the policy runs it                                               kTurn
//   kTurn       evicted with work queued, not on a visit, and its blocks         kLingering
//               make room for others as they end (SLUICE_KEEPS_SMS is not set)
//   kTurn       evicted otherwise: its gates close, its launches are evicted     kLeaving
//   kLingering  the policy runs it again                                         kTurn
//   kLingering  linger_ns after the newest turn began: its gates close           kLeaving
//   kLeaving    all its sessions have drained                                    kOut
//   kLeaving    the policy runs it: granted anew, what is older drains (recall)  kTurn
//   any         its last session is gone                                         kOut
//
// Who leaves has a deadline, one after the other in the order in which their gates closed: who
// waits behind a kernel that does not leave is not ended for it. Time in which the holder was above
// it and had work does not count. Who needs longer than leave_grace_ns pays for that time, and
// those who had the turn meanwhile do not; turns of its own in between it has paid for already. The
// clock charges the turn's holder for the whole GPU.
// Lingering is not charged: it uses what the holder leaves idle, for linger_ns a turn at most.
//
// Owned by Sharing as its strategy, one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "mediator/core/sharing/hold_times.h"
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
  void charge_stall(uint64_t now_ns, VgpuId v, uint64_t stall_ns) override {
    holds_.charge_stall(now_ns, v, stall_ns);
  }

  void on_vgpu_added(VgpuId v) override;
  void on_drained(uint64_t now_ns, VgpuId v, ActionQueue& out) override;
  void on_session_removed(uint64_t now_ns, SessionId s, ActionQueue& out) override;
  bool advance(uint64_t now_ns, ActionQueue& out) override;
  uint64_t next_ns() const override { return lingering_.empty() ? kNever : linger_until_ns_; }

 private:
  static constexpr uint32_t kVisit = 2;
  enum class TurnState : uint8_t { kOut, kTurn, kLingering, kLeaving };
  // Why the first of those that leave has not left yet.
  enum class Leaver : uint8_t { kLate, kBelowTheHolder, kInItsNextTurn };
  struct Turn {
    TurnState state = TurnState::kOut;
    uint32_t level = 0;      // of its newest grant
    bool recall = false;     // launches of older generations drain while its gates are open
    uint64_t closed_ns = 0;  // kLeaving: since then
  };

  void grant(uint64_t now_ns, VgpuId v, ActionQueue& out);
  void close(uint64_t now_ns, VgpuId v, ActionQueue& out);
  void stop_lingering(uint64_t now_ns, ActionQueue& out);
  void go_down(VgpuId v, ActionQueue& out);
  void release(uint64_t now_ns, VgpuId v, ActionQueue& out);
  uint32_t turn_level(VgpuId v) const;
  void settle_leaver(uint64_t now_ns);
  void begin_leaving(uint64_t now_ns, VgpuId v);
  void end_leaving(uint64_t now_ns, VgpuId v);
  void start_deadline(uint64_t now_ns);

  Sharing& sharing_;
  HoldTimes holds_{sharing_};
  std::vector<Turn> vgpus_;            // by VgpuId
  std::vector<VgpuId> lingering_;      // rarely more than one
  uint64_t linger_until_ns_ = 0;       // of all of them
  std::vector<VgpuId> leaving_;        // in the order in which their gates closed
  VgpuId released_ = policy::kNoVgpu;  // its turn is over, and the policy has to hear of it
  // Of the first in leaving_.
  Leaver leaver_ = Leaver::kLate;
  uint64_t leaver_since_ns_ = 0;
  uint64_t own_turns_ns_ = 0;  // it has had the turn for so long since its gates closed
};

}  // namespace sluice::core
