// SPDX-License-Identifier: Apache-2.0
// The GPU file's queue: whose turn it is, and what a change of context shows in the registers and
// in the switch log.
#include <algorithm>

#include "mediator/base/clock.h"
#include "mediator/softgpu/shared/shared_gpu.h"

namespace sluice::softgpu {
namespace {

uint64_t bit(unsigned slot) { return uint64_t{1} << slot; }

}  // namespace

uint64_t SharedGpu::holder_word(unsigned slot) const {
  return (uint64_t{word(channel(slot).generation).load()} << 32) | (slot + 1);
}

bool SharedGpu::holds(unsigned slot) const { return state_->holder.load() == holder_word(slot); }

bool SharedGpu::is_resident(unsigned slot) const {
  return state_->resident.load() == holder_word(slot);
}

void SharedGpu::request(unsigned slot) {
  std::atomic<uint64_t>& ticket = state_->queue[slot].ticket;
  if (ticket.load() == 0) ticket.store(state_->next_ticket.fetch_add(1) + 1);
  // Order: ticket before bit, both before the caller reads `holder`. release() clears `holder`
  // before it reads `waiting`, so one of the two sees the other.
  state_->waiting.fetch_or(bit(slot));
}

bool SharedGpu::try_acquire(unsigned slot, bool out_of_turn) {
  if (state_->holder.load() != 0) return false;
  std::atomic<uint64_t>& my_ticket = state_->queue[slot].ticket;
  if (my_ticket.load() == 0) request(slot);  // somebody has overtaken us: back in line
  const uint64_t mine = my_ticket.load();
  bool first = true;
  for (uint64_t set = state_->waiting.load() & ~bit(slot); set != 0; set &= set - 1) {
    const auto other = static_cast<unsigned>(__builtin_ctzll(set));
    uint64_t ticket = state_->queue[other].ticket.load();
    if (ticket == 0 || ticket >= mine) continue;
    if (!out_of_turn) {
      first = false;
    } else {
      // Who does not come loses its place, or everybody would wait for it again and again.
      state_->queue[other].ticket.compare_exchange_strong(ticket, 0);
      state_->waiting.fetch_and(~bit(other));
    }
  }
  if (!first) return false;
  uint64_t nobody = 0;
  if (!state_->holder.compare_exchange_strong(nobody, holder_word(slot))) return false;
  state_->waiting.fetch_and(~bit(slot));
  my_ticket.store(0);
  beat();
  acquired_ns_[slot] = monotonic_ns();
  state_->holder_since_ns.store(acquired_ns_[slot]);
  return true;
}

uint64_t SharedGpu::begin_switch(unsigned slot) {
  const uint64_t before = state_->resident.load();
  if (before == holder_word(slot)) return 0;
  const uint32_t from = static_cast<uint32_t>(before & 0xfff);
  if (before != 0) {
    uint64_t expected = before;
    if (state_->resident.compare_exchange_strong(expected, 0)) {
      const uint32_t pid =
          from - 1 < kMaxContexts ? word(channel(from - 1).pid).load() : uint32_t{0};
      log_switch(SLUICE_SWITCH_END, from, pid);
    }
  }
  // Whose state has just been saved is in the register still.
  const uint32_t shown = SLUICE_STATUS0_TSGID(status0().load());
  if (before == 0 && shown == 0) return 0;
  status0().store(SLUICE_STATUS0(before != 0 ? from : shown, SLUICE_CTX_SWITCH, tsgid(slot), 1));
  return info_.switch_fixed_ns;
}

void SharedGpu::begin_restore(unsigned slot) {
  if (!is_resident(slot)) {
    state_->resident.store(holder_word(slot));
    log_switch(SLUICE_SWITCH_START, tsgid(slot), word(channel(slot).pid).load());
  }
  status0().store(SLUICE_STATUS0(tsgid(slot), SLUICE_CTX_LOAD, tsgid(slot), 1));
}

void SharedGpu::show_running(unsigned slot) {
  if (!is_resident(slot)) {
    state_->resident.store(holder_word(slot));
    log_switch(SLUICE_SWITCH_START, tsgid(slot), word(channel(slot).pid).load());
  }
  state_->holder_since_ns.store(monotonic_ns());
  status0().store(SLUICE_STATUS0(tsgid(slot), SLUICE_CTX_VALID, 0, 1));
}

unsigned SharedGpu::next_in_line(unsigned except) const {
  unsigned next = kMaxContexts;
  uint64_t smallest = UINT64_MAX;
  for (uint64_t set = state_->waiting.load(); set != 0; set &= set - 1) {
    const auto other = static_cast<unsigned>(__builtin_ctzll(set));
    const uint64_t ticket = state_->queue[other].ticket.load();
    if (other == except || ticket == 0 || ticket >= smallest) continue;
    smallest = ticket;
    next = other;
  }
  return next;
}

void SharedGpu::release(unsigned slot) {
  uint64_t mine = holder_word(slot);
  if (state_->holder.load() == mine) {
    word(channel(slot).engine_ns).fetch_add(monotonic_ns() - acquired_ns_[slot]);
    // As on hardware the context stays on the engine, idle, until another takes it.
    if (is_resident(slot)) status0().store(SLUICE_STATUS0(tsgid(slot), SLUICE_CTX_VALID, 0, 0));
    state_->holder.compare_exchange_strong(mine, 0);
  }
  if (const unsigned next = next_in_line(kMaxContexts); next != kMaxContexts)
    ring(word(channel(next).process).load());
}

void SharedGpu::begin_save(unsigned slot) {
  if (!holds(slot)) return;
  const unsigned next = next_in_line(slot);
  status0().store(
      SLUICE_STATUS0(tsgid(slot), SLUICE_CTX_SAVE, next == kMaxContexts ? 0 : tsgid(next), 1));
}

void SharedGpu::release_saved(unsigned slot) {
  uint64_t mine = holder_word(slot);
  if (state_->holder.load() != mine) return;
  uint64_t resident = mine;
  if (state_->resident.compare_exchange_strong(resident, 0))
    log_switch(SLUICE_SWITCH_END, tsgid(slot), word(channel(slot).pid).load());
  const unsigned next = next_in_line(slot);
  status0().store(next == kMaxContexts
                      ? SLUICE_STATUS0(0, SLUICE_CTX_INVALID, 0, 0)
                      : SLUICE_STATUS0(tsgid(slot), SLUICE_CTX_SWITCH, tsgid(next), 1));
  word(channel(slot).engine_ns).fetch_add(monotonic_ns() - acquired_ns_[slot]);
  state_->holder.compare_exchange_strong(mine, 0);
  if (next != kMaxContexts) ring(word(channel(next).process).load());
}

void SharedGpu::withdraw(unsigned slot) {
  state_->waiting.fetch_and(~bit(slot));
  state_->queue[slot].ticket.store(0);
}

bool SharedGpu::others_waiting(unsigned slot) const {
  return (state_->waiting.load() & ~bit(slot)) != 0;
}

bool SharedGpu::slice_is_over(unsigned slot) const {
  const uint64_t slice_ns =
      uint64_t{std::max(word(channel(slot).timeslice_us).load(), kMinTimesliceUs)} * 1000;
  return monotonic_ns() - state_->holder_since_ns.load() >= slice_ns;
}

uint64_t SharedGpu::holders_slice_left_ns() const {
  const uint64_t holder = state_->holder.load();
  const unsigned slot = static_cast<unsigned>(holder & 0xffff'ffff) - 1;
  if (!has_slices() || holder == 0 || slot >= kMaxContexts) return UINT64_MAX;
  const uint64_t slice_ns =
      uint64_t{std::max(word(channel(slot).timeslice_us).load(), kMinTimesliceUs)} * 1000;
  const uint64_t gone = monotonic_ns() - state_->holder_since_ns.load();
  return gone >= slice_ns ? 0 : slice_ns - gone;
}

void SharedGpu::nudge_holder() {
  const unsigned slot = static_cast<unsigned>(state_->holder.load() & 0xffff'ffff) - 1;
  if (slot < kMaxContexts && holders_slice_left_ns() == 0)
    attention_of(word(channel(slot).process).load()).fetch_add(1);
}

void SharedGpu::log_switch(uint8_t tag, uint32_t group, uint32_t pid) {
  auto* log = reinterpret_cast<sluice_switch_log*>(mapping_ + SLUICE_SOFT_LOG_OFFSET);
  const uint64_t number = word(log->put).fetch_add(1);
  std::atomic_thread_fence(std::memory_order_release);
  auto* record = reinterpret_cast<sluice_switch_record*>(reinterpret_cast<std::byte*>(log) +
                                                         SLUICE_SWITCH_LOG_RECORDS_AT) +
                 number % SLUICE_SOFT_LOG_RECORDS;
  // Its first eight bytes are zero; then tag, vmid, seq, cid in one word, which says that it is
  // there.
  auto* words = reinterpret_cast<uint64_t*>(record);
  word(words[0]).store(0, std::memory_order_relaxed);
  word(words[2]).store(pid, std::memory_order_relaxed);
  word(words[3]).store(monotonic_ns() & ~uint64_t{31}, std::memory_order_relaxed);
  const uint64_t seq = (number + 1) & 0xffff;
  word(words[1]).store(uint64_t{tag} | seq << 16 | uint64_t{group} << 32,
                       std::memory_order_release);
}

}  // namespace sluice::softgpu
