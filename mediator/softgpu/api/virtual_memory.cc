// SPDX-License-Identifier: Apache-2.0
// The driver API's virtual memory management: addresses that are reserved, physical memory, and
// mappings of it, which contexts see once access is set. All contexts of the process see the same,
// as on a real GPU's one device.
//
// Physical memory is shared anonymous memory; a mapping is the same pages at another place (mremap
// with an old size of 0, which needs no file), so memory may be mapped several times. It is charged
// to a context slot of its own, which the process has while there is any. Rules: NVIDIA, CUDA
// Driver API, "Virtual Memory Management".
#include <sys/mman.h>

#include "mediator/base/check.h"
#include "mediator/softgpu/state/state.h"

using namespace sluice;
using namespace sluice::softgpu;

namespace {

constexpr uint64_t kGranularity = uint64_t{2} << 20;  // as an H200's
constexpr uint64_t kPage = 4096;
constexpr uint64_t kMostAddresses = uint64_t{1} << 46;

void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

// Nothing there, but nobody else's either.
bool reserve_pages(uint64_t base, uint64_t bytes) {
  return ::mmap(pointer(base), bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

CUresult check(const CUmemAllocationProp* prop) {
  if (prop == nullptr || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      prop->win32HandleMetaData != nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if (prop->location.type == CU_MEM_LOCATION_TYPE_HOST ||
      prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (prop->location.id != 0) return CUDA_ERROR_INVALID_DEVICE;
  const bool known = prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ||
                     prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return !known || prop->allocFlags.usage != 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

// Under s.mutex: what contexts may touch in the reservation of `address` from now on.
void update_contexts(State& s, uint64_t address) {
  const auto [base, bytes] = s.virtual_memory.ranges.reservation(address);
  const std::vector<exec::MemoryRange> runs = s.virtual_memory.runs(base);
  for (const auto& weak : s.live_contexts)
    if (const auto context = weak.lock()) context->map.replace(base, bytes, runs);
}

void wait_for_all(State& s) {
  std::vector<std::shared_ptr<Context>> contexts;
  {
    std::lock_guard lock(s.mutex);
    for (const auto& weak : s.live_contexts)
      if (auto context = weak.lock()) contexts.push_back(std::move(context));
  }
  for (const auto& context : contexts) s.scheduler.wait(*context);
}

// Under s.mutex.
void drop_if_unused(State& s, const std::shared_ptr<Physical>& memory) {
  VirtualMemory& v = s.virtual_memory;
  if (memory->references != 0 || memory->mappings != 0) return;
  v.handles.erase(memory->handle);
  ::munmap(memory->pages, memory->bytes);
  s.gpu->release_memory(*v.slot, memory->bytes);
  v.bytes -= memory->bytes;
  if (v.bytes != 0) return;
  s.gpu->leave(*v.slot);
  v.slot.reset();
}

std::shared_ptr<Physical> find(State& s, CUmemGenericAllocationHandle handle) {
  const auto it = s.virtual_memory.handles.find(handle);
  return it == s.virtual_memory.handles.end() || it->second->references == 0 ? nullptr : it->second;
}

}  // namespace

std::vector<exec::MemoryRange> VirtualMemory::runs(uint64_t address) const {
  std::vector<exec::MemoryRange> found;
  ranges.for_each_run(address, [&](uint64_t base, uint64_t length, int access) {
    found.push_back({base, length, access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  });
  return found;
}

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  return with_state([&](State& s) {
    if (ptr == nullptr || size == 0 || size % kPage != 0 || flags != 0 ||
        (alignment & (alignment - 1)) != 0)
      return CUDA_ERROR_INVALID_VALUE;
    const uint64_t unit = std::max<uint64_t>(alignment, kGranularity);
    if (size > kMostAddresses || unit > kMostAddresses) return CUDA_ERROR_OUT_OF_MEMORY;
    const uint64_t room = size + unit;
    void* const p =
        ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    const auto first = reinterpret_cast<uint64_t>(p), base = (first + unit - 1) / unit * unit;
    if (base != first) ::munmap(p, base - first);
    if (base + size != first + room) ::munmap(pointer(base + size), first + room - base - size);
    std::lock_guard lock(s.mutex);
    SLUICE_CHECK(s.virtual_memory.ranges.reserve(base, size));
    *ptr = base;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  return with_state([&](State& s) {
    std::lock_guard lock(s.mutex);
    if (!s.virtual_memory.ranges.unreserve(ptr, size)) return CUDA_ERROR_INVALID_VALUE;
    ::munmap(pointer(ptr), size);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long flags) {
  return with_state([&](State& s) {
    if (handle == nullptr || size == 0 || size % kGranularity != 0 || flags != 0)
      return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult r = check(prop); r != CUDA_SUCCESS) return r;
    std::lock_guard lock(s.mutex);
    VirtualMemory& v = s.virtual_memory;
    if (!v.slot) {
      auto slot = s.gpu->join();
      if (!slot) return CUDA_ERROR_OUT_OF_MEMORY;
      v.slot = *slot;
    }
    void* pages = MAP_FAILED;
    if (s.gpu->reserve_memory(*v.slot, size)) {
      pages = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (pages == MAP_FAILED) s.gpu->release_memory(*v.slot, size);
    }
    if (pages == MAP_FAILED) {
      if (v.bytes == 0) {
        s.gpu->leave(*v.slot);
        v.slot.reset();
      }
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    auto made = std::make_shared<Physical>();
    made->handle = v.next_handle++;
    made->pages = pages;
    made->bytes = size;
    made->references = 1;
    made->handle_types = prop->requestedHandleTypes;
    v.bytes += size;
    v.handles[made->handle] = made;
    *handle = made->handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return with_state([&](State& s) {
    std::lock_guard lock(s.mutex);
    const auto memory = find(s, handle);
    if (!memory) return CUDA_ERROR_INVALID_VALUE;
    --memory->references;
    drop_if_unused(s, memory);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  return with_state([&](State& s) {
    if (flags != 0 || size == 0) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard lock(s.mutex);
    const auto memory = find(s, handle);
    if (!memory) return CUDA_ERROR_INVALID_VALUE;
    // NVIDIA, of `offset`: "currently must be zero". Anything but the whole memory is NOT_SUPPORTED
    // on an H200.
    if (offset != 0 || size != memory->bytes) return CUDA_ERROR_NOT_SUPPORTED;
    if (ptr % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
    if (!s.virtual_memory.ranges.can_map(ptr, size)) return CUDA_ERROR_INVALID_VALUE;
    // The pages once more, in the place of what keeps the addresses.
    void* const there =
        ::mremap(memory->pages, 0, size, MREMAP_MAYMOVE | MREMAP_FIXED, pointer(ptr));
    if (there == MAP_FAILED) {
      SLUICE_CHECK(reserve_pages(ptr, size));
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ++memory->mappings;
    SLUICE_CHECK(s.virtual_memory.ranges.map(ptr, size, memory));
    return CUDA_SUCCESS;
  });
}

// Waits for everything that may use it, as the real driver does in most cases. A range with gaps,
// or with nothing in it, is taken, as on an H200, wherever it begins and ends.
CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  return with_state([&](State& s) {
    auto& ranges = s.virtual_memory.ranges;
    {
      std::lock_guard lock(s.mutex);
      if (!ranges.can_unmap(ptr, size)) return CUDA_ERROR_INVALID_VALUE;
    }
    wait_for_all(s);
    {
      std::lock_guard lock(s.mutex);
      if (!ranges.can_unmap(ptr, size)) return CUDA_ERROR_INVALID_VALUE;
      ranges.set_access_within(ptr, size, CU_MEM_ACCESS_FLAGS_PROT_NONE);
      update_contexts(s, ptr);
    }
    wait_for_all(s);  // what was queued meanwhile may have checked before
    std::lock_guard lock(s.mutex);
    const auto gone = ranges.unmap(ptr, size);
    if (!gone) return CUDA_ERROR_INVALID_VALUE;
    for (const auto& one : *gone) {
      SLUICE_CHECK(reserve_pages(one.base, one.bytes));
      --one.memory->mappings;
      drop_if_unused(s, one.memory);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  return with_state([&](State& s) {
    if (desc == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
      if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || desc[i].location.id != 0)
        return CUDA_ERROR_INVALID_VALUE;
      if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
          desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
          desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::lock_guard lock(s.mutex);
    if (!s.virtual_memory.ranges.set_access(ptr, size, desc[count - 1].flags))
      return CUDA_ERROR_INVALID_VALUE;
    update_contexts(s, ptr);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
  return with_state([&](State& s) {
    if (flags == nullptr || location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
      return CUDA_ERROR_INVALID_VALUE;
    if (location->id != 0) return CUDA_ERROR_INVALID_DEVICE;
    std::lock_guard lock(s.mutex);
    const auto* mapping = s.virtual_memory.ranges.find(ptr);
    if (mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = static_cast<unsigned>(mapping->access);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  return with_state([&](State&) {
    // An H200 tells it whatever the properties are.
    if (granularity == nullptr || prop == nullptr ||
        (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
         option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
      return CUDA_ERROR_INVALID_VALUE;
    *granularity = kGranularity;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) {
  return with_state([&](State& s) {
    std::lock_guard lock(s.mutex);
    const auto physical = find(s, handle);
    if (prop == nullptr || physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *prop = {};
    prop->requestedHandleTypes = physical->handle_types;
    prop->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop->location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    return CUDA_SUCCESS;
  });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  return with_state([&](State& s) {
    std::lock_guard lock(s.mutex);
    const auto* mapping = s.virtual_memory.ranges.find(reinterpret_cast<uint64_t>(address));
    if (handle == nullptr || mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
    ++mapping->memory->references;
    *handle = mapping->memory->handle;
    return CUDA_SUCCESS;
  });
}

// As the driver says it of a kind of handle that cuMemCreate was not asked for; with one, it is we
// who do not offer it. The guest's library answers the same.
CUresult cuMemExportToShareableHandle(void* shareable_handle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  return with_state([&](State& s) {
    std::lock_guard lock(s.mutex);
    const auto physical = find(s, handle);
    if (shareable_handle == nullptr || flags != 0 || physical == nullptr ||
        type == CU_MEM_HANDLE_TYPE_NONE || physical->handle_types != type)
      return CUDA_ERROR_INVALID_VALUE;
    return CUDA_ERROR_NOT_SUPPORTED;
  });
}
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle*, void*,
                                        CUmemAllocationHandleType) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
