// SPDX-License-Identifier: Apache-2.0
// Device memory, pinned memory, and what a pointer points to.
#include <algorithm>

#include "guest-agent/graphs/capture.h"
#include "guest-agent/shim/memory/managed.h"
#include "guest-agent/shim/memory/pinned.h"
#include "guest-agent/shim/memory/pools.h"
#include "guest-agent/shim/memory/registered.h"
#include "guest-agent/shim/state/api.h"

using namespace sluice::guest;
namespace graphs = sluice::graphs;

namespace {

void remember(uint64_t base, uint64_t bytes, MemoryKind kind, uint64_t context, unsigned flags = 0,
              CUmemoryPool pool = nullptr) {
  Range range;
  range.base = base;
  range.bytes = bytes;
  range.kind = kind;
  range.context = context;
  range.flags = flags;
  range.pool = pool;
  state().pointers.add(range);
}

// What a free leaves: its pool's account, or the range once more if it failed.
CUresult freed(const Entered& e, const Range& range, CUresult r) {
  if (r == CUDA_SUCCESS)
    return_to_pool(range.pool, range.bytes);
  else if (e.link->dead() == CUDA_SUCCESS)
    state().pointers.add(range);
  return r;
}

}  // namespace

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  const Entered e = enter_context();
  if (!e) return e.status;
  return SLUICE_CALL(cuMemGetInfo_v2, *e.link, e.context, free, total);
}

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (dptr == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = graphs::refuse_unsafe(); r != CUDA_SUCCESS) return r;
  const CUresult r = SLUICE_CALL(cuMemAlloc_v2, *e.link, e.context, dptr, bytesize);
  if (r == CUDA_SUCCESS) remember(*dptr, bytesize, MemoryKind::kDevice, e.context);
  return r;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pitch, size_t width_in_bytes, size_t height,
                            unsigned int element_size_bytes) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (dptr == nullptr || pitch == nullptr || width_in_bytes == 0 || height == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = graphs::refuse_unsafe(); r != CUDA_SUCCESS) return r;
  const CUresult r = SLUICE_CALL(cuMemAllocPitch_v2, *e.link, e.context, dptr, pitch,
                                 width_in_bytes, height, element_size_bytes);
  if (r == CUDA_SUCCESS) remember(*dptr, *pitch * height, MemoryKind::kDevice, e.context);
  return r;
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (dptr == 0) return CUDA_SUCCESS;
  if (const CUresult r = graphs::refuse_unsafe(); r != CUDA_SUCCESS) return r;
  if (const auto r = graphs::free_graph_memory(dptr)) return *r;
  if (const auto r = free_managed(dptr)) return *r;
  if (const auto r = free_imported(dptr)) return *r;
  const auto range = state().pointers.take(dptr, MemoryKind::kDevice);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  return freed(e, *range, SLUICE_CALL(cuMemFree_v2, *e.link, range->context, dptr));
}

namespace {

CUresult alloc_async(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool, CUstream stream) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (dptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = resolve_stream(stream); bad != CUDA_SUCCESS) return bad;
  if (bytesize == 0) {  // null, which cuMemFreeAsync takes (seen on an H100)
    *dptr = 0;
    return CUDA_SUCCESS;
  }
  if (graphs::capturing()) {
    std::shared_ptr<graphs::GraphMemory> memory;
    CUresult made = CUDA_SUCCESS;
    const auto captured = graphs::capture_node(stream, [&]() -> graphs::WorkPtr {
      made = graphs::GraphMemory::make(bytesize, &memory);
      return made == CUDA_SUCCESS ? graphs::alloc_work(memory, bytesize) : nullptr;
    });
    if (made != CUDA_SUCCESS) return made;
    if (captured && *captured == CUDA_SUCCESS) *dptr = memory->address();
    if (captured) return *captured;
  }
  if (const CUresult r = graphs::refuse_unsafe(); r != CUDA_SUCCESS) return r;
  if (const CUresult r = take_from_pool(pool, bytesize); r != CUDA_SUCCESS) return r;
  const CUresult r = SLUICE_CALL(cuMemAllocAsync, *e.link, e.context, dptr, bytesize, stream);
  if (r != CUDA_SUCCESS) {
    return_to_pool(pool, bytesize);
    return r;
  }
  remember(*dptr, bytesize, MemoryKind::kDevice, e.context, 0, pool);
  reserve_in_pool(pool);
  return r;
}

}  // namespace

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream stream) {
  return alloc_async(dptr, bytesize, current_pool(), stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream stream) {
  return alloc_async(dptr, bytesize, pool, stream);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream stream) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (const CUresult bad = resolve_stream(stream); bad != CUDA_SUCCESS) return bad;
  if (dptr == 0) return CUDA_SUCCESS;
  if (const auto captured = graphs::capture_node(stream, [&]() -> graphs::WorkPtr {
        auto memory = graphs::GraphMemory::find(dptr);
        return memory == nullptr ? nullptr : graphs::free_work(std::move(memory));
      })) {
    return *captured;
  }
  if (const auto r = graphs::free_graph_memory(dptr)) return *r;
  if (const auto r = free_imported(dptr)) return *r;
  const auto range = state().pointers.take(dptr, MemoryKind::kDevice);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  return freed(e, *range, SLUICE_CALL(cuMemFreeAsync, *e.link, e.context, dptr, stream));
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  const Entered e = enter_context();
  if (!e) return e.status;
  const auto range = state().pointers.find(dptr);
  if (!range || range->kind == MemoryKind::kRegistered) return CUDA_ERROR_NOT_FOUND;
  if (pbase != nullptr) *pbase = range->base;
  if (psize != nullptr) *psize = range->bytes;
  return CUDA_SUCCESS;
}

// ---- host memory ----

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int flags) {
  const Entered e = enter_context();
  if (!e) return e.status;
  constexpr unsigned kKnown =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (pp == nullptr || bytesize == 0 || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = graphs::refuse_unsafe(); r != CUDA_SUCCESS) return r;
  const CUresult r = allocate_pinned(e, bytesize, pp);
  if (r == CUDA_SUCCESS)
    remember(reinterpret_cast<uint64_t>(*pp), bytesize, MemoryKind::kPinned, e.context, flags);
  return r;
}

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) { return cuMemHostAlloc(pp, bytesize, 0); }

CUresult cuMemFreeHost(void* p) {
  const Entered e = enter();
  if (!e) return e.status;
  const auto range = state().pointers.take(reinterpret_cast<uint64_t>(p), MemoryKind::kPinned);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  return pinned_memory().release(*e.link, range->context, p, range->bytes);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int flags) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (pdptr == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto range = state().pointers.find(reinterpret_cast<uint64_t>(p));
  if (!range || range->kind == MemoryKind::kManaged) return CUDA_ERROR_INVALID_VALUE;
  if (range->kind == MemoryKind::kRegistered)
    return device_address_of_registered(e, reinterpret_cast<uint64_t>(p), pdptr);
  *pdptr = reinterpret_cast<uint64_t>(p);  // same address on both sides, and for the GPU
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int* flags, void* p) {
  const Entered e = enter_context();
  if (!e) return e.status;
  const auto range = state().pointers.find(reinterpret_cast<uint64_t>(p));
  const bool pinned = range && range->kind == MemoryKind::kPinned;
  const bool registered = range && range->kind == MemoryKind::kRegistered;
  if (flags == nullptr || (!pinned && !registered)) return CUDA_ERROR_INVALID_VALUE;
  // Portable and mapped have the same bits in both; under unified addressing all of it is mapped.
  *flags = (registered ? range->flags & CU_MEMHOSTREGISTER_PORTABLE : range->flags) |
           CU_MEMHOSTALLOC_DEVICEMAP;
  return CUDA_SUCCESS;
}

// ---- pointers ----

namespace {

template <class T>
CUresult give(void* data, T value) {
  *static_cast<T*>(data) = value;
  return CUDA_SUCCESS;
}

CUresult device_pointer(void* data, const Range& range, CUdeviceptr ptr) {
  if (range.kind != MemoryKind::kRegistered) return give<CUdeviceptr>(data, ptr);
  const auto device = known_device_address(ptr);
  return device ? give<CUdeviceptr>(data, *device) : CUDA_ERROR_INVALID_VALUE;
}

CUresult pointer_attribute(void* data, CUpointer_attribute attribute, const Range& range,
                           CUdeviceptr ptr) {
  const bool host = range.kind != MemoryKind::kDevice;
  const bool managed = range.kind == MemoryKind::kManaged;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return give(data, reinterpret_cast<CUcontext>(range.context));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return give<unsigned>(data, host && !managed ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return device_pointer(data, range, ptr);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!host) return CUDA_ERROR_INVALID_VALUE;
      return give(data, reinterpret_cast<void*>(ptr));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return give<unsigned long long>(data, range.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return give<unsigned>(data, managed ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return give<unsigned>(data, may_be_exported(range));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return give<unsigned>(data, 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: {
      const auto context = state().context(range.context);
      return give<int>(data, context ? context->device : 0);
    }
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return give(data, reinterpret_cast<void*>(range.base));
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return give<size_t>(data, range.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return give<int>(data, range.kind != MemoryKind::kRegistered || known_device_address(ptr));
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return give<uint64_t>(data,
                            shared_pool(range.pool) ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return give<unsigned>(data, 3);  // read and write
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return give(data, range.pool);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return give<size_t>(data, range.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return give(data, reinterpret_cast<void*>(range.base));
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return give<uint64_t>(data, range.id);
    default:
      if (attribute < CU_POINTER_ATTRIBUTE_CONTEXT ||
          attribute > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE)
        return CUDA_ERROR_INVALID_VALUE;  // no attribute
      return static_cast<CUresult>(not_supported("cuPointerGetAttribute", "this attribute"));
  }
}

}  // namespace

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  const Entered e = enter();
  if (!e) return e.status;
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto range = state().pointers.find(ptr);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  return pointer_attribute(data, attribute, *range, ptr);
}

// As CUDA's: what cannot be answered, for an address that is nobody's too, reads as zero.
CUresult cuPointerGetAttributes(unsigned int num_attributes, CUpointer_attribute* attributes,
                                void** data, CUdeviceptr ptr) {
  const Entered e = enter();
  if (!e) return e.status;
  if (num_attributes == 0 || attributes == nullptr || data == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  const auto range = state().pointers.find(ptr);
  for (unsigned i = 0; i < num_attributes; ++i) {
    if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (range && pointer_attribute(data[i], attributes[i], *range, ptr) == CUDA_SUCCESS) continue;
    switch (attributes[i]) {  // by the size of the answer
      case CU_POINTER_ATTRIBUTE_CONTEXT:
      case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *static_cast<uint64_t*>(data[i]) = 0;
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int*>(data[i]) = CU_DEVICE_INVALID;
        break;
      default:
        *static_cast<unsigned*>(data[i]) = 0;
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  const Entered e = enter();
  if (!e) return e.status;
  if (value == nullptr || !state().pointers.find(ptr)) return CUDA_ERROR_INVALID_VALUE;
  // Copies of this library are ordered as SYNC_MEMOPS asks for in any case.
  if (attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_SUCCESS;
  return CUDA_ERROR_INVALID_VALUE;
}
