// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/hosts/virtual_host.h"

#include <algorithm>

namespace sluice::sim {

using core::Action;
using core::SessionId;
using core::VgpuId;

VirtualHost::VirtualHost(const core::SchedulerConfig& config)
    : scheduler_(core::Scheduler::make(config, 0)) {
  at(kBeatNs, [this] { beat(); });
}

void VirtualHost::beat() {
  poll_reports();
  at(now_ns_ + kBeatNs, [this] { beat(); });
}

void VirtualHost::poll_reports() {
  for (const auto& [v, s] : made_) {
    scheduler_->on_report(now_ns_, s, report_of(v, s), actions_);
    drain();
  }
}

void VirtualHost::run_until(uint64_t time_ns) {
  events_.run_until(time_ns, [this](uint64_t at_ns, const EventQueue::What& what) {
    advance(at_ns);
    what();
    drain();
  });
  advance(time_ns);
}

SessionId VirtualHost::make_session(VgpuId v, const std::function<void(SessionId)>& made) {
  core::ActionQueue later;
  const SessionId s = *scheduler_->add_session(now_ns_, v, later);
  made_.emplace_back(v, s);
  made(s);
  while (auto a = later.pop()) actions_.push(*a);
  drain();
  return s;
}

void VirtualHost::drain() {
  while (auto a = actions_.pop()) {
    switch (a->kind) {
      case Action::Kind::kReadReport:
        scheduler_->on_report(now_ns_, a->session, report_of(a->vgpu, a->session), actions_);
        break;
      case Action::Kind::kAskStarved:
        scheduler_->on_starved(now_ns_, a->session, 0, actions_);
        break;
      case Action::Kind::kWakeAt: {
        const uint64_t epoch = ++timer_epoch_;
        if (a->word == core::kNever) break;
        at(std::max(a->word, now_ns_), [this, epoch] {
          if (epoch == timer_epoch_) scheduler_->on_timer(now_ns_, actions_);
        });
        break;
      }
      default:
        apply(*a);
    }
  }
}

}  // namespace sluice::sim
