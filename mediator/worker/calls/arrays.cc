// SPDX-License-Identifier: Apache-2.0
// Arrays, texture and surface objects, and copies from and to arrays (NVIDIA, CUDA Driver API,
// "Memory Management", "Texture Object Management").
//
// An array's layout is the driver's, so its memory is charged by an estimate from above. The driver
// never sees a guest's handle or address unchecked: arrays by the session's table, memory by its
// memory table, boxes by the array's own extent.
//
// An array is in use while a texture object or a queued copy names it. One that the program
// destroys meanwhile is kept, and stays charged, until nothing uses it or its context ends. A level
// of a mipmapped array has a handle of its own, and is in use as the whole of it is.
#include <algorithm>
#include <array>
#include <optional>

#include "abi/array_formats.h"
#include "mediator/base/clock.h"
#include "mediator/worker/calls/custom_calls.h"
#include "mediator/worker/calls/generic_calls.h"
#include "mediator/worker/limits.h"

namespace sluice::worker {

namespace {

uint64_t rounded(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }
uint64_t next_power_of_two(uint64_t n) {
  return n <= 1 ? 1 : uint64_t{1} << (64 - __builtin_clzll(n - 1));
}

// Bytes of one level, from above, or nothing: too many. Rows of 64 bytes, 8 together, up to 16 of
// those in a block; slices likewise.
std::optional<uint64_t> level_bytes(uint64_t row_bytes, uint64_t height, uint64_t depth) {
  const uint64_t rows = rounded(height, std::min(next_power_of_two(height), uint64_t{128}));
  const uint64_t slices = rounded(depth, std::min(next_power_of_two(depth), uint64_t{16}));
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(rounded(row_bytes, 64), rounded(rows, 8), &bytes) ||
      __builtin_mul_overflow(bytes, slices, &bytes))
    return std::nullopt;
  return bytes;
}

uint64_t halved(uint64_t side, unsigned level) { return std::max<uint64_t>(side >> level, 1); }

// As many levels as halve the longest side to 1; layers and faces are not halved.
unsigned most_levels(const ArrayObject& a) {
  const uint64_t longest = std::max({a.width, a.height, a.layered ? 1 : a.depth});
  return static_cast<unsigned>(64 - __builtin_clzll(longest));
}

// The extent and the charge of an array that may be made, all `levels` of it; CUDA's errors for
// others.
CUresult measure(const CUDA_ARRAY3D_DESCRIPTOR& d, unsigned levels, ArrayObject* a) {
  constexpr unsigned kKnown = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST |
                              CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER;
  a->texel_bytes = texel_bytes(d.Format, d.NumChannels);
  if (a->texel_bytes == 0 || d.Width == 0) return CUDA_ERROR_INVALID_VALUE;
  if ((d.Flags & ~kKnown) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (d.Width > kMostArraySide || d.Height > kMostArraySide || d.Depth > kMostArraySide)
    return CUDA_ERROR_INVALID_VALUE;
  a->width = d.Width;
  a->height = std::max<uint64_t>(d.Height, 1);
  a->depth = std::max<uint64_t>(d.Depth, 1);
  a->layered = (d.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  a->surface = (d.Flags & CUDA_ARRAY3D_SURFACE_LDST) != 0;
  uint64_t bytes = 0;
  for (unsigned level = 0; level < std::min(std::max(levels, 1u), most_levels(*a)); ++level) {
    const auto more =
        level_bytes(halved(a->width, level) * a->texel_bytes, halved(a->height, level),
                    a->layered ? a->depth : halved(a->depth, level));
    if (!more || __builtin_add_overflow(bytes, *more, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
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
    return inside(end.x, c.width, a.row_bytes()) && inside(end.y, c.height, a.height) &&
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
    to->host = s.setup.region + end.at;
    return CUDA_SUCCESS;
  }
  to->device = end.at;
  return s.memory.owns_range(end.at, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

BoxWork::~BoxWork() {
  for (const auto& array : arrays)
    if (array) array->end_use();
}

// With the session's lock held: takes out the destroyed arrays that nothing uses any more.
std::vector<std::shared_ptr<ArrayObject>> GenericCalls::unused_arrays(ContextObject& context) {
  std::vector<std::shared_ptr<ArrayObject>> out;
  std::erase_if(context.kept_arrays, [&](const auto& array) {
    if (array->in_use()) return false;
    out.push_back(array);
    return true;
  });
  return out;
}

// Without the lock.
void GenericCalls::destroy_arrays(const std::vector<std::shared_ptr<ArrayObject>>& arrays) {
  for (const auto& array : arrays) {
    if (make_current(s.api, array->context->cu) == CUDA_SUCCESS)
      (void)(array->mipmap != nullptr ? s.api.cuMipmappedArrayDestroy(array->mipmap)
                                      : s.api.cuArrayDestroy(array->cu));
    std::lock_guard lock(s.mutex);
    s.charges.release_device(array->charged);
  }
}

// Levels 0: no mipmapped array.
CUresult GenericCalls::make_array(sluice_handle_kind kind, const CUDA_ARRAY3D_DESCRIPTOR& d,
                                  unsigned levels, uint64_t* handle) {
  if (!call.context || call.context->closed) return CUDA_ERROR_INVALID_CONTEXT;
  auto made = std::make_shared<ArrayObject>();
  made->context = call.context;
  if (const CUresult r = measure(d, levels, made.get()); r != CUDA_SUCCESS) return r;
  if (made->charged > s.setup.start.memory_limit_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  {
    std::lock_guard lock(s.mutex);
    if (!s.handles.has_room(kind)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!charge_or_park(made->charged)) return kParked;
  }
  CUresult r = CUDA_SUCCESS;
  if (levels == 0) {
    r = s.api.cuArray3DCreate_v2(&made->cu, &d);
  } else {
    levels = std::min(levels, most_levels(*made));
    made->levels.resize(levels);
    r = s.api.cuMipmappedArrayCreate(&made->mipmap, &d, levels);
  }
  std::lock_guard lock(s.mutex);
  if (r != CUDA_SUCCESS) {
    s.charges.release_device(made->charged);
    return r;
  }
  *handle = s.handles.add(kind, made);
  if (*handle != 0) return CUDA_SUCCESS;
  made->context->kept_arrays.push_back(std::move(made));
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult GenericCalls::end_array(sluice_handle_kind kind, uint64_t handle) {
  std::vector<std::shared_ptr<ArrayObject>> unused;
  {
    std::lock_guard lock(s.mutex);
    auto a = s.handles.find<ArrayObject>(kind, handle);
    if (!a || a->of) return CUDA_ERROR_INVALID_HANDLE;  // a level is its mipmapped array's
    if (a->context != call.context) return CUDA_ERROR_INVALID_CONTEXT;
    for (const uint64_t level : a->levels)
      if (level != 0) s.handles.remove(SLUICE_HANDLE_ARRAY, level);
    s.handles.remove(kind, handle);
    a->context->kept_arrays.push_back(a);
    unused = unused_arrays(*a->context);
  }
  destroy_arrays(unused);
  return CUDA_SUCCESS;
}

CUresult GenericCalls::cuArray3DCreate_v2(ArrayHandle* out, const CUDA_ARRAY3D_DESCRIPTOR* d) {
  return out ? make_array(SLUICE_HANDLE_ARRAY, *d, 0, &out->value) : CUDA_ERROR_INVALID_VALUE;
}
CUresult GenericCalls::cuArrayDestroy(ArrayHandle array) {
  return end_array(SLUICE_HANDLE_ARRAY, array.value);
}

CUresult GenericCalls::cuMipmappedArrayCreate(MipmapHandle* out, const CUDA_ARRAY3D_DESCRIPTOR* d,
                                              unsigned levels) {
  return out ? make_array(SLUICE_HANDLE_MIPMAP, *d, std::max(levels, 1u), &out->value)
             : CUDA_ERROR_INVALID_VALUE;
}
CUresult GenericCalls::cuMipmappedArrayDestroy(MipmapHandle array) {
  return end_array(SLUICE_HANDLE_MIPMAP, array.value);
}

// A level's handle is the same each time. It ends with the mipmapped array.
CUresult GenericCalls::cuMipmappedArrayGetLevel(ArrayHandle* out, MipmapHandle array,
                                                unsigned level) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(s.mutex);
  auto whole = s.handles.find<ArrayObject>(SLUICE_HANDLE_MIPMAP, array.value);
  if (!whole) return CUDA_ERROR_INVALID_HANDLE;
  if (whole->context != call.context) return CUDA_ERROR_INVALID_CONTEXT;
  if (level >= whole->levels.size()) return CUDA_ERROR_INVALID_VALUE;
  uint64_t& handle = whole->levels[level];
  if (handle == 0) {
    auto made = std::make_shared<ArrayObject>();
    if (const CUresult r = s.api.cuMipmappedArrayGetLevel(&made->cu, whole->mipmap, level);
        r != CUDA_SUCCESS)
      return r;
    made->context = whole->context;
    made->texel_bytes = whole->texel_bytes;
    made->width = halved(whole->width, level);
    made->height = halved(whole->height, level);
    made->depth = whole->layered ? whole->depth : halved(whole->depth, level);
    made->layered = whole->layered;
    made->surface = whole->surface;
    made->of = whole;
    if ((handle = s.handles.add(SLUICE_HANDLE_ARRAY, made)) == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  out->value = handle;
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
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
      const auto handle = reinterpret_cast<uint64_t>(guest.res.mipmap.hMipmappedArray);
      *array = s.handles.find<ArrayObject>(SLUICE_HANDLE_MIPMAP, handle);
      if (!*array) return CUDA_ERROR_INVALID_HANDLE;
      if ((*array)->context != call.context) return CUDA_ERROR_INVALID_CONTEXT;
      to->res.mipmap.hMipmappedArray = (*array)->mipmap;
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// Checked here, because a driver may believe a view's numbers: a format that there is, levels and
// layers that the array has, and no more texels than those have. Levels beyond the last, which an
// H100's driver takes, are cut off.
CUresult check_view(const CUDA_RESOURCE_VIEW_DESC& guest, const ArrayObject* array,
                    CUDA_RESOURCE_VIEW_DESC* own) {
  if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int format = static_cast<int>(guest.format);
  if (format < CU_RES_VIEW_FORMAT_NONE || format > CU_RES_VIEW_FORMAT_UNSIGNED_BC7)
    return CUDA_ERROR_INVALID_VALUE;
  const uint64_t side = format >= CU_RES_VIEW_FORMAT_UNSIGNED_BC1 ? 4 : 1;  // texels of a block
  const size_t levels = std::max<size_t>(array->levels.size(), 1);
  const uint64_t layers = array->layered ? array->depth : 1;
  if (levels == 1 && guest.lastMipmapLevel != 0) return CUDA_ERROR_INVALID_VALUE;
  if (guest.firstMipmapLevel > guest.lastMipmapLevel || guest.firstMipmapLevel >= levels ||
      guest.firstLayer > guest.lastLayer || guest.lastLayer >= layers ||
      guest.width > array->width * side || guest.height > array->height * side ||
      guest.depth > array->depth)
    return CUDA_ERROR_INVALID_VALUE;
  *own = guest;
  own->lastMipmapLevel = std::min(guest.lastMipmapLevel, static_cast<unsigned>(levels - 1));
  return CUDA_SUCCESS;
}

CUresult GenericCalls::make_texture(unsigned long long* out, const CUDA_RESOURCE_DESC& guest,
                                    const CUDA_TEXTURE_DESC* texture,
                                    const CUDA_RESOURCE_VIEW_DESC* view) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!call.context || call.context->closed) return CUDA_ERROR_INVALID_CONTEXT;
  ContextObject& context = *call.context;
  CUDA_RESOURCE_DESC own;
  CUDA_RESOURCE_VIEW_DESC own_view{};
  TextureObject made;
  made.surface = texture == nullptr;
  {
    std::lock_guard lock(s.mutex);
    if (context.textures.size() >= kMostTextures || s.charges.held_is_refused())
      return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult r = resource(guest, made.surface, &own, &made.array);
    if (r != CUDA_SUCCESS) return r;
    if (view != nullptr)
      if (const CUresult bad = check_view(*view, made.array.get(), &own_view); bad != CUDA_SUCCESS)
        return bad;
    if (made.array) made.array->begin_use();
  }
  unsigned long long object = 0;
  CUresult r = texture ? s.api.cuTexObjectCreate(&object, &own, texture, view ? &own_view : nullptr)
                       : s.api.cuSurfObjectCreate(&object, &own);
  std::lock_guard lock(s.mutex);
  if (r != CUDA_SUCCESS) {
    if (made.array) made.array->end_use();
    return r;
  }
  context.textures[object] = std::move(made);
  s.charges.textures.fetch_add(1);
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
    s.charges.textures.fetch_sub(1);
  }
  const CUresult r = surface ? s.api.cuSurfObjectDestroy(object) : s.api.cuTexObjectDestroy(object);
  if (!ended.array || r != CUDA_SUCCESS) return r;  // the driver may still name its array
  std::vector<std::shared_ptr<ArrayObject>> unused;
  {
    std::lock_guard lock(s.mutex);
    ended.array->end_use();
    unused = unused_arrays(context);
  }
  destroy_arrays(unused);
  return r;
}

CUresult GenericCalls::cuTexObjectCreate(CUtexObject* out, const CUDA_RESOURCE_DESC* guest,
                                         const CUDA_TEXTURE_DESC* texture,
                                         const CUDA_RESOURCE_VIEW_DESC* view) {
  constexpr unsigned kKnown = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES |
                              CU_TRSF_SRGB | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION |
                              CU_TRSF_SEAMLESS_CUBEMAP;
  if ((texture->flags & ~kKnown) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  // Checked here, because the driver would read an enumerator that there is not.
  const auto is = [](int value, int most) { return value >= 0 && value <= most; };
  for (const auto mode : texture->addressMode)
    if (!is(static_cast<int>(mode), CU_TR_ADDRESS_MODE_BORDER)) return CUDA_ERROR_INVALID_VALUE;
  if (!is(static_cast<int>(texture->filterMode), CU_TR_FILTER_MODE_LINEAR) ||
      !is(static_cast<int>(texture->mipmapFilterMode), CU_TR_FILTER_MODE_LINEAR))
    return CUDA_ERROR_INVALID_VALUE;
  return make_texture(out, *guest, texture, view);
}
CUresult GenericCalls::cuSurfObjectCreate(CUsurfObject* out, const CUDA_RESOURCE_DESC* guest) {
  if (static_cast<int>(guest->resType) != CU_RESOURCE_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
  return make_texture(out, *guest, nullptr, nullptr);
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
    if (array) array->begin_use();
  s.submit_work(call, *stream, std::move(work), c.wait != 0);
}

}  // namespace sluice::worker
