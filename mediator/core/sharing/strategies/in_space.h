// SPDX-License-Identifier: Apache-2.0
// InSpace: vGPUs side by side, each on the set of SMs that the policy gave it.
//
// A vGPU goes from one set to another by *moves*, one at a time (docs/internals/channel.md, "Parts
// of the GPU"):
//   nothing -> some   its gates open; nobody has to leave for that
//   some -> others    recall: a new generation with the new set, the gates stay open, and the old
//                     generation is evicted; its launches are resubmitted under the new one.
//                     Optimisation: a launch may stay where it is, if the workers can do that and
//                     the SMs to be left are a contiguous range without any of the new set; then
//                     only that range is evicted
//   some -> nothing   an eviction, as of the whole GPU
// When everything of the old generation has left, the SMs that it lost are released to the policy.
// What the policy asks for meanwhile is the next move. An SM that was given and taken back before
// any move came to it is released at once.
//
//   MoveState   -> event                                              -> next
//   kSettled       the policy gives SMs or takes some back               kDue
//   kDue           launches may stay, if all workers' reports allow it   kAsking
//   kDue, kAsking  the new set is granted: nothing has to leave          kSettled
//   kDue, kAsking  the old generation has to leave                       kRecalling
//   kAsking        the old generation leaves only the lost SMs           kStaying
//   kRecalling,    all sessions have drained                             kDue
//   kStaying
//   any            its last session is gone                              kSettled
//
// Owned by Sharing as its strategy, one thread.
#pragma once

#include <vector>

#include "mediator/core/sharing/strategy.h"

namespace sluice::core {

class InSpace final : public SharingStrategy {
 public:
  explicit InSpace(Sharing& sharing);

  bool run(uint64_t now_ns, const policy::Action& action, ActionQueue& out) override;
  bool evict(uint64_t now_ns, const policy::Action& action, ActionQueue& out) override;

  bool gates_open(VgpuId v) const override { return !vgpus_[v].granted.empty(); }
  uint64_t extra_flags(VgpuId v) const override;
  SmSet granted_sms(VgpuId v) const override { return vgpus_[v].granted; }

  uint32_t charged_sms(VgpuId v) const override;
  void charge_stall(uint64_t now_ns, VgpuId v, uint64_t stall_ns) override;

  void on_vgpu_added(VgpuId v) override { reset_record(vgpus_, v); }
  void on_session_added(SessionId s) override { reset_record(unconfined_, s); }
  void on_drained(uint64_t now_ns, VgpuId v, ActionQueue& out) override;
  void on_session_removed(uint64_t now_ns, SessionId s, ActionQueue& out) override;
  void on_launches_ended(VgpuId v) override;
  void on_report(uint64_t now_ns, SessionId s, ActionQueue& out) override;
  void before_wake(ActionQueue& out) override;
  bool advance(uint64_t now_ns, ActionQueue& out) override;

  void fill(VgpuId v, VgpuStats& stats) const override { stats.sms = vgpus_[v].held; }

 private:
  enum class MoveState : uint8_t { kSettled, kDue, kAsking, kRecalling, kStaying };
  struct Parts {
    MoveState state = MoveState::kSettled;
    SmSet held;            // what the policy gave
    SmSet going;           // of it, what the policy wants back
    SmSet granted;         // what the sessions' words say, or will say when the move is over
    SmSet before;          // moving: what was granted before
    SmSet spread;          // where launches may be, at most: all sets since the last move that none
                           // stayed under
    SmSet released;        // what is just being released
    uint64_t move_ns = 0;  // moving: since then
    uint32_t unconfined_sessions = 0;

    bool moving() const { return state == MoveState::kRecalling || state == MoveState::kStaying; }
  };

  SmSet set_of(const policy::SmRange& range) const;
  bool grantable(const policy::SmRange& range) const;
  void set_due(VgpuId v);
  bool reads_pending(VgpuId v) const;
  bool may_stay(const Parts& p, const SmSet& to, SmSet::Range* leave) const;
  bool workers_keep(VgpuId v, const SmSet& to) const;
  void move(uint64_t now_ns, VgpuId v, ActionQueue& out);
  void change_words(uint64_t now_ns, VgpuId v, const SmSet::Range& leave, ActionQueue& out);
  void recall_session(SessionId s, const SmSet::Range& leave, ActionQueue& out);
  void release(uint64_t now_ns, VgpuId v, SmSet sms, ActionQueue& out);
  void release_all(uint64_t now_ns, VgpuId v, ActionQueue& out);
  void set_unconfined(uint64_t now_ns, SessionId s, bool unconfined);
  // The policy waits for holders that pause, so ends of launches of idle ones matter.
  bool pauses_count() const;

  Sharing& sharing_;
  std::vector<Parts> vgpus_;      // by VgpuId
  std::vector<bool> unconfined_;  // by SessionId: it uses more than its SMs, as far as it reports
  SmSet taken_;                   // by all of them
  std::vector<VgpuId> due_;       // vGPUs in kDue or kAsking
};

}  // namespace sluice::core
