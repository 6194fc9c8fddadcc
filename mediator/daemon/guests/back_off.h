// SPDX-License-Identifier: Apache-2.0
// BackOff: what one vGPU owes its neighbours, and what follows from it: its programs wait for new
// sessions, those that run launch nothing, evictions of it have shorter deadlines. The debts and
// their rules are core/penalty.h (faults, ends by force) and core/stall_budget.h (contexts and
// modules); here they meet the clock, the scheduler, and whether anybody else is there.
//
// Also holds whether the vGPU is paused, because a vGPU launches nothing for either reason.
//
// Owned by a VgpuServer; sluiced's one thread.
#pragma once

#include <cstdint>
#include <string>

#include "mediator/core/penalty.h"
#include "mediator/core/stall_budget.h"
#include "mediator/daemon/guests/session_services.h"

namespace sluice {

class BackOff {
 public:
  // How often what waits for the back-off checks whether others are still there.
  static constexpr uint64_t kPollMs = 1000;

  BackOff(SessionServices& services, core::VgpuId vgpu);

  // For how long programs that ask now have to wait; 0: not at all.
  uint64_t wait_ns() const;
  // "", or that, for people.
  std::string text() const;

  // It has harmed others, for so long if anybody else was there. What is said of it, for people.
  struct Effect {
    bool ends_all_sessions = false;
    std::string text;
  };
  Effect on_offence(core::Offence offence, uint64_t cost_ns, bool more);
  // Before a context is opened or a module loaded: 0, or for how long it has to wait; and after.
  uint64_t stall_wait_ns() const;
  void on_stall(uint64_t cost_ns);
  // What an earlier vGPU of the same owner still owes.
  void take_over(const core::Penalty& faults, const core::StallBudget& stalls);
  void take_over(const core::Penalty::Owed& owed);

  void set_paused(bool paused);
  bool paused() const { return paused_; }
  // The deadline of evictions, by the debt as of now.
  void set_deadline();
  // The vGPU goes: nothing is charged or paused any more.
  void close();

  const core::Penalty& penalty() const { return penalty_; }
  const core::StallBudget& stall_budget() const { return stall_budget_; }

 private:
  // While programs wait for the back-off, those that run launch nothing: each could do it again.
  void rest();

  SessionServices& services_;
  const core::VgpuId vgpu_;
  core::Penalty penalty_;  // outlives its guest's reboots
  core::StallBudget stall_budget_;
  uint64_t stall_to_charge_ns_ = 0;  // when it is over
  io::Timer rest_timer_, stall_timer_;
  bool paused_ = false, rests_ = false, closed_ = false;
};

}  // namespace sluice
