// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/shim/memory/pools.h"

#include <sys/random.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>

#include "abi/cuda_graph.h"
#include "guest-agent/shim/state/api.h"

namespace sluice::guest {

namespace {

struct Pool {
  CUdevice device = 0;
  bool is_default = false;
  bool destroyed = false;  // by the program; ends with its last allocation
  uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0, most = UINT64_MAX;
  uint64_t release_threshold = 0;
  int reuse[3] = {1, 1, 1};  // by CUmemPool_attribute, from 1
  PoolNumber number{};       // of one for several programs
  bool imported = false;

  void release_above(uint64_t bytes) { reserved = std::max(used, std::min(reserved, bytes)); }
};

struct Pools {
  std::mutex mutex;
  std::atomic<bool> may_release = false;  // something was freed since the last synchronisation
  uint64_t next = 1;
  std::unordered_map<uint64_t, Pool> all;  // by handle: a number, which no pool lies at
  uint64_t defaults[kMaxDevices] = {}, currents[kMaxDevices] = {};

  Pool* find(CUmemoryPool pool) {
    const auto it = all.find(wire(pool));
    return it == all.end() || it->second.destroyed ? nullptr : &it->second;
  }
  uint64_t add(CUdevice device) {
    const uint64_t handle = next++ << 8;
    all[handle].device = device;
    return handle;
  }
  uint64_t default_of(CUdevice device) {
    uint64_t& handle = defaults[device];
    if (handle == 0) {
      handle = add(device);
      all[handle].is_default = true;
    }
    return handle;
  }
  uint64_t current_of(CUdevice device) {
    return currents[device] != 0 ? currents[device] : default_of(device);
  }
};
Pools& pools() {
  static auto* it = new Pools;
  return *it;
}

bool is_on_device(const Entered& e, const CUmemLocation& at) {
  return at.type == CU_MEM_LOCATION_TYPE_DEVICE && is_device(*e.link, at.id);
}
CUmemoryPool named(uint64_t handle) { return reinterpret_cast<CUmemoryPool>(handle); }

// Where a 64-bit attribute lies, null: it is no such attribute.
uint64_t* value_of(Pool& pool, CUmemPool_attribute attr) {
  switch (attr) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return &pool.release_threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return &pool.reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return &pool.reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return &pool.used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return &pool.used_high;
    default:
      return nullptr;
  }
}
bool is_reuse(CUmemPool_attribute attr) {
  return attr >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
         attr <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

}  // namespace

CUmemoryPool current_pool() {
  const CUdevice device = current_device();
  std::lock_guard lock(pools().mutex);
  return named(pools().current_of(device));
}

CUresult take_from_pool(CUmemoryPool pool, size_t bytes) {
  std::lock_guard lock(pools().mutex);
  Pool* found = pools().find(pool);
  if (found == nullptr || found->imported) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > found->most - std::min(found->most, found->used)) return CUDA_ERROR_OUT_OF_MEMORY;
  found->used += bytes;
  return CUDA_SUCCESS;
}

void reserve_in_pool(CUmemoryPool pool) {
  std::lock_guard lock(pools().mutex);
  const auto it = pools().all.find(wire(pool));
  if (it == pools().all.end()) return;
  Pool& p = it->second;
  p.reserved = std::max(p.reserved, p.used);
  p.used_high = std::max(p.used_high, p.used);
  p.reserved_high = std::max(p.reserved_high, p.reserved);
}

void return_to_pool(CUmemoryPool pool, size_t bytes) {
  if (pool == nullptr) return;
  std::lock_guard lock(pools().mutex);
  const auto it = pools().all.find(wire(pool));
  if (it == pools().all.end()) return;
  it->second.used -= std::min<uint64_t>(it->second.used, bytes);
  if (it->second.destroyed && it->second.used == 0) pools().all.erase(it);
  pools().may_release = true;
}

std::optional<SharedPool> shared_pool(CUmemoryPool pool) {
  std::lock_guard lock(pools().mutex);
  const Pool* found = pools().find(pool);
  if (found == nullptr || found->number == PoolNumber{}) return std::nullopt;
  return SharedPool{found->number, found->device, found->imported};
}

CUmemoryPool add_imported_pool(const SharedPool& pool) {
  std::lock_guard lock(pools().mutex);
  const uint64_t handle = pools().add(pool.device);
  pools().all[handle].number = pool.number;
  pools().all[handle].imported = true;
  return named(handle);
}

CUresult synchronised(CUresult result) {
  if (result != CUDA_SUCCESS || !pools().may_release.load(std::memory_order_relaxed)) return result;
  std::lock_guard lock(pools().mutex);
  pools().may_release = false;
  for (auto& [handle, pool] : pools().all) pool.release_above(pool.release_threshold);
  return result;
}

}  // namespace sluice::guest

using namespace sluice::guest;

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* props) {
  const Entered e = enter();
  if (!e) return e.status;
  if (pool == nullptr || props == nullptr || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      props->win32SecurityAttributes != nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  const bool shared = props->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (!shared && props->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
    return static_cast<CUresult>(
        not_supported("cuMemPoolCreate", "pools to share but by file descriptors"));
  if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return static_cast<CUresult>(not_supported("cuMemPoolCreate", "pools of host memory"));
  if (!is_on_device(e, props->location)) return CUDA_ERROR_INVALID_DEVICE;
  PoolNumber number{};
  if (shared && ::getrandom(number.data(), sizeof number, 0) != sizeof number)
    return CUDA_ERROR_UNKNOWN;
  std::lock_guard lock(pools().mutex);
  const uint64_t handle = pools().add(props->location.id);
  pools().all[handle].number = number;
  if (props->maxSize != 0) pools().all[handle].most = props->maxSize;
  *pool = named(handle);
  return CUDA_SUCCESS;
}

// Allocations from it stay; the device's default pool becomes current again in its place.
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  const Entered e = enter();
  if (!e) return e.status;
  std::lock_guard lock(pools().mutex);
  Pool* found = pools().find(pool);
  if (found == nullptr || found->is_default) return CUDA_ERROR_INVALID_VALUE;
  uint64_t& current = pools().currents[found->device];
  if (current == wire(pool)) current = 0;
  found->destroyed = true;
  if (found->used == 0) pools().all.erase(wire(pool));
  return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t least) {
  const Entered e = enter();
  if (!e) return e.status;
  std::lock_guard lock(pools().mutex);
  Pool* found = pools().find(pool);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  found->release_above(least);
  return CUDA_SUCCESS;
}

// Reuse policies and the threshold are kept and reported; the worker's driver follows its own.
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  const Entered e = enter();
  if (!e) return e.status;
  std::lock_guard lock(pools().mutex);
  Pool* found = pools().find(pool);
  if (found == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (is_reuse(attr)) {
    found->reuse[attr - 1] = *static_cast<const int*>(value) != 0;
    return CUDA_SUCCESS;
  }
  const uint64_t wanted = *static_cast<const uint64_t*>(value);
  if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
    found->release_threshold = wanted;
    pools().may_release = true;
    return CUDA_SUCCESS;
  }
  // High marks, and only back to what is.
  if ((attr != CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && attr != CU_MEMPOOL_ATTR_USED_MEM_HIGH) ||
      wanted != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
    found->used_high = found->used;
  else
    found->reserved_high = found->reserved;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  const Entered e = enter();
  if (!e) return e.status;
  std::lock_guard lock(pools().mutex);
  Pool* found = pools().find(pool);
  if (found == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (is_reuse(attr)) {
    *static_cast<int*>(value) = found->reuse[attr - 1];
    return CUDA_SUCCESS;
  }
  const uint64_t* from = value_of(*found, attr);
  if (from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<uint64_t*>(value) = *from;
  return CUDA_SUCCESS;
}

// A device always has access to its own pools, and there is no other.
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  const Entered e = enter();
  if (!e) return e.status;
  std::lock_guard lock(pools().mutex);
  const Pool* found = pools().find(pool);
  if (found == nullptr || (map == nullptr && count != 0)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (!is_on_device(e, map[i].location) || map[i].location.id != found->device ||
        map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return CUDA_ERROR_INVALID_DEVICE;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool pool, CUmemLocation* location) {
  const Entered e = enter();
  if (!e) return e.status;
  std::lock_guard lock(pools().mutex);
  const Pool* found = pools().find(pool);
  if (found == nullptr || flags == nullptr || location == nullptr || !is_on_device(e, *location))
    return CUDA_ERROR_INVALID_VALUE;
  *flags = location->id == found->device ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                         : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

namespace {

CUresult pool_of_device(CUmemoryPool* pool, CUdevice device, uint64_t (Pools::*which)(CUdevice)) {
  const Entered e = enter();
  if (!e) return e.status;
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(*e.link, device)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard lock(pools().mutex);
  *pool = named((pools().*which)(device));
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return pool_of_device(pool, device, &Pools::default_of);
}
// A device that is not is a wrong value in these, as NVIDIA's driver has it.
CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  const CUresult r = pool_of_device(pool, device, &Pools::current_of);
  return r == CUDA_ERROR_INVALID_DEVICE ? CUDA_ERROR_INVALID_VALUE : r;
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  const Entered e = enter();
  if (!e) return e.status;
  if (!is_device(*e.link, device)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(pools().mutex);
  const Pool* found = pools().find(pool);
  if (found == nullptr || found->device != device || found->imported)
    return CUDA_ERROR_INVALID_VALUE;
  pools().currents[device] = wire(pool);
  return CUDA_SUCCESS;
}

namespace {

CUresult check_place(const CUmemLocation* location, CUmemAllocationType type) {
  const Entered e = enter();
  if (!e) return e.status;
  if (location == nullptr || type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
    return is_device(*e.link, location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  return static_cast<CUresult>(not_supported("cuMemGetMemPool", "pools of host memory"));
}

}  // namespace

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location,
                                CUmemAllocationType type) {
  const CUresult r = check_place(location, type);
  return r == CUDA_SUCCESS ? cuDeviceGetDefaultMemPool(pool, location->id) : r;
}
CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  const CUresult r = check_place(location, type);
  return r == CUDA_SUCCESS ? cuDeviceGetMemPool(pool, location->id) : r;
}
CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  const CUresult r = check_place(location, type);
  return r == CUDA_SUCCESS ? cuDeviceSetMemPool(location->id, pool) : r;
}
