#include "mediator/softgpu/engine.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "mediator/base/clock.h"

namespace sluice::softgpu {
namespace {

// Warp instructions that a resident block runs before the next one's turn: some 100 us. Larger: an
// eviction and a fault in another block are seen later. Smaller: more changes of working set.
constexpr uint64_t kSliceSteps = 8192;
// Grids of one context on the SMs at once. More would only help grids too small to fill the SMs.
constexpr size_t kMaxActiveGrids = 4;
// While every resident block only polls, its thread sleeps, longer each time.
constexpr useconds_t kShortestPause_us = 10;
constexpr useconds_t kLongestPause_us = 100;
// A waiting process looks for dead contenders this often, and takes the engine out of turn when it
// was free this many times in a row while the first in line did not come (it may be stopped).
constexpr std::chrono::milliseconds kLivenessCheck{20};
constexpr unsigned kMissesBeforeOvertaking = 3;

uint32_t round_up(uint32_t value, uint32_t unit) { return (value + unit - 1) / unit * unit; }

exec::Dim3 block_at(uint64_t index, const exec::Dim3& grid) {
  return {static_cast<uint32_t>(index % grid.x), static_cast<uint32_t>(index / grid.x % grid.y),
          static_cast<uint32_t>(index / grid.x / grid.y)};
}

}  // namespace

BlockNeeds block_needs(uint32_t threads, uint32_t registers_per_thread, uint32_t shared_bytes) {
  const uint32_t warps = round_up(threads, SmLimits::kWarpThreads) / SmLimits::kWarpThreads;
  return {warps * SmLimits::kWarpThreads,
          warps * round_up(registers_per_thread * SmLimits::kWarpThreads, SmLimits::kRegisterUnit),
          round_up(shared_bytes + SmLimits::kSharedReservedPerBlock, SmLimits::kSharedUnit)};
}

uint32_t blocks_per_sm(const SmLimits& limits, const BlockNeeds& needs) {
  uint32_t fit = limits.blocks;
  if (needs.threads != 0) fit = std::min(fit, limits.threads / needs.threads);
  if (needs.registers != 0) fit = std::min(fit, limits.registers / needs.registers);
  if (needs.shared_bytes != 0) fit = std::min(fit, limits.shared_bytes / needs.shared_bytes);
  return fit;
}

Engine::Engine(SharedGpu& gpu, uint32_t threads)
    : gpu_(gpu),
      sms_(gpu.sms()),
      thread_count_(std::min(threads, gpu.sms())),
      residents_(gpu.sms()) {
  limits_.blocks = gpu.blocks_per_sm();
}

Engine::~Engine() { stop(); }

uint64_t Engine::global_timer_ns() { return monotonic_ns(); }

void Engine::print(std::string_view text) {
  // Straight to the descriptor: the program's own buffered output is none of our business.
  while (!text.empty()) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

void Engine::start_threads() {
  // Signals belong to the program's own threads.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  for (unsigned i = 0; i < thread_count_; ++i) {
    threads_.emplace_back([this, i] {
      ::pthread_setname_np(::pthread_self(), ("softgpu-sm" + std::to_string(i)).c_str());
      thread_main(i);
    });
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Engine::submit(std::shared_ptr<Grid> grid) {
  std::lock_guard lock(mutex_);
  if (stop_) return;
  if (threads_.empty()) start_threads();
  grid->total = grid->shape.grid.count();
  Client& client = clients_[grid->slot];
  const int slot = static_cast<int>(grid->slot);
  client.ready.push_back(std::move(grid));
  if (holder_ != slot && !client.waiting) {
    client.waiting = true;
    ++waiting_clients_;
    gpu_.request(static_cast<unsigned>(slot));
  }
  advance();
}

void Engine::wake(uint64_t threads) {
  if (threads >= thread_count_) {
    work_.notify_all();
  } else {
    for (; threads != 0; --threads) work_.notify_one();
  }
  // The thread that stands in the queue sleeps elsewhere.
  if (acquiring_) gpu_.ring_self();
}

void Engine::advance(bool out_of_turn) {
  for (;;) {
    if (holder_ < 0) {
      if (waiting_clients_ == 0) return;
      for (unsigned slot = 0; slot < kMaxContexts && holder_ < 0; ++slot) {
        Client& client = clients_[slot];
        if (!client.waiting || !gpu_.try_acquire(slot, out_of_turn)) continue;
        client.waiting = false;
        --waiting_clients_;
        holder_ = static_cast<int>(slot);
        turn_used_ = false;
      }
      if (holder_ < 0) {
        if (!acquiring_) work_.notify_one();  // somebody has to stand in the queue
        return;
      }
    }
    const unsigned slot = static_cast<unsigned>(holder_);
    Client& client = clients_[slot];
    while (!client.ready.empty() && active_.size() < kMaxActiveGrids &&
           (!turn_used_ || !gpu_.others_waiting(slot))) {
      active_.push_back(std::move(client.ready.front()));
      client.ready.pop_front();
      turn_used_ = true;
      wake(active_.back()->total);
    }
    if (!active_.empty()) return;
    // Back in line before it leaves: otherwise the next one could think that nobody waits.
    if (!client.ready.empty()) {
      client.waiting = true;
      ++waiting_clients_;
      gpu_.request(slot);
    }
    gpu_.release(slot);
    holder_ = -1;
  }
}

// Stands in the GPU's queue for all of this process's contexts until one has its turn.
void Engine::wait_for_turn(std::unique_lock<std::mutex>& lock) {
  acquiring_ = true;
  unsigned misses = 0;
  while (!stop_ && holder_ < 0 && waiting_clients_ != 0) {
    const uint32_t seen = gpu_.bell();
    advance(misses >= kMissesBeforeOvertaking);
    if (holder_ >= 0) break;
    lock.unlock();
    const bool rang = gpu_.wait_bell(seen, kLivenessCheck);
    if (!rang) gpu_.eject_dead();
    misses = !rang && gpu_.engine_free() ? misses + 1 : 0;
    lock.lock();
    // An owner of a reused slot may have lost its mark to somebody's cleaning: stand there again.
    for (unsigned slot = 0; slot < kMaxContexts; ++slot) {
      if (clients_[slot].waiting) gpu_.request(slot);
    }
  }
  acquiring_ = false;
}

// Gives the SM one more block if the first grid that has blocks left fits, and if no other SM has
// fewer: so a small grid spreads over the SMs, as on hardware, even where their threads have yet to
// wake up.
bool Engine::fill(Sm& sm) {
  const uint32_t count = residents_[sm.place.smid];
  if (count == limits_.blocks || count > *std::min_element(residents_.begin(), residents_.end()))
    return false;
  for (const std::shared_ptr<Grid>& grid : active_) {
    if (grid->next == grid->total || grid->abandoned) continue;
    const BlockNeeds& needs = grid->needs;
    if (sm.used.threads + needs.threads > limits_.threads ||
        sm.used.registers + needs.registers > limits_.registers ||
        sm.used.shared_bytes + needs.shared_bytes > limits_.shared_bytes) {
      return false;
    }
    auto resident = std::find_if(sm.residents.begin(), sm.residents.end(),
                                 [](const Resident& r) { return r.grid == nullptr; });
    resident->grid = grid;
    resident->index = grid->next++;
    resident->begun = false;
    ++grid->resident;
    ++residents_[sm.place.smid];
    sm.used.threads += needs.threads;
    sm.used.registers += needs.registers;
    sm.used.shared_bytes += needs.shared_bytes;
    return true;
  }
  return false;
}

void Engine::end_block(std::unique_lock<std::mutex>& lock, Sm& sm, Resident& resident) {
  const std::shared_ptr<Grid> grid = std::move(resident.grid);
  resident.grid = nullptr;
  resident.block = nullptr;
  --residents_[sm.place.smid];
  sm.used.threads -= grid->needs.threads;
  sm.used.registers -= grid->needs.registers;
  sm.used.shared_bytes -= grid->needs.shared_bytes;
  if (--grid->resident != 0 || (grid->next != grid->total && !grid->abandoned)) return;
  const auto active = std::find(active_.begin(), active_.end(), grid);
  if (active == active_.end()) return;  // stopped
  active_.erase(active);
  gpu_.count_kernel(grid->slot);
  // Somebody who waits gets the GPU at once; otherwise it is kept for what on_done will submit.
  if (active_.empty() && gpu_.others_waiting(grid->slot)) advance();
  lock.unlock();
  grid->on_done(grid->fault);
  grid->on_done = nullptr;
  lock.lock();
  if (!stop_) advance();
}

// Starts the resident's block; false: it cannot be made, and the grid is given up.
bool Engine::begin(const Sm& sm, Resident& resident) {
  Grid& grid = *resident.grid;
  if (!resident.block) {
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
    resident.block = *std::move(block);
  }
  resident.block->start(block_at(resident.index, grid.shape.grid), sm.place);
  resident.begun = true;
  resident.waiting = false;
  return true;
}

void Engine::run_slice(Sm& sm, Resident& resident) {
  uint64_t budget = kSliceSteps;
  for (;;) {
    Grid& grid = *resident.grid;
    bool over = grid.abandoned || (!resident.begun && !begin(sm, resident));
    if (!over) {
      const exec::RunResult result = resident.block->run(budget);
      resident.waiting = result.state == exec::RunState::kYielded && result.waiting;
      if (result.state == exec::RunState::kYielded) return;
      budget -= std::min(budget, std::max<uint64_t>(result.steps, 1));
      over = result.state == exec::RunState::kFault;
    }
    std::unique_lock lock(mutex_);
    if (over && !grid.abandoned) {
      grid.fault = resident.block->fault();
      grid.abandoned = true;
    }
    // The next block of the same grid takes the place of this one.
    if (!over && !grid.abandoned && grid.next != grid.total && !stop_) {
      resident.index = grid.next++;
      resident.begun = false;
      if (budget == 0) return;
      continue;
    }
    end_block(lock, sm, resident);
    return;
  }
}

void Engine::thread_main(unsigned index) {
  std::vector<Sm> sms;
  for (uint32_t smid = index; smid < sms_; smid += thread_count_) {
    Sm sm;
    sm.place = {smid, sms_};
    sm.residents.resize(limits_.blocks);
    sms.push_back(std::move(sm));
  }
  useconds_t pause_us = kShortestPause_us;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    bool started = false, resident = false;
    for (Sm& sm : sms) {
      started |= fill(sm);
      resident |= residents_[sm.place.smid] != 0;
    }
    if (!resident) {
      if (holder_ < 0 && waiting_clients_ != 0 && !acquiring_) {
        wait_for_turn(lock);
      } else {
        work_.wait(lock);
      }
      continue;
    }
    lock.unlock();
    bool only_polling = !started;
    for (Sm& sm : sms) {
      for (Resident& r : sm.residents) {
        if (r.grid == nullptr) continue;
        run_slice(sm, r);
        only_polling &= r.grid != nullptr && r.waiting;
      }
    }
    if (only_polling) {
      ::usleep(pause_us);
      pause_us = std::min(2 * pause_us, kLongestPause_us);
    } else {
      pause_us = kShortestPause_us;
    }
    lock.lock();
  }
}

void Engine::stop() {
  std::unique_lock lock(mutex_);
  if (stop_) return;
  stop_ = true;
  for (const std::shared_ptr<Grid>& grid : active_) grid->abandoned = true;
  active_.clear();
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
  for (unsigned slot = 0; slot < kMaxContexts; ++slot) {
    if (clients_[slot].waiting) gpu_.withdraw(slot);
    clients_[slot] = {};
  }
  if (holder_ >= 0) gpu_.release(static_cast<unsigned>(holder_));
  holder_ = -1;
}

}  // namespace sluice::softgpu
