// SPDX-License-Identifier: Apache-2.0
// The driver API's texture and surface objects. A handle is what exec::TextureTable gave: kernels
// and the API use the same one.
#include <algorithm>
#include <cstring>

#include "mediator/softgpu/memory/texture_limits.h"
#include "mediator/softgpu/memory/textures.h"
#include "mediator/softgpu/state/state.h"

using namespace sluice;
using namespace sluice::softgpu;

namespace {

bool texel_format(CUarray_format format, exec::TexelFormat& out) {
  switch (format) {
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

constexpr size_t kPitchAlign = 32, kAddressAlign = 512;

// The resource's memory into the descriptor.
CUresult describe(State& s, Context& context, const CUDA_RESOURCE_DESC& resource,
                  exec::TextureDescriptor& d) {
  if (resource.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  unsigned channels = 0;
  CUarray_format format = CU_AD_FORMAT_FLOAT;
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY: {
      const auto array = s.arrays.find(resource.res.array.hArray);
      if (!array || array->context.lock().get() != &context) return CUDA_ERROR_INVALID_HANDLE;
      if (d.surface && (array->descriptor.Flags & CUDA_ARRAY3D_SURFACE_LDST) == 0)
        return CUDA_ERROR_INVALID_VALUE;
      format = array->descriptor.Format;
      channels = array->descriptor.NumChannels;
      d.base = array->base;
      d.row_bytes = array->row_bytes();
      d.slice_bytes = array->slice_bytes();
      d.width = static_cast<uint32_t>(array->width);
      d.height = static_cast<uint32_t>(array->height);
      d.depth = static_cast<uint32_t>(array->depth);
      d.layered = (array->descriptor.Flags & CUDA_ARRAY3D_LAYERED) != 0;
      break;
    }
    case CU_RESOURCE_TYPE_LINEAR:
    case CU_RESOURCE_TYPE_PITCH2D: {
      if (d.surface) return CUDA_ERROR_INVALID_VALUE;
      const bool linear = resource.resType == CU_RESOURCE_TYPE_LINEAR;
      const auto& l = resource.res.linear;
      const auto& p = resource.res.pitch2D;
      format = linear ? l.format : p.format;
      channels = linear ? l.numChannels : p.numChannels;
      if (!texel_format(format, d.format) || (channels != 1 && channels != 2 && channels != 4))
        return CUDA_ERROR_INVALID_VALUE;
      const size_t texel = exec::bytes_of(d.format) * channels;
      d.base = linear ? l.devPtr : p.devPtr;
      d.linear_memory = linear;
      const size_t width = linear ? l.sizeInBytes / texel : p.width;
      const size_t height = linear ? 1 : p.height;
      if (d.base % kAddressAlign != 0 || width == 0 || height == 0 ||
          width > (linear ? kMaxLinearTexels : kMaxPitchWidth) || height > kMaxPitchHeight ||
          (!linear && (p.pitchInBytes % kPitchAlign != 0 || p.pitchInBytes < width * texel ||
                       p.pitchInBytes > size_t{1} << 32)))
        return CUDA_ERROR_INVALID_VALUE;
      d.width = static_cast<uint32_t>(width);
      d.height = static_cast<uint32_t>(height);
      d.row_bytes = linear ? width * texel : p.pitchInBytes;
      d.slice_bytes = d.row_bytes * height;
      break;
    }
    default:
      return CUDA_ERROR_NOT_SUPPORTED;  // mipmapped arrays
  }
  if (!texel_format(format, d.format)) return CUDA_ERROR_INVALID_VALUE;
  d.channels = static_cast<uint8_t>(channels);
  return context.map.find(d.base, d.bytes()).bytes != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult remember(State& s, Context& context, const exec::TextureDescriptor& d,
                  const CUDA_RESOURCE_DESC& resource, const CUDA_TEXTURE_DESC& texture,
                  unsigned long long* out) {
  const uint64_t handle = context.map.textures().add(d);
  std::lock_guard lock(s.mutex);
  s.textures[handle] = {current().context, resource, texture, d.surface};
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
    // Views, sRGB, mipmaps and anisotropy are not here.
    constexpr unsigned kKnown = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES |
                                CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION;
    if (view != nullptr || (texture->flags & ~kKnown) != 0 || texture->maxAnisotropy > 1)
      return CUDA_ERROR_NOT_SUPPORTED;
    exec::TextureDescriptor d;
    if (const CUresult r = describe(s, context, *resource, d); r != CUDA_SUCCESS) return r;
    d.normalised = (texture->flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
    d.as_integer = (texture->flags & CU_TRSF_READ_AS_INTEGER) != 0;
    d.filter = texture->filterMode == CU_TR_FILTER_MODE_LINEAR;
    const bool numbers = d.format == exec::TexelFormat::kF32 || d.format == exec::TexelFormat::kF16;
    const bool wide = d.format == exec::TexelFormat::kU32 || d.format == exec::TexelFormat::kS32;
    // Integers have no mean.
    if (d.filter && !numbers && (d.as_integer || wide)) return CUDA_ERROR_INVALID_VALUE;
    for (size_t k = 0; k < 3; ++k) {
      const int mode = static_cast<int>(texture->addressMode[k]);
      if (mode < 0 || mode > 3) return CUDA_ERROR_INVALID_VALUE;
      d.address[k] = static_cast<exec::AddressMode>(mode);
    }
    std::copy_n(texture->borderColor, 4, d.border.begin());
    return remember(s, context, d, *resource, *texture, object);
  });
}

CUresult cuSurfObjectCreate(CUsurfObject* object, const CUDA_RESOURCE_DESC* resource) {
  return with_context([&](State& s, Context& context) -> CUresult {
    if (object == nullptr || resource == nullptr || resource->resType != CU_RESOURCE_TYPE_ARRAY)
      return CUDA_ERROR_INVALID_VALUE;
    exec::TextureDescriptor d;
    d.surface = true;
    if (const CUresult r = describe(s, context, *resource, d); r != CUDA_SUCCESS) return r;
    return remember(s, context, d, *resource, {}, object);
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
// No object has a view.
// No texture here was made with a view, and asking for it then is documented to be an error.
CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC*, CUtexObject) {
  return CUDA_ERROR_INVALID_VALUE;
}
CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* out, CUsurfObject object) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return look_up(object, true, [out](const TextureObject& t) { *out = t.resource; });
}

// The interpreter has no instruction that reads a tensor map, so none is made.
CUresult cuTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuTensorMapEncodeIm2col(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                 const cuuint64_t*, const cuuint64_t*, const int*, const int*,
                                 cuuint32_t, cuuint32_t, const cuuint32_t*, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion,
                                 CUtensorMapFloatOOBfill) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuTensorMapEncodeIm2colWide(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                     const cuuint64_t*, const cuuint64_t*, int, int, cuuint32_t,
                                     cuuint32_t, const cuuint32_t*, CUtensorMapInterleave,
                                     CUtensorMapIm2ColWideMode, CUtensorMapSwizzle,
                                     CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuTensorMapReplaceAddress(CUtensorMap*, void*) { return CUDA_ERROR_NOT_SUPPORTED; }
