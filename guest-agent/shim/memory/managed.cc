// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/shim/memory/managed.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "abi/cuda_graph.h"
#include "guest-agent/graphs/capture.h"
#include "guest-agent/shim/memory/pinned.h"
#include "guest-agent/shim/memory/registered.h"
#include "guest-agent/shim/state/api.h"

namespace sluice::guest {

namespace {

// A place as range attributes report it; CU_DEVICE_CPU and CU_DEVICE_INVALID in the older ones.
constexpr CUmemLocation kNowhere{CU_MEM_LOCATION_TYPE_INVALID, 0};
constexpr int kCpu = -1, kNone = -2;

// What a program said of a piece of managed memory. Kept to be asked for; nothing follows from it.
struct Advice {
  bool read_mostly = false;
  CUmemLocation preferred = kNowhere, prefetched = kNowhere;
  uint32_t accessed_by = 0;  // a bit per device
  bool accessed_by_cpu = false;
};

struct Advices {
  std::mutex mutex;
  // From each address to the next: those that programs named, and allocations' ends.
  std::map<uint64_t, Advice> pieces;

  void split(uint64_t at) {
    auto it = pieces.upper_bound(at);
    if (it == pieces.begin() || pieces.count(at) != 0) return;
    const Advice before = std::prev(it)->second;
    pieces[at] = before;
  }
  template <class Each>
  void each(uint64_t base, uint64_t bytes, Each&& visit) {
    split(base);
    split(base + bytes);
    for (auto it = pieces.lower_bound(base); it != pieces.end() && it->first < base + bytes; ++it)
      visit(it->second);
  }
};
Advices& advices() {
  static auto* it = new Advices;
  return *it;
}

bool is_managed(CUdeviceptr address, size_t bytes) {
  const auto range = state().pointers.find(address, bytes);
  return range && range->kind == MemoryKind::kManaged && bytes != 0 &&
         bytes <= range->bytes - (address - range->base);
}

bool is_place(const Entered& e, const CUmemLocation& at) {
  return (at.type == CU_MEM_LOCATION_TYPE_DEVICE && is_device(*e.link, at.id)) ||
         at.type == CU_MEM_LOCATION_TYPE_HOST || at.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}
CUmemLocation place_of(CUdevice device) {
  if (device == kCpu) return {CU_MEM_LOCATION_TYPE_HOST, 0};
  return {CU_MEM_LOCATION_TYPE_DEVICE, device};
}
int device_of(const CUmemLocation& at) {
  if (at.type == CU_MEM_LOCATION_TYPE_DEVICE) return at.id;
  return at.type == CU_MEM_LOCATION_TYPE_INVALID ? kNone : kCpu;
}

bool apply(Advice& to, CUmem_advise advice, const CUmemLocation& at) {
  const bool set = advice == CU_MEM_ADVISE_SET_ACCESSED_BY;
  switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
      to.read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
      return true;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
      to.preferred = at;
      return true;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      to.preferred = kNowhere;
      return true;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
      if (at.type != CU_MEM_LOCATION_TYPE_DEVICE)
        to.accessed_by_cpu = set;
      else
        to.accessed_by = set ? to.accessed_by | 1u << at.id : to.accessed_by & ~(1u << at.id);
      return true;
  }
  return false;
}

bool needs_place(CUmem_advise advice) {
  return advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
         advice == CU_MEM_ADVISE_SET_ACCESSED_BY || advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
}

// What all pieces of a range have in common; a place that differs between them is none.
class Common {
 public:
  void add(const Advice& one) {
    if (!any_) {
      advice_ = one;
      any_ = true;
      return;
    }
    advice_.read_mostly = advice_.read_mostly && one.read_mostly;
    merge(advice_.preferred, one.preferred);
    merge(advice_.prefetched, one.prefetched);
    advice_.accessed_by &= one.accessed_by;
    advice_.accessed_by_cpu = advice_.accessed_by_cpu && one.accessed_by_cpu;
  }

  // An attribute of one number. Nothing: it is another one, or unknown.
  std::optional<int> number(CUmem_range_attribute attribute) const {
    switch (attribute) {
      case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        return any_ && advice_.read_mostly;
      case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        return device_of(advice_.preferred);
      case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        return device_of(advice_.prefetched);
      case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        return advice_.preferred.type;
      case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        return advice_.preferred.id;
      case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        return advice_.prefetched.type;
      case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        return advice_.prefetched.id;
      default:
        return std::nullopt;
    }
  }

  // Which processors were named, and kNone in what is left of `to`.
  void accessed_by(int* to, size_t room) const {
    const uint32_t devices = any_ ? advice_.accessed_by : ~0u;
    const bool cpu = !any_ || advice_.accessed_by_cpu;
    size_t n = 0;
    for (int device = 0; device < kMaxDevices && n < room; ++device)
      if ((devices >> device & 1) != 0) to[n++] = device;
    if (cpu && n < room) to[n++] = kCpu;
    std::fill(to + n, to + room, kNone);
  }

 private:
  static void merge(CUmemLocation& into, const CUmemLocation& from) {
    if (into.type != from.type || into.id != from.id) into = kNowhere;
  }

  bool any_ = false;
  Advice advice_;
};

// One value of `attribute` for each piece.
CUresult read_attribute(void* data, size_t bytes, CUmem_range_attribute attribute,
                        CUdeviceptr address, size_t count) {
  if (data == nullptr || bytes == 0 || bytes % sizeof(int) != 0 || !is_managed(address, count))
    return CUDA_ERROR_INVALID_VALUE;
  if (attribute != CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY && bytes != sizeof(int))
    return CUDA_ERROR_INVALID_VALUE;
  int* to = static_cast<int*>(data);
  Common common;
  std::lock_guard lock(advices().mutex);
  advices().each(address, count, [&](const Advice& one) { common.add(one); });
  if (attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY) {
    common.accessed_by(to, bytes / sizeof(int));
    return CUDA_SUCCESS;
  }
  const auto number = common.number(attribute);
  if (!number) return CUDA_ERROR_INVALID_VALUE;
  *to = *number;
  return CUDA_SUCCESS;
}

CUresult give_back(const Entered& e, const Range& range) {
  sluice_synchronize body{};
  body.what = SLUICE_SYNC_CONTEXT;
  if (state().context(range.context))
    e.link->defer(e.link->call(SLUICE_CALL_SYNCHRONIZE, range.context, body));
  return pinned_memory().release(*e.link, range.context, reinterpret_cast<void*>(range.base),
                                 range.bytes);
}

// From here on `bytes` at `address` are managed memory.
void remember_managed(const Entered& e, void* address, size_t bytes, unsigned flags,
                      bool variable) {
  Range range;
  range.base = reinterpret_cast<uint64_t>(address);
  range.bytes = bytes;
  range.kind = MemoryKind::kManaged;
  range.context = e.context;
  range.flags = flags;
  range.static_global = variable;
  {
    std::lock_guard lock(advices().mutex);
    advices().pieces[range.base] = {};
  }
  state().pointers.add(range);
}

void forget_advice(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(advices().mutex);
  auto& pieces = advices().pieces;
  pieces.erase(pieces.lower_bound(address), pieces.lower_bound(address + bytes));
}

// Where a variable's address lies behind it.
size_t address_behind(size_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace

std::optional<CUresult> free_managed(CUdeviceptr address) {
  const auto range = state().pointers.take(address, MemoryKind::kManaged);
  if (!range) return std::nullopt;
  forget_advice(address, range->bytes);
  const Entered e = enter_context();
  return e ? give_back(e, *range) : e.status;
}

CUresult allocate_managed_variable(const Entered& e, size_t bytes, CUdeviceptr* address,
                                   CUdeviceptr* copy_of_address) {
  if (bytes == 0 || bytes > SLUICE_WINDOW_BYTES) return CUDA_ERROR_OUT_OF_MEMORY;
  void* memory = nullptr;
  const CUresult r = allocate_pinned(e, address_behind(bytes) + sizeof(uint64_t), &memory);
  if (r != CUDA_SUCCESS) return r;
  *address = reinterpret_cast<uint64_t>(memory);
  *copy_of_address = *address + address_behind(bytes);
  *reinterpret_cast<uint64_t*>(*copy_of_address) = *address;
  remember_managed(e, memory, bytes, CU_MEM_ATTACH_GLOBAL, true);
  return CUDA_SUCCESS;
}

void free_managed_variable(const Entered& e, CUdeviceptr address) {
  const auto range = state().pointers.find(address);
  if (!range || range->base != address || range->kind != MemoryKind::kManaged) return;
  state().pointers.remove(address);
  forget_advice(address, range->bytes);
  if (!e) return;
  const uint64_t context = state().context(range->context) ? range->context : 0;
  pinned_memory().release(*e.link, context, reinterpret_cast<void*>(address),
                          address_behind(range->bytes) + sizeof(uint64_t));
}

}  // namespace sluice::guest

using namespace sluice::guest;
namespace graphs = sluice::graphs;

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytes, unsigned int flags) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (dptr == nullptr || bytes == 0 ||
      (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = graphs::refuse_unsafe(); r != CUDA_SUCCESS) return r;
  void* address = nullptr;
  const CUresult r = allocate_pinned(e, bytes, &address);
  if (r != CUDA_SUCCESS) return r;
  remember_managed(e, address, bytes, flags, false);
  *dptr = reinterpret_cast<uint64_t>(address);
  return CUDA_SUCCESS;
}

CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr dptr, size_t length, unsigned flags) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (const CUresult bad = resolve_stream(stream); bad != CUDA_SUCCESS) return bad;
  const auto range = state().pointers.find(dptr);
  const bool whole = range && range->base == dptr && (length == 0 || length == range->bytes);
  if (!whole || range->kind != MemoryKind::kManaged ||
      (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
       flags != CU_MEM_ATTACH_SINGLE) ||
      (flags == CU_MEM_ATTACH_SINGLE && wire(stream) <= 1))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;  // all of it is everybody's at any time
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t count, CUmem_advise advice,
                        CUmemLocation location) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (!is_managed(address, count)) return CUDA_ERROR_INVALID_VALUE;
  if (needs_place(advice) && !is_place(e, location))
    return advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ? CUDA_ERROR_INVALID_VALUE
                                                          : CUDA_ERROR_INVALID_DEVICE;
  bool known = true;
  std::lock_guard lock(advices().mutex);
  advices().each(address, count,
                 [&](Advice& one) { known = known && apply(one, advice, location); });
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult sluice_mem_advise_v1(CUdeviceptr address, size_t count, CUmem_advise advice,
                              CUdevice device) {
  return cuMemAdvise_v2(address, count, advice, place_of(device));
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t count, CUmemLocation location,
                               unsigned int flags, CUstream stream) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (flags != 0 || !is_managed(address, count)) return CUDA_ERROR_INVALID_VALUE;
  if (!is_place(e, location)) return CUDA_ERROR_INVALID_DEVICE;
  if (const CUresult bad = resolve_stream(stream); bad != CUDA_SUCCESS) return bad;
  std::lock_guard lock(advices().mutex);
  advices().each(address, count, [&](Advice& one) { one.prefetched = location; });
  return CUDA_SUCCESS;
}
CUresult sluice_mem_prefetch_v1(CUdeviceptr address, size_t count, CUdevice device,
                                CUstream stream) {
  return cuMemPrefetchAsync_v2(address, count, place_of(device), 0, stream);
}

namespace {

// All ranges of a batch are managed memory.
bool are_managed(const CUdeviceptr* addresses, const size_t* sizes, size_t count) {
  if (addresses == nullptr || sizes == nullptr || count == 0) return false;
  for (size_t i = 0; i < count; ++i)
    if (!is_managed(addresses[i], sizes[i])) return false;
  return true;
}

}  // namespace

// places[k] is for the ranges from place_indices[k] up to the next of these.
CUresult cuMemPrefetchBatchAsync(CUdeviceptr* addresses, size_t* sizes, size_t count,
                                 CUmemLocation* places, size_t* place_indices, size_t place_count,
                                 unsigned long long flags, CUstream stream) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (flags != 0 || !are_managed(addresses, sizes, count) || places == nullptr ||
      place_indices == nullptr || place_count == 0 || place_count > count || place_indices[0] != 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t k = 0; k < place_count; ++k) {
    if (k > 0 && (place_indices[k] <= place_indices[k - 1] || place_indices[k] >= count))
      return CUDA_ERROR_INVALID_VALUE;
    if (!is_place(e, places[k])) return CUDA_ERROR_INVALID_DEVICE;
  }
  if (const CUresult bad = resolve_stream(stream); bad != CUDA_SUCCESS) return bad;
  std::lock_guard lock(advices().mutex);
  for (size_t i = 0, k = 0; i < count; ++i) {
    if (k + 1 < place_count && place_indices[k + 1] == i) ++k;
    advices().each(addresses[i], sizes[i], [&](Advice& one) { one.prefetched = places[k]; });
  }
  return CUDA_SUCCESS;
}
// What is discarded may be anything, so also what it was.
CUresult cuMemDiscardBatchAsync(CUdeviceptr* addresses, size_t* sizes, size_t count,
                                unsigned long long flags, CUstream stream) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (flags != 0 || !are_managed(addresses, sizes, count)) return CUDA_ERROR_INVALID_VALUE;
  return resolve_stream(stream);
}
CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* addresses, size_t* sizes, size_t count,
                                           CUmemLocation* places, size_t* place_indices,
                                           size_t place_count, unsigned long long flags,
                                           CUstream stream) {
  return cuMemPrefetchBatchAsync(addresses, sizes, count, places, place_indices, place_count, flags,
                                 stream);
}

CUresult cuMemRangeGetAttribute(void* data, size_t data_size, CUmem_range_attribute attribute,
                                CUdeviceptr address, size_t count) {
  const Entered e = enter_context();
  if (!e) return e.status;
  return read_attribute(data, data_size, attribute, address, count);
}

CUresult cuMemRangeGetAttributes(void** data, size_t* data_sizes, CUmem_range_attribute* attributes,
                                 size_t attribute_count, CUdeviceptr address, size_t count) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (data == nullptr || data_sizes == nullptr || attributes == nullptr || attribute_count == 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < attribute_count; ++i) {
    const CUresult r = read_attribute(data[i], data_sizes[i], attributes[i], address, count);
    if (r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}
