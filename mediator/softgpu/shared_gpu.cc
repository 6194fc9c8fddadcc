#include "mediator/softgpu/shared_gpu.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <cstring>
#include <new>

#include "mediator/base/clock.h"

namespace sluice::softgpu {
namespace {

uint64_t holder_word(const GpuState& state, unsigned slot) {
  return (uint64_t{state.contexts[slot].generation.load()} << 32) | (slot + 1);
}

uint64_t bit(unsigned slot) { return uint64_t{1} << slot; }

// Calls f(slot) for each set bit.
template <class F>
void for_each_slot(uint64_t set, F f) {
  for (; set != 0; set &= set - 1) f(static_cast<unsigned>(std::countr_zero(set)));
}

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

}  // namespace

Result<std::unique_ptr<SharedGpu>> SharedGpu::open(const Config& config) {
  std::unique_ptr<SharedGpu> gpu(new SharedGpu);
  const bool shared = !config.gpu_file.empty();
  const std::string name = shared ? config.gpu_file : "private software GPU";
  gpu->fd_ =
      Fd(shared ? ::open(config.gpu_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0664)
                : ::memfd_create("sluice-softgpu", MFD_CLOEXEC));
  if (!gpu->fd_) return Error::from_errno(name);

  // Initialising and checking are one critical section, so a second process never sees half a file.
  gpu->lock_wait(kInitLock);
  struct stat info {};
  if (::fstat(gpu->fd_.get(), &info) != 0) return Error::from_errno(name);
  if (!S_ISREG(info.st_mode)) return Error{0, name + ": not a regular file"};
  if (info.st_size == 0 && ::ftruncate(gpu->fd_.get(), kGpuFileBytes) != 0)
    return Error::from_errno(name);
  if (info.st_size != 0 && info.st_size != off_t{kGpuFileBytes})
    return Error{0, name + ": not a GPU file"};
  void* p = ::mmap(nullptr, kGpuFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, gpu->fd_.get(), 0);
  if (p == MAP_FAILED) return Error::from_errno(name);
  gpu->mapping_ = p;
  auto* registers = static_cast<std::byte*>(p);
  gpu->state_ = reinterpret_cast<GpuState*>(registers + kStateOffset);
  // Zero magic: new, or its creator died in the middle. Either way nobody uses it yet.
  if (gpu->state_->magic.load() == 0) {
    std::memset(p, 0, kGpuFileBytes);
    gpu->state_->version = kGpuFileVersion;
    gpu->state_->sms = config.sms;
    gpu->state_->blocks_per_sm = config.blocks_per_sm;
    gpu->state_->memory_bytes = config.memory_bytes;
    write_device_row(registers);
    gpu->state_->magic.store(kGpuFileMagic);
  }
  const GpuState& s = *gpu->state_;
  if (s.magic.load() != kGpuFileMagic || s.version != kGpuFileVersion || s.sms == 0 ||
      s.sms > kMaxSms || s.blocks_per_sm == 0 || s.blocks_per_sm > kMaxBlocksPerSm ||
      s.memory_bytes == 0 || s.memory_bytes > kMaxMemoryBytes) {
    return Error{0, name + ": not a GPU file of this version"};
  }
  gpu->unlock(kInitLock);

  for (unsigned i = 0;; ++i) {
    if (i == kMaxProcesses) return Error{0, name + ": too many processes"};
    if (gpu->try_lock(kProcessLocks + i)) {
      gpu->process_ = i;
      break;
    }
  }
  return gpu;
}

SharedGpu::~SharedGpu() {
  if (mapping_ != nullptr) ::munmap(mapping_, kGpuFileBytes);
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
  return (own_slots_.load() & bit(slot)) != 0 || is_locked_by_others(kContextLocks + slot);
}

std::atomic<uint32_t>& SharedGpu::status0() const {
  return *reinterpret_cast<std::atomic<uint32_t>*>(static_cast<std::byte*>(mapping_) +
                                                   SLUICE_REG_ENGINE_STATUS0(kRunlistBase, 0));
}

Result<unsigned> SharedGpu::join() {
  for (unsigned slot = 0; slot < kMaxContexts; ++slot) {
    // A lock of our own would be granted again, so our own slots are known from own_slots_.
    uint64_t own = own_slots_.load();
    if ((own & bit(slot)) != 0 || !try_lock(kContextLocks + slot)) continue;
    if ((own_slots_.fetch_or(bit(slot)) & bit(slot)) != 0) continue;  // another thread's, just now
    ContextSlot& context = state_->contexts[slot];
    uint64_t stale = holder_word(*state_, slot);
    context.ticket.store(0);
    state_->waiting.fetch_and(~bit(slot));
    context.memory_bytes.store(0);
    context.engine_ns.store(0);
    context.kernels.store(0);
    context.process.store(process_);
    context.generation.fetch_add(1);
    if (state_->holder.compare_exchange_strong(stale, 0)) {
      status0().store(SLUICE_STATUS0(0, SLUICE_CTX_INVALID, 0, 0));
    }
    return slot;
  }
  return Error{0, "the software GPU has " + std::to_string(kMaxContexts) + " contexts, all in use"};
}

void SharedGpu::leave(unsigned slot) {
  withdraw(slot);
  state_->contexts[slot].memory_bytes.store(0);
  // A context that is gone is not on the engine, not even idle.
  if (SLUICE_STATUS0_TSGID(status0().load()) == tsgid(slot) && engine_free()) {
    status0().store(SLUICE_STATUS0(0, SLUICE_CTX_INVALID, 0, 0));
  }
  // First the lock, then the mark: in between nobody in this process takes the slot.
  unlock(kContextLocks + slot);
  own_slots_.fetch_and(~bit(slot));
}

uint64_t SharedGpu::memory_in_use() {
  uint64_t sum = 0;
  for (const ContextSlot& context : state_->contexts) sum += context.memory_bytes.load();
  return sum;
}

bool SharedGpu::reserve_memory(unsigned slot, uint64_t bytes) {
  if (bytes > memory_bytes()) return false;
  std::lock_guard guard(memory_mutex_);
  lock_wait(kMemoryLock);
  uint64_t used = memory_in_use();
  if (used + bytes > memory_bytes()) {
    for (unsigned i = 0; i < kMaxContexts; ++i) {
      if (state_->contexts[i].memory_bytes.load() != 0 && !is_alive(i))
        state_->contexts[i].memory_bytes.store(0);
    }
    used = memory_in_use();
  }
  const bool fits = used + bytes <= memory_bytes();
  if (fits) state_->contexts[slot].memory_bytes.fetch_add(bytes);
  unlock(kMemoryLock);
  return fits;
}

void SharedGpu::release_memory(unsigned slot, uint64_t bytes) {
  // Never below zero: the slot may have been given back, which has cleared it, a moment ago.
  std::atomic<uint64_t>& charged = state_->contexts[slot].memory_bytes;
  uint64_t now = charged.load();
  while (!charged.compare_exchange_weak(now, now - std::min(now, bytes))) {
  }
}

uint64_t SharedGpu::free_memory() {
  uint64_t used = 0;
  for (unsigned i = 0; i < kMaxContexts; ++i) {
    const uint64_t bytes = state_->contexts[i].memory_bytes.load();
    if (bytes != 0 && is_alive(i)) used += bytes;
  }
  return used < memory_bytes() ? memory_bytes() - used : 0;
}

void SharedGpu::request(unsigned slot) {
  ContextSlot& context = state_->contexts[slot];
  if (context.ticket.load() == 0) context.ticket.store(state_->next_ticket.fetch_add(1) + 1);
  // Order: ticket before bit, both before the caller looks at `holder`. release() clears `holder`
  // before it looks at `waiting`, so one of the two sees the other.
  state_->waiting.fetch_or(bit(slot));
}

bool SharedGpu::try_acquire(unsigned slot, bool out_of_turn) {
  if (state_->holder.load() != 0) return false;
  ContextSlot& context = state_->contexts[slot];
  if (context.ticket.load() == 0) request(slot);  // somebody has overtaken us: back in line
  const uint64_t mine = context.ticket.load();
  bool first = true;
  for_each_slot(state_->waiting.load() & ~bit(slot), [&](unsigned other) {
    uint64_t ticket = state_->contexts[other].ticket.load();
    if (ticket == 0 || ticket >= mine) return;
    if (!out_of_turn) {
      first = false;
    } else {
      // Who does not come loses its place, or everybody would wait for it again and again.
      state_->contexts[other].ticket.compare_exchange_strong(ticket, 0);
      state_->waiting.fetch_and(~bit(other));
    }
  });
  if (!first) return false;
  uint64_t nobody = 0;
  if (!state_->holder.compare_exchange_strong(nobody, holder_word(*state_, slot))) return false;
  state_->waiting.fetch_and(~bit(slot));
  context.ticket.store(0);
  acquired_ns_[slot] = monotonic_ns();
  const uint32_t before = SLUICE_STATUS0_TSGID(status0().load());
  if (before != 0 && before != tsgid(slot)) {
    status0().store(SLUICE_STATUS0(before, SLUICE_CTX_SWITCH, tsgid(slot), 1));
  }
  status0().store(SLUICE_STATUS0(tsgid(slot), SLUICE_CTX_VALID, 0, 1));
  return true;
}

void SharedGpu::release(unsigned slot) {
  state_->contexts[slot].engine_ns.fetch_add(monotonic_ns() - acquired_ns_[slot],
                                             std::memory_order_relaxed);
  // As on hardware the context stays on the engine, idle, until another takes it.
  status0().store(SLUICE_STATUS0(tsgid(slot), SLUICE_CTX_VALID, 0, 0));
  uint64_t mine = holder_word(*state_, slot);
  state_->holder.compare_exchange_strong(mine, 0);
  unsigned next = kMaxContexts;
  uint64_t smallest = UINT64_MAX;
  for_each_slot(state_->waiting.load(), [&](unsigned other) {
    const uint64_t ticket = state_->contexts[other].ticket.load();
    if (ticket != 0 && ticket < smallest) {
      smallest = ticket;
      next = other;
    }
  });
  if (next != kMaxContexts) ring(state_->contexts[next].process.load());
}

void SharedGpu::withdraw(unsigned slot) {
  state_->waiting.fetch_and(~bit(slot));
  state_->contexts[slot].ticket.store(0);
}

bool SharedGpu::others_waiting(unsigned slot) const {
  return (state_->waiting.load() & ~bit(slot)) != 0;
}

void SharedGpu::ring(unsigned process) {
  if (process >= kMaxProcesses) return;
  std::atomic<uint32_t>& word = state_->bells[process].word;
  word.fetch_add(1);
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void SharedGpu::ring_self() { ring(process_); }

bool SharedGpu::wait_bell(uint32_t seen, std::chrono::milliseconds timeout) {
  timespec ts{};
  ts.tv_sec = timeout.count() / 1000;
  ts.tv_nsec = timeout.count() % 1000 * 1'000'000;
  const long r = ::syscall(SYS_futex, &my_bell(), FUTEX_WAIT, seen, &ts, nullptr, 0);
  return !(r != 0 && errno == ETIMEDOUT);
}

void SharedGpu::eject_dead() {
  uint64_t holder = state_->holder.load();
  const unsigned slot = static_cast<unsigned>(holder & 0xffff'ffff) - 1;
  if (holder != 0) {
    // A holder that is out of range, of an earlier owner of its slot, or dead, is no holder.
    if (slot >= kMaxContexts || holder != holder_word(*state_, slot) || !is_alive(slot)) {
      if (state_->holder.compare_exchange_strong(holder, 0)) {
        status0().store(SLUICE_STATUS0(0, SLUICE_CTX_INVALID, 0, 0));
      }
    }
  }
  for_each_slot(state_->waiting.load(), [&](unsigned i) {
    ContextSlot& context = state_->contexts[i];
    uint64_t ticket = context.ticket.load();
    if (is_alive(i)) return;
    if (ticket != 0) context.ticket.compare_exchange_strong(ticket, 0);
    // If the slot has got a new owner just now, that owner sets its bit again when it next waits.
    state_->waiting.fetch_and(~bit(i));
  });
}

}  // namespace sluice::softgpu
