// SPDX-License-Identifier: Apache-2.0
// VirtualHost: what the hosts of core::Scheduler in virtual time have in common: time, the
// scheduler's timer, its questions, and sluiced's poll of all reports some times a second. What
// workers, programs and the GPU do is the derived one's: SimHost, SlicesHost, TurnsHost. For tests
// only; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "mediator/core/scheduler.h"
#include "tests/sim/event_queue.h"

namespace sluice::sim {

class VirtualHost {
 public:
  void at(uint64_t time_ns, std::function<void()> what) { events_.at(time_ns, std::move(what)); }
  void run_until(uint64_t time_ns);

  core::Scheduler& scheduler() { return *scheduler_; }
  core::VgpuStats stats(core::VgpuId v) const { return scheduler_->stats(now_ns_, v); }
  uint64_t now_ns() const { return now_ns_; }

 protected:
  explicit VirtualHost(const core::SchedulerConfig& config);
  VirtualHost(const VirtualHost&) = delete;
  VirtualHost& operator=(const VirtualHost&) = delete;
  ~VirtualHost() = default;

  virtual core::ReportSnapshot report_of(core::VgpuId v, core::SessionId s) = 0;
  // Books the time until then, before anything changes. Sets now_ns_.
  virtual void advance(uint64_t time_ns) = 0;
  // What is for a session, its worker or the GPU.
  virtual void apply(const core::Action& action) = 0;
  // Reads all reports.
  virtual void poll_reports();

  // One more session of v. `made` hears its id before anything of it is applied, as a page exists
  // before sluiced writes to it.
  core::SessionId make_session(core::VgpuId v, const std::function<void(core::SessionId)>& made);
  // Applies what the scheduler wants done.
  void drain();

  std::unique_ptr<core::Scheduler> scheduler_;
  core::ActionQueue actions_;
  uint64_t now_ns_ = 0;

 private:
  static constexpr uint64_t kBeatNs = 100'000'000;

  void beat();

  EventQueue events_;
  uint64_t timer_epoch_ = 0;
  std::vector<std::pair<core::VgpuId, core::SessionId>> made_;
};

}  // namespace sluice::sim
