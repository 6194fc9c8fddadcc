// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/shim/memory/registered.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "guest-agent/graphs/capture.h"
#include "guest-agent/shim/memory/pinned.h"
#include "guest-agent/shim/state/api.h"

namespace sluice::guest {

namespace {

// A registered range that has a device address.
struct Mapped {
  uint64_t bytes = 0;
  void* allocation = nullptr;  // of pinned_memory(), `allocated` bytes
  uint64_t allocated = 0;
  uint64_t window = 0;   // where it lies there: at a page
  bool unasked = false;  // for its copies alone: nobody knows its device address
};
struct MappedRanges {
  std::mutex mutex;                // held while pages are changed
  std::map<uint64_t, Mapped> all;  // by the program's address
  uint64_t unasked_bytes = 0;      // of those that are
  std::atomic<bool> any{false};    // ever: most programs have none
};
// What a program may have mapped without having asked: a part of the region. The rest is for what
// fails without room.
constexpr uint64_t kUnaskedPart = 4;
MappedRanges& mapped_ranges() {
  static auto* it = new MappedRanges;
  return *it;
}

uint64_t page_bytes() {
  static const auto bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

// A line of /proc/self/maps, as far as it matters.
struct Mapping {
  unsigned long begin = 0, end = 0, offset = 0, inode = 0;
  char rights[5] = {}, device[16] = {};
  std::string name;
};

// Calls use(mapping) for what lies in [base, base + bytes), in order; false: there is a hole, it
// cannot be read, or `use` said so.
template <class Use>
bool each_mapping(uint64_t base, uint64_t bytes, Use&& use) {
  FILE* file = std::fopen("/proc/self/maps", "re");
  if (file == nullptr) return false;
  uint64_t at = base;
  const uint64_t end = base + bytes;
  char line[4608];
  bool good = true;
  while (good && at < end && std::fgets(line, sizeof line, file) != nullptr) {
    Mapping m;
    int name_at = 0;
    if (std::sscanf(line, "%lx-%lx %4s %lx %15s %lu %n", &m.begin, &m.end, m.rights, &m.offset,
                    m.device, &m.inode, &name_at) < 6)
      break;
    if (m.end <= at) continue;
    if (m.begin > at) break;
    m.name = line + name_at;
    good = use(m);
    at = m.end;
  }
  std::fclose(file);
  return good && at >= end;
}

// Memory that may be copied and mapped anew without anybody's seeing it but the program.
bool is_private_memory(uint64_t base, uint64_t bytes) {
  return each_mapping(base, bytes, [](const Mapping& m) {
    return std::strcmp(m.rights, "rw-p") == 0 && m.name.rfind("[stack", 0) != 0;
  });
}

// Whether our mapping of the region is still there: a program may have freed its memory before it
// unregisters it, and something else may lie there now.
bool is_still_mapped(uint64_t base, const Mapped& range) {
  Mapping window;
  if (!each_mapping(range.window, range.bytes, [&](const Mapping& m) {
        if (window.end == 0) window = m;
        return true;
      }))
    return false;
  const uint64_t first = window.offset + (range.window - window.begin);
  return each_mapping(base, range.bytes, [&](const Mapping& m) {
    return std::strcmp(m.rights, "rw-s") == 0 && m.inode == window.inode &&
           std::strcmp(m.device, window.device) == 0 && m.offset - m.begin == first - base;
  });
}

// While it is held nobody else can write to the program's memory. Not held: somebody may. Who holds
// it waits for nothing that is queued, which may be a function of the program's.
std::unique_lock<std::mutex> alone() {
  std::unique_lock lock(WorkerLink::callbacks(), std::try_to_lock);
  FILE* file = std::fopen("/proc/self/status", "re");
  char line[256];
  unsigned threads = 0;
  while (file != nullptr && threads == 0 && std::fgets(line, sizeof line, file) != nullptr)
    (void)std::sscanf(line, "Threads: %u", &threads);
  if (file != nullptr) std::fclose(file);
  if (lock && (threads == 0 || threads > 1 + WorkerLink::own_threads())) lock.unlock();
  return lock;
}

// With the lock held. `unasked`: no word of why not.
CUresult map_range(const Entered& e, uint64_t base, uint64_t bytes, unsigned flags, bool unasked) {
  const auto refuse = [&](const char* why) {
    if (unasked) return CUDA_ERROR_NOT_SUPPORTED;
    return static_cast<CUresult>(not_supported("a device address of registered memory", why));
  };
  const uint64_t page = page_bytes();
  if (base % page != 0 || bytes % page != 0) return refuse("it has to be whole pages");
  const uint64_t room = e.link->channel().region_bytes() / kUnaskedPart;
  if (unasked && (mapped_ranges().unasked_bytes > room ||
                  bytes > room - mapped_ranges().unasked_bytes || !alone()))
    return CUDA_ERROR_NOT_SUPPORTED;
  if (!is_private_memory(base, bytes))
    return refuse("it has to be private memory that can be read and written");
  Mapped range;
  range.bytes = bytes;
  range.unasked = unasked;
  range.allocated = bytes + page;  // small allocations do not begin at a page
  CUresult r = pinned_memory().allocate(*e.link, e.context, range.allocated, &range.allocation);
  if (r != CUDA_SUCCESS) return r;
  range.window = (reinterpret_cast<uint64_t>(range.allocation) + page - 1) / page * page;
  const auto change = [&] {
    const auto nobody_else = unasked ? alone() : std::unique_lock<std::mutex>();
    if (unasked && !nobody_else) return false;
    std::memcpy(reinterpret_cast<void*>(range.window), reinterpret_cast<void*>(base), bytes);
    return e.link->channel().map_again(reinterpret_cast<void*>(base),
                                       e.link->offset_of(reinterpret_cast<void*>(range.window)),
                                       bytes);
  };
  if (!change()) {
    pinned_memory().release(*e.link, e.context, range.allocation, range.allocated);
    return refuse("the system does not map it anew");
  }
  Range device;
  device.base = range.window;
  device.bytes = bytes;
  device.kind = MemoryKind::kPinned;
  device.context = e.context;
  device.flags = flags;
  device.static_global = true;  // nothing to free by this address
  state().pointers.add(device);
  mapped_ranges().all[base] = range;
  if (unasked) mapped_ranges().unasked_bytes += bytes;
  mapped_ranges().any = true;
  return CUDA_SUCCESS;
}

// With the lock held. `asked`: for the program.
std::optional<CUdeviceptr> find_mapped(uint64_t address, uint64_t bytes, bool asked) {
  auto it = mapped_ranges().all.upper_bound(address);
  if (it == mapped_ranges().all.begin()) return std::nullopt;
  Mapped& range = (--it)->second;
  const uint64_t before = address - it->first;
  if (before >= range.bytes || bytes > range.bytes - before) return std::nullopt;
  if (asked && std::exchange(range.unasked, false)) mapped_ranges().unasked_bytes -= range.bytes;
  return range.window + before;
}

// What is queued may read and write it, in any context.
void wait_for_all(const Entered& e) {
  std::vector<uint64_t> contexts;
  {
    std::lock_guard lock(state().contexts_mutex);
    for (const auto& [handle, info] : state().contexts) contexts.push_back(handle);
  }
  sluice_synchronize body{};
  body.what = SLUICE_SYNC_CONTEXT;
  for (const uint64_t context : contexts)
    e.link->defer(e.link->call(SLUICE_CALL_SYNCHRONIZE, context, body));
}

// With the lock held, when nothing is queued any more that may use it.
void unmap_range(const Entered& e, uint64_t base, uint64_t context) {
  const auto it = mapped_ranges().all.find(base);
  if (it == mapped_ranges().all.end()) return;
  const Mapped range = it->second;
  if (is_still_mapped(base, range) &&
      !e.link->channel().map_private(reinterpret_cast<void*>(base), range.bytes))
    return;  // no memory for a copy: it stays as it is
  state().pointers.remove(range.window);
  mapped_ranges().all.erase(it);
  if (range.unasked) mapped_ranges().unasked_bytes -= range.bytes;
  pinned_memory().release(*e.link, context, range.allocation, range.allocated);
}

}  // namespace

CUresult device_address_of_registered(const Entered& e, uint64_t address, CUdeviceptr* to) {
  const auto range = state().pointers.find(address);
  if (!range || range->kind != MemoryKind::kRegistered) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(mapped_ranges().mutex);
  auto known = find_mapped(address, 1, true);
  if (!known) {
    if (const CUresult r = map_range(e, range->base, range->bytes, range->flags, false);
        r != CUDA_SUCCESS)
      return r;
    known = find_mapped(address, 1, true);
  }
  *to = *known;
  return CUDA_SUCCESS;
}

std::optional<CUdeviceptr> known_device_address(uint64_t address) {
  return copied_as_pinned(address, 1, true);
}

std::optional<CUdeviceptr> copied_as_pinned(uint64_t address, uint64_t bytes, bool asked) {
  if (!mapped_ranges().any.load(std::memory_order_acquire)) return std::nullopt;
  std::lock_guard lock(mapped_ranges().mutex);
  return find_mapped(address, bytes, asked);
}

CUresult allocate_pinned(const Entered& e, size_t bytes, void** address) {
  const CUresult r = pinned_memory().allocate(*e.link, e.context, bytes, address);
  if (r != CUDA_ERROR_OUT_OF_MEMORY || !mapped_ranges().any.load(std::memory_order_acquire))
    return r;
  {
    std::lock_guard lock(mapped_ranges().mutex);
    if (mapped_ranges().unasked_bytes == 0) return r;
    wait_for_all(e);
    const auto nobody_else = alone();
    if (!nobody_else) return r;
    std::vector<uint64_t> unasked;
    for (const auto& [base, range] : mapped_ranges().all)
      if (range.unasked) unasked.push_back(base);
    for (const uint64_t base : unasked) unmap_range(e, base, e.context);
  }
  return pinned_memory().allocate(*e.link, e.context, bytes, address);
}

}  // namespace sluice::guest

using namespace sluice::guest;
namespace graphs = sluice::graphs;

CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int flags) {
  const Entered e = enter_context();
  if (!e) return e.status;
  constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                              CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
  if (p == nullptr || bytesize == 0 || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0)
    return static_cast<CUresult>(not_supported("cuMemHostRegister", "memory of other devices"));
  if (const CUresult r = graphs::refuse_unsafe(); r != CUDA_SUCCESS) return r;
  Range range;
  range.base = reinterpret_cast<uint64_t>(p);
  range.bytes = bytesize;
  if (bytesize > UINT64_MAX - range.base) return CUDA_ERROR_INVALID_VALUE;
  if (state().pointers.overlaps(range.base, bytesize))
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  range.kind = MemoryKind::kRegistered;
  range.context = e.context;
  range.flags = flags;
  state().pointers.add(range);
  if ((flags & CU_MEMHOSTREGISTER_DEVICEMAP) == 0) {
    std::lock_guard lock(mapped_ranges().mutex);
    (void)map_range(e, range.base, range.bytes, flags, true);
    return CUDA_SUCCESS;
  }
  CUdeviceptr device = 0;
  const CUresult r = device_address_of_registered(e, range.base, &device);
  if (r != CUDA_SUCCESS) state().pointers.take(range.base, MemoryKind::kRegistered);
  return r;
}

CUresult cuMemHostUnregister(void* p) {
  const Entered e = enter();
  if (!e) return e.status;
  const auto base = reinterpret_cast<uint64_t>(p);
  const auto range = state().pointers.take(base, MemoryKind::kRegistered);
  if (!range) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  std::lock_guard lock(mapped_ranges().mutex);
  if (!mapped_ranges().all.contains(base)) return CUDA_SUCCESS;
  wait_for_all(e);
  unmap_range(e, base, state().context(range->context) ? range->context : 0);
  return CUDA_SUCCESS;
}
