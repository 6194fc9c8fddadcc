// SPDX-License-Identifier: Apache-2.0
// Sharing: the scheduler's insides (scheduler.h is the outside). It knows the vGPUs and sessions,
// talks to the policy, and writes grant and evict words. The rest is in parts, each with its own
// state and its own file:
//
//   part        question that it answers                                     file
//   strategy    who may hold what, which SMs, and how a change goes on       strategy.h
//   reports     who is backlogged, and when the policy hears of it           reports.h
//   charging    how much GPU time each vGPU is charged                       charging.h
//   entitled    what part of the GPU each vGPU would have, for people        entitlements.h
//   crowd       which sessions of one vGPU may launch at once                crowd.h
//   deadlines   who is ended for not leaving                                 deadlines.h
//   launches    what the policy hears of launches                            launches.h
//   departed    which vGPUs the policy remembers that were removed           departed.h
//
// Each event from outside ends with finish(): reports are settled, what the strategy can begin is
// begun, the policy's timer is served, and the next wake-up is set. Which states there are, and
// what moves between them: state.h. One thread. Parts refer to it, so it does not move.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "mediator/core/scheduler.h"
#include "mediator/core/sharing/charging.h"
#include "mediator/core/sharing/crowd.h"
#include "mediator/core/sharing/deadlines.h"
#include "mediator/core/sharing/departed.h"
#include "mediator/core/sharing/launches.h"
#include "mediator/core/sharing/reports.h"
#include "mediator/core/sharing/state.h"
#include "mediator/core/sharing/strategy.h"

namespace sluice::core {

struct Sharing {
  Sharing(const SchedulerConfig& config, const policy::Registration& row);
  Sharing(const Sharing&) = delete;
  Sharing& operator=(const Sharing&) = delete;

  const SchedulerConfig config;
  const std::unique_ptr<policy::Policy> policy;
  std::vector<VgpuState> vgpus;
  std::vector<SessionState> sessions;
  std::vector<VgpuId> holders;  // one at most where the GPU is exclusive
  Charging charging{*this};
  Reports reports{*this};
  Crowd crowd{*this};
  Deadlines deadlines{*this};
  LaunchForecast launches;
  Departed departed;
  std::unique_ptr<SharingStrategy> strategy;

  // ---- vGPUs and sessions; null, nothing: there is none, or there are too many ----------------
  VgpuState* vgpu(VgpuId v) { return v < vgpus.size() && vgpus[v].present() ? &vgpus[v] : nullptr; }
  SessionState* session(SessionId s) {
    return s < sessions.size() && sessions[s].present() ? &sessions[s] : nullptr;
  }
  std::optional<VgpuId> new_vgpu();
  void reset_vgpu(VgpuId v);
  void forget_vgpu(VgpuId v);  // its id stays taken
  void free_vgpu(VgpuId v) { forget_vgpu(v), free_vgpus_.push_back(v); }
  // Those of `departed` whose time is over, or, if it may be only that, the oldest.
  bool forget_departed(uint64_t now_ns, bool oldest, ActionQueue& out);
  std::optional<SessionId> new_session(VgpuId v);
  void free_session(SessionId s);

  const policy::Machine& machine() const { return config.policy_config.machine; }
  uint32_t sm_count() const { return machine().sm_count; }
  policy::LeftReason left_reason(VgpuId v) const;

  // ---- grant and evict words (the gate protocol, abi/stub.h) -----------------------------------
  uint64_t open_flags(VgpuId v) const;
  void set_grant(ActionQueue& out, SessionId s, uint64_t flags);
  void set_evict(ActionQueue& out, SessionId s, uint64_t word) const;
  bool has_open_gate(SessionId s) const {
    return sessions[s].life == SessionLife::kLive && (sessions[s].word & SLUICE_GRANT_OPEN) != 0;
  }
  // A new generation with the vGPU's flags, and with its set of SMs.
  void grant_session(SessionId s, ActionQueue& out);
  // The vGPU's flags, in the same generation: its gate is open.
  void renew_grant(SessionId s, ActionQueue& out);
  // Closes the gate and evicts.
  void evict_session(SessionId s, ActionQueue& out);
  // The protocol's last step of an eviction or a recall. A session that drains already has to leave
  // `generation` too.
  void begin_drain(SessionId s, Drain drain, uint32_t generation, ActionQueue& out);
  void check_drained(uint64_t now_ns, SessionId s, ActionQueue& out);
  void session_drained(uint64_t now_ns, SessionId s, ActionQueue& out);
  void end_session(ActionQueue& out, SessionId s, EndReason reason);

  // ---- holding ---------------------------------------------------------------------------------
  void begin_hold(uint64_t now_ns, VgpuId v);
  void end_hold(VgpuId v);

  // ---- the policy ------------------------------------------------------------------------------
  // `event` is one call into the policy; what it answers is done at once.
  template <class Event>
  void ask(uint64_t now_ns, ActionQueue& out, Event&& event) {
    charging.charge_by_clock(now_ns);
    policy_actions_.clear();
    event(policy_actions_);
    for (const policy::Action& a : policy_actions_) apply(now_ns, a, out);
  }
  void on_timer(uint64_t now_ns, ActionQueue& out);
  // The end of each event.
  void finish(uint64_t now_ns, ActionQueue& out);

  void log(ActionQueue& out, LogEvent event, VgpuId v, uint64_t value,
           SessionId s = kNoSession) const;

 private:
  void ring_gate(ActionQueue& out, SessionId s) const;
  void apply(uint64_t now_ns, const policy::Action& a, ActionQueue& out);
  bool wake_policy(uint64_t now_ns, ActionQueue& out);
  void rearm(ActionQueue& out);

  std::vector<VgpuId> free_vgpus_;
  std::vector<SessionId> free_sessions_;
  policy::Actions policy_actions_;
  uint64_t policy_wake_ns_ = kNever;
  bool wake_due_ = false;  // the policy's timer has come; it hears of it when all reports are in
  uint64_t armed_ns_ = kNever;
};

}  // namespace sluice::core
