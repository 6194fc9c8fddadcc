// SPDX-License-Identifier: Apache-2.0
// The driver API's memory: device allocations, host memory that the GPU addresses, pointers.
//
// Device addresses are host addresses of this process. Host memory has the same address on both
// sides (unified addressing) and is seen by all contexts.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "mediator/softgpu/state/state.h"

using namespace sluice;
using namespace sluice::softgpu;

namespace {

constexpr size_t kPitchUnit = 512;
// cuMemAllocManaged: who may touch it at first (CU_MEM_ATTACH_GLOBAL, CU_MEM_ATTACH_HOST).
constexpr unsigned kAttachGlobal = 1, kAttachHost = 2;
constexpr unsigned kHostAllocFlags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned kRegisterFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                    CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

// Under s.mutex: makes a range known to all contexts, all or none.
bool add_host_range(State& s, uint64_t base, const HostRange& range) {
  // Overlap with a range that is there, of which contexts that have failed know nothing.
  const auto next = s.host_ranges.lower_bound(base);
  if (next != s.host_ranges.end() && next->first < base + range.bytes) return false;
  if (next != s.host_ranges.begin() &&
      std::prev(next)->first + std::prev(next)->second.bytes > base)
    return false;
  s.host_ranges.emplace(base, range);
  for (const auto& weak : s.live_contexts) {
    if (const auto context = weak.lock())
      (void)context->map.add(base, range.bytes, range.writable).ok();
  }
  return true;
}

CUresult allocate_host(void** out, size_t bytes, unsigned flags) {
  return with_context([&](State& s, Context&) {
    if (out == nullptr || (flags & ~kHostAllocFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (bytes == 0) {
      *out = nullptr;
      return CUDA_SUCCESS;
    }
    void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    std::lock_guard lock(s.mutex);
    if (!add_host_range(s, reinterpret_cast<uint64_t>(p), {bytes, flags, true, true})) {
      ::munmap(p, bytes);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = p;
    return CUDA_SUCCESS;
  });
}

// Removes the range that begins at `p`, after everything that may use it.
CUresult drop_host_range(void* p, bool ours, CUresult not_there) {
  return with_context([&](State& s, Context& current) {
    const auto base = reinterpret_cast<uint64_t>(p);
    std::vector<std::shared_ptr<Context>> contexts;
    {
      std::lock_guard lock(s.mutex);
      const auto it = s.host_ranges.find(base);
      if (it == s.host_ranges.end() || it->second.ours != ours) return not_there;
      for (const auto& weak : s.live_contexts) {
        if (auto context = weak.lock()) contexts.push_back(std::move(context));
      }
    }
    for (const auto& context : contexts) s.scheduler.wait(*context);
    size_t bytes;
    {
      std::lock_guard lock(s.mutex);
      const auto it = s.host_ranges.find(base);
      if (it == s.host_ranges.end() || it->second.ours != ours) return not_there;
      bytes = it->second.bytes;
      s.host_ranges.erase(it);
      for (const auto& context : contexts) context->map.remove(base);
    }
    if (ours) ::munmap(p, bytes);
    return outcome(current);
  });
}

// The registered or pinned range that holds `address`; false: none.
bool find_host_range(State& s, uint64_t address, uint64_t& base, HostRange& range) {
  std::lock_guard lock(s.mutex);
  auto it = s.host_ranges.upper_bound(address);
  if (it == s.host_ranges.begin()) return false;
  --it;
  if (address - it->first >= it->second.bytes) return false;
  base = it->first;
  range = it->second;
  return true;
}

bool find_allocation(Context& context, uint64_t address, uint64_t& base, uint64_t& bytes) {
  std::lock_guard lock(context.mutex);
  auto it = context.allocations.upper_bound(address);
  if (it != context.allocations.begin() && address - std::prev(it)->first < std::prev(it)->second) {
    std::tie(base, bytes) = *std::prev(it);
    return true;
  }
  auto import = context.imports.upper_bound(address);
  if (import == context.imports.begin()) return false;
  --import;
  base = import->first;
  bytes = import->second.bytes;
  return address - base < bytes;
}

// What one pointer is; `known` false: pageable host memory or nothing.
struct PointerInfo {
  bool known = false, device = false, managed = false;
  uint64_t base = 0, bytes = 0;
  std::shared_ptr<Context> context;
};

PointerInfo look_up(State& s, uint64_t address) {
  PointerInfo info;
  std::vector<std::shared_ptr<Context>> contexts;
  {
    std::lock_guard lock(s.mutex);
    for (const auto& weak : s.live_contexts) {
      if (auto context = weak.lock()) contexts.push_back(std::move(context));
    }
  }
  for (auto& context : contexts) {
    if (!find_allocation(*context, address, info.base, info.bytes)) continue;
    info.known = info.device = true;
    {
      std::lock_guard lock(context->mutex);
      info.managed = context->managed.count(info.base) != 0;
    }
    info.context = std::move(context);
    return info;
  }
  {
    std::lock_guard lock(s.mutex);
    if (const auto* mapping = s.virtual_memory.ranges.find(address)) {
      info.known = info.device = true;  // of no context
      info.base = mapping->base;
      info.bytes = mapping->bytes;
      return info;
    }
  }
  HostRange range;
  if (find_host_range(s, address, info.base, range)) {
    info.known = true;
    info.bytes = range.bytes;
    info.context = current().context;
  }
  return info;
}

template <class T>
CUresult put(void* data, T value) {
  *static_cast<T*>(data) = value;
  return CUDA_SUCCESS;
}

CUresult get_attribute(State&, void* data, CUpointer_attribute attribute, uint64_t address,
                       const PointerInfo& info) {
  if (!info.known) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put(data, info.context ? info.context->handle : CUcontext{});
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put(data,
                 static_cast<unsigned>(info.device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put(data, CUdeviceptr{address});
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (info.device && !info.managed) return CUDA_ERROR_INVALID_VALUE;
      return put(data, reinterpret_cast<void*>(address));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put(data, static_cast<unsigned long long>(info.base));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put(data, 0);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put(data, CUdeviceptr{info.base});
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put(data, static_cast<size_t>(info.bytes));
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put(data, 1u);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put(data, static_cast<unsigned>(info.managed));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put(data, static_cast<unsigned>(info.device && !info.managed && info.context));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return put(data, 0u);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// What cuPointerGetAttributes, which never fails for an unknown pointer, says then.
void put_nothing(void* data, CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      put(data, 0u);
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      put(data, -2);
      break;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      put(data, uint64_t{0});
      break;
    default:
      break;
  }
}

}  // namespace

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  return with_context([&](State& s, Context&) {
    if (free_bytes == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *free_bytes = s.gpu->free_memory();
    *total = s.gpu->memory_bytes();
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  return with_context([&](State& s, Context& context) {
    if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    const uint64_t base = allocate_device(s, context, bytes);
    if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = base;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width, size_t height,
                            unsigned int element_bytes) {
  if (pitch == nullptr || width == 0 || height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16)
    return CUDA_ERROR_INVALID_VALUE;
  if (width > std::numeric_limits<size_t>::max() - kPitchUnit) return CUDA_ERROR_INVALID_VALUE;
  const size_t row = (width + kPitchUnit - 1) / kPitchUnit * kPitchUnit;
  if (height > std::numeric_limits<size_t>::max() / row) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult r = cuMemAlloc_v2(out, row * height);
  if (r == CUDA_SUCCESS) *pitch = row;
  return r;
}

namespace {

// Whether an allocation of the program's own begins there: a module's variable is not.
bool may_free(Context& context, CUdeviceptr address) {
  uint64_t base, bytes;
  if (!find_allocation(context, address, base, bytes) || base != address) return false;
  std::lock_guard lock(context.mutex);
  return context.variables.count(base) == 0 && context.imports.count(base) == 0;
}

}  // namespace

CUresult cuMemFree_v2(CUdeviceptr address) {
  if (address == 0) return CUDA_SUCCESS;
  return with_context([&](State& s, Context& context) {
    if (!may_free(context, address)) return CUDA_ERROR_INVALID_VALUE;
    // Freeing waits for everything that may use the memory, as the real driver does.
    s.scheduler.wait(context);
    if (!free_device(s, context, address)) return CUDA_ERROR_INVALID_VALUE;
    return outcome(context);
  });
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base_out, size_t* bytes_out, CUdeviceptr address) {
  return with_context([&](State& s, Context& context) {
    uint64_t base, bytes;
    HostRange range;
    if (!find_allocation(context, address, base, bytes)) {
      const PointerInfo info = look_up(s, address);
      if (info.device && info.context == nullptr) {
        base = info.base;
        bytes = info.bytes;
      } else if (find_host_range(s, address, base, range)) {
        bytes = range.bytes;
      } else {
        return CUDA_ERROR_NOT_FOUND;
      }
    }
    if (base_out != nullptr) *base_out = base;
    if (bytes_out != nullptr) *bytes_out = bytes;
    return CUDA_SUCCESS;
  });
}

// Allocated at once, which is earlier than promised; freed in the order of the stream.
CUresult cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream handle) {
  return with_stream(handle, [&](State&, Context&, Stream&) {
    if (out == nullptr || bytes != 0) return cuMemAlloc_v2(out, bytes);
    *out = 0;  // seen on an H100
    return CUDA_SUCCESS;
  });
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  if (address == 0) return CUDA_SUCCESS;
  return with_stream(handle, [&](State& s, Context& context, Stream& stream) {
    if (!may_free(context, address)) return CUDA_ERROR_INVALID_VALUE;
    auto operation = std::make_shared<Operation>();
    operation->kind = Operation::Kind::kTransfer;
    operation->run = [&s, &context, address] { free_device(s, context, address); };
    s.scheduler.enqueue(stream, operation);
    return CUDA_SUCCESS;
  });
}

// Device memory is the host's memory here, so migration is nobody's business.
CUresult cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned int flags) {
  return with_context([&](State& s, Context& context) {
    if (out == nullptr || bytes == 0 || (flags != kAttachGlobal && flags != kAttachHost))
      return CUDA_ERROR_INVALID_VALUE;
    const uint64_t base = allocate_device(s, context, bytes);
    if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    std::lock_guard lock(context.mutex);
    context.managed.insert(base);
    *out = base;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostAlloc(void** out, size_t bytes, unsigned int flags) {
  return allocate_host(out, bytes, flags);
}
CUresult cuMemAllocHost_v2(void** out, size_t bytes) { return allocate_host(out, bytes, 0); }
CUresult cuMemFreeHost(void* p) { return drop_host_range(p, true, CUDA_ERROR_INVALID_VALUE); }

CUresult cuMemHostRegister_v2(void* p, size_t bytes, unsigned int flags) {
  return with_context([&](State& s, Context&) {
    if (p == nullptr || bytes == 0 || (flags & ~kRegisterFlags) != 0)
      return CUDA_ERROR_INVALID_VALUE;
    // Real pinning fails for what is not mapped; touching it later would end the process.
    const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    const auto first = reinterpret_cast<uint64_t>(p) / page * page;
    const uint64_t pages = (reinterpret_cast<uint64_t>(p) + bytes - first + page - 1) / page;
    std::vector<unsigned char> present(pages);
    if (::mincore(reinterpret_cast<void*>(first), pages * page, present.data()) != 0)
      return CUDA_ERROR_INVALID_VALUE;
    const bool writable = (flags & CU_MEMHOSTREGISTER_READ_ONLY) == 0;
    std::lock_guard lock(s.mutex);
    return add_host_range(s, reinterpret_cast<uint64_t>(p), {bytes, flags, false, writable})
               ? CUDA_SUCCESS
               : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  });
}

CUresult cuMemHostUnregister(void* p) {
  return drop_host_range(p, false, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* p, unsigned int flags) {
  return with_context([&](State& s, Context&) {
    uint64_t base;
    HostRange range;
    if (out == nullptr || flags != 0 ||
        !find_host_range(s, reinterpret_cast<uint64_t>(p), base, range)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *out = reinterpret_cast<CUdeviceptr>(p);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostGetFlags(unsigned int* flags, void* p) {
  return with_context([&](State& s, Context&) {
    uint64_t base;
    HostRange range;
    if (flags == nullptr || !find_host_range(s, reinterpret_cast<uint64_t>(p), base, range)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    // Under unified addressing all pinned memory is mapped, and reported as portable only where it
    // was asked for (an H100). Registered memory has no other flags here.
    *flags = (range.ours ? range.flags : range.flags & CU_MEMHOSTREGISTER_PORTABLE) |
             CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
  });
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  return with_state([&](State& s) {
    if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return get_attribute(s, data, attribute, address, look_up(s, address));
  });
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr address) {
  return with_state([&](State& s) {
    if (count == 0 || attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const PointerInfo info = look_up(s, address);
    for (unsigned i = 0; i < count; ++i) {
      if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      if (get_attribute(s, data[i], attributes[i], address, info) != CUDA_SUCCESS)
        put_nothing(data[i], attributes[i]);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                               CUdeviceptr address) {
  return with_state([&](State& s) {
    // Copies between host and device are always synchronous enough: accepted and without effect.
    if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
      return CUDA_ERROR_INVALID_VALUE;
    return look_up(s, address).device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}
