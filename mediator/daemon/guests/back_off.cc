// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/guests/back_off.h"

#include <algorithm>
#include <utility>

#include "mediator/base/clock.h"

namespace sluice {

BackOff::BackOff(SessionServices& services, core::VgpuId vgpu)
    : services_(services),
      vgpu_(vgpu),
      penalty_(services.settings.stalls.worst_ns()),
      rest_timer_(services.io),
      stall_timer_(services.io) {}

uint64_t BackOff::wait_ns() const {
  const uint64_t now = monotonic_ns(), at = penalty_.opens_at_ns(now);
  if (!services_.settings.back_off || at <= now || !services_.neighbours.others(vgpu_, now))
    return 0;
  return at - now;
}

std::string BackOff::text() const {
  const uint64_t left_ns = wait_ns();
  if (left_ns == 0) return "";
  return "; new ones start in " + std::to_string(left_ns / 1'000'000'000 + 1) +
         " s, because its kernels have faulted, or did not leave the GPU, and stopped others";
}

BackOff::Effect BackOff::on_offence(core::Offence offence, uint64_t cost_ns, bool more) {
  const uint64_t now = monotonic_ns();
  const bool harmed = services_.neighbours.others(vgpu_, now);
  const auto state = more ? penalty_.add_cost(now, cost_ns, harmed)
                          : penalty_.on_offence(now, offence, cost_ns, harmed);
  if (offence == core::Offence::kDidNotLeave) services_.neighbours.did_not_leave(vgpu_, now);
  set_deadline();
  rest_timer_.after_ms(0, [this] { rest(); });  // the scheduler may be in mid-action
  const bool barred =
      state == core::Penalty::State::kBarred && services_.settings.back_off && harmed;
  return {barred, harmed ? text() : "; nobody else was there"};
}

uint64_t BackOff::stall_wait_ns() const {
  const uint64_t now = monotonic_ns(), wait = stall_budget_.wait_ns(now);
  return services_.settings.back_off && wait != 0 && services_.neighbours.others(vgpu_, now) ? wait
                                                                                             : 0;
}

void BackOff::on_stall(uint64_t cost_ns) {
  const uint64_t now = monotonic_ns();
  if (cost_ns == 0 || !services_.neighbours.others(vgpu_, now)) return;
  stall_budget_.spend(now, cost_ns);
  stall_to_charge_ns_ += cost_ns;
  if (stall_timer_.pending()) return;
  stall_timer_.after_ms(cost_ns / 1'000'000 + 1, [this] {
    if (!closed_) services_.executor.charge_stall(vgpu_, std::exchange(stall_to_charge_ns_, 0));
  });
}

void BackOff::take_over(const core::Penalty& faults, const core::StallBudget& stalls) {
  penalty_ = faults;
  stall_budget_ = stalls;
  rest();
}

void BackOff::take_over(const core::Penalty::Owed& owed) {
  take_over(core::Penalty(services_.settings.stalls.worst_ns(), owed), stall_budget_);
}

void BackOff::set_paused(bool paused) {
  paused_ = paused;
  services_.executor.set_paused(vgpu_, paused_ || rests_);
}

void BackOff::set_deadline() {
  const SessionSettings& s = services_.settings;
  services_.executor.set_evict_end(
      vgpu_, s.back_off ? penalty_.deadline_ns(monotonic_ns(), s.deadlines.evict_end_ns,
                                               s.deadlines.evict_end_least_ns)
                        : 0);
}

void BackOff::close() {
  closed_ = true;
  rest_timer_.cancel();
}

void BackOff::rest() {
  if (closed_) return;
  const uint64_t left_ns = wait_ns();
  rests_ = left_ns != 0;
  services_.executor.set_paused(vgpu_, paused_ || rests_);
  // Others may go meanwhile.
  if (rests_)
    rest_timer_.after_ms(std::min<uint64_t>(left_ns / 1'000'000 + 1, kPollMs), [this] { rest(); });
}

}  // namespace sluice
