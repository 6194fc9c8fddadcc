// SPDX-License-Identifier: Apache-2.0
// The GPU file's making, slots, liveness and memory. Queue and switches: shared_queue.cc; claims on
// SMs: shared_claims.cc; faults: shared_faults.cc.
#include "mediator/softgpu/shared/shared_gpu.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <vector>

#include "mediator/base/clock.h"

namespace sluice::softgpu {
namespace {

int lock_command(int fd, int command, short type, off_t byte, struct flock* answer = nullptr) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  int r;
  do {
    r = ::fcntl(fd, command, &lock);
  } while (r != 0 && errno == EINTR);
  if (answer != nullptr) *answer = lock;
  return r;
}

// The row that says: a graphics engine, runlist at kRunlistBase (word 2, bits 25:10, KiB).
void write_device_row(std::byte* registers) {
  const uint32_t row[3] = {0x8000'0000u, 0x8000'0000u, kRunlistBase};
  std::memcpy(registers + SLUICE_REG_PTOP_DEVICE_INFO2, row, sizeof row);
}

bool sound(const sluice_soft_info& i) {
  return i.version == SLUICE_SOFT_VERSION && i.sms != 0 && i.sms <= kMaxSms &&
         i.blocks_per_sm != 0 && i.blocks_per_sm <= kMaxBlocksPerSm && i.memory_bytes != 0 &&
         i.memory_bytes <= kMaxMemoryBytes && i.model < gpu_models().size() &&
         i.mode <= SLUICE_SOFT_MPS && i.preemption <= SLUICE_SOFT_DRAIN &&
         i.switch_fixed_ns <= kMaxSwitchNs && i.stall_ms >= kMinStallMs &&
         i.stall_ms <= kMaxStallMs && i.timeslice_us >= kMinTimesliceUs &&
         i.timeslice_us <= kMaxTimesliceUs && i.sm_group <= i.sms &&
         i.fault_stall_us <= kMaxFaultStallUs && i.exception_stall_us <= kMaxFaultStallUs;
}

}  // namespace

Result<std::unique_ptr<SharedGpu>> SharedGpu::open(const Config& config) {
  std::unique_ptr<SharedGpu> gpu(new SharedGpu);
  const bool shared = !config.gpu_file.empty();
  const std::string name = shared ? config.gpu_file : "private software GPU";
  gpu->thread_percentage_ = config.thread_percentage;
  gpu->shared_ = shared;
  gpu->pid_ = config.pid;
  gpu->fd_ =
      Fd(config.gpu_fd >= 0 ? config.gpu_fd
         : shared ? ::open(config.gpu_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0664)
                  : ::memfd_create("sluice-softgpu", MFD_CLOEXEC));
  if (!gpu->fd_) return Error::from_errno(name);

  // Initialising and checking are one critical section, so a second process never sees half a file.
  gpu->lock_wait(kInitLock);
  if (auto r = gpu->initialise(config, name); !r) return r.error();
  gpu->unlock(kInitLock);

  for (unsigned i = 0;; ++i) {
    if (i == kMaxProcesses) return Error{0, name + ": too many processes"};
    if (gpu->try_lock(kProcessLocks + i)) {
      gpu->process_ = i;
      break;
    }
  }
  gpu->drop_claims();  // of a dead one that had this slot
  return gpu;
}

Result<void> SharedGpu::initialise(const Config& config, const std::string& name) {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) return Error::from_errno(name);
  if (!S_ISREG(status.st_mode)) return Error{0, name + ": not a regular file"};
  if (status.st_size == 0 && ::ftruncate(fd_.get(), kGpuFileBytes) != 0)
    return Error::from_errno(name);
  if (status.st_size != 0 && status.st_size != off_t{kGpuFileBytes})
    return Error{0, name + ": not a GPU file of this version"};
  void* p = ::mmap(nullptr, kGpuFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (p == MAP_FAILED) return Error::from_errno(name);
  mapping_ = static_cast<std::byte*>(p);
  auto* info = reinterpret_cast<sluice_soft_info*>(mapping_ + SLUICE_SOFT_INFO_OFFSET);
  state_ = reinterpret_cast<GpuState*>(mapping_ + SLUICE_SOFT_STATE_OFFSET);
  // Zero magic: new, or its creator died in the middle. Either way nobody uses it yet.
  if (word(info->magic).load() == 0) {
    if (status.st_size != 0) std::memset(p, 0, kGpuFileBytes);  // a new one is zero, and sparse
    info->version = SLUICE_SOFT_VERSION;
    info->mode = config.mode;
    info->preemption = config.preemption;
    info->sms = config.sms;
    info->model = config.model;
    info->blocks_per_sm = config.blocks_per_sm;
    info->memory_bytes = config.memory_bytes;
    info->switch_fixed_ns = config.switch_fixed_ns;
    info->switch_bytes_per_second = config.switch_bytes_per_second;
    info->timeslice_us = config.timeslice_us;
    info->stall_ms = config.stall_ms;
    info->sm_group = config.sm_group;
    info->fault_stall_us = config.fault_stall_us;
    info->exception_stall_us = config.exception_stall_us;
    write_device_row(mapping_);
    word(info->magic).store(SLUICE_SOFT_MAGIC);
  }
  const bool ours = word(info->magic).load() == SLUICE_SOFT_MAGIC;
  std::memcpy(&info_, info, sizeof info_);
  if (!ours || !sound(info_)) return Error{0, name + ": not a GPU file of this version"};
  return {};
}

SharedGpu::~SharedGpu() {
  if (mapping_ == nullptr) return;
  if (process_ != kMaxProcesses) drop_claims();
  ::munmap(mapping_, kGpuFileBytes);
}

uint64_t SharedGpu::transfer_ns(uint64_t bytes) const {
  const uint64_t per_second = info_.switch_bytes_per_second;
  return per_second == 0 ? 0
                         : static_cast<uint64_t>(static_cast<double>(bytes) * 1e9 /
                                                 static_cast<double>(per_second));
}

bool SharedGpu::try_lock(off_t byte) {
  return lock_command(fd_.get(), F_OFD_SETLK, F_WRLCK, byte) == 0;
}
void SharedGpu::lock_wait(off_t byte) { lock_command(fd_.get(), F_OFD_SETLKW, F_WRLCK, byte); }
void SharedGpu::unlock(off_t byte) { lock_command(fd_.get(), F_OFD_SETLK, F_UNLCK, byte); }

bool SharedGpu::is_locked_by_others(off_t byte) const {
  struct flock answer {};
  // On error say yes: taking somebody alive for dead would be worse than waiting.
  return lock_command(fd_.get(), F_OFD_GETLK, F_WRLCK, byte, &answer) != 0 ||
         answer.l_type != F_UNLCK;
}

bool SharedGpu::is_alive(unsigned slot) const {
  return (own_slots_.load() >> slot & 1) != 0 || is_locked_by_others(kContextLocks + slot);
}
bool SharedGpu::is_process_alive(unsigned process) const {
  return process == process_ || is_locked_by_others(kProcessLocks + process);
}

sluice_soft_channel& SharedGpu::channel(unsigned slot) const {
  return *reinterpret_cast<sluice_soft_channel*>(mapping_ + SLUICE_SOFT_CHANNELS_OFFSET +
                                                 size_t{slot} * SLUICE_SOFT_CHANNEL_BYTES);
}
std::atomic<uint32_t>& SharedGpu::status0() const {
  return *reinterpret_cast<std::atomic<uint32_t>*>(mapping_ +
                                                   SLUICE_REG_ENGINE_STATUS0(kRunlistBase, 0));
}
std::atomic<uint32_t>& SharedGpu::attention_of(unsigned process) const {
  return reinterpret_cast<std::atomic<uint32_t>*>(
      mapping_ + SLUICE_SOFT_ATTENTION_OFFSET)[process % kMaxProcesses];
}

Result<unsigned> SharedGpu::join() {
  for (unsigned slot = 0; slot < kMaxContexts; ++slot) {
    // A lock of our own would be granted again, so our own slots are known from own_slots_.
    const uint64_t bit = uint64_t{1} << slot;
    if ((own_slots_.load() & bit) != 0 || !try_lock(kContextLocks + slot)) continue;
    if ((own_slots_.fetch_or(bit) & bit) != 0) continue;  // another thread's, just now
    // What a dead owner has left.
    if (const uint64_t stale = holder_word(slot); state_->holder.load() == stale)
      eject_holder(stale);
    state_->queue[slot].ticket.store(0);
    state_->waiting.fetch_and(~bit);
    state_->running.fetch_and(~bit);
    faulted_.fetch_and(~bit);
    sluice_soft_channel& c = channel(slot);
    const uint32_t generation = word(c.generation).load() + 1;
    sluice_soft_channel fresh{};
    fresh.generation = generation;
    fresh.process = process_;
    fresh.pid = pid_ ? pid_ : static_cast<uint32_t>(::getpid());
    fresh.timeslice_us = info_.timeslice_us;
    uint64_t words[sizeof fresh / 8];
    static_assert(sizeof fresh % 8 == 0);
    std::memcpy(words, &fresh, sizeof words);
    for (size_t i = 0; i < std::size(words); ++i)
      word(reinterpret_cast<uint64_t*>(&c)[i]).store(words[i]);
    if (is_mps() && thread_percentage_ < 100) choose_sms(slot);
    return slot;
  }
  return Error{0, "the software GPU has " + std::to_string(kMaxContexts) + " contexts, all in use"};
}

// As many SMs as the percentage says, those first that the fewest others were given.
void SharedGpu::choose_sms(unsigned slot) {
  std::lock_guard guard(memory_mutex_);
  lock_wait(kMemoryLock);
  std::vector<std::pair<uint32_t, uint32_t>> uses;  // how often given, SM
  for (uint32_t sm = 0; sm < sms(); ++sm) {
    uint32_t given = 0;
    for (unsigned other = 0; other < kMaxContexts; ++other) {
      if (other == slot || (word(channel(other).sm_set[sm / 64]).load() >> sm % 64 & 1) == 0)
        continue;
      given += is_alive(other);
    }
    uses.emplace_back(given, sm);
  }
  std::stable_sort(uses.begin(), uses.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  const uint32_t count = std::max(1u, (sms() * thread_percentage_ + 99) / 100);
  uint64_t set[kSmWords] = {};
  for (uint32_t i = 0; i < count; ++i)
    set[uses[i].second / 64] |= uint64_t{1} << uses[i].second % 64;
  for (unsigned i = 0; i < kSmWords; ++i) word(channel(slot).sm_set[i]).store(set[i]);
  word(channel(slot).sm_sequence).fetch_add(1);
  unlock(kMemoryLock);
}

bool SharedGpu::may_use(unsigned slot, uint32_t sm) const {
  sluice_soft_channel& c = channel(slot);
  if ((word(c.sm_set[sm / 64]).load(std::memory_order_relaxed) >> sm % 64 & 1) != 0) return true;
  // None given, or none that this GPU has: all.
  for (uint32_t i = 0; i * 64 < sms(); ++i) {
    uint64_t there = word(c.sm_set[i]).load(std::memory_order_relaxed);
    if (sms() - i * 64 < 64) there &= (uint64_t{1} << (sms() - i * 64)) - 1;
    if (there != 0) return false;
  }
  return true;
}

void SharedGpu::leave(unsigned slot) {
  withdraw(slot);
  sluice_soft_channel& c = channel(slot);
  word(c.memory_bytes).store(0);
  for (uint64_t& set : c.sm_set) word(set).store(0);
  // A context that is gone is not on the engine, not even idle.
  uint64_t mine = holder_word(slot);
  if (state_->resident.compare_exchange_strong(mine, 0)) {
    log_switch(SLUICE_SWITCH_END, tsgid(slot), word(c.pid).load());
    if (SLUICE_STATUS0_TSGID(status0().load()) == tsgid(slot))
      status0().store(SLUICE_STATUS0(0, SLUICE_CTX_INVALID, 0, 0));
  }
  // First the lock, then the mark: in between nobody in this process takes the slot.
  unlock(kContextLocks + slot);
  own_slots_.fetch_and(~(uint64_t{1} << slot));
}

uint64_t SharedGpu::memory_in_use() {
  uint64_t sum = 0;
  for (unsigned i = 0; i < kMaxContexts; ++i) sum += word(channel(i).memory_bytes).load();
  return sum;
}

bool SharedGpu::reserve_memory(unsigned slot, uint64_t bytes) {
  if (bytes > memory_bytes()) return false;
  std::lock_guard guard(memory_mutex_);
  lock_wait(kMemoryLock);
  uint64_t used = memory_in_use();
  if (used + bytes > memory_bytes()) {
    for (unsigned i = 0; i < kMaxContexts; ++i) {
      if (word(channel(i).memory_bytes).load() != 0 && !is_alive(i))
        word(channel(i).memory_bytes).store(0);
    }
    used = memory_in_use();
  }
  const bool fits = used + bytes <= memory_bytes();
  if (fits) word(channel(slot).memory_bytes).fetch_add(bytes);
  unlock(kMemoryLock);
  return fits;
}

void SharedGpu::release_memory(unsigned slot, uint64_t bytes) {
  // Never below zero: the slot may have been given back, which has cleared it, a moment ago.
  const auto charged = word(channel(slot).memory_bytes);
  uint64_t now = charged.load();
  while (!charged.compare_exchange_weak(now, now - std::min(now, bytes))) {
  }
}

uint64_t SharedGpu::free_memory() {
  uint64_t used = 0;
  for (unsigned i = 0; i < kMaxContexts; ++i) {
    const uint64_t bytes = word(channel(i).memory_bytes).load();
    if (bytes != 0 && is_alive(i)) used += bytes;
  }
  return used < memory_bytes() ? memory_bytes() - used : 0;
}

void SharedGpu::ring(unsigned process) {
  if (process >= kMaxProcesses) return;
  std::atomic<uint32_t>& bell = state_->processes[process].bell;
  bell.fetch_add(1);
  ::syscall(SYS_futex, &bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool SharedGpu::wait_bell(uint32_t seen, std::chrono::nanoseconds timeout) {
  timespec ts{};
  ts.tv_sec = timeout.count() / 1'000'000'000;
  ts.tv_nsec = timeout.count() % 1'000'000'000;
  const long r =
      ::syscall(SYS_futex, &state_->processes[process_].bell, FUTEX_WAIT, seen, &ts, nullptr, 0);
  return !(r != 0 && errno == ETIMEDOUT);
}

// Whether a process's beat has been the same for stall_ms, all the while it held the same. Under
// watch_mutex_.
bool SharedGpu::stands_still(unsigned process, uint64_t holding) {
  if (process >= kMaxProcesses || process == process_) return false;
  Watched& w = watched_[process];
  const uint64_t beat = state_->processes[process].beat.load(), now = monotonic_ns();
  if (w.beat == beat && w.holding == holding && w.since_ns != 0)
    return now - w.since_ns >= uint64_t{info_.stall_ms} * 1'000'000;
  w = {beat, holding, now};
  return false;
}

void SharedGpu::eject_holder(uint64_t holder) {
  const unsigned slot = static_cast<unsigned>(holder & 0xffff'ffff) - 1;
  if (!state_->holder.compare_exchange_strong(holder, 0)) return;
  uint64_t resident = holder;
  if (state_->resident.compare_exchange_strong(resident, 0) && slot < kMaxContexts)
    log_switch(SLUICE_SWITCH_END, tsgid(slot), word(channel(slot).pid).load());
  status0().store(SLUICE_STATUS0(0, SLUICE_CTX_INVALID, 0, 0));
  if (slot < kMaxContexts) word(channel(slot).ejected).fetch_add(1);
  if (const unsigned next = next_in_line(kMaxContexts); next != kMaxContexts)
    ring(word(channel(next).process).load());
}

void SharedGpu::eject_absent() {
  std::lock_guard guard(watch_mutex_);
  const uint64_t holder = state_->holder.load();
  if (holder != 0) {
    // A holder that is out of range, of an earlier owner of its slot, dead or stopped, is no
    // holder.
    const unsigned slot = static_cast<unsigned>(holder & 0xffff'ffff) - 1;
    if (slot >= kMaxContexts || holder != holder_word(slot) || !is_alive(slot) ||
        stands_still(word(channel(slot).process).load(), holder)) {
      eject_holder(holder);
    }
  }
  for (uint64_t set = state_->waiting.load(); set != 0; set &= set - 1) {
    const auto i = static_cast<unsigned>(__builtin_ctzll(set));
    uint64_t ticket = state_->queue[i].ticket.load();
    if (is_alive(i)) continue;
    if (ticket != 0) state_->queue[i].ticket.compare_exchange_strong(ticket, 0);
    // If the slot has got a new owner just now, that owner sets its bit again when it next waits.
    state_->waiting.fetch_and(~(uint64_t{1} << i));
  }
  if (!is_mps()) return;
  for (unsigned p = 0; p < kMaxProcesses; ++p) {
    if (p == process_) continue;
    bool has_some = (state_->starved.load() >> p & 1) != 0;
    for (uint32_t sm = 0; sm < sms() && !has_some; ++sm)
      has_some = state_->claims[p][sm].load() != 0 || state_->gathering[sm].load() == p + 1;
    if (!has_some) continue;
    if (!is_process_alive(p) || stands_still(p, state_->processes[p].epoch.load())) eject_claims(p);
  }
  for (uint64_t set = state_->running.load(); set != 0; set &= set - 1) {
    const auto i = static_cast<unsigned>(__builtin_ctzll(set));
    if (is_alive(i)) continue;
    state_->running.fetch_and(~(uint64_t{1} << i));
    show_beside();
  }
}

}  // namespace sluice::softgpu
