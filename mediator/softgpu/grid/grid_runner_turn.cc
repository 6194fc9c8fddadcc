// SPDX-License-Identifier: Apache-2.0
// The grid runner's turns: coming, leaving and being made to leave.
#include <unistd.h>

#include <algorithm>

#include "mediator/base/clock.h"
#include "mediator/softgpu/grid/grid_runner.h"

namespace sluice::softgpu {
namespace {

// Grids of one context on the SMs at once (what GPUs since Kepler can do; later ones 128).
constexpr size_t kMaxActiveGrids = 32;
// A waiting process checks for absent contenders this often, and takes the engine out of turn when
// it was free this many times in a row while the first in line did not come (it may be stopped).
constexpr uint64_t kLivenessCheck_ns = 20'000'000;
constexpr uint64_t kShortestWait_ns = 1'000'000;
constexpr unsigned kMissesBeforeOvertaking = 3;
// Parts of a long wait, so that the process is seen to live.
constexpr uint64_t kLongestWait_ns = 5'000'000;

}  // namespace

// Lets time pass that the modelled hardware needs.
void GridRunner::pass_time(Lock& lock, uint64_t ns) {
  lock.unlock();
  const uint64_t end = monotonic_ns() + ns;
  for (uint64_t now = monotonic_ns(); now < end; now = monotonic_ns()) {
    gpu_.beat();
    const uint64_t part = std::min(end - now, kLongestWait_ns);
    const timespec ts{0, static_cast<long>(part)};
    ::clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, nullptr);
  }
  lock.lock();
}

void GridRunner::read_sm_set(unsigned slot) {
  Client& client = clients_[slot];
  client.sm_seen = SharedGpu::word(gpu_.channel(slot).sm_sequence).load();
  client.allowed = sms_of(slot);
}

// A context that was off has got something to do.
void GridRunner::queue_up(unsigned slot) {
  Client& client = clients_[slot];
  client.preempt_seen = SharedGpu::word(gpu_.channel(slot).preempt).load();
  read_sm_set(slot);
  client.lost = false;
  if (gpu_.is_mps()) {
    client.presence = Presence::kOn;
    gpu_.start_beside(slot);
  } else {
    client.presence = Presence::kQueued;
    ++queued_;
    gpu_.request(slot);
  }
}

// Begins grids of a context that is on. In fcfs mode a turn is for what nobody else waited for.
void GridRunner::activate(unsigned slot) {
  Client& client = clients_[slot];
  if (client.presence != Presence::kOn) return;
  const bool by_kernels = !gpu_.is_mps() && !gpu_.has_slices();
  while (!client.ready.empty() && client.active.size() < kMaxActiveGrids &&
         (!by_kernels || !turn_.used || !gpu_.others_waiting(slot))) {
    GridRef grid = std::move(client.ready.front());
    client.ready.pop_front();
    if (gpu_.is_mps()) grid->order = gpu_.take_order();
    const auto place = std::upper_bound(
        client.active.begin(), client.active.end(), grid->priority,
        [](int priority, const GridRef& other) { return priority < other->priority; });
    client.active.insert(place, std::move(grid));
    turn_.used = true;
    unplaced_ = true;
  }
  if (unplaced_) place();
}

// A context whose grids have ended begins others or, if it has none, leaves.
void GridRunner::settle(unsigned slot) {
  Client& client = clients_[slot];
  activate(slot);
  if (client.presence != Presence::kOn || !client.active.empty()) return;
  if (gpu_.is_mps()) {
    if (!client.ready.empty()) return;
    client.presence = Presence::kOff;
    gpu_.end_beside(slot);
    return;
  }
  client.presence = Presence::kOff;
  // Back in line before it leaves: otherwise the next one could think that nobody waits.
  if (!client.ready.empty()) queue_up(slot);
  gpu_.release(slot);
  turn_.holder = -1;
  advance();
}

// Takes the engine for one of the contexts that wait, if it is its turn.
void GridRunner::advance(bool out_of_turn) {
  if (turn_.holder >= 0 || queued_ == 0) return;
  for (unsigned slot = 0; slot < kMaxContexts; ++slot) {
    Client& client = clients_[slot];
    if (client.presence != Presence::kQueued || !gpu_.try_acquire(slot, out_of_turn)) continue;
    --queued_;
    turn_.holder = static_cast<int>(slot);
    turn_.used = false;
    client.presence = Presence::kSwitching;
    turn_.switch_ns = gpu_.begin_switch(slot);
    turn_.arriving = true;
    if (turn_.switch_ns == 0 && client.parked_bytes == 0) {
      // Nothing to wait for, so this thread can do it, whoever it is.
      turn_.arriving = false;
      begin_running(slot);
    } else {
      work_.notify_one();
    }
    if (standing_) gpu_.ring_self();
    return;
  }
  if (!standing_) work_.notify_one();  // somebody has to stand in the queue
}

// Waits for the change of context that gives the engine to turn_.holder.
void GridRunner::arrive(Lock& lock) {
  const auto slot = static_cast<unsigned>(turn_.holder);
  Client& client = clients_[slot];
  turn_.arriving = false;
  pass_time(lock, turn_.switch_ns);
  if (stop_) return;
  if (client.parked_bytes != 0 && gpu_.holds(slot)) {
    gpu_.begin_restore(slot);
    pass_time(lock, gpu_.transfer_ns(client.parked_bytes));
    if (stop_) return;
  }
  if (!gpu_.holds(slot)) return begin_leaving(lock, slot, true);
  begin_running(slot);
}

// Its state is in the engine: it runs.
void GridRunner::begin_running(unsigned slot) {
  Client& client = clients_[slot];
  gpu_.show_running(slot);
  client.parked_bytes = 0;
  client.presence = Presence::kOn;
  // A preemption that was asked for while it was off has nothing to do any more.
  client.preempt_seen = SharedGpu::word(gpu_.channel(slot).preempt).load();
  read_sm_set(slot);
  unplaced_ = true;
  settle(slot);
}

// Preempts a context that is on. `lost`: others have taken the engine already.
void GridRunner::begin_leaving(Lock& lock, unsigned slot, bool lost) {
  Client& client = clients_[slot];
  client.presence = Presence::kLeaving;
  client.lost = lost;
  client.leaving_since_ns = monotonic_ns();
  client.saving_bytes = 0;
  park_preempted(slot);
  if (client.resident == 0) finish_leaving(lock, slot);
}

// All its blocks are off the SMs.
void GridRunner::finish_leaving(Lock& lock, unsigned slot) {
  Client& client = clients_[slot];
  client.presence = Presence::kSaving;
  sluice_soft_channel& channel = gpu_.channel(slot);
  const uint64_t took = monotonic_ns() - client.leaving_since_ns;
  SharedGpu::word(channel.preempt_last_ns).store(took);
  SharedGpu::word(channel.preempt_total_ns).fetch_add(took);
  SharedGpu::word(channel.preempt_max_ns)
      .store(std::max(SharedGpu::word(channel.preempt_max_ns).load(), took));
  SharedGpu::word(channel.preempt_count).fetch_add(1);
  if (gpu_.is_mps()) {
    // There is no turn to lose: the blocks are placed again where there is room.
    client.presence = Presence::kOn;
    unplaced_ = true;
    settle(slot);
    return;
  }
  if (!client.lost && client.saving_bytes != 0) {
    gpu_.begin_save(slot);
    pass_time(lock, gpu_.transfer_ns(client.saving_bytes));
    if (stop_) return;
  }
  client.saving_bytes = 0;
  client.presence = Presence::kOff;
  if (client.has_work()) queue_up(slot);
  gpu_.release_saved(slot);
  turn_.holder = -1;
  advance();
}

// Each thread polls before it takes a block: whether a context has to leave, or has other SMs.
void GridRunner::poll_control_words(Lock& lock) {
  if (residents_.empty() && turn_.holder < 0 && !gpu_.is_mps()) return;
  gpu_.beat();
  if (gpu_.is_mps() && claims_epoch_ != gpu_.claims_epoch()) renew_claims();
  for (unsigned slot = 0; slot < kMaxContexts; ++slot) {
    Client& client = clients_[slot];
    if (client.presence != Presence::kOn && client.presence != Presence::kLeaving) continue;
    if (!gpu_.is_mps() && !client.lost && !gpu_.holds(slot)) {
      begin_leaving(lock, slot, true);
      return;
    }
    sluice_soft_channel& channel = gpu_.channel(slot);
    if (client.sm_seen != SharedGpu::word(channel.sm_sequence).load()) {
      read_sm_set(slot);
      park_preempted(slot);
      unplaced_ = true;
    }
    if (client.presence != Presence::kOn) continue;
    const uint32_t preempt = SharedGpu::word(channel.preempt).load();
    const bool asked = preempt != client.preempt_seen;
    client.preempt_seen = preempt;
    if (asked || (gpu_.has_slices() && gpu_.others_waiting(slot) && gpu_.slice_is_over(slot))) {
      begin_leaving(lock, slot, false);
      return;
    }
  }
}

// Stands in the GPU's queue for all of this process's contexts until one has its turn, or for room
// on the SMs.
void GridRunner::wait_for_turn(Lock& lock) {
  standing_ = true;
  unsigned misses = 0;
  while (!stop_ && !turn_.arriving && run_queue_.empty() &&
         ((turn_.holder < 0 && queued_ != 0) || starved_.any())) {
    const uint32_t seen = gpu_.bell();
    if (starved_.any()) {
      poll_control_words(lock);
      place();
      if (starved_.none() || run_queue_.any_working()) break;
    } else {
      advance(misses >= kMissesBeforeOvertaking);
      if (turn_.holder >= 0) break;
    }
    lock.unlock();
    // A holder whose slice ends is notified; it would notice by itself a little later.
    const uint64_t slice_left_ns = gpu_.holders_slice_left_ns();
    const bool ends = slice_left_ns < kLivenessCheck_ns;
    const bool rang = gpu_.wait_bell(
        seen,
        std::chrono::nanoseconds(starved_.any() || ends
                                     ? std::max(slice_left_ns % kLivenessCheck_ns, kShortestWait_ns)
                                     : kLivenessCheck_ns));
    if (!rang && ends) gpu_.nudge_holder();
    // Two that find no room ring one another at each look, so silence may never come.
    if (const uint64_t now = monotonic_ns();
        !rang || now - absent_checked_ns_ >= kLivenessCheck_ns) {
      gpu_.eject_absent();
      absent_checked_ns_ = now;
    }
    misses = !rang && !ends && gpu_.engine_free() ? misses + 1 : 0;
    lock.lock();
    // An owner of a reused slot may have lost its mark to somebody's cleaning: stand there again.
    for (unsigned slot = 0; slot < kMaxContexts; ++slot)
      if (clients_[slot].presence == Presence::kQueued) gpu_.request(slot);
  }
  standing_ = false;
}

}  // namespace sluice::softgpu
