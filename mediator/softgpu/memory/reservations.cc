// SPDX-License-Identifier: Apache-2.0
// Device memory that contexts take besides allocations, as NVIDIA's driver takes it: stacks and
// local memory for every thread that fits on the GPU at once, the heap of malloc, printf's buffer.
// Only charged (SharedGpu), so that others see that it is gone: blocks have their local memory from
// the host. What the limits' default values take is in SLUICE_SOFT_CONTEXT_BYTES.
#include <algorithm>
#include <limits>

#include "mediator/softgpu/state/state.h"

namespace sluice::softgpu {

namespace {

uint64_t threads_at_once(const State& s) {
  return uint64_t{s.runner.limits().threads} * s.gpu->sms();
}

uint64_t multiply(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<uint64_t>::max() : product;
}

// Of a limit with this value, beyond what its default takes.
uint64_t bytes_of_limit(const State& s, CUlimit limit, uint64_t value) {
  const auto beyond = [value](uint64_t usual) { return value - std::min(value, usual); };
  switch (limit) {
    case CU_LIMIT_STACK_SIZE:
      return multiply(beyond(exec::kDefaultStackBytes), threads_at_once(s));
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      return beyond(1 << 20);
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      return beyond(exec::kDefaultHeapBytes);
    default:
      return 0;
  }
}

}  // namespace

bool reserve_local(State& s, Context& context, uint64_t bytes_per_thread) {
  std::lock_guard lock(context.mutex);
  if (bytes_per_thread <= context.local_bytes) return true;
  const uint64_t more = multiply(bytes_per_thread - context.local_bytes, threads_at_once(s));
  if (!s.gpu->reserve_memory(context.slot, more)) return false;
  context.local_bytes = bytes_per_thread;
  return true;
}

bool reserve_limit(State& s, Context& context, CUlimit limit, size_t now, size_t value) {
  const uint64_t before = bytes_of_limit(s, limit, now), after = bytes_of_limit(s, limit, value);
  if (after > before) return s.gpu->reserve_memory(context.slot, after - before);
  if (after < before) s.gpu->release_memory(context.slot, before - after);
  return true;
}

}  // namespace sluice::softgpu
