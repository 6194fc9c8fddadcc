// SPDX-License-Identifier: Apache-2.0
#include "mediator/gpu/soft_gpu.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "mediator/base/fd.h"

namespace sluice::gpu {
namespace {

template <class T>
T load(const T& field) {
  T value;
  __atomic_load(&field, &value, __ATOMIC_ACQUIRE);
  return value;
}

}  // namespace

Result<std::unique_ptr<SoftGpu>> SoftGpu::open(const std::string& path, bool control) {
  Fd fd(::open(path.c_str(), (control ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return Error::from_errno(path);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return Error::from_errno(path);
  if (status.st_size < off_t{SLUICE_SOFT_STATE_OFFSET})
    return Error{0, path + ": not a software GPU's file"};
  std::unique_ptr<SoftGpu> gpu(new SoftGpu);
  gpu->bytes_ = SLUICE_SOFT_STATE_OFFSET;
  gpu->control_ = control;
  void* p =
      ::mmap(nullptr, gpu->bytes_, PROT_READ | (control ? PROT_WRITE : 0), MAP_SHARED, fd.get(), 0);
  if (p == MAP_FAILED) return Error::from_errno("mapping " + path);
  gpu->mapping_ = static_cast<std::byte*>(p);
  gpu->guard_ = BusGuard(p, gpu->bytes_);
  const auto* info = reinterpret_cast<sluice_soft_info*>(gpu->mapping_ + SLUICE_SOFT_INFO_OFFSET);
  if (load(info->magic) != SLUICE_SOFT_MAGIC || info->version != SLUICE_SOFT_VERSION)
    return Error{0, path + ": not a software GPU's file of this version"};
  gpu->info_ = *info;
  const auto* log = reinterpret_cast<sluice_switch_log*>(gpu->mapping_ + SLUICE_SOFT_LOG_OFFSET);
  gpu->next_ = load(log->put);
  return gpu;
}

bool SoftGpu::intact() const {
  const auto* info = reinterpret_cast<const sluice_soft_info*>(mapping_ + SLUICE_SOFT_INFO_OFFSET);
  return load(info->magic) == SLUICE_SOFT_MAGIC && load(info->mode) == info_.mode && !guard_.lost();
}

SoftGpu::~SoftGpu() {
  guard_ = BusGuard();
  if (mapping_ != nullptr) ::munmap(mapping_, bytes_);
}

sluice_soft_channel SoftGpu::channel(uint32_t tsgid) const {
  sluice_soft_channel copy{};
  if (tsgid - 1 >= SLUICE_SOFT_CHANNELS) return copy;
  const auto* words = reinterpret_cast<const uint64_t*>(
      mapping_ + SLUICE_SOFT_CHANNELS_OFFSET + size_t{tsgid - 1} * SLUICE_SOFT_CHANNEL_BYTES);
  uint64_t read[sizeof copy / 8];
  for (size_t i = 0; i < std::size(read); ++i) read[i] = load(words[i]);
  std::memcpy(&copy, read, sizeof copy);
  return copy;
}

uint64_t SoftGpu::read_log(std::vector<SwitchRecord>& records) {
  const auto* log = reinterpret_cast<const sluice_switch_log*>(mapping_ + SLUICE_SOFT_LOG_OFFSET);
  const auto* ring = reinterpret_cast<const std::byte*>(log) + SLUICE_SWITCH_LOG_RECORDS_AT;
  const uint64_t put = load(log->put);
  const uint64_t lost_before = lost_;
  if (put < next_) next_ = put;  // made anew
  pending_ = false;
  for (; next_ != put;) {
    if (put - next_ > SLUICE_SOFT_LOG_RECORDS) {
      lost_ += put - SLUICE_SOFT_LOG_RECORDS - next_;
      next_ = put - SLUICE_SOFT_LOG_RECORDS;
    }
    const auto* words = reinterpret_cast<const uint64_t*>(ring + next_ % SLUICE_SOFT_LOG_RECORDS *
                                                                     sizeof(sluice_switch_record));
    const uint64_t head = load(words[1]), pid = load(words[2]), time_ns = load(words[3]);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (load(log->put) - next_ > SLUICE_SOFT_LOG_RECORDS) {
      ++lost_;  // overwritten while it was read
      ++next_;
      continue;
    }
    const uint32_t seq = static_cast<uint32_t>(head >> 16 & 0xffff);
    if (seq != ((next_ + 1) & 0xffff)) {
      // Begun and not there. If it is the same at the next call it will never come, unless all that
      // follow are as young.
      if (missing_ != next_ + 1) {
        missing_ = next_ + 1;
        pending_ = true;
        break;
      }
      ++lost_;
      ++next_;
      continue;
    }
    SwitchRecord r;
    r.time_ns = time_ns;
    r.seq = seq;
    r.tsgid = static_cast<uint32_t>(head >> 32);
    r.pid = static_cast<uint32_t>(pid);
    r.start = (head & 0xff) == SLUICE_SWITCH_START;
    records.push_back(r);
    ++next_;
  }
  return lost_ - lost_before;
}

uint64_t SoftGpu::fault_stall_ns(uint32_t pid, uint64_t since_ns) const {
  const auto* faults =
      reinterpret_cast<const sluice_soft_faults*>(mapping_ + SLUICE_SOFT_FAULTS_OFFSET);
  const uint64_t longest =
      uint64_t{std::max(info_.fault_stall_us, info_.exception_stall_us)} * 1000;
  uint64_t sum = 0;
  for (const sluice_soft_fault& record : faults->records) {
    const uint64_t number = load(record.number), time_ns = load(record.time_ns),
                   stall_ns = load(record.stall_ns);
    const bool ours = load(record.pid) == pid && time_ns >= since_ns;
    if (number != 0 && number == load(record.number) && ours) sum += std::min(stall_ns, longest);
  }
  return sum;
}

sluice_soft_channel* SoftGpu::control_of(uint32_t tsgid) {
  if (!control_ || tsgid - 1 >= SLUICE_SOFT_CHANNELS) return nullptr;
  return reinterpret_cast<sluice_soft_channel*>(mapping_ + SLUICE_SOFT_CHANNELS_OFFSET +
                                                size_t{tsgid - 1} * SLUICE_SOFT_CHANNEL_BYTES);
}

void SoftGpu::call_attention(const sluice_soft_channel& channel) {
  const uint32_t process = load(channel.process) % SLUICE_SOFT_PROCESSES;
  __atomic_fetch_add(reinterpret_cast<uint32_t*>(mapping_ + SLUICE_SOFT_ATTENTION_OFFSET) + process,
                     1, __ATOMIC_SEQ_CST);
}

void SoftGpu::set_timeslice(uint32_t tsgid, uint32_t us) {
  if (sluice_soft_channel* c = control_of(tsgid))
    __atomic_store_n(&c->timeslice_us, us, __ATOMIC_SEQ_CST);
}

void SoftGpu::set_sms(uint32_t tsgid, const uint64_t (&set)[SLUICE_SOFT_MAX_SMS / 64]) {
  sluice_soft_channel* c = control_of(tsgid);
  if (c == nullptr) return;
  for (size_t i = 0; i < std::size(set); ++i)
    __atomic_store_n(&c->sm_set[i], set[i], __ATOMIC_SEQ_CST);
  __atomic_fetch_add(&c->sm_sequence, 1, __ATOMIC_SEQ_CST);
  call_attention(*c);
}

std::array<uint64_t, SLUICE_SOFT_MAX_SMS / 64> SoftGpu::take_sms_used(uint32_t tsgid) {
  std::array<uint64_t, SLUICE_SOFT_MAX_SMS / 64> used{};
  sluice_soft_channel* c = control_of(tsgid);
  if (c == nullptr) return used;
  for (size_t i = 0; i < used.size(); ++i)
    used[i] = __atomic_exchange_n(&c->sms_used[i], uint64_t{0}, __ATOMIC_SEQ_CST);
  return used;
}

void SoftGpu::preempt(uint32_t tsgid) {
  sluice_soft_channel* c = control_of(tsgid);
  if (c == nullptr) return;
  __atomic_fetch_add(&c->preempt, 1, __ATOMIC_SEQ_CST);
  call_attention(*c);
}

}  // namespace sluice::gpu
