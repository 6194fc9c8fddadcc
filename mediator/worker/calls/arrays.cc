// SPDX-License-Identifier: Apache-2.0
// Arrays, texture and surface objects, and copies from and to arrays (NVIDIA, CUDA Driver API,
// "Memory Management", "Texture Object Management").
//
// An array's layout is the driver's, so its memory is charged by an estimate from above. The driver
// never sees a guest's handle or address unchecked: arrays by the session's table, memory by its
// memory table, boxes by the array's own extent.
//
// An array is in use while a texture object or a queued copy names it. One that the program
// destroys meanwhile is kept, and stays charged, until nothing uses it or its context ends.
#include <algorithm>
#include <array>

#include "mediator/base/clock.h"
#include "mediator/worker/calls/custom_calls.h"
#include "mediator/worker/calls/generic_calls.h"
#include "mediator/worker/limits.h"

namespace sluice::worker {

namespace {

uint64_t channel_bytes(CUarray_format guest_format) {
  switch (static_cast<int>(guest_format)) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
  }
  return 0;
}

// 0: no such texel.
uint64_t texel_bytes(CUarray_format guest_format, unsigned guest_channels) {
  if (guest_channels != 1 && guest_channels != 2 && guest_channels != 4) return 0;
  return channel_bytes(guest_format) * guest_channels;
}

uint64_t rounded(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }
uint64_t next_power_of_two(uint64_t n) {
  return n <= 1 ? 1 : uint64_t{1} << (64 - __builtin_clzll(n - 1));
}

// The extent and the charge of an array that may be made; CUDA's errors for others.
CUresult measure(const CUDA_ARRAY3D_DESCRIPTOR& d, ArrayObject* a) {
  constexpr unsigned kKnown =
      CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_TEXTURE_GATHER;
  const uint64_t texel = texel_bytes(d.Format, d.NumChannels);
  if (texel == 0 || d.Width == 0) return CUDA_ERROR_INVALID_VALUE;
  if ((d.Flags & ~kKnown) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (d.Width > kMostArraySide || d.Height > kMostArraySide || d.Depth > kMostArraySide)
    return CUDA_ERROR_INVALID_VALUE;
  a->row_bytes = d.Width * texel;
  a->height = std::max<uint64_t>(d.Height, 1);
  a->depth = std::max<uint64_t>(d.Depth, 1);
  a->surface = (d.Flags & CUDA_ARRAY3D_SURFACE_LDST) != 0;
  // Rows of 64 bytes, 8 together, up to 16 of those in a block; slices likewise.
  const uint64_t rows = rounded(a->height, std::min(next_power_of_two(a->height), uint64_t{128}));
  const uint64_t slices = rounded(a->depth, std::min(next_power_of_two(a->depth), uint64_t{16}));
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(rounded(a->row_bytes, 64), rounded(rows, 8), &bytes) ||
      __builtin_mul_overflow(bytes, slices, &bytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  a->charged = QuotaLease::charge_for(bytes);
  return a->charged == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

bool inside(uint64_t at, uint64_t length, uint64_t size) {
  return at <= size && length <= size - at;
}

// What a box of memory spans, from its first byte to its last; false: it is none.
bool span_of_box(const sluice_copy_box& c, const sluice_copy_box_end& end, uint64_t* bytes) {
  if (end.pitch < c.width || (c.depth > 1 && end.rows < c.height)) return false;
  uint64_t rows = 0;
  return !__builtin_mul_overflow(c.depth - 1, end.rows, &rows) &&
         !__builtin_add_overflow(rows, c.height - 1, &rows) &&
         !__builtin_mul_overflow(rows, end.pitch, bytes) &&
         !__builtin_add_overflow(*bytes, c.width, bytes);
}

// One end in the driver's words.
struct DriverEnd {
  CUmemorytype type = CU_MEMORYTYPE_DEVICE;
  void* host = nullptr;
  CUdeviceptr device = 0;
  std::shared_ptr<ArrayObject> array;
};

CUresult check_end(WorkerSession& s, const StreamObject& stream, const sluice_copy_box& c,
                   const sluice_copy_box_end& end, DriverEnd* to) {
  if (end.kind == SLUICE_COPY_ARRAY) {
    to->array = s.handles.find<ArrayObject>(SLUICE_HANDLE_ARRAY, end.at);
    if (!to->array) return CUDA_ERROR_INVALID_HANDLE;
    const ArrayObject& a = *to->array;
    if (a.context != stream.context) return CUDA_ERROR_INVALID_CONTEXT;
    to->type = CU_MEMORYTYPE_ARRAY;
    return inside(end.x, c.width, a.row_bytes) && inside(end.y, c.height, a.height) &&
                   inside(end.z, c.depth, a.depth)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t bytes = 0;
  if (end.x != 0 || end.y != 0 || end.z != 0 || !span_of_box(c, end, &bytes))
    return CUDA_ERROR_INVALID_VALUE;
  if (end.kind == SLUICE_COPY_BULK) {
    if (!s.memory.owns_region(end.at, bytes)) s.violation("copy_box: bulk range");
    to->type = CU_MEMORYTYPE_HOST;
    to->host = s.region + end.at;
    return CUDA_SUCCESS;
  }
  to->device = end.at;
  return s.memory.owns_range(end.at, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

BoxWork::~BoxWork() {
  for (const auto& array : arrays)
    if (array) array->uses.fetch_sub(1);
}

// With the session's lock held: takes out the destroyed arrays that nothing uses any more.
std::vector<std::shared_ptr<ArrayObject>> GenericCalls::unused_arrays(ContextObject& context) {
  std::vector<std::shared_ptr<ArrayObject>> out;
  std::erase_if(context.kept_arrays, [&](const auto& array) {
    if (array->uses.load() != 0) return false;
    out.push_back(array);
    return true;
  });
  return out;
}

// Without the lock.
void GenericCalls::destroy_arrays(const std::vector<std::shared_ptr<ArrayObject>>& arrays) {
  for (const auto& array : arrays) {
    if (make_current(s.api, array->context->cu) == CUDA_SUCCESS)
      (void)s.api.cuArrayDestroy(array->cu);
    std::lock_guard lock(s.mutex);
    s.release_device(array->charged);
  }
}

CUresult GenericCalls::cuArray3DCreate_v2(ArrayHandle* out, const CUDA_ARRAY3D_DESCRIPTOR* d) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!call.context || call.context->closed) return CUDA_ERROR_INVALID_CONTEXT;
  auto made = std::make_shared<ArrayObject>();
  made->context = call.context;
  if (const CUresult r = measure(*d, made.get()); r != CUDA_SUCCESS) return r;
  if (made->charged > s.setup.start.memory_limit_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  {
    std::lock_guard lock(s.mutex);
    if (!s.handles.has_room(SLUICE_HANDLE_ARRAY)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!charge_or_park(made->charged)) return kParked;
  }
  const CUresult r = s.api.cuArray3DCreate_v2(&made->cu, d);
  std::lock_guard lock(s.mutex);
  if (r != CUDA_SUCCESS) {
    s.release_device(made->charged);
    return r;
  }
  out->value = s.handles.add(SLUICE_HANDLE_ARRAY, made);
  if (out->value != 0) return CUDA_SUCCESS;
  made->context->kept_arrays.push_back(std::move(made));
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult GenericCalls::cuArrayDestroy(ArrayHandle array) {
  std::vector<std::shared_ptr<ArrayObject>> unused;
  {
    std::lock_guard lock(s.mutex);
    auto a = s.handles.find<ArrayObject>(SLUICE_HANDLE_ARRAY, array.value);
    if (!a) return CUDA_ERROR_INVALID_HANDLE;
    if (a->context != call.context) return CUDA_ERROR_INVALID_CONTEXT;
    s.handles.remove(SLUICE_HANDLE_ARRAY, array.value);
    a->context->kept_arrays.push_back(a);
    unused = unused_arrays(*a->context);
  }
  destroy_arrays(unused);
  return CUDA_SUCCESS;
}

// With the lock held: the guest's resource in the driver's words, and the array that it names.
CUresult GenericCalls::resource(const CUDA_RESOURCE_DESC& guest, bool surface,
                                CUDA_RESOURCE_DESC* to, std::shared_ptr<ArrayObject>* array) {
  *to = {};
  to->resType = guest.resType;
  if (guest.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  switch (static_cast<int>(guest.resType)) {
    case CU_RESOURCE_TYPE_ARRAY: {
      const auto handle = reinterpret_cast<uint64_t>(guest.res.array.hArray);
      *array = s.handles.find<ArrayObject>(SLUICE_HANDLE_ARRAY, handle);
      if (!*array) return CUDA_ERROR_INVALID_HANDLE;
      if ((*array)->context != call.context) return CUDA_ERROR_INVALID_CONTEXT;
      if (surface && !(*array)->surface) return CUDA_ERROR_INVALID_VALUE;
      to->res.array.hArray = (*array)->cu;
      return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_LINEAR: {
      const auto& l = guest.res.linear;
      if (surface || texel_bytes(l.format, l.numChannels) == 0 ||
          !s.memory.owns_range(l.devPtr, l.sizeInBytes))
        return CUDA_ERROR_INVALID_VALUE;
      to->res.linear = l;
      return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
      const auto& p = guest.res.pitch2D;
      const uint64_t texel = texel_bytes(p.format, p.numChannels);
      uint64_t row = 0;
      if (surface || texel == 0 || p.width == 0 || p.height == 0 ||
          __builtin_mul_overflow(p.width, texel, &row) || p.pitchInBytes < row ||
          !s.memory.owns_rows(p.devPtr, row, p.pitchInBytes, p.height))
        return CUDA_ERROR_INVALID_VALUE;
      to->res.pitch2D = p;
      return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult GenericCalls::make_texture(unsigned long long* out, const CUDA_RESOURCE_DESC& guest,
                                    const CUDA_TEXTURE_DESC* texture) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!call.context || call.context->closed) return CUDA_ERROR_INVALID_CONTEXT;
  ContextObject& context = *call.context;
  CUDA_RESOURCE_DESC own;
  TextureObject made;
  made.surface = texture == nullptr;
  {
    std::lock_guard lock(s.mutex);
    if (context.textures.size() >= kMostTextures) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult r = resource(guest, made.surface, &own, &made.array);
    if (r != CUDA_SUCCESS) return r;
    if (made.array) made.array->uses.fetch_add(1);
  }
  unsigned long long object = 0;
  CUresult r = texture ? s.api.cuTexObjectCreate(&object, &own, texture, nullptr)
                       : s.api.cuSurfObjectCreate(&object, &own);
  std::lock_guard lock(s.mutex);
  if (r != CUDA_SUCCESS) {
    if (made.array) made.array->uses.fetch_sub(1);
    return r;
  }
  context.textures[object] = std::move(made);
  *out = object;
  return CUDA_SUCCESS;
}

CUresult GenericCalls::destroy_texture(unsigned long long object, bool surface) {
  if (!call.context || call.context->closed) return CUDA_ERROR_INVALID_CONTEXT;
  ContextObject& context = *call.context;
  TextureObject ended;
  {
    std::lock_guard lock(s.mutex);
    const auto found = context.textures.find(object);
    if (found == context.textures.end() || found->second.surface != surface)
      return CUDA_ERROR_INVALID_VALUE;
    ended = std::move(found->second);
    context.textures.erase(found);
  }
  const CUresult r = surface ? s.api.cuSurfObjectDestroy(object) : s.api.cuTexObjectDestroy(object);
  if (!ended.array || r != CUDA_SUCCESS) return r;  // the driver may still name its array
  std::vector<std::shared_ptr<ArrayObject>> unused;
  {
    std::lock_guard lock(s.mutex);
    ended.array->uses.fetch_sub(1);
    unused = unused_arrays(context);
  }
  destroy_arrays(unused);
  return r;
}

CUresult GenericCalls::cuTexObjectCreate(CUtexObject* out, const CUDA_RESOURCE_DESC* guest,
                                         const CUDA_TEXTURE_DESC* texture,
                                         const CUDA_RESOURCE_VIEW_DESC*) {
  constexpr unsigned kKnown = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES |
                              CU_TRSF_SRGB | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION;
  if ((texture->flags & ~kKnown) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  // Checked here, because the driver would read an enumerator that there is not.
  const auto is = [](int value, int most) { return value >= 0 && value <= most; };
  for (const auto mode : texture->addressMode)
    if (!is(static_cast<int>(mode), CU_TR_ADDRESS_MODE_BORDER)) return CUDA_ERROR_INVALID_VALUE;
  if (!is(static_cast<int>(texture->filterMode), CU_TR_FILTER_MODE_LINEAR) ||
      !is(static_cast<int>(texture->mipmapFilterMode), CU_TR_FILTER_MODE_LINEAR))
    return CUDA_ERROR_INVALID_VALUE;
  return make_texture(out, *guest, texture);
}
CUresult GenericCalls::cuSurfObjectCreate(CUsurfObject* out, const CUDA_RESOURCE_DESC* guest) {
  if (static_cast<int>(guest->resType) != CU_RESOURCE_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
  return make_texture(out, *guest, nullptr);
}
CUresult GenericCalls::cuTexObjectDestroy(CUtexObject object) {
  return destroy_texture(object, false);
}
CUresult GenericCalls::cuSurfObjectDestroy(CUsurfObject object) {
  return destroy_texture(object, true);
}

void handle_copy_box(WorkerSession& s, const Call& call, const sluice_copy_box& c,
                     std::span<const std::byte>) {
  if (c.dst.kind > SLUICE_COPY_ARRAY || c.src.kind > SLUICE_COPY_ARRAY)
    s.violation("copy_box: kind");
  std::lock_guard lock(s.mutex);
  CUresult error;
  auto stream = s.find_stream(call, c.stream, &error);
  if (!stream) return s.answer(call, error);
  if (c.width == 0 || c.height == 0 || c.depth == 0) return s.answer(call, CUDA_SUCCESS);
  if (c.dst.kind != SLUICE_COPY_ARRAY && c.src.kind != SLUICE_COPY_ARRAY)
    return s.answer(call, CUDA_ERROR_INVALID_VALUE);
  DriverEnd dst, src;
  CUresult r = check_end(s, *stream, c, c.dst, &dst);
  if (r == CUDA_SUCCESS) r = check_end(s, *stream, c, c.src, &src);
  if (r != CUDA_SUCCESS) return s.answer(call, r);
  auto work = std::make_shared<BoxWork>();
  CUDA_MEMCPY3D& to = work->copy;
  to.WidthInBytes = c.width;
  to.Height = c.height;
  to.Depth = c.depth;
  to.dstMemoryType = dst.type;
  to.dstHost = dst.host;
  to.dstDevice = dst.device;
  to.dstArray = dst.array ? dst.array->cu : nullptr;
  to.dstXInBytes = c.dst.x;
  to.dstY = c.dst.y;
  to.dstZ = c.dst.z;
  to.dstPitch = c.dst.pitch;
  to.dstHeight = c.dst.rows;
  to.srcMemoryType = src.type;
  to.srcHost = src.host;
  to.srcDevice = src.device;
  to.srcArray = src.array ? src.array->cu : nullptr;
  to.srcXInBytes = c.src.x;
  to.srcY = c.src.y;
  to.srcZ = c.src.z;
  to.srcPitch = c.src.pitch;
  to.srcHeight = c.src.rows;
  work->arrays = {dst.array, src.array};
  for (const auto& array : work->arrays)
    if (array) array->uses.fetch_add(1);
  s.submit_work(call, *stream, std::move(work), c.wait != 0);
}

}  // namespace sluice::worker
