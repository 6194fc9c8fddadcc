// SPDX-License-Identifier: Apache-2.0
// Texture and surface objects. Two contexts may have objects of one name, so both make the key.
#include <map>
#include <mutex>
#include <utility>

#include "abi/cuda_texture.h"
#include "guest-agent/shim/state/api.h"

using namespace sluice::guest;

namespace {

// What an object was made of, as the program said it.
struct KnownTexture {
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC texture{};
  bool surface = false;
};
struct KnownTextures {
  std::mutex mutex;
  std::map<std::pair<uint64_t, unsigned long long>, KnownTexture> all;  // context, object
};
KnownTextures& known_textures() {
  static auto* it = new KnownTextures;
  return *it;
}

void remember_texture(uint64_t context, unsigned long long object, const KnownTexture& made) {
  std::lock_guard lock(known_textures().mutex);
  known_textures().all[{context, object}] = made;
}

template <class Read>
CUresult with_texture(unsigned long long object, bool surface, Read&& read) {
  const Entered e = enter_context();
  if (!e) return e.status;
  std::lock_guard lock(known_textures().mutex);
  const auto found = known_textures().all.find({e.context, object});
  if (found == known_textures().all.end() || found->second.surface != surface)
    return CUDA_ERROR_INVALID_VALUE;
  return read(found->second);
}

CUresult forget_texture(const Entered& e, unsigned long long object, bool surface) {
  std::lock_guard lock(known_textures().mutex);
  const auto found = known_textures().all.find({e.context, object});
  if (found == known_textures().all.end() || found->second.surface != surface)
    return CUDA_ERROR_INVALID_VALUE;
  known_textures().all.erase(found);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuTexObjectCreate(CUtexObject* object, const CUDA_RESOURCE_DESC* resource,
                           const CUDA_TEXTURE_DESC* texture, const CUDA_RESOURCE_VIEW_DESC* view) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (object == nullptr || resource == nullptr || texture == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if (view != nullptr)
    return static_cast<CUresult>(not_supported("cuTexObjectCreate", "resource views"));
  if (resource->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
    return static_cast<CUresult>(not_supported("cuTexObjectCreate", "mipmapped arrays"));
  CUtexObject made = 0;
  const CUDA_RESOURCE_VIEW_DESC* none = nullptr;
  const CUresult r =
      SLUICE_CALL(cuTexObjectCreate, *e.link, e.context, &made, resource, texture, none);
  if (r != CUDA_SUCCESS) return r;
  remember_texture(e.context, made, {*resource, *texture, false});
  *object = made;
  return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(CUsurfObject* object, const CUDA_RESOURCE_DESC* resource) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (object == nullptr || resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUsurfObject made = 0;
  const CUresult r = SLUICE_CALL(cuSurfObjectCreate, *e.link, e.context, &made, resource);
  if (r != CUDA_SUCCESS) return r;
  remember_texture(e.context, made, {*resource, {}, true});
  *object = made;
  return CUDA_SUCCESS;
}

CUresult cuTexObjectDestroy(CUtexObject object) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (const CUresult r = forget_texture(e, object, false); r != CUDA_SUCCESS) return r;
  return e.link->with_deferred(SLUICE_CALL(cuTexObjectDestroy, *e.link, e.context, object));
}
CUresult cuSurfObjectDestroy(CUsurfObject object) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (const CUresult r = forget_texture(e, object, true); r != CUDA_SUCCESS) return r;
  return e.link->with_deferred(SLUICE_CALL(cuSurfObjectDestroy, *e.link, e.context, object));
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* resource, CUtexObject object) {
  return with_texture(object, false, [&](const KnownTexture& t) {
    if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *resource = t.resource;
    return CUDA_SUCCESS;
  });
}
CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* texture, CUtexObject object) {
  return with_texture(object, false, [&](const KnownTexture& t) {
    if (texture == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *texture = t.texture;
    return CUDA_SUCCESS;
  });
}
// No texture here was made with a view, and asking for it then is documented to be an error.
CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC*, CUtexObject object) {
  return with_texture(object, false, [](const KnownTexture&) { return CUDA_ERROR_INVALID_VALUE; });
}
CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* resource, CUsurfObject object) {
  return with_texture(object, true, [&](const KnownTexture& t) {
    if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *resource = t.resource;
    return CUDA_SUCCESS;
  });
}
