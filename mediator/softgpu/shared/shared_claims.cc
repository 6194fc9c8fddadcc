// SPDX-License-Identifier: Apache-2.0
// The GPU file in mps mode: contexts of several processes on the SMs side by side. Each process
// keeps the sum of what its blocks take of each SM in words of its own; room is what all live
// processes' words leave. A claim is made first and taken back if it was too much, so two that come
// at once may both be sent away and try again, but an SM is never given out twice.
#include <algorithm>
#include <bit>

#include "mediator/softgpu/shared/shared_gpu.h"

namespace sluice::softgpu {
namespace {

bool fits(const SmLimits& l, const SmClaim& c) {
  return c.blocks <= l.blocks && c.threads <= l.threads && c.registers <= l.registers &&
         c.shared_bytes <= l.shared_bytes;
}

SmClaim& operator+=(SmClaim& a, const SmClaim& b) {
  a.registers += b.registers;
  a.shared_bytes += b.shared_bytes;
  a.threads += b.threads;
  a.blocks += b.blocks;
  return a;
}

}  // namespace

bool SharedGpu::gather(const SmSet& on, const Rank& rank) {
  SmSet taken;
  for (uint32_t sm = 0; sm < sms(); ++sm) {
    if (!on[sm]) continue;
    uint32_t owner = 0;
    // One grid after the other would keep those that wait from all room, however urgent they are.
    if (state_->gathering[sm].load() == 0 && starves_before(sm, rank)) {
      release_gathered(taken);
      return false;
    }
    if (state_->gathering[sm].compare_exchange_strong(owner, process_ + 1)) {
      taken.set(sm);
    } else if (owner != process_ + 1) {
      // Nobody is rung: two that try in turn would keep waking each other.
      release_gathered(taken);
      return false;
    }
  }
  return true;
}

bool SharedGpu::release_gathered(const SmSet& on) {
  bool had_some = false;
  for (uint32_t sm = 0; sm < sms(); ++sm) {
    uint32_t mine = process_ + 1;
    if (on[sm] && state_->gathering[sm].compare_exchange_strong(mine, 0)) had_some = true;
  }
  return had_some;
}

void SharedGpu::gathered(const SmSet& on) {
  if (!release_gathered(on)) return;
  for (uint64_t set = state_->starved.load() & ~(uint64_t{1} << process_); set != 0; set &= set - 1)
    ring(static_cast<unsigned>(std::countr_zero(set)));
}

// Other processes that find no room on this SM, a bit each.
uint64_t SharedGpu::starving(uint32_t sm) const {
  uint64_t all = state_->starved.load(std::memory_order_relaxed) & ~(uint64_t{1} << process_),
           here = 0;
  for (; all != 0; all &= all - 1)
    if (starving_rank(static_cast<unsigned>(std::countr_zero(all)), sm).urgency != 0)
      here |= all & -all;
  return here;
}

Rank SharedGpu::starving_rank(unsigned process, uint32_t sm) const {
  const ProcessSlot& p = state_->processes[process];
  return {p.starved_at[sm].load(std::memory_order_relaxed),
          p.starved_order.load(std::memory_order_relaxed)};
}

std::optional<Rank> SharedGpu::starves_before(uint32_t sm, const Rank& rank) const {
  std::optional<Rank> first;
  for (uint64_t set = starving(sm); set != 0; set &= set - 1) {
    const Rank theirs = starving_rank(static_cast<unsigned>(std::countr_zero(set)), sm);
    if (theirs.is_before(first.value_or(rank))) first = theirs;
  }
  return first;
}

bool SharedGpu::claim(uint32_t sm, const SmLimits& limits, const SmClaim& needs, const Rank& rank) {
  const uint32_t gathering = state_->gathering[sm].load();
  if (gathering != 0 && gathering != process_ + 1) return false;
  // Who gathers is exempt: somebody urgent who waits for the end of that would wait for ever.
  if (gathering == 0 && starves_before(sm, rank)) return false;
  std::atomic<uint64_t>& mine = state_->claims[process_][sm];
  const uint64_t now = mine.fetch_add(needs.packed()) + needs.packed();
  SmClaim all;
  for (unsigned p = 0; p < kMaxProcesses; ++p) {
    const uint64_t theirs = p == process_ ? now : state_->claims[p][sm].load();
    if (theirs != 0) all += SmClaim::unpacked(theirs);
  }
  if (fits(limits, all)) return true;
  unclaim(sm, needs);
  return false;
}

void SharedGpu::unclaim(uint32_t sm, const SmClaim& needs) {
  // Not below zero: others may just have taken everything away, because we stood still.
  std::atomic<uint64_t>& mine = state_->claims[process_][sm];
  uint64_t now = mine.load(), then;
  do {
    SmClaim left = SmClaim::unpacked(now);
    left.registers -= std::min(left.registers, needs.registers);
    left.shared_bytes -= std::min(left.shared_bytes, needs.shared_bytes);
    left.threads -= std::min(left.threads, needs.threads);
    left.blocks -= std::min(left.blocks, needs.blocks);
    then = left.packed();
  } while (!mine.compare_exchange_weak(now, then));
  for (uint64_t set = starving(sm); set != 0; set &= set - 1)
    ring(static_cast<unsigned>(std::countr_zero(set)));
}

void SharedGpu::drop_claims() {
  for (std::atomic<uint64_t>& c : state_->claims[process_])
    if (c.load(std::memory_order_relaxed) != 0) c.store(0);
  state_->starved.fetch_and(~(uint64_t{1} << process_));
  gathered(SmSet().set());
}

void SharedGpu::eject_claims(unsigned process) {
  state_->processes[process].epoch.fetch_add(1);
  for (std::atomic<uint64_t>& c : state_->claims[process]) c.store(0);
  for (std::atomic<uint32_t>& g : state_->gathering) {
    uint32_t its = process + 1;
    g.compare_exchange_strong(its, 0);
  }
  state_->starved.fetch_and(~(uint64_t{1} << process));
  for (unsigned slot = 0; slot < kMaxContexts; ++slot) {
    if ((state_->running.load() >> slot & 1) != 0 && word(channel(slot).process).load() == process)
      word(channel(slot).ejected).fetch_add(1);
  }
}

void SharedGpu::mark_starved(const Urgencies& at, uint64_t order) {
  state_->processes[process_].starved_order.store(order, std::memory_order_relaxed);
  for (uint32_t sm = 0; sm < sms(); ++sm)
    state_->processes[process_].starved_at[sm].store(at[sm], std::memory_order_relaxed);
  state_->starved.fetch_or(uint64_t{1} << process_);
}

// Those behind it were sent away for the mark's sake, so they hear that it is gone.
void SharedGpu::clear_starved() {
  const uint64_t mine = uint64_t{1} << process_;
  if ((state_->starved.load() & mine) == 0) return;
  uint64_t others = state_->starved.fetch_and(~mine) & ~mine;
  for (; others != 0; others &= others - 1) ring(static_cast<unsigned>(std::countr_zero(others)));
}

// One group stands for all of them, as on hardware, where the MPS server is one context.
void SharedGpu::show_beside() {
  uint64_t running;
  do {
    running = state_->running.load();
    status0().store(SLUICE_STATUS0(SLUICE_SOFT_MPS_TSGID, SLUICE_CTX_VALID, 0, running != 0));
  } while ((state_->running.load() != 0) != (running != 0));
}

void SharedGpu::start_beside(unsigned slot) {
  beat();
  state_->running.fetch_or(uint64_t{1} << slot);
  uint64_t nobody = 0;
  if (state_->resident.compare_exchange_strong(nobody, SLUICE_SOFT_MPS_TSGID))
    log_switch(SLUICE_SWITCH_START, SLUICE_SOFT_MPS_TSGID, 0);
  show_beside();
}

void SharedGpu::end_beside(unsigned slot) {
  state_->running.fetch_and(~(uint64_t{1} << slot));
  show_beside();
}

}  // namespace sluice::softgpu
