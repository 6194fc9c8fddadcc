// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/memory/pinned_memory.h"

#include <sys/mman.h>

#include "mediator/base/log.h"

namespace sluice::worker {

// Still pinned where the program's last context has gone, another comes, and the driver has kept
// it.
CUresult PinnedMemory::pin(void* at, size_t bytes, unsigned how) {
  const CUresult r = api_.cuMemHostRegister(at, bytes, how);
  return r == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED ? CUDA_SUCCESS : r;
}

CUresult PinnedMemory::pin_pages(ContextObject& context) {
  if (!pages_) {
    const unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    // Read-only where the device can: a kernel must not forge its own eviction word.
    CUresult r = pin(signal_, SLUICE_STUB_PAGE_BYTES, flags | CU_MEMHOSTREGISTER_READ_ONLY);
    if (r != CUDA_SUCCESS) r = pin(signal_, SLUICE_STUB_PAGE_BYTES, flags);
    if (r != CUDA_SUCCESS) return r;
    r = pin(records_, SLUICE_PINNED_RECORDS_BYTES, flags);
    if (r != CUDA_SUCCESS) return r;
    if (!zeros_) {
      void* zeros = ::mmap(nullptr, ControlPool::kPageBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (zeros == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
      zeros_ = zeros;
    }
    // Control blocks begin as copies of it, so no kernel is to write it either.
    if (pin(zeros_, ControlPool::kPageBytes,
            CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_READ_ONLY) != CUDA_SUCCESS)
      (void)pin(zeros_, ControlPool::kPageBytes, CU_MEMHOSTREGISTER_PORTABLE);
    pages_ = true;
  }
  CUresult r = api_.cuMemHostGetDevicePointer(&context.signal, signal_, 0);
  if (r == CUDA_SUCCESS) r = api_.cuMemHostGetDevicePointer(&context.records, records_, 0);
  return r;
}

bool PinnedMemory::has_extent(uint64_t offset) const {
  std::lock_guard lock(mutex_);
  return extents_.count(offset) != 0;
}

void PinnedMemory::pin_extent(uint64_t offset, uint64_t bytes) {
  const CUresult r =
      pin(region_ + offset, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  if (r != CUDA_SUCCESS) {
    log::info("bulk memory at {} is not pinned: {}", offset, gpu::describe(r));
    return;
  }
  std::lock_guard lock(mutex_);
  extents_.insert(offset);
}

bool PinnedMemory::forget_extent(uint64_t offset) {
  std::lock_guard lock(mutex_);
  return extents_.erase(offset) != 0;
}

void PinnedMemory::forget_extents() {
  std::lock_guard lock(mutex_);
  extents_.clear();
}

}  // namespace sluice::worker
