// SPDX-License-Identifier: Apache-2.0
// The grid runner's threads: slices of blocks, and the ends of blocks and grids.
#include "mediator/softgpu/grid/grid_runner.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>

#include "mediator/base/clock.h"
#include "mediator/base/process/without_signals.h"

namespace sluice::softgpu {
namespace {

// Warp instructions that a resident block runs before the next one's turn: some 100 us. Larger: an
// eviction and a fault in another block are seen later. Smaller: more changes of working set.
constexpr uint64_t kSliceSteps = 8192;
// While every resident block only polls, threads sleep, longer each time.
constexpr useconds_t kShortestPause_us = 10;
constexpr useconds_t kLongestPause_us = 100;
constexpr size_t kPollsPerEjection = 256;
// Parts of a stall, after each of which the process shows that it lives.
constexpr uint64_t kStallStep_ns = 5'000'000;
// What a thread's sleep may be late by, in ns: a change of context waits for some 80 us.
constexpr unsigned long kTimerSlack_ns = 1000;

// The first block of the cluster with this number.
exec::Dim3 block_at(uint64_t index, const exec::LaunchShape& shape) {
  const exec::Dim3& size = shape.cluster;
  const uint32_t x = shape.grid.x / size.x, y = shape.grid.y / size.y;
  return {static_cast<uint32_t>(index % x) * size.x, static_cast<uint32_t>(index / x % y) * size.y,
          static_cast<uint32_t>(index / x / y) * size.z};
}

}  // namespace

GridRunner::GridRunner(SharedGpu& gpu, uint32_t threads)
    : gpu_(gpu),
      limits_(gpu.model().sm),
      sms_(gpu.sms()),
      thread_count_(std::min(threads, gpu.sms())),
      sm_(gpu.sms()) {
  limits_.blocks = gpu.blocks_per_sm();
  preempt_sequence = &gpu.attention();
  claims_epoch_ = gpu.claims_epoch();
}

GridRunner::~GridRunner() { stop(); }

SmSet GridRunner::sms_of(unsigned slot) const {
  SmSet set;
  for (uint32_t sm = 0; sm < sms_; ++sm) set[sm] = gpu_.may_use(slot, sm);
  return set;
}

uint64_t GridRunner::global_timer_ns() { return monotonic_ns(); }

void GridRunner::print(std::string_view text) {
  // Straight to the descriptor: the program's own buffered output is none of our business.
  while (!text.empty()) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

// By the C library's stream, which a program may have put elsewhere.
void GridRunner::assertion_failed(std::string_view line) {
  const std::string text = std::string(line) + '\n';
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
}

void GridRunner::start_threads() {
  const WithoutSignals threads;
  for (unsigned i = 0; i < thread_count_; ++i) {
    threads_.emplace_back([this, i] {
      ::pthread_setname_np(::pthread_self(), ("softgpu-sm" + std::to_string(i)).c_str());
      ::prctl(PR_SET_TIMERSLACK, kTimerSlack_ns, 0, 0, 0);
      thread_main();
    });
  }
}

void GridRunner::submit(std::shared_ptr<Grid> grid) {
  Lock lock(mutex_);
  if (stop_) return;
  if (threads_.empty()) start_threads();
  grid->total = grid->shape.grid.count() / grid->cluster();
  grid->on_sm.assign(sms_, 0);
  const unsigned slot = grid->slot;
  std::deque<GridRef>& ready = clients_[slot].ready;
  const auto place = std::upper_bound(
      ready.begin(), ready.end(), grid->priority,
      [](int priority, const GridRef& other) { return priority < other->priority; });
  ready.insert(place, std::move(grid));
  if (clients_[slot].presence == Presence::kOff) queue_up(slot);
  activate(slot);
  advance();
}

void GridRunner::requeue(Resident* r) {
  using Kind = RunQueue<Resident*>::Kind;
  run_queue_.add(r, !r->begun ? Kind::kCold : r->waiting ? Kind::kPolling : Kind::kHot);
}

// Starts the resident's block; false: it cannot be made, and the grid is given up. Without the
// lock.
bool GridRunner::begin(Resident& r) {
  Grid& grid = *r.grid;
  if (!r.block) {
    auto block =
        exec::Block::make(grid.image, grid.entry, grid.shape, grid.params, *grid.map, *this);
    if (!block) {
      std::lock_guard lock(mutex_);
      if (!grid.abandoned) {
        grid.fault.kind = exec::FaultKind::kTrap;
        grid.fault.kernel = grid.entry;
        grid.fault.detail = block.error().message;
        grid.abandoned = true;
      }
      return false;
    }
    r.block = *std::move(block);
  }
  r.block->start(block_at(r.index, grid.shape), {grid.name_of(r.sms[0]), sms_});
  for (uint32_t rank = 1; rank < r.sms.size(); ++rank)
    r.block->move_rank(rank, {grid.name_of(r.sms[rank]), sms_});
  r.begun = true;
  r.waiting = false;
  return true;
}

// Whether the next block of the same grid may take this one's place without anybody being asked.
bool GridRunner::may_continue(const Resident& r) const {
  const Grid& grid = *r.grid;
  const Client& client = clients_[grid.slot];
  for (const uint32_t sm : r.sms)
    if ((held_[sm] && !gathers(r.grid)) || !client.allowed[sm] ||
        (gpu_.is_mps() && gpu_.starves_before(sm, rank_of(grid))))
      return false;
  return !stop_ && !grid.abandoned && grid.next != grid.total && grid.parked.empty() &&
         client.presence == Presence::kOn && !r.evict && grid.priority <= blocked_priority_;
}

// One slice of `r`, whose `running` is set.
void GridRunner::run_slice(Lock& lock, Resident* r) {
  uint64_t budget = kSliceSteps;
  const GridRef grid = r->grid;
  for (;;) {
    lock.unlock();
    bool over = grid->abandoned || (!r->begun && !begin(*r)), yielded = false;
    if (!over) {
      const exec::RunResult result = r->block->run(budget);
      yielded = result.state == exec::RunState::kYielded;
      r->waiting = yielded && result.waiting;
      budget -= std::min(budget, std::max<uint64_t>(result.steps, 1));
      over = result.state == exec::RunState::kFault;
    }
    lock.lock();
    if (over && !grid->abandoned) {
      grid->fault = r->block->fault();
      grid->abandoned = true;
      gpu_.stop_for(grid->slot, grid->fault.kind);
    }
    if (grid->abandoned || (!yielded && !may_continue(*r))) break;
    if (!yielded) {
      r->index = grid->next++;
      r->begun = false;
      if (budget != 0) continue;
    }
    r->running = false;
    if (is_preempted(*r)) {
      const unsigned slot = grid->slot;
      park(r);
      if (clients_[slot].presence == Presence::kLeaving && clients_[slot].resident == 0)
        finish_leaving(lock, slot);
    } else {
      requeue(r);
    }
    return;
  }
  end_block(lock, r);
}

void GridRunner::end_block(Lock& lock, Resident* r) {
  const GridRef grid = r->grid;
  const unsigned slot = grid->slot;
  leave_sms(*r);
  destroy(r);
  unplaced_ = true;
  if (grid->resident == 0 && !grid->has_more()) end_grid(lock, grid);
  if (clients_[slot].presence == Presence::kLeaving && clients_[slot].resident == 0)
    finish_leaving(lock, slot);
}

void GridRunner::end_grid(Lock& lock, const GridRef& grid) {
  Client& client = clients_[grid->slot];
  const auto active = std::find(client.active.begin(), client.active.end(), grid);
  if (active == client.active.end()) return;  // stopped
  client.active.erase(active);
  grid->parked.clear();
  SharedGpu::word(gpu_.channel(grid->slot).kernels).fetch_add(1);
  // Somebody who waits gets the GPU at once; otherwise it is kept for what on_done will submit.
  if (client.active.empty() && gpu_.others_waiting(grid->slot)) settle(grid->slot);
  lock.unlock();
  // Whoever waits for it hears of the fault when the GPU goes on.
  if (grid->abandoned && grid->fault.kind != exec::FaultKind::kNone) wait_for_stall();
  const auto done = std::move(grid->on_done);
  grid->on_done = nullptr;
  if (grid->run_children)
    grid->run_children(grid->fault, done);
  else
    done(grid->fault);
  lock.lock();
  if (!stop_) settle(grid->slot);
}

// While a fault stops the GPU nothing runs, and no context comes or goes. Without the lock.
void GridRunner::wait_for_stall() {
  for (uint64_t left = gpu_.stalled_ns(); left != 0; left = gpu_.stalled_ns()) {
    gpu_.beat();
    const timespec part{0, static_cast<long>(std::min(left, kStallStep_ns))};
    ::clock_nanosleep(CLOCK_MONOTONIC, 0, &part, nullptr);
    if (std::lock_guard lock(mutex_); stop_) return;
  }
}

void GridRunner::thread_main() {
  useconds_t pause_us = kShortestPause_us;
  size_t polls = 0;      // for room, while all that runs polls
  size_t fruitless = 0;  // slices in a row that only polled, while there was nothing else
  Lock lock(mutex_);
  while (!stop_) {
    if (gpu_.stalled_ns() != 0) {
      lock.unlock();
      wait_for_stall();
      lock.lock();
      continue;
    }
    poll_control_words(lock);
    if (stop_) break;
    if (turn_.arriving) {
      arrive(lock);
      continue;
    }
    if (unplaced_) place();
    Resident* r = run_queue_.pick();
    if (r == nullptr) {
      const bool needs_turn = turn_.holder < 0 && queued_ != 0;
      if ((needs_turn || starved_.any()) && !standing_) {
        wait_for_turn(lock);
      } else {
        work_.wait(lock);
      }
      continue;
    }
    const bool was_waiting = r->waiting;
    r->running = true;
    run_slice(lock, r);
    if (!was_waiting || run_queue_.any_working()) {
      fruitless = 0;
      pause_us = kShortestPause_us;
    } else if (run_queue_.polling() != 0 && ++fruitless > run_queue_.polling()) {
      fruitless = 0;
      // What they wait for may be blocks that found no room, for which nobody stands in the queue
      // while these run.
      const bool starved = starved_.any();
      lock.unlock();
      if (starved && ++polls % kPollsPerEjection == 0) gpu_.eject_absent();
      ::usleep(pause_us);
      lock.lock();
      if (starved && !stop_) place();
      pause_us = std::min(2 * pause_us, kLongestPause_us);
    }
  }
}

void GridRunner::stop() {
  Lock lock(mutex_);
  if (stop_) return;
  stop_ = true;
  for (Client& client : clients_) {
    for (const GridRef& grid : client.active) grid->abandoned = true;
    client.active.clear();
    client.ready.clear();
  }
  gathering_.clear();
  held_.reset();
  gpu_.attention().fetch_add(1);
  work_.notify_all();
  gpu_.ring_self();
  lock.unlock();
  for (std::thread& thread : threads_) {
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();  // the program ends itself from a callback of ours
    } else {
      thread.join();
    }
  }
  lock.lock();
  gpu_.drop_claims();
  for (unsigned slot = 0; slot < kMaxContexts; ++slot) {
    if (clients_[slot].presence == Presence::kQueued) gpu_.withdraw(slot);
    if (gpu_.is_mps() && clients_[slot].presence != Presence::kOff) gpu_.end_beside(slot);
    clients_[slot] = {};
  }
  if (turn_.holder >= 0) gpu_.release(static_cast<unsigned>(turn_.holder));
  turn_.holder = -1;
  queued_ = 0;
}

}  // namespace sluice::softgpu
