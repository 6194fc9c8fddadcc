// SPDX-License-Identifier: Apache-2.0
// The GPU file's faults: a kernel of one context stops every channel, as on a GPU whose contexts
// are apart (docs/operating/software-gpu.md has the figures). Who faults, when and for how long
// stands in a ring that sluiced reads (abi/soft_gpu.h).
#include <algorithm>

#include "mediator/base/clock.h"
#include "mediator/softgpu/shared/shared_gpu.h"

namespace sluice::softgpu {
namespace {

// What is in the file may be anything; a GPU never stands still for longer than a few faults take.
constexpr uint64_t kLongestStall_ns = uint64_t{kMaxFaultStallUs} * 1000;

// Which of the two figures, measured for an unmapped and for a misaligned address, a fault counts
// as. The others were not measured: what an SM reports counts as a misaligned address.
uint32_t stall_us(const sluice_soft_info& info, exec::FaultKind kind) {
  using exec::FaultKind;
  switch (kind) {
    case FaultKind::kOutOfBounds:
    case FaultKind::kReadOnly:
      return info.fault_stall_us;
    case FaultKind::kMisaligned:
    case FaultKind::kLocalBounds:
    case FaultKind::kSharedBounds:
    case FaultKind::kNoBlock:
    case FaultKind::kOthersShared:
    case FaultKind::kStackOverflow:
    case FaultKind::kWrongSpace:
    case FaultKind::kBadBarrier:
    case FaultKind::kBadRegisters:
    case FaultKind::kBadTensorMap:
    case FaultKind::kBadCall:
      return info.exception_stall_us;
    default:  // the kernel ends itself: trap, assert
      return 0;
  }
}

}  // namespace

void SharedGpu::stop_for(unsigned slot, exec::FaultKind kind) {
  const uint64_t stall_ns = uint64_t{stall_us(info_, kind)} * 1000;
  if (!shared_ || is_mps() || stall_ns == 0) return;
  // What else the context has is lost with it: its other kernels' faults are no faults any more.
  if ((faulted_.fetch_or(uint64_t{1} << slot) >> slot & 1) != 0) return;
  const uint64_t now = monotonic_ns();
  stand_still(stall_ns);
  auto* faults = reinterpret_cast<sluice_soft_faults*>(mapping_ + SLUICE_SOFT_FAULTS_OFFSET);
  const uint64_t number = word(faults->put).fetch_add(1);
  sluice_soft_fault& record = faults->records[number % SLUICE_SOFT_FAULT_RECORDS];
  word(record.number).store(0, std::memory_order_release);
  word(record.time_ns).store(now, std::memory_order_relaxed);
  word(record.stall_ns).store(stall_ns, std::memory_order_relaxed);
  word(record.pid).store(word(channel(slot).pid).load(), std::memory_order_relaxed);
  word(record.tsgid).store(tsgid(slot), std::memory_order_relaxed);
  word(record.number).store(number + 1, std::memory_order_release);
}

void SharedGpu::stand_still(uint64_t stall_ns) {
  if (!shared_ || is_mps() || stall_ns == 0) return;
  const uint64_t now = monotonic_ns();
  std::atomic<uint64_t>& until = state_->stalled_until_ns;
  uint64_t before = until.load();
  uint64_t after;
  do {
    const uint64_t left = before > now ? before - now : 0;
    after = now + std::min(left, kLongestStall_ns) + stall_ns;
  } while (!until.compare_exchange_weak(before, after));
}

uint64_t SharedGpu::stalled_ns() const {
  const uint64_t until = state_->stalled_until_ns.load(std::memory_order_relaxed);
  if (until == 0) return 0;
  const uint64_t now = monotonic_ns();
  return until > now ? std::min(until - now, kLongestStall_ns) : 0;
}

}  // namespace sluice::softgpu
