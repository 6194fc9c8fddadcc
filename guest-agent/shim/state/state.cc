// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/shim/state/state.h"

#include <climits>

#include "guest-agent/shim/session/call_stub.h"

namespace sluice::guest {

State& state() {
  static State* state = new State;
  return *state;
}

ContextStack& context_stack() {
  thread_local ContextStack stack{};
  return stack;
}

GreenScope& green_scope() {
  thread_local GreenScope scope{};
  return scope;
}

Entered enter() {
  Entered e;
  e.link = WorkerLink::current(&e.status);
  if (e.link == nullptr) return e;
  e.context = current_context();
  e.status = e.link->dead();
  if (!e) e.link->after_end();
  return e;
}

Entered enter_context() {
  Entered e = enter();
  if (e && e.context == 0) e.status = CUDA_ERROR_INVALID_CONTEXT;
  if (e) e.status = e.link->fault();
  if (const uint64_t green = current_green(); e && green != 0 && !state().greens.find(green))
    e.status = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return e;
}

CUdevice current_device() {
  const auto info = state().context(current_context());
  return info ? info->device : 0;
}

// ---- addresses ----

void PointerMap::add(Range range) {
  std::unique_lock lock(mutex_);
  range.id = next_id_++;
  ranges_.insert_or_assign(range.base, range);
}

bool PointerMap::remove(uint64_t base) {
  std::unique_lock lock(mutex_);
  return ranges_.erase(base) != 0;
}

std::optional<Range> PointerMap::find(uint64_t address) const {
  std::shared_lock lock(mutex_);
  auto it = ranges_.upper_bound(address);
  if (it == ranges_.begin()) return std::nullopt;
  --it;
  if (address - it->second.base >= it->second.bytes) return std::nullopt;
  return it->second;
}

std::optional<Range> PointerMap::find(uint64_t address, uint64_t bytes) const {
  std::shared_lock lock(mutex_);
  auto it = ranges_.upper_bound(address);
  if (it == ranges_.begin()) return std::nullopt;
  const Range& first = (--it)->second;
  if (address - first.base >= first.bytes) return std::nullopt;
  uint64_t reached = first.bytes - (address - first.base);  // from `address` on
  while (reached < bytes) {
    const uint64_t end = it->second.base + it->second.bytes;
    if (!first.mapped || ++it == ranges_.end() || it->first != end || !it->second.mapped)
      return std::nullopt;
    reached += it->second.bytes;
  }
  return first;
}

bool PointerMap::overlaps(uint64_t address, uint64_t bytes) const {
  if (find(address)) return true;
  std::shared_lock lock(mutex_);
  const auto next = ranges_.lower_bound(address);
  return next != ranges_.end() && next->first - address < bytes;
}

std::vector<Range> PointerMap::take_mapped(uint64_t base, uint64_t bytes) {
  std::unique_lock lock(mutex_);
  std::vector<Range> out;
  for (auto it = ranges_.lower_bound(base); it != ranges_.end() && it->first - base < bytes;) {
    if (it->second.mapped && it->second.bytes <= bytes - (it->first - base)) {
      out.push_back(it->second);
      it = ranges_.erase(it);
    } else {
      ++it;
    }
  }
  return out;
}

void PointerMap::set_access(uint64_t base, uint64_t bytes, int access) {
  std::unique_lock lock(mutex_);
  for (auto it = ranges_.lower_bound(base); it != ranges_.end() && it->first - base < bytes; ++it)
    if (it->second.mapped) it->second.access = access;
}

bool PointerMap::may_touch(uint64_t address, uint64_t bytes, bool write) const {
  std::shared_lock lock(mutex_);
  const int needed = write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
  auto it = ranges_.upper_bound(address);
  if (it != ranges_.begin() && address - std::prev(it)->first < std::prev(it)->second.bytes) --it;
  for (; it != ranges_.end() && (it->first <= address || it->first - address < bytes); ++it)
    if (it->second.mapped && (it->second.access & needed) != needed) return false;
  return true;
}

void PointerMap::add_reserved(uint64_t base, uint64_t bytes) {
  std::unique_lock lock(mutex_);
  reserved_[base] = bytes;
}
uint64_t PointerMap::take_reserved(uint64_t base) {
  std::unique_lock lock(mutex_);
  const auto it = reserved_.find(base);
  if (it == reserved_.end()) return 0;
  const uint64_t bytes = it->second;
  reserved_.erase(it);
  return bytes;
}
bool PointerMap::is_reserved(uint64_t address) const {
  std::shared_lock lock(mutex_);
  const auto it = reserved_.upper_bound(address);
  return it != reserved_.begin() && address - std::prev(it)->first < std::prev(it)->second;
}

std::optional<Range> PointerMap::take(uint64_t base, MemoryKind kind) {
  std::unique_lock lock(mutex_);
  const auto it = ranges_.find(base);
  if (it == ranges_.end() || it->second.kind != kind || it->second.static_global)
    return std::nullopt;
  const Range range = it->second;
  ranges_.erase(it);
  return range;
}

std::vector<Range> PointerMap::remove_context(uint64_t context) {
  std::unique_lock lock(mutex_);
  std::vector<Range> removed;
  std::erase_if(ranges_, [&](const auto& item) {
    const Range& range = item.second;
    const bool its = range.context == context && range.kind == MemoryKind::kDevice && !range.mapped;
    if (its) removed.push_back(range);
    return its;
  });
  return removed;
}

std::vector<std::pair<uint64_t, uint64_t>> PointerMap::pinned() const {
  std::shared_lock lock(mutex_);
  std::vector<std::pair<uint64_t, uint64_t>> found;
  for (const auto& [base, range] : ranges_)
    if (is_in_window(range.kind)) found.emplace_back(base - SLUICE_WINDOW_ADDRESS, range.bytes);
  return found;
}

// ---- device attributes ----

namespace {

constexpr int kUnknown = INT_MIN;

// What this library does not offer, whatever the device can do.
std::optional<int> own_attribute(CUdevice_attribute attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
    case CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
      return 0;
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
      return CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;  // memory/shared_pools.cc
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:       // by memory of both (calls/shared_events.h)
      return 1;
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:  // shared memory serves (memory/managed.cc)
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:  // memory/registered.cc
      return 1;
    default:
      return std::nullopt;
  }
}

struct AttributeCache {
  std::array<std::array<std::atomic<int>, CU_DEVICE_ATTRIBUTE_MAX>, kMaxDevices> values;
  AttributeCache() {
    for (auto& device : values)
      for (auto& value : device) value.store(kUnknown, std::memory_order_relaxed);
  }
};

}  // namespace

CUresult device_attribute(WorkerLink& link, CUdevice device, CUdevice_attribute attribute,
                          int* value) {
  static auto* cache = new AttributeCache;
  if (value == nullptr || attribute <= 0) return CUDA_ERROR_INVALID_VALUE;
  const bool cached = device >= 0 && device < kMaxDevices && attribute < CU_DEVICE_ATTRIBUTE_MAX;
  if (cached) {
    const int known = cache->values[device][attribute].load(std::memory_order_relaxed);
    if (known != kUnknown) {
      *value = known;
      return CUDA_SUCCESS;
    }
  }
  const CUresult r = SLUICE_CALL(cuDeviceGetAttribute, link, 0, value, attribute, device);
  if (r != CUDA_SUCCESS) return r;
  if (const auto own = own_attribute(attribute)) *value = *own;
  if (cached) cache->values[device][attribute].store(*value, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

bool is_device(WorkerLink& link, CUdevice device) {
  int ignored = 0;
  return device >= 0 && device < kMaxDevices &&
         device_attribute(link, device, CU_DEVICE_ATTRIBUTE_WARP_SIZE, &ignored) == CUDA_SUCCESS;
}

uint64_t green_of(CUstream stream) {
  const StreamInfo* info = state().streams.find(wire(stream));
  return info != nullptr ? info->green : current_green();
}

CUresult sms_of(WorkerLink& link, uint64_t green, int* sms) {
  const GreenInfo* info = state().greens.find(green);
  if (info == nullptr)
    return device_attribute(link, current_device(), CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, sms);
  *sms = static_cast<int>(info->sms.count);
  return CUDA_SUCCESS;
}

}  // namespace sluice::guest
