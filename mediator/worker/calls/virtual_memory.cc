// SPDX-License-Identifier: Apache-2.0
// Virtual memory management for a guest: addresses, physical memory, mappings (GenericCalls' part
// of the table). The session keeps what its guest has of them and checks each call against that
// before the driver sees it: only ranges and memory of this session, whole mappings, no pointers
// out of a guest's structures. Physical memory is charged to the vGPU when it is made and until
// nothing holds it; addresses cost no memory and are bounded.
//
// All of it runs on the job thread, so no two of these calls overlap; the decoder reads the
// mappings meanwhile, under the session's lock. Rules: NVIDIA, CUDA Driver API, "Virtual Memory
// Management".
#include "mediator/worker/calls/generic_calls.h"

namespace sluice::worker {

namespace {

// Programs reserve a little more than the device's memory for each of their pools and streams.
// Less, and such programs fail; more, and a guest can have the driver keep more tables.
constexpr uint64_t kMaxReservedBytes = uint64_t{64} << 40;
constexpr size_t kMaxReservations = 4096;
// Of 2 MiB each they map all of a device's memory; each costs some hundred bytes here and in the
// driver.
constexpr size_t kMaxMappings = 1u << 18;
constexpr size_t kMaxAccessDescriptions = 64;  // devices in a machine

// What the driver is asked for in place of what a guest asks for. Memory is not shared with other
// processes, so what it could be exported as does not matter until somebody exports it; compression
// and RDMA are hints.
CUresult own_properties(const CUmemAllocationProp& guest, CUmemAllocationProp* to) {
  if (guest.type != CU_MEM_ALLOCATION_TYPE_PINNED || guest.win32HandleMetaData != nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if ((guest.requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (guest.location.type == CU_MEM_LOCATION_TYPE_HOST ||
      guest.location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (guest.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (guest.allocFlags.usage != 0) return CUDA_ERROR_NOT_SUPPORTED;
  *to = {};
  to->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  to->location = guest.location;
  return CUDA_SUCCESS;
}

bool is_power_of_two_or_zero(uint64_t n) { return (n & (n - 1)) == 0; }

}  // namespace

// With the lock held: physical memory that neither a handle nor a mapping holds any more goes.
void GenericCalls::drop_if_unused(const std::shared_ptr<MemoryObject>& memory) {
  if (memory->references != 0 || memory->mappings != 0) return;
  s.handles.remove(SLUICE_HANDLE_MEMORY, memory->handle);
  (void)s.api.cuMemRelease(memory->cu);
  s.charges.release_device(memory->charged);
}

// With the lock held: null if it is no handle, or one that was released and only mappings still
// hold.
std::shared_ptr<MemoryObject> GenericCalls::memory(CUmemGenericAllocationHandle guest_handle) {
  auto found = s.handles.find<MemoryObject>(SLUICE_HANDLE_MEMORY, guest_handle);
  return found && found->references != 0 ? found : nullptr;
}

// What the driver maps at once, in bytes: not 0.
CUresult GenericCalls::granularity(int device, size_t* unit) {
  CUmemAllocationProp plain{};
  plain.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  plain.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  const CUresult r =
      s.api.cuMemGetAllocationGranularity(unit, &plain, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  return r == CUDA_SUCCESS && *unit == 0 ? CUDA_ERROR_UNKNOWN : r;
}

// `addr` is a hint, and not followed: a guest has no say in the worker's own addresses.
CUresult GenericCalls::cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment,
                                           CUdeviceptr, unsigned long long flags) {
  if (!ptr || size == 0 || flags != 0 || !is_power_of_two_or_zero(alignment))
    return CUDA_ERROR_INVALID_VALUE;
  {
    std::lock_guard lock(s.mutex);
    if (size > kMaxReservedBytes - s.memory.mappings.reserved_bytes() ||
        alignment > kMaxReservedBytes ||
        s.memory.mappings.reservations().size() >= kMaxReservations)
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUdeviceptr at = 0;
  const CUresult r = s.api.cuMemAddressReserve(&at, size, alignment, 0, 0);
  if (r != CUDA_SUCCESS) return r;
  std::lock_guard lock(s.mutex);
  if (!s.memory.mappings.reserve(at, size)) {
    (void)s.api.cuMemAddressFree(at, size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *ptr = at;
  return CUDA_SUCCESS;
}

CUresult GenericCalls::cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  {
    std::lock_guard lock(s.mutex);
    if (!s.memory.mappings.unreserve(ptr, size)) return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult r = s.api.cuMemAddressFree(ptr, size);
  std::lock_guard lock(s.mutex);
  if (r != CUDA_SUCCESS) (void)s.memory.mappings.reserve(ptr, size);
  return r;
}

CUresult GenericCalls::cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                                   const CUmemAllocationProp* prop, unsigned long long flags) {
  if (!handle || flags != 0 || size == 0) return CUDA_ERROR_INVALID_VALUE;
  CUmemAllocationProp own;
  if (const CUresult r = own_properties(*prop, &own); r != CUDA_SUCCESS) return r;
  size_t unit = 0;
  if (const CUresult r = granularity(own.location.id, &unit); r != CUDA_SUCCESS) return r;
  if (size % unit != 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t charge = QuotaLease::charge_for(size);
  if (charge == 0 || charge > s.setup.start.memory_limit_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  {
    std::lock_guard lock(s.mutex);
    if (!s.handles.has_room(SLUICE_HANDLE_MEMORY)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!charge_or_park(charge)) return kParked;
  }
  auto made = std::make_shared<MemoryObject>();
  const CUresult r = s.api.cuMemCreate(&made->cu, size, &own, 0);
  std::lock_guard lock(s.mutex);
  if (r != CUDA_SUCCESS) {
    s.charges.release_device(charge);
    return r;
  }
  made->handle = s.handles.add(SLUICE_HANDLE_MEMORY, made);
  if (made->handle == 0) {
    (void)s.api.cuMemRelease(made->cu);
    s.charges.release_device(charge);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  made->bytes = size;
  made->charged = charge;
  made->references = 1;
  made->guest_handle_types = prop->requestedHandleTypes;
  *handle = made->handle;
  return CUDA_SUCCESS;
}

CUresult GenericCalls::cuMemRelease(CUmemGenericAllocationHandle handle) {
  std::lock_guard lock(s.mutex);
  const auto found = memory(handle);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  --found->references;
  drop_if_unused(found);
  return CUDA_SUCCESS;
}

CUresult GenericCalls::cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                                CUmemGenericAllocationHandle handle, unsigned long long flags) {
  if (flags != 0 || size == 0) return CUDA_ERROR_INVALID_VALUE;
  size_t unit = 0;
  if (const CUresult r = granularity(0, &unit); r != CUDA_SUCCESS) return r;
  std::shared_ptr<MemoryObject> from;
  {
    std::lock_guard lock(s.mutex);
    from = memory(handle);
    if (!from) return CUDA_ERROR_INVALID_VALUE;
    // As an H200's driver says it.
    if (offset != 0 || size != from->bytes) return CUDA_ERROR_NOT_SUPPORTED;
    if (ptr % unit != 0) return CUDA_ERROR_INVALID_VALUE;
    // An H200's driver maps beyond a reservation's end. There may be something of the worker's own,
    // so this does not.
    if (!s.memory.mappings.can_map(ptr, size)) return CUDA_ERROR_INVALID_VALUE;
    if (s.memory.mappings.mapping_count() >= kMaxMappings || s.charges.held_is_refused())
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult r = s.api.cuMemMap(ptr, size, offset, from->cu, 0);
  if (r != CUDA_SUCCESS) return r;
  std::lock_guard lock(s.mutex);
  ++from->mappings;
  SLUICE_CHECK(s.memory.mappings.map(ptr, size, std::move(from)));
  return CUDA_SUCCESS;
}

CUresult GenericCalls::cuMemUnmap(CUdeviceptr ptr, size_t size) {
  std::optional<std::vector<VirtualRanges<std::shared_ptr<MemoryObject>>::Mapping>> mappings;
  {
    std::lock_guard lock(s.mutex);
    mappings = s.memory.mappings.unmap(ptr, size);  // first: no copy to it is let through any more
  }
  if (!mappings) return CUDA_ERROR_INVALID_VALUE;
  const CUresult r = s.api.cuMemUnmap(ptr, size);
  std::lock_guard lock(s.mutex);
  if (r != CUDA_SUCCESS) {
    s.memory.mappings.put_back(std::move(*mappings));
    return r;
  }
  for (const auto& one : *mappings) {
    --one.memory->mappings;
    drop_if_unused(one.memory);
  }
  return CUDA_SUCCESS;
}

CUresult GenericCalls::cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc,
                                      size_t count) {
  if (count == 0 || count > kMaxAccessDescriptions) return CUDA_ERROR_INVALID_VALUE;
  int access = 0;
  for (size_t i = 0; i < count; ++i) {
    if (desc[i].location.type == CU_MEM_LOCATION_TYPE_HOST ||
        desc[i].location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
      return CUDA_ERROR_NOT_SUPPORTED;
    const int flags = desc[i].flags;
    if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
         flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
      return CUDA_ERROR_INVALID_VALUE;
    access |= flags;
  }
  {
    std::lock_guard lock(s.mutex);
    if (!s.memory.mappings.is_whole(ptr, size)) return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult r = s.api.cuMemSetAccess(ptr, size, desc, count);
  if (r != CUDA_SUCCESS) return r;
  std::lock_guard lock(s.mutex);
  SLUICE_CHECK(s.memory.mappings.set_access(ptr, size, access));
  return CUDA_SUCCESS;
}

CUresult GenericCalls::cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                                      CUdeviceptr ptr) {
  if (!flags || location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  {
    std::lock_guard lock(s.mutex);
    if (!s.memory.mappings.find(ptr)) return CUDA_ERROR_INVALID_VALUE;
  }
  return s.api.cuMemGetAccess(flags, location, ptr);
}

CUresult GenericCalls::cuMemGetAllocationGranularity(size_t* granularity,
                                                     const CUmemAllocationProp* prop,
                                                     CUmemAllocationGranularity_flags option) {
  if (!granularity) return CUDA_ERROR_INVALID_VALUE;
  // The driver tells it also of what cuMemCreate would refuse; no pointer of the guest's goes to
  // it.
  CUmemAllocationProp own{};
  own.type = prop->type;
  own.location = prop->location;
  return s.api.cuMemGetAllocationGranularity(granularity, &own, option);
}

CUresult GenericCalls::cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                              CUmemGenericAllocationHandle handle) {
  if (!prop) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<MemoryObject> found;
  {
    std::lock_guard lock(s.mutex);
    found = memory(handle);
  }
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  CUmemAllocationProp real{};
  const CUresult r = s.api.cuMemGetAllocationPropertiesFromHandle(&real, found->cu);
  if (r != CUDA_SUCCESS) return r;
  *prop = real;
  prop->requestedHandleTypes = found->guest_handle_types;
  prop->win32HandleMetaData = nullptr;  // no pointer of the host's
  return CUDA_SUCCESS;
}

// The handle that it was mapped by, also one that was released since: it holds again.
CUresult GenericCalls::cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle,
                                                   void* guest_address) {
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(s.mutex);
  const auto* mapping = s.memory.mappings.find(reinterpret_cast<uint64_t>(guest_address));
  if (!mapping) return CUDA_ERROR_INVALID_VALUE;
  ++mapping->memory->references;
  *handle = mapping->memory->handle;
  return CUDA_SUCCESS;
}

}  // namespace sluice::worker
