// SPDX-License-Identifier: Apache-2.0
// Arrays, textures and surfaces: descriptions go from the runtime's form to the driver's.
#include <algorithm>

#include "guest-agent/cudart/calls.h"
#include "guest-agent/cudart/memory/boxes.h"
#include "guest-agent/cudart/memory/formats.h"

namespace sluice::cudart {
namespace {

cudaError_t describe(const cudaChannelFormatDesc* format, cudaExtent extent, unsigned flags,
                     ArrayDescription* d) {
  Elements elements;
  if (format == nullptr) return cudaErrorInvalidValue;
  if (!to_elements(*format, &elements)) return cudaErrorInvalidChannelDescriptor;
  *d = {extent.width, extent.height, extent.depth, elements.format, elements.channels, flags};
  return cudaSuccess;
}

bool to_driver(const cudaResourceDesc& from, DriverResource* to) {
  Elements elements;
  *to = {};
  to->type = from.resType;
  switch (from.resType) {
    case cudaResourceTypeArray:
      to->array = from.res.array.array;
      return true;
    case cudaResourceTypeMipmappedArray:
      to->mipmap = from.res.mipmap.mipmap;
      return true;
    case cudaResourceTypeLinear:
      if (!to_elements(from.res.linear.desc, &elements)) return false;
      to->linear = {from.res.linear.devPtr, elements.format, elements.channels,
                    from.res.linear.sizeInBytes};
      return true;
    case cudaResourceTypePitch2D:
      if (!to_elements(from.res.pitch2D.desc, &elements)) return false;
      to->pitched = {from.res.pitch2D.devPtr, elements.format,
                     elements.channels,       from.res.pitch2D.width,
                     from.res.pitch2D.height, from.res.pitch2D.pitchInBytes};
      return true;
    default:
      return false;
  }
}
void to_runtime_form(const DriverResource& from, cudaResourceDesc* to) {
  *to = {};
  to->resType = from.type;
  switch (from.type) {
    case cudaResourceTypeArray:
      to->res.array.array = static_cast<cudaArray_t>(from.array);
      break;
    case cudaResourceTypeMipmappedArray:
      to->res.mipmap.mipmap = static_cast<cudaMipmappedArray_t>(from.mipmap);
      break;
    case cudaResourceTypeLinear:
      to->res.linear = {from.linear.address, to_channels(from.linear.format, from.linear.channels),
                        from.linear.bytes};
      break;
    case cudaResourceTypePitch2D:
      to->res.pitch2D = {from.pitched.address,
                         to_channels(from.pitched.format, from.pitched.channels),
                         from.pitched.width, from.pitched.height, from.pitched.pitch};
      break;
    default:
      break;
  }
}

DriverTexture to_driver(const cudaTextureDesc& from) {
  DriverTexture to = {};
  std::copy_n(from.addressMode, 3, to.address_mode);
  to.filter_mode = from.filterMode;
  constexpr int kReadElementType = 0;
  to.flags = (from.readMode == kReadElementType ? kReadAsInteger : 0u) |
             (from.normalizedCoords != 0 ? kNormalizedCoordinates : 0u) |
             (from.sRGB != 0 ? kSrgb : 0u) |
             (from.disableTrilinearOptimization != 0 ? kNoTrilinearOptimization : 0u) |
             (from.seamlessCubemap != 0 ? kSeamlessCubemap : 0u);
  to.max_anisotropy = from.maxAnisotropy;
  to.mipmap_filter_mode = from.mipmapFilterMode;
  to.mipmap_level_bias = from.mipmapLevelBias;
  to.min_mipmap_level = from.minMipmapLevelClamp;
  to.max_mipmap_level = from.maxMipmapLevelClamp;
  std::copy_n(from.borderColor, 4, to.border_color);
  return to;
}
cudaTextureDesc to_runtime_form(const DriverTexture& from) {
  cudaTextureDesc to = {};
  std::copy_n(from.address_mode, 3, to.addressMode);
  to.filterMode = from.filter_mode;
  to.readMode = (from.flags & kReadAsInteger) != 0 ? 0 : 1;
  to.normalizedCoords = (from.flags & kNormalizedCoordinates) != 0;
  to.sRGB = (from.flags & kSrgb) != 0;
  to.disableTrilinearOptimization = (from.flags & kNoTrilinearOptimization) != 0;
  to.seamlessCubemap = (from.flags & kSeamlessCubemap) != 0;
  to.maxAnisotropy = from.max_anisotropy;
  to.mipmapFilterMode = from.mipmap_filter_mode;
  to.mipmapLevelBias = from.mipmap_level_bias;
  to.minMipmapLevelClamp = from.min_mipmap_level;
  to.maxMipmapLevelClamp = from.max_mipmap_level;
  std::copy_n(from.border_color, 4, to.borderColor);
  return to;
}

bool is_integer(const cudaChannelFormatDesc& d) {
  return d.f == cudaChannelFormatKindSigned || d.f == cudaChannelFormatKindUnsigned;
}

// Whether texels are integers that a filter would be asked to mix: the runtime has an error of its
// own for what drivers call an invalid value.
bool filters_integers(const cudaResourceDesc& resource, const cudaTextureDesc& texture) {
  constexpr int kLinear = 1, kReadElementType = 0;
  if (texture.filterMode != kLinear || texture.readMode != kReadElementType) return false;
  if (resource.resType == cudaResourceTypePitch2D) return is_integer(resource.res.pitch2D.desc);
  if (resource.resType == cudaResourceTypeLinear) return is_integer(resource.res.linear.desc);
  ArrayDescription d;
  return resource.resType == cudaResourceTypeArray &&
         describe_array(resource.res.array.array, &d) == CUDA_SUCCESS &&
         is_integer(to_channels(d.format, d.channels));
}

DriverView to_driver(const cudaResourceViewDesc& from) {
  DriverView to = {};
  to.format = from.format;
  to.width = from.width;
  to.height = from.height;
  to.depth = from.depth;
  to.first_level = from.firstMipmapLevel;
  to.last_level = from.lastMipmapLevel;
  to.first_layer = from.firstLayer;
  to.last_layer = from.lastLayer;
  return to;
}

}  // namespace

namespace impl {

cudaError_t cudaMallocArray(cudaArray_t* array, const cudaChannelFormatDesc* format, size_t width,
                            size_t height, unsigned flags) {
  return cudaMalloc3DArray(array, format, {width, height, 0}, flags);
}
cudaError_t cudaMalloc3DArray(cudaArray_t* array, const cudaChannelFormatDesc* format,
                              cudaExtent extent, unsigned flags) {
  if (array == nullptr) return cudaErrorInvalidValue;
  ArrayDescription d;
  if (const cudaError_t error = describe(format, extent, flags, &d); error != cudaSuccess)
    return error;
  return to_runtime(
      call_driver<cudaArray_t*, const ArrayDescription*>("cuArray3DCreate_v2", array, &d));
}
cudaError_t cudaMallocMipmappedArray(cudaMipmappedArray_t* array,
                                     const cudaChannelFormatDesc* format, cudaExtent extent,
                                     unsigned levels, unsigned flags) {
  if (array == nullptr) return cudaErrorInvalidValue;
  ArrayDescription d;
  if (const cudaError_t error = describe(format, extent, flags, &d); error != cudaSuccess)
    return error;
  return to_runtime(call_driver<cudaMipmappedArray_t*, const ArrayDescription*, unsigned>(
      "cuMipmappedArrayCreate", array, &d, levels));
}
cudaError_t cudaFreeArray(cudaArray_t array) {
  return array == nullptr ? cudaSuccess
                          : to_runtime(call_driver<cudaArray_t>("cuArrayDestroy", array));
}
cudaError_t cudaFreeMipmappedArray(cudaMipmappedArray_t array) {
  return array == nullptr
             ? cudaSuccess
             : to_runtime(call_driver<cudaMipmappedArray_t>("cuMipmappedArrayDestroy", array));
}

cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc* format, cudaExtent* extent, unsigned* flags,
                             cudaArray_t array) {
  ArrayDescription d;
  if (const CUresult r = describe_array(array, &d); r != CUDA_SUCCESS) return to_runtime(r);
  if (format != nullptr) *format = to_channels(d.format, d.channels);
  if (extent != nullptr) *extent = {d.width, d.height, d.depth};
  if (flags != nullptr) *flags = d.flags;
  return cudaSuccess;
}
cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc* format, cudaArray_const_t array) {
  if (format == nullptr) return cudaErrorInvalidValue;
  return cudaArrayGetInfo(format, nullptr, nullptr, const_cast<cudaArray_t>(array));
}

cudaError_t cudaCreateTextureObject(cudaTextureObject_t* object, const cudaResourceDesc* resource,
                                    const cudaTextureDesc* texture,
                                    const cudaResourceViewDesc* view) {
  if (object == nullptr || resource == nullptr || texture == nullptr) return cudaErrorInvalidValue;
  DriverResource r;
  if (resource->resType < cudaResourceTypeArray || resource->resType > cudaResourceTypePitch2D)
    return cudaErrorInvalidValue;
  if (!to_driver(*resource, &r)) return cudaErrorInvalidChannelDescriptor;
  const DriverTexture t = to_driver(*texture);
  DriverView v = {};
  if (view != nullptr) v = to_driver(*view);
  if (view == nullptr && filters_integers(*resource, *texture))
    return cudaErrorInvalidFilterSetting;
  const CUresult made = call_driver<cudaTextureObject_t*, const DriverResource*,
                                    const DriverTexture*, const DriverView*>(
      "cuTexObjectCreate", object, &r, &t, view == nullptr ? nullptr : &v);
  return to_runtime(made);
}
cudaError_t cudaGetTextureObjectResourceDesc(cudaResourceDesc* resource,
                                             cudaTextureObject_t object) {
  if (resource == nullptr) return cudaErrorInvalidValue;
  DriverResource r = {};
  const CUresult result =
      call_driver<DriverResource*, cudaTextureObject_t>("cuTexObjectGetResourceDesc", &r, object);
  if (result == CUDA_SUCCESS) to_runtime_form(r, resource);
  return to_runtime(result);
}
cudaError_t cudaGetTextureObjectTextureDesc(cudaTextureDesc* texture, cudaTextureObject_t object) {
  if (texture == nullptr) return cudaErrorInvalidValue;
  DriverTexture t = {};
  const CUresult result =
      call_driver<DriverTexture*, cudaTextureObject_t>("cuTexObjectGetTextureDesc", &t, object);
  if (result == CUDA_SUCCESS) *texture = to_runtime_form(t);
  return to_runtime(result);
}
cudaError_t cudaGetTextureObjectResourceViewDesc(cudaResourceViewDesc* view,
                                                 cudaTextureObject_t object) {
  DriverView v = {};
  const CUresult r =
      call_driver<DriverView*, cudaTextureObject_t>("cuTexObjectGetResourceViewDesc", &v, object);
  if (r != CUDA_SUCCESS || view == nullptr) return to_runtime(r);
  *view = {};
  view->format = v.format;
  view->width = v.width;
  view->height = v.height;
  view->depth = v.depth;
  view->firstMipmapLevel = v.first_level;
  view->lastMipmapLevel = v.last_level;
  view->firstLayer = v.first_layer;
  view->lastLayer = v.last_layer;
  return cudaSuccess;
}
cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t* object, const cudaResourceDesc* resource) {
  if (object == nullptr || resource == nullptr) return cudaErrorInvalidValue;
  DriverResource r;
  if (!to_driver(*resource, &r)) return cudaErrorInvalidChannelDescriptor;
  return to_runtime(
      call_driver<cudaSurfaceObject_t*, const DriverResource*>("cuSurfObjectCreate", object, &r));
}
cudaError_t cudaGetSurfaceObjectResourceDesc(cudaResourceDesc* resource,
                                             cudaSurfaceObject_t object) {
  if (resource == nullptr) return cudaErrorInvalidValue;
  DriverResource r = {};
  const CUresult result =
      call_driver<DriverResource*, cudaSurfaceObject_t>("cuSurfObjectGetResourceDesc", &r, object);
  if (result == CUDA_SUCCESS) to_runtime_form(r, resource);
  return to_runtime(result);
}

}  // namespace impl
}  // namespace sluice::cudart
