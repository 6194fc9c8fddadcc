// SPDX-License-Identifier: Apache-2.0
// Texture and surface objects. Two contexts may have objects of one name, so both make the key.
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "abi/cuda_texture.h"
#include "guest-agent/shim/state/api.h"

using namespace sluice::guest;

namespace {

// What an object was made of, as the program said it.
struct KnownTexture {
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC texture{};
  std::optional<CUDA_RESOURCE_VIEW_DESC> view;
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
  CUtexObject made = 0;
  const CUresult r =
      SLUICE_CALL(cuTexObjectCreate, *e.link, e.context, &made, resource, texture, view);
  if (r != CUDA_SUCCESS) return r;
  KnownTexture known{*resource, *texture, std::nullopt, false};
  if (view != nullptr) known.view = *view;
  remember_texture(e.context, made, known);
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
  remember_texture(e.context, made, {*resource, {}, std::nullopt, true});
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
// Of a texture that was made without a view, NVIDIA's driver succeeds, too.
CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* view, CUtexObject object) {
  return with_texture(object, false, [&](const KnownTexture& t) {
    if (view == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *view = t.view.value_or(CUDA_RESOURCE_VIEW_DESC{});
    return CUDA_SUCCESS;
  });
}
CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* resource, CUsurfObject object) {
  return with_texture(object, true, [&](const KnownTexture& t) {
    if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *resource = t.resource;
    return CUDA_SUCCESS;
  });
}
