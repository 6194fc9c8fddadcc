// SPDX-License-Identifier: Apache-2.0
// Device memory: charged, allocated, freed.
#include "mediator/worker/calls/generic_calls.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "mediator/base/check.h"
#include "mediator/base/clock.h"

namespace sluice::worker {

CUresult GenericCalls::cuMemGetInfo_v2(size_t* free, size_t* total) {
  size_t real_free = 0, real_total = 0;
  CUresult r = s.api.cuMemGetInfo(&real_free, &real_total);
  if (r != CUDA_SUCCESS) return r;
  std::lock_guard lock(s.mutex);
  const size_t limit = std::min<size_t>(real_total, s.setup.start.memory_limit_bytes);
  const size_t kept = s.memory.freed.charged_bytes();
  const size_t used = s.control.device().used_bytes() - kept;
  if (total) *total = limit;
  // What other processes of this vGPU use is not known here: it shows when a lease is refused.
  if (free) *free = std::min(real_free + kept, limit > used ? limit - used : 0);
  return CUDA_SUCCESS;
}

CUresult GenericCalls::allocate(CUdeviceptr* address, size_t bytes,
                                const std::function<CUresult(CUdeviceptr*)>& by_driver) {
  const uint64_t charge = QuotaLease::charge_for(bytes);
  if (!call.context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!address || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (charge == 0 || charge > s.setup.start.memory_limit_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  {
    std::lock_guard lock(s.mutex);
    if (s.charges.held_is_refused()) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!charge_or_park(charge)) return kParked;
  }
  CUdeviceptr at = 0;
  CUresult r = by_driver(&at);
  if (r == CUDA_ERROR_OUT_OF_MEMORY && s.release_freed()) r = by_driver(&at);
  std::lock_guard lock(s.mutex);
  if (r == CUDA_SUCCESS && !s.memory.allocations.add({at, bytes, call.context->handle, charge})) {
    (void)s.api.cuMemFree(at);
    r = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (r != CUDA_SUCCESS) {
    s.charges.release_device(charge);
    return r;
  }
  *address = at;
  return CUDA_SUCCESS;
}

CUresult GenericCalls::cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  return allocate(address, bytes, [&](CUdeviceptr* at) { return s.api.cuMemAlloc(at, bytes); });
}

CUresult GenericCalls::cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width,
                                          size_t height, unsigned element_bytes) {
  if (!pitch || (element_bytes != 4 && element_bytes != 8 && element_bytes != 16))
    return CUDA_ERROR_INVALID_VALUE;
  // Our own pitch, so that the charge is known before: a multiple of what every device so far
  // wants.
  constexpr size_t kPitchUnit = 512;
  size_t row, bytes;
  if (__builtin_add_overflow(width, kPitchUnit - 1, &row)) return CUDA_ERROR_OUT_OF_MEMORY;
  row = row / kPitchUnit * kPitchUnit;
  if (__builtin_mul_overflow(row, height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult r =
      allocate(address, bytes, [&](CUdeviceptr* at) { return s.api.cuMemAlloc(at, bytes); });
  if (r == CUDA_SUCCESS) *pitch = row;
  return r;
}

CUresult GenericCalls::cuMemFree_v2(CUdeviceptr address) {
  if (address == 0) return CUDA_SUCCESS;
  std::optional<Allocation> a;
  std::shared_ptr<ContextObject> owner;
  {
    std::lock_guard lock(s.mutex);
    a = s.memory.allocations.remove(address);
    if (!a) return CUDA_ERROR_INVALID_VALUE;
    owner = s.handles.find<ContextObject>(SLUICE_HANDLE_CONTEXT, a->owner);
  }
  CUresult r = owner ? make_current(s.api, owner->cu) : CUDA_ERROR_INVALID_CONTEXT;
  if (r == CUDA_SUCCESS) r = s.api.cuMemFree(address);
  std::lock_guard lock(s.mutex);
  s.charges.release_allocation(*a);
  return r;
}

CUresult GenericCalls::cuMemAllocAsync(CUdeviceptr* address, size_t bytes, StreamHandle stream) {
  {
    std::lock_guard lock(s.mutex);
    CUresult error;
    const auto found = s.find_stream(call, stream.value, &error);
    if (!found) return error;
    if (address && call.context && !s.charges.held_is_refused() &&
        s.memory.allocations.size() < AllocationMap::kMost)
      if (const auto kept = s.memory.freed.take(call.context->handle, found->id, bytes)) {
        SLUICE_CHECK(s.memory.allocations.add(*kept));
        *address = kept->address;
        return CUDA_SUCCESS;
      }
  }
  // Earlier in the stream than asked for is allowed.
  return call.is_job ? cuMemAlloc_v2(address, bytes) : as_job();
}

CUresult GenericCalls::cuMemFreeAsync(CUdeviceptr address, StreamHandle stream) {
  std::lock_guard lock(s.mutex);
  CUresult error;
  auto found = s.find_stream(call, stream.value, &error);
  if (!found) return error;
  // Not the program's any more from here on; freed when the stream gets there.
  auto a = s.memory.allocations.remove(address);
  if (!a) return CUDA_ERROR_INVALID_VALUE;
  // What other programs have is not given out anew.
  if (!s.memory.shared.is_exported(a->address) && s.keep_freed(*a, *found)) {
    s.after_engine();
    return CUDA_SUCCESS;
  }
  const auto free = [&session = s, a = *a, context = found->context](CUresult) {
    session.jobs.post([&session, a, context] {
      if (make_current(session.api, context->cu) == CUDA_SUCCESS)
        (void)session.api.cuMemFree(a.address);
      std::lock_guard relock(session.mutex);
      session.charges.release_allocation(a);
    });
  };
  const uint64_t token = s.work.waiting.add_own(free);
  s.work.engine.notify_stream(found->id, token, monotonic_ns());
  s.after_engine();
  return CUDA_SUCCESS;
}

}  // namespace sluice::worker
