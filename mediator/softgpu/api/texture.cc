// SPDX-License-Identifier: Apache-2.0
// The driver API's texture and surface objects. A handle is what exec::TextureTable gave: kernels
// and the API use the same one.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "abi/array_formats.h"
#include "mediator/softgpu/memory/texture_limits.h"
#include "mediator/softgpu/memory/textures.h"
#include "mediator/softgpu/state/state.h"

using namespace sluice;
using namespace sluice::softgpu;

namespace {

bool texel_format(CUarray_format format, exec::TexelFormat& out) {
  switch (integer_format(format)) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
      out = exec::TexelFormat::kU8;
      return true;
    case CU_AD_FORMAT_UNSIGNED_INT16:
      out = exec::TexelFormat::kU16;
      return true;
    case CU_AD_FORMAT_UNSIGNED_INT32:
      out = exec::TexelFormat::kU32;
      return true;
    case CU_AD_FORMAT_SIGNED_INT8:
      out = exec::TexelFormat::kS8;
      return true;
    case CU_AD_FORMAT_SIGNED_INT16:
      out = exec::TexelFormat::kS16;
      return true;
    case CU_AD_FORMAT_SIGNED_INT32:
      out = exec::TexelFormat::kS32;
      return true;
    case CU_AD_FORMAT_HALF:
      out = exec::TexelFormat::kF16;
      return true;
    case CU_AD_FORMAT_FLOAT:
      out = exec::TexelFormat::kF32;
      return true;
  }
  return false;
}

exec::TextureLevel level_of(const Array& array) {
  exec::TextureLevel to;
  to.base = array.base;
  to.row_bytes = array.row_bytes();
  to.slice_bytes = array.slice_bytes();
  to.width = static_cast<uint32_t>(array.width);
  to.height = static_cast<uint32_t>(array.height);
  to.depth = static_cast<uint32_t>(array.depth);
  return to;
}

// Texels of a view's format, of 1, 2 or 4 channels: the enumerators count them three by three.
bool view_format(int format, exec::TextureDescriptor& d) {
  constexpr exec::TexelFormat kFormats[] = {exec::TexelFormat::kU8,  exec::TexelFormat::kS8,
                                            exec::TexelFormat::kU16, exec::TexelFormat::kS16,
                                            exec::TexelFormat::kU32, exec::TexelFormat::kS32,
                                            exec::TexelFormat::kF16, exec::TexelFormat::kF32};
  const uint32_t texel = d.texel_bytes();
  d.format = kFormats[(format - 1) / 3];
  d.as_integer = true;  // a view's format is never a normalised one
  d.channels = static_cast<uint8_t>(1 << (format - 1) % 3);
  return d.texel_bytes() == texel;
}

// Narrows the descriptor to a view of its array. As NVIDIA's driver has it (an H100): a view names
// a format and has the array's own size, whatever its first level; levels beyond the last are not
// there.
CUresult apply_view(const CUDA_RESOURCE_VIEW_DESC& view, exec::TextureDescriptor& d) {
  const int format = static_cast<int>(view.format);
  if (format <= CU_RES_VIEW_FORMAT_NONE || format > CU_RES_VIEW_FORMAT_UNSIGNED_BC7)
    return CUDA_ERROR_INVALID_VALUE;
  if (format >= CU_RES_VIEW_FORMAT_UNSIGNED_BC1) return CUDA_ERROR_NOT_SUPPORTED;
  if (!view_format(format, d)) return CUDA_ERROR_INVALID_VALUE;
  const uint32_t layers = d.layered ? d.depth : 1;
  const auto last = std::min<size_t>(view.lastMipmapLevel, d.smaller.size());
  if (d.smaller.empty() && view.lastMipmapLevel != 0) return CUDA_ERROR_INVALID_VALUE;
  if (view.firstMipmapLevel > last || view.firstLayer > view.lastLayer || view.lastLayer >= layers)
    return CUDA_ERROR_INVALID_VALUE;
  const auto other = [](size_t asked, uint32_t is) {
    return asked != is && (asked != 0 || is != 1);
  };
  if (view.width != d.width || other(view.height, d.height) ||
      (d.layered ? view.depth > d.depth : view.depth != (d.depth == 1 ? 0 : d.depth)))
    return CUDA_ERROR_INVALID_VALUE;
  std::vector<exec::TextureLevel> levels;
  for (size_t k = view.firstMipmapLevel; k <= last; ++k) {
    exec::TextureLevel level = d.level(static_cast<unsigned>(k));
    if (d.layered) {
      level.base += view.firstLayer * level.slice_bytes;
      level.depth = view.lastLayer - view.firstLayer + 1;
    }
    levels.push_back(level);
  }
  if (d.cube && levels[0].depth % 6 != 0) return CUDA_ERROR_INVALID_VALUE;
  static_cast<exec::TextureLevel&>(d) = levels[0];
  d.smaller.assign(levels.begin() + 1, levels.end());
  return CUDA_SUCCESS;
}

constexpr size_t kPitchAlign = 32, kAddressAlign = 512;

// What a texel of a resource is.
struct Texel {
  CUarray_format format = CU_AD_FORMAT_FLOAT;
  unsigned channels = 0;
};

CUresult describe_array(State& s, Context& context, const CUDA_RESOURCE_DESC& resource,
                        exec::TextureDescriptor& d, Texel& texel) {
  std::vector<std::shared_ptr<Array>> levels;
  if (resource.resType == CU_RESOURCE_TYPE_ARRAY) {
    const auto array = s.tables.arrays.find(resource.res.array.hArray);
    if (array) levels = {array};
  } else if (const auto mipmap = s.tables.mipmaps.find(resource.res.mipmap.hMipmappedArray)) {
    levels = mipmap->levels;
  }
  if (levels.empty() || levels[0]->context.lock().get() != &context)
    return CUDA_ERROR_INVALID_HANDLE;
  const CUDA_ARRAY3D_DESCRIPTOR& array = levels[0]->descriptor;
  if (d.surface && (array.Flags & CUDA_ARRAY3D_SURFACE_LDST) == 0) return CUDA_ERROR_INVALID_VALUE;
  texel = {array.Format, array.NumChannels};
  static_cast<exec::TextureLevel&>(d) = level_of(*levels[0]);
  for (size_t k = 1; k < levels.size(); ++k) d.smaller.push_back(level_of(*levels[k]));
  d.layered = is_layered(array);
  d.cube = is_cube(array);
  return CUDA_SUCCESS;
}

// Memory that is no array: in one dimension, or in rows.
CUresult describe_memory(const CUDA_RESOURCE_DESC& resource, exec::TextureDescriptor& d,
                         Texel& texel) {
  if (d.surface) return CUDA_ERROR_INVALID_VALUE;
  const bool linear = resource.resType == CU_RESOURCE_TYPE_LINEAR;
  const auto& l = resource.res.linear;
  const auto& p = resource.res.pitch2D;
  texel = {linear ? l.format : p.format, linear ? l.numChannels : p.numChannels};
  const size_t bytes = texel_bytes(texel.format, texel.channels);
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  d.base = linear ? l.devPtr : p.devPtr;
  d.linear_memory = linear;
  const size_t width = linear ? l.sizeInBytes / bytes : p.width;
  const size_t height = linear ? 1 : p.height;
  if (d.base % kAddressAlign != 0 || width == 0 || height == 0 ||
      width > (linear ? kMaxLinearTexels : kMaxPitchWidth) || height > kMaxPitchHeight ||
      (!linear && (p.pitchInBytes % kPitchAlign != 0 || p.pitchInBytes < width * bytes ||
                   p.pitchInBytes > size_t{1} << 32)))
    return CUDA_ERROR_INVALID_VALUE;
  d.width = static_cast<uint32_t>(width);
  d.height = static_cast<uint32_t>(height);
  d.row_bytes = linear ? width * bytes : p.pitchInBytes;
  d.slice_bytes = d.row_bytes * height;
  return CUDA_SUCCESS;
}

// The resource's memory into the descriptor.
CUresult describe(State& s, Context& context, const CUDA_RESOURCE_DESC& resource,
                  exec::TextureDescriptor& d) {
  if (resource.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Texel texel;
  CUresult r = CUDA_ERROR_INVALID_VALUE;
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      r = describe_array(s, context, resource, d, texel);
      break;
    case CU_RESOURCE_TYPE_LINEAR:
    case CU_RESOURCE_TYPE_PITCH2D:
      r = describe_memory(resource, d, texel);
      break;
    default:
      break;
  }
  if (r != CUDA_SUCCESS) return r;
  if (!texel_format(texel.format, d.format)) return CUDA_ERROR_INVALID_VALUE;
  d.channels = static_cast<uint8_t>(texel.channels);
  d.as_integer = !is_normalised_format(texel.format);
  return context.map.find(d.base, d.bytes()).bytes != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult remember(State& s, Context& context, const exec::TextureDescriptor& d,
                  const CUDA_RESOURCE_DESC& resource, const CUDA_TEXTURE_DESC& texture,
                  const CUDA_RESOURCE_VIEW_DESC* view, unsigned long long* out) {
  const uint64_t handle = context.map.textures().add(d);
  std::lock_guard lock(s.mutex);
  TextureObject& made = s.textures[handle];
  made = {current().context, resource, texture, std::nullopt, d.surface};
  if (view != nullptr) made.view = *view;
  *out = handle;
  return CUDA_SUCCESS;
}

CUresult destroy(unsigned long long handle, bool surface) {
  return with_context([&](State& s, Context& current) {
    std::shared_ptr<Context> context;
    {
      std::lock_guard lock(s.mutex);
      const auto it = s.textures.find(handle);
      if (it == s.textures.end() || it->second.surface != surface) return CUDA_ERROR_INVALID_VALUE;
      context = it->second.context.lock();
      s.textures.erase(it);
    }
    if (context) {
      s.scheduler.wait(*context);
      context->map.textures().remove(handle);
    }
    return outcome(current);
  });
}

template <class F>
CUresult look_up(unsigned long long handle, bool surface, F f) {
  return with_context([&](State& s, Context&) {
    std::lock_guard lock(s.mutex);
    const auto it = s.textures.find(handle);
    if (it == s.textures.end() || it->second.surface != surface) return CUDA_ERROR_INVALID_VALUE;
    f(it->second);
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult cuTexObjectCreate(CUtexObject* object, const CUDA_RESOURCE_DESC* resource,
                           const CUDA_TEXTURE_DESC* texture,
                           const struct CUDA_RESOURCE_VIEW_DESC_st* view) {
  return with_context([&](State& s, Context& context) -> CUresult {
    if (object == nullptr || resource == nullptr || texture == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    // Filters are as wide in each direction whatever maxAnisotropy is.
    constexpr unsigned kKnown = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES |
                                CU_TRSF_SRGB | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION |
                                CU_TRSF_SEAMLESS_CUBEMAP;
    if ((texture->flags & ~kKnown) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    exec::TextureDescriptor d;
    if (const CUresult r = describe(s, context, *resource, d); r != CUDA_SUCCESS) return r;
    if (view != nullptr) {
      if (d.linear_memory || resource->resType == CU_RESOURCE_TYPE_PITCH2D)
        return CUDA_ERROR_INVALID_VALUE;
      if (const CUresult r = apply_view(*view, d); r != CUDA_SUCCESS) return r;
    }
    d.normalised = (texture->flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
    d.as_integer = d.as_integer && (texture->flags & CU_TRSF_READ_AS_INTEGER) != 0;
    // Linear memory has no filter, whatever is asked for (CUDA Driver API, CUDA_TEXTURE_DESC).
    const bool numbers = d.format == exec::TexelFormat::kF32 || d.format == exec::TexelFormat::kF16;
    const bool wide = d.format == exec::TexelFormat::kU32 || d.format == exec::TexelFormat::kS32;
    // Integers have no mean. NVIDIA's driver takes such a filter; what it reads is not documented.
    const bool has_mean = numbers || (!d.as_integer && !wide);
    d.filter = texture->filterMode == CU_TR_FILTER_MODE_LINEAR && !d.linear_memory && has_mean;
    for (size_t k = 0; k < 3; ++k) {
      const int mode = static_cast<int>(texture->addressMode[k]);
      if (mode < 0 || mode > 3) return CUDA_ERROR_INVALID_VALUE;
      d.address[k] = static_cast<exec::AddressMode>(mode);
    }
    std::copy_n(texture->borderColor, 4, d.border.begin());
    d.mip_filter = texture->mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR;
    d.mip_bias = texture->mipmapLevelBias;
    d.mip_min = std::isnan(texture->minMipmapLevelClamp) ? 0 : texture->minMipmapLevelClamp;
    d.mip_max = texture->maxMipmapLevelClamp;
    d.seamless = d.cube && (texture->flags & CU_TRSF_SEAMLESS_CUBEMAP) != 0;
    d.srgb =
        (texture->flags & CU_TRSF_SRGB) != 0 && d.format == exec::TexelFormat::kU8 && !d.as_integer;
    if (d.cube) {  // faces end at their edges
      d.normalised = true;
      d.address.fill(exec::AddressMode::kClamp);
    }
    // Of normalised coordinates only (CUDA Driver API, cuTexObjectCreate).
    if (!d.smaller.empty() && !d.normalised) return CUDA_ERROR_INVALID_VALUE;
    return remember(s, context, d, *resource, *texture, view, object);
  });
}

CUresult cuSurfObjectCreate(CUsurfObject* object, const CUDA_RESOURCE_DESC* resource) {
  return with_context([&](State& s, Context& context) -> CUresult {
    if (object == nullptr || resource == nullptr || resource->resType != CU_RESOURCE_TYPE_ARRAY)
      return CUDA_ERROR_INVALID_VALUE;
    exec::TextureDescriptor d;
    d.surface = true;
    if (const CUresult r = describe(s, context, *resource, d); r != CUDA_SUCCESS) return r;
    return remember(s, context, d, *resource, {}, nullptr, object);
  });
}

CUresult cuTexObjectDestroy(CUtexObject object) { return destroy(object, false); }
CUresult cuSurfObjectDestroy(CUsurfObject object) { return destroy(object, true); }

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* out, CUtexObject object) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return look_up(object, false, [out](const TextureObject& t) { *out = t.resource; });
}
CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* out, CUtexObject object) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return look_up(object, false, [out](const TextureObject& t) { *out = t.texture; });
}
// Of a texture that was made without a view, NVIDIA's driver succeeds, too.
CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* out, CUtexObject object) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return look_up(object, false, [out](const TextureObject& t) {
    *out = t.view.value_or(CUDA_RESOURCE_VIEW_DESC{});
  });
}
CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* out, CUsurfObject object) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return look_up(object, true, [out](const TextureObject& t) { *out = t.resource; });
}
