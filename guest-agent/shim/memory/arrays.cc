// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/shim/memory/arrays.h"

#include <algorithm>
#include <cstring>

#include "abi/array_formats.h"
#include "guest-agent/shim/memory/boxes.h"
#include "guest-agent/shim/memory/staging.h"
#include "guest-agent/shim/state/api.h"

namespace sluice::guest {

namespace {

// A piece of staging holds whole texels.
constexpr uint64_t kMostTexelBytes = 16;

// One end of a box with an array.
struct ArrayBoxEnd {
  sluice_copy_box_end wire{};
  Place place = Place::kDevice;  // of memory
  bool is_array = false;
  char* pageable = nullptr;  // the box's first byte, if it lies there
};

bool fits_extent(uint64_t at, uint64_t length, uint64_t size) {
  return at <= size && length <= size - at;
}

CUresult resolve_array(CUarray array, size_t x, size_t y, size_t z, const CUDA_MEMCPY3D& box,
                       ArrayBoxEnd* to) {
  const ArrayInfo* info = state().arrays.find(wire(array));
  if (info == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const CUDA_ARRAY3D_DESCRIPTOR& d = info->descriptor;
  if (x % info->texel_bytes != 0 || box.WidthInBytes % info->texel_bytes != 0 ||
      !fits_extent(x, box.WidthInBytes, d.Width * info->texel_bytes) ||
      !fits_extent(y, box.Height, std::max<size_t>(d.Height, 1)) ||
      !fits_extent(z, box.Depth, std::max<size_t>(d.Depth, 1)))
    return CUDA_ERROR_INVALID_VALUE;
  to->is_array = true;
  to->wire.kind = SLUICE_COPY_ARRAY;
  to->wire.at = wire(array);
  to->wire.x = x;
  to->wire.y = y;
  to->wire.z = z;
  return CUDA_SUCCESS;
}

CUresult resolve_memory(const BoxEnd& end, const CUDA_MEMCPY3D& box, bool write, ArrayBoxEnd* to) {
  // box_end() has seen that this does not overflow.
  const uint64_t rows = (box.Depth - 1) * end.rows + box.Height - 1;
  const uint64_t bytes = rows * end.pitch + box.WidthInBytes;
  to->place = place_of(end.at, bytes, end.end);
  if (to->place == Place::kInvalid ||
      (to->place == Place::kDevice && !state().pointers.may_touch(end.at, bytes, write)))
    return CUDA_ERROR_INVALID_VALUE;
  to->wire.pitch = end.pitch;
  to->wire.rows = end.rows;
  to->wire.at = end.at;
  to->wire.kind = SLUICE_COPY_DEVICE;
  if (to->place == Place::kPinned) {
    to->wire.at = offset_of_pinned(end.at);
    to->wire.kind = SLUICE_COPY_BULK;
  }
  if (to->place == Place::kPageable) to->pageable = reinterpret_cast<char*>(end.at);
  return CUDA_SUCCESS;
}

CUresult resolve_ends(const CUDA_MEMCPY3D& c, ArrayBoxEnd* dst, ArrayBoxEnd* src) {
  if (c.srcLOD != 0 || c.dstLOD != 0 || c.reserved0 != nullptr || c.reserved1 != nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult r = CUDA_SUCCESS;
  BoxEnd end;
  if (c.dstMemoryType == CU_MEMORYTYPE_ARRAY) {
    r = resolve_array(c.dstArray, c.dstXInBytes, c.dstY, c.dstZ, c, dst);
  } else {
    r = box_end(c.dstMemoryType, c.dstHost, c.dstDevice, c.dstXInBytes, c.dstY, c.dstZ, c.dstPitch,
                c.dstHeight, c, &end);
    if (r == CUDA_SUCCESS) r = resolve_memory(end, c, true, dst);
  }
  if (r != CUDA_SUCCESS) return r;
  if (c.srcMemoryType == CU_MEMORYTYPE_ARRAY)
    return resolve_array(c.srcArray, c.srcXInBytes, c.srcY, c.srcZ, c, src);
  r = box_end(c.srcMemoryType, c.srcHost, c.srcDevice, c.srcXInBytes, c.srcY, c.srcZ, c.srcPitch,
              c.srcHeight, c, &end);
  return r == CUDA_SUCCESS ? resolve_memory(end, c, false, src) : r;
}

// Between an array and pageable memory: by staging, a piece after the other. A piece is several
// rows of one slice, or part of one row.
class StagedBox {
 public:
  StagedBox(const Entered& e, const CUDA_MEMCPY3D& box, const Copy& how, const ArrayBoxEnd& dst,
            const ArrayBoxEnd& src)
      : link_(*e.link),
        context_(e.context),
        box_(box),
        how_(how),
        upload_(dst.is_array),
        array_(upload_ ? dst.wire : src.wire),
        memory_(upload_ ? src : dst) {}

  CUresult run() {
    if (upload_ && how_.in_graph)  // read when the stream has come there
      if (const CUresult r = wait_for_stream(); r != CUDA_SUCCESS) return r;
    const uint64_t most = staging(link_).piece_bytes() / kMostTexelBytes * kMostTexelBytes;
    if (most == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    const uint64_t width = std::min<uint64_t>(box_.WidthInBytes, most);
    const uint64_t at_once = width < box_.WidthInBytes ? 1 : most / width;
    for (uint64_t z = 0; z < box_.Depth; ++z)
      for (uint64_t y = 0; y < box_.Height; y += at_once)
        for (uint64_t x = 0; x < box_.WidthInBytes; x += width) {
          const CUresult r = piece(x, y, z, std::min(width, box_.WidthInBytes - x),
                                   std::min(at_once, box_.Height - y));
          if (r != CUDA_SUCCESS) return r;
        }
    return CUDA_SUCCESS;
  }

 private:
  CUresult wait_for_stream() {
    sluice_synchronize body{};
    body.what = SLUICE_SYNC_STREAM;
    body.handle = wire(how_.stream);
    return link_.with_deferred(link_.call(SLUICE_CALL_SYNCHRONIZE, context_, body));
  }

  CUresult piece(uint64_t x, uint64_t y, uint64_t z, uint64_t width, uint64_t rows) {
    const uint64_t bytes = width * rows;
    std::byte* const staged = staging(link_).acquire(bytes);
    if (staged == nullptr)
      return link_.dead() != CUDA_SUCCESS ? link_.dead() : CUDA_ERROR_OUT_OF_MEMORY;
    char* const first = memory_.pageable + (z * memory_.wire.rows + y) * memory_.wire.pitch + x;
    sluice_copy_box body{};
    sluice_copy_box_end array = array_;
    array.x += x;
    array.y += y;
    array.z += z;
    sluice_copy_box_end bulk{};
    bulk.kind = SLUICE_COPY_BULK;
    bulk.at = link_.offset_of(staged);
    bulk.pitch = width;
    bulk.rows = rows;
    body.dst = upload_ ? array : bulk;
    body.src = upload_ ? bulk : array;
    body.width = width;
    body.height = rows;
    body.depth = 1;
    body.stream = wire(how_.stream);
    body.wait = 1;
    if (upload_)
      for (uint64_t r = 0; r < rows; ++r)
        std::memcpy(staged + r * width, first + r * memory_.wire.pitch, width);
    const CUresult r = link_.with_deferred(link_.call(SLUICE_CALL_COPY_BOX, context_, body));
    if (!upload_ && r == CUDA_SUCCESS)
      for (uint64_t i = 0; i < rows; ++i)
        std::memcpy(first + i * memory_.wire.pitch, staged + i * width, width);
    staging(link_).release(staged, bytes);
    return r;
  }

  WorkerLink& link_;
  uint64_t context_;
  const CUDA_MEMCPY3D& box_;
  const Copy& how_;
  bool upload_;
  sluice_copy_box_end array_;
  const ArrayBoxEnd& memory_;
};

}  // namespace

CUresult check_array_box(const CUDA_MEMCPY3D& box) {
  ArrayBoxEnd dst, src;
  return resolve_ends(box, &dst, &src);
}

CUresult run_array_box(const Entered& e, const CUDA_MEMCPY3D& box, const Copy& how) {
  ArrayBoxEnd dst, src;
  if (const CUresult r = resolve_ends(box, &dst, &src); r != CUDA_SUCCESS) return r;
  if (dst.pageable != nullptr || src.pageable != nullptr)
    return StagedBox(e, box, how, dst, src).run();
  sluice_copy_box body{};
  body.dst = dst.wire;
  body.src = src.wire;
  body.width = box.WidthInBytes;
  body.height = box.Height;
  body.depth = box.Depth;
  body.stream = wire(how.stream);
  if (!how.wait) return e.link->post(SLUICE_CALL_COPY_BOX, e.context, body);
  body.wait = 1;
  return e.link->with_deferred(e.link->call(SLUICE_CALL_COPY_BOX, e.context, body));
}

}  // namespace sluice::guest

using namespace sluice::guest;

namespace {

CUresult create_array(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR& d) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUarray made = nullptr;
  const CUresult r = SLUICE_CALL(cuArray3DCreate_v2, *e.link, e.context, &made, &d);
  if (r != CUDA_SUCCESS) return r;
  const bool kept = state().arrays.add(wire(made), [&](ArrayInfo& info) {
    info.context = e.context;
    info.descriptor = d;
    info.texel_bytes = std::max<uint64_t>(sluice::texel_bytes(d.Format, d.NumChannels), 1);
    info.mipmap = 0;
  });
  if (!kept) {
    SLUICE_CALL(cuArrayDestroy, *e.link, e.context, made);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *array = made;
  return CUDA_SUCCESS;
}

bool is_layered(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  return (d.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
}

// As many levels as halve the longest side to 1; layers and faces are not halved.
unsigned most_levels(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  size_t longest = std::max(d.Width, d.Height);
  if (!is_layered(d)) longest = std::max(longest, d.Depth);
  unsigned levels = 1;
  for (; longest > 1; longest /= 2) ++levels;
  return levels;
}

CUDA_ARRAY3D_DESCRIPTOR level_of(CUDA_ARRAY3D_DESCRIPTOR d, unsigned level) {
  const auto halve = [level](size_t& side) {
    if (side != 0) side = std::max<size_t>(side >> level, 1);
  };
  halve(d.Width);
  halve(d.Height);
  if (!is_layered(d)) halve(d.Depth);
  return d;
}

// A row of a one-dimensional array and a run of memory.
CUDA_MEMCPY3D line(size_t bytes) {
  CUDA_MEMCPY3D box{};
  box.WidthInBytes = bytes;
  box.Height = box.Depth = 1;
  return box;
}
void to_array(CUDA_MEMCPY3D* box, CUarray array, size_t offset) {
  box->dstMemoryType = CU_MEMORYTYPE_ARRAY;
  box->dstArray = array;
  box->dstXInBytes = offset;
}
void from_array(CUDA_MEMCPY3D* box, CUarray array, size_t offset) {
  box->srcMemoryType = CU_MEMORYTYPE_ARRAY;
  box->srcArray = array;
  box->srcXInBytes = offset;
}
CUresult line_from_host(CUarray to, size_t offset, const void* from, size_t bytes, CUstream stream,
                        bool wait) {
  CUDA_MEMCPY3D box = line(bytes);
  to_array(&box, to, offset);
  box.srcMemoryType = CU_MEMORYTYPE_HOST;
  box.srcHost = from;
  return copy_box(&box, stream, wait);
}
CUresult line_to_host(void* to, CUarray from, size_t offset, size_t bytes, CUstream stream,
                      bool wait) {
  CUDA_MEMCPY3D box = line(bytes);
  from_array(&box, from, offset);
  box.dstMemoryType = CU_MEMORYTYPE_HOST;
  box.dstHost = to;
  return copy_box(&box, stream, wait);
}

}  // namespace

CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* d) {
  if (d == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create_array(array, {d->Width, d->Height, 0, d->Format, d->NumChannels, 0});
}
CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* d) {
  return d == nullptr ? CUDA_ERROR_INVALID_VALUE : create_array(array, *d);
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* descriptor, CUarray array) {
  const Entered e = enter_context();
  if (!e) return e.status;
  const ArrayInfo* info = state().arrays.find(wire(array));
  if (info == nullptr || !state().context(info->context)) return CUDA_ERROR_INVALID_HANDLE;
  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *descriptor = info->descriptor;
  return CUDA_SUCCESS;
}
CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* descriptor, CUarray array) {
  CUDA_ARRAY3D_DESCRIPTOR d;
  const CUresult r = cuArray3DGetDescriptor_v2(&d, array);
  if (r != CUDA_SUCCESS) return r;
  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *descriptor = {d.Width, d.Height, d.Format, d.NumChannels};
  return CUDA_SUCCESS;
}

CUresult cuArrayDestroy(CUarray array) {
  const Entered e = enter();
  if (!e) return e.status;
  const ArrayInfo* info = state().arrays.find(wire(array));
  if (info == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const uint64_t context = info->context;
  if (info->mipmap != 0 || !state().arrays.remove(wire(array))) return CUDA_ERROR_INVALID_HANDLE;
  if (!state().context(context)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return e.link->with_deferred(SLUICE_CALL(cuArrayDestroy, *e.link, context, array));
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* d,
                                unsigned int levels) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (array == nullptr || d == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUmipmappedArray made = nullptr;
  const CUresult r = SLUICE_CALL(cuMipmappedArrayCreate, *e.link, e.context, &made, d, levels);
  if (r != CUDA_SUCCESS) return r;
  const bool kept = state().mipmaps.add(wire(made), [&](MipmapInfo& info) {
    info.context = e.context;
    info.descriptor = *d;
    info.levels = std::clamp(levels, 1u, most_levels(*d));
    std::lock_guard lock(info.mutex);
    info.known.assign(info.levels, 0);
  });
  if (!kept) {
    SLUICE_CALL(cuMipmappedArrayDestroy, *e.link, e.context, made);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *array = made;
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray* level_array, CUmipmappedArray array,
                                  unsigned int level) {
  const Entered e = enter_context();
  if (!e) return e.status;
  MipmapInfo* info = state().mipmaps.find(wire(array));
  if (info == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (level_array == nullptr || level >= info->levels) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(info->mutex);
  if (level >= info->known.size()) return CUDA_ERROR_INVALID_HANDLE;  // it has ended meanwhile
  if (info->known[level] == 0) {
    CUarray made = nullptr;
    const CUresult r =
        SLUICE_CALL(cuMipmappedArrayGetLevel, *e.link, info->context, &made, array, level);
    if (r != CUDA_SUCCESS) return r;
    const bool kept = state().arrays.add(wire(made), [&](ArrayInfo& one) {
      one.context = info->context;
      one.descriptor = level_of(info->descriptor, level);
      one.texel_bytes = std::max<uint64_t>(
          sluice::texel_bytes(info->descriptor.Format, info->descriptor.NumChannels), 1);
      one.mipmap = wire(array);
    });
    if (!kept) return CUDA_ERROR_OUT_OF_MEMORY;
    info->known[level] = wire(made);
  }
  *level_array = reinterpret_cast<CUarray>(info->known[level]);
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
  const Entered e = enter();
  if (!e) return e.status;
  MipmapInfo* info = state().mipmaps.find(wire(array));
  if (info == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const uint64_t context = info->context;
  std::lock_guard lock(info->mutex);
  if (!state().mipmaps.remove(wire(array))) return CUDA_ERROR_INVALID_HANDLE;
  for (const uint64_t level : info->known)
    if (level != 0) state().arrays.remove(level);
  info->known.clear();
  if (!state().context(context)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return e.link->with_deferred(SLUICE_CALL(cuMipmappedArrayDestroy, *e.link, context, array));
}

// Only sparse arrays, arrays without memory and pictures of several planes have these, and none of
// them is offered.
namespace {
template <class To>
CUresult of_no_array(const To* to, bool known) {
  const Entered e = enter_context();
  if (!e) return e.status;
  return to == nullptr || known ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
}
bool is_array(CUarray array) { return state().arrays.find(wire(array)) != nullptr; }
bool is_mipmap(CUmipmappedArray array) { return state().mipmaps.find(wire(array)) != nullptr; }
}  // namespace
CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* to, CUarray array, CUdevice) {
  return of_no_array(to, is_array(array));
}
CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* to,
                                               CUmipmappedArray array, CUdevice) {
  return of_no_array(to, is_mipmap(array));
}
CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* to, CUarray array) {
  return of_no_array(to, is_array(array));
}
CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* to, CUmipmappedArray) {
  return of_no_array(to, true);
}
CUresult cuArrayGetPlane(CUarray* plane, CUarray array, unsigned int) {
  return of_no_array(plane, is_array(array));
}

CUresult cuMemcpyHtoA_v2(CUarray to, size_t offset, const void* from, size_t bytes) {
  return line_from_host(to, offset, from, bytes, nullptr, true);
}
CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void* from, size_t bytes,
                              CUstream stream) {
  return line_from_host(to, offset, from, bytes, stream, false);
}
CUresult cuMemcpyAtoH_v2(void* to, CUarray from, size_t offset, size_t bytes) {
  return line_to_host(to, from, offset, bytes, nullptr, true);
}
CUresult cuMemcpyAtoHAsync_v2(void* to, CUarray from, size_t offset, size_t bytes,
                              CUstream stream) {
  return line_to_host(to, from, offset, bytes, stream, false);
}
CUresult cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t bytes) {
  CUDA_MEMCPY3D box = line(bytes);
  to_array(&box, to, offset);
  box.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = from;
  return copy_box(&box, nullptr, true);
}
CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t bytes) {
  CUDA_MEMCPY3D box = line(bytes);
  from_array(&box, from, offset);
  box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.dstDevice = to;
  return copy_box(&box, nullptr, true);
}
CUresult cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset,
                         size_t bytes) {
  CUDA_MEMCPY3D box = line(bytes);
  to_array(&box, to, to_offset);
  from_array(&box, from, from_offset);
  return copy_box(&box, nullptr, true);
}
