// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/shim/modules/texture_references.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>

#include "abi/cuda_graph.h"
#include "abi/cuda_texture.h"
#include "guest-agent/shim/modules/module_registry.h"
#include "guest-agent/shim/session/log.h"
#include "guest-agent/shim/state/api.h"
#include "kernels/ptx/address_uses.h"
#include "kernels/ptx/edit.h"
#include "kernels/ptx/module.h"
#include "mediator/base/find_text.h"

namespace sluice::guest {
namespace {

// What it is bound to.
struct Nothing {};
struct Linear {
  CUdeviceptr address;
  size_t bytes;
};
struct Pitched {
  CUdeviceptr address;
  size_t width, height, pitch;
};
using Binding = std::variant<Nothing, CUarray, CUmipmappedArray, Linear, Pitched>;

struct Reference {
  bool surface = false;
  uint64_t module = 0, context = 0;  // 0: of the program's own (cuTexRefCreate)
  CUdeviceptr cell = 0;
  Binding bound = Nothing{};
  CUarray_format format = CU_AD_FORMAT_FLOAT;
  unsigned channels = 1;
  CUDA_TEXTURE_DESC how{};
  unsigned long long object = 0;  // that the cell holds
};

// Its mutex comes after that of all_modules().
struct References {
  std::mutex mutex;
  std::unordered_map<uint64_t, std::unique_ptr<Reference>> all;
  std::map<std::pair<uint64_t, std::string>, uint64_t> of_modules;
  std::unordered_map<uint64_t, CUtexObject> zeros;  // by context: of an array of one texel
  uint64_t next = 0x1000;

  uint64_t add(std::unique_ptr<Reference> made) {
    for (CUaddress_mode& mode : made->how.addressMode) mode = CU_TR_ADDRESS_MODE_CLAMP;
    const uint64_t handle = next += 16;
    all[handle] = std::move(made);
    return handle;
  }
};
References& references() {
  static auto* it = new References;
  return *it;
}

std::vector<std::pair<const ptx::Variable*, ReferenceName>> references_of(
    const ptx::Module& module) {
  std::vector<std::pair<const ptx::Variable*, ReferenceName>> found;
  for (const ptx::Variable& v : module.variables())
    if (v.space == ptx::Space::kGlobal && (v.type == "texref" || v.type == "surfref"))
      found.push_back({&v, {std::string(v.name), v.type == "surfref"}});
  return found;
}

bool mentioned_in_a_value(const ptx::Module& module, const ptx::AddressUses& uses) {
  bool any = false;
  for (const ptx::Variable& v : module.variables())
    ptx::for_each_word(v.initializer,
                       [&](std::string_view word, size_t) { any |= uses.contains(word); });
  return any;
}

// The declaration's place is the cell's. False: it says more than the name.
bool replace_declaration(const ptx::Module& module, const ptx::Variable& v, size_t n,
                         ptx::Edits* edits) {
  if (v.linkage == ".extern" || !v.initializer.empty()) return false;
  const std::string_view text = module.text_of(v.range);
  if (text.find_first_of(",[={") != std::string_view::npos) return false;
  const std::string end = text.find(';') == std::string_view::npos ? "" : ";";
  edits->replace(v.range, ".visible .global .align 8 .u64 " + reference_cell(n) + end);
  return true;
}

// The object of what the reference says now, or 0.
unsigned long long object_of(const Reference& r) {
  CUDA_RESOURCE_DESC resource{};
  if (const auto* array = std::get_if<CUarray>(&r.bound)) {
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = *array;
  } else if (const auto* mipmap = std::get_if<CUmipmappedArray>(&r.bound)) {
    resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    resource.res.mipmap.hMipmappedArray = *mipmap;
  } else if (const auto* linear = std::get_if<Linear>(&r.bound)) {
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear.devPtr = linear->address;
    resource.res.linear.format = r.format;
    resource.res.linear.numChannels = r.channels;
    resource.res.linear.sizeInBytes = linear->bytes;
  } else if (const auto* pitched = std::get_if<Pitched>(&r.bound)) {
    resource.resType = CU_RESOURCE_TYPE_PITCH2D;
    resource.res.pitch2D.devPtr = pitched->address;
    resource.res.pitch2D.format = r.format;
    resource.res.pitch2D.numChannels = r.channels;
    resource.res.pitch2D.width = pitched->width;
    resource.res.pitch2D.height = pitched->height;
    resource.res.pitch2D.pitchInBytes = pitched->pitch;
  } else {
    return 0;
  }
  unsigned long long object = 0;
  const CUresult status = r.surface ? cuSurfObjectCreate(&object, &resource)
                                    : cuTexObjectCreate(&object, &resource, &r.how, nullptr);
  return status == CUDA_SUCCESS ? object : 0;
}
void end_object(const Reference& r) {
  if (r.object == 0) return;
  r.surface ? cuSurfObjectDestroy(r.object) : cuTexObjectDestroy(r.object);
}

// Gives kernels the reference as it is now. What cannot be an object is none yet: a program says
// one thing after the other.
CUresult apply(const Entered& e, Reference& r) {
  if (r.module == 0 || std::holds_alternative<Nothing>(r.bound)) return CUDA_SUCCESS;
  if (e.context != r.context) return CUDA_ERROR_INVALID_CONTEXT;
  const unsigned long long made = object_of(r);
  if (made == 0) return CUDA_SUCCESS;
  // Launches before this go by the reference as it was.
  CUresult status = cuCtxSynchronize();
  if (status == CUDA_SUCCESS) status = cuMemcpyHtoD_v2(r.cell, &made, sizeof made);
  if (status == CUDA_SUCCESS) end_object(r);
  if (status == CUDA_SUCCESS) r.object = made;
  return status;
}

enum class Kind { kTexture, kSurface };

template <class Use>
CUresult with_reference(const void* handle, Kind kind, Use&& use) {
  const Entered e = enter_context();
  if (!e) return e.status;
  std::lock_guard lock(references().mutex);
  const auto found = references().all.find(wire(handle));
  if (found == references().all.end() || found->second->surface != (kind == Kind::kSurface))
    return CUDA_ERROR_INVALID_HANDLE;
  return use(e, *found->second);
}
template <class Set>
CUresult change(CUtexref handle, Set&& set) {
  return with_reference(handle, Kind::kTexture, [&](const Entered& e, Reference& r) {
    const CUresult status = set(r);
    return status == CUDA_SUCCESS ? apply(e, r) : status;
  });
}
template <class Get>
CUresult read(CUtexref handle, bool has_room, Get&& get) {
  return with_reference(handle, Kind::kTexture, [&](const Entered&, const Reference& r) {
    return has_room ? get(r) : CUDA_ERROR_INVALID_VALUE;
  });
}
template <class T>
CUresult read_value(CUtexref handle, T* to, T (*value)(const Reference&)) {
  return read(handle, to != nullptr, [&](const Reference& r) {
    *to = value(r);
    return CUDA_SUCCESS;
  });
}
template <class What>
CUresult read_binding(CUtexref handle, What* to) {
  return read(handle, to != nullptr, [&](const Reference& r) {
    const What* bound = std::get_if<What>(&r.bound);
    if (bound == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *to = *bound;
    return CUDA_SUCCESS;
  });
}

// The reference of a name in a module: the same handle each time.
CUresult find_reference(CUmodule module, const char* name, bool surface, uint64_t* handle) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (handle == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard modules_lock(all_modules().mutex);
  const auto found = all_modules().modules.find(wire(module));
  if (found == all_modules().modules.end()) return CUDA_ERROR_INVALID_HANDLE;
  const auto& names = found->second.references;
  const auto named = std::find_if(names.begin(), names.end(), [&](const ReferenceName& one) {
    return one.name == name && one.surface == surface;
  });
  if (named == names.end()) return CUDA_ERROR_NOT_FOUND;
  std::lock_guard lock(references().mutex);
  uint64_t& known = references().of_modules[{wire(module), name}];
  if (known == 0) {
    auto made = std::make_unique<Reference>();
    made->surface = surface;
    made->module = wire(module);
    made->context = found->second.context;
    const std::string cell = reference_cell(static_cast<size_t>(named - names.begin()));
    const CUresult r = find_global(e, wire(module), cell.c_str(), &made->cell, nullptr);
    if (r != CUDA_SUCCESS) return r;
    known = references().add(std::move(made));
  }
  *handle = known;
  return CUDA_SUCCESS;
}

CUresult make_zeros(CUtexObject* object) {
  const CUDA_ARRAY_DESCRIPTOR one{1, 1, CU_AD_FORMAT_FLOAT, 4};
  constexpr float kZero[4] = {};
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  CUDA_TEXTURE_DESC how{};
  for (CUaddress_mode& mode : how.addressMode) mode = CU_TR_ADDRESS_MODE_CLAMP;
  CUresult r = cuArrayCreate_v2(&resource.res.array.hArray, &one);
  if (r != CUDA_SUCCESS) return r;
  r = cuMemcpyHtoA_v2(resource.res.array.hArray, 0, kZero, sizeof kZero);
  if (r == CUDA_SUCCESS) r = cuTexObjectCreate(object, &resource, &how, nullptr);
  cuArrayDestroy(resource.res.array.hArray);  // it stays as long as the object
  return r;
}

template <class End>
void remove_references(uint64_t module, End&& end) {
  std::lock_guard lock(references().mutex);
  auto it = references().of_modules.lower_bound({module, ""});
  while (it != references().of_modules.end() && it->first.first == module) {
    if (const auto found = references().all.find(it->second); found != references().all.end()) {
      end(*found->second);
      references().all.erase(found);
    }
    it = references().of_modules.erase(it);
  }
}

constexpr unsigned kKnownFlags = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES |
                                 CU_TRSF_SRGB | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION |
                                 CU_TRSF_SEAMLESS_CUBEMAP;
constexpr size_t kAddressAlign = 512;  // of a GPU's textures
constexpr size_t kDimensions = 3;

}  // namespace

std::string reference_cell(size_t n) { return "sluice_reference_" + std::to_string(n); }

std::vector<ReferenceName> lift_references(std::string* ptx) {
  // Most modules have none, and are not cut for this.
  if (find_text(*ptx, ".texref") == std::string::npos &&
      find_text(*ptx, ".surfref") == std::string::npos)
    return {};
  const auto module = ptx::Module::parse(*ptx);
  if (!module || module->address_size() != 64) return {};
  const auto found = references_of(*module);
  if (found.empty()) return {};
  ptx::Edits edits;
  ptx::AddressUses uses;
  std::vector<ReferenceName> names;
  bool done = true;
  for (const auto& [variable, name] : found) {
    const std::string cell = reference_cell(names.size());
    done = done && replace_declaration(*module, *variable, names.size(), &edits);
    uses[variable->name] = {"%" + cell, "ld.global.u64 %" + cell + ", [" + cell + "];"};
    names.push_back(name);
  }
  done = done && !mentioned_in_a_value(*module, uses);
  for (const ptx::Function& f : module->functions())
    done = done && ptx::replace_addresses(*module, f, uses, &edits);
  if (!done) {
    complain_once("module image: a texture reference is used in a way that is not supported");
    return {};
  }
  *ptx = edits.apply(*ptx, {0, static_cast<uint32_t>(ptx->size())});
  return names;
}

void read_zeros(const Entered& e, uint64_t module, const std::vector<ReferenceName>& names) {
  std::lock_guard lock(references().mutex);
  CUtexObject& zeros = references().zeros[e.context];
  CUresult r = zeros == 0 ? make_zeros(&zeros) : CUDA_SUCCESS;
  for (size_t n = 0; n < names.size() && r == CUDA_SUCCESS; ++n) {
    CUdeviceptr cell = 0;
    if (names[n].surface) continue;
    r = find_global(e, module, reference_cell(n).c_str(), &cell, nullptr);
    if (r == CUDA_SUCCESS) r = cuMemcpyHtoD_v2(cell, &zeros, sizeof zeros);
  }
  if (r != CUDA_SUCCESS) log_line("texture references that are not bound fault (%d)", r);
}
void forget_references_of_context(uint64_t context) {
  std::lock_guard lock(references().mutex);
  references().zeros.erase(context);
}

void end_references(const Entered& e, uint64_t module) {
  remove_references(module, [&](const Reference& r) {
    if (e.context == r.context) end_object(r);
  });
}
void forget_references(uint64_t module) {
  remove_references(module, [](const Reference&) {});
}

}  // namespace sluice::guest

using namespace sluice::guest;

CUresult cuModuleGetTexRef(CUtexref* reference, CUmodule module, const char* name) {
  return find_reference(module, name, false, reinterpret_cast<uint64_t*>(reference));
}
CUresult cuModuleGetSurfRef(CUsurfref* reference, CUmodule module, const char* name) {
  return find_reference(module, name, true, reinterpret_cast<uint64_t*>(reference));
}
CUresult cuTexRefCreate(CUtexref* reference) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (reference == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(references().mutex);
  *reference = reinterpret_cast<CUtexref>(references().add(std::make_unique<Reference>()));
  return CUDA_SUCCESS;
}
// A module's stays until the module goes; NVIDIA's driver succeeds there, too.
CUresult cuTexRefDestroy(CUtexref reference) {
  return with_reference(reference, Kind::kTexture, [&](const Entered&, const Reference& r) {
    if (r.module == 0) references().all.erase(wire(reference));
    return CUDA_SUCCESS;
  });
}

// ---- what it is bound to ----

CUresult cuTexRefSetArray(CUtexref reference, CUarray array, unsigned int flags) {
  return change(reference, [&](Reference& r) {
    if ((flags & ~unsigned{CU_TRSA_OVERRIDE_FORMAT}) != 0) return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR is{};
    const CUresult status =
        array == nullptr ? CUDA_ERROR_INVALID_HANDLE : cuArray3DGetDescriptor_v2(&is, array);
    if (status != CUDA_SUCCESS) return status;
    r.bound = array;
    if ((flags & CU_TRSA_OVERRIDE_FORMAT) != 0) r.format = is.Format, r.channels = is.NumChannels;
    return CUDA_SUCCESS;
  });
}
CUresult cuTexRefSetMipmappedArray(CUtexref reference, CUmipmappedArray array, unsigned int flags) {
  return change(reference, [&](Reference& r) {
    if ((flags & ~unsigned{CU_TRSA_OVERRIDE_FORMAT}) != 0) return CUDA_ERROR_INVALID_VALUE;
    CUarray level = nullptr;
    const CUresult status =
        array == nullptr ? CUDA_ERROR_INVALID_HANDLE : cuMipmappedArrayGetLevel(&level, array, 0);
    if (status != CUDA_SUCCESS) return status;
    r.bound = array;
    return CUDA_SUCCESS;
  });
}
CUresult cuTexRefSetAddress_v2(size_t* offset, CUtexref reference, CUdeviceptr address,
                               size_t bytes) {
  return change(reference, [&](Reference& r) {
    const size_t beyond = address % kAddressAlign;
    if ((offset == nullptr && beyond != 0) || bytes == 0 || bytes > SIZE_MAX - beyond)
      return CUDA_ERROR_INVALID_VALUE;
    if (offset != nullptr) *offset = beyond;
    r.bound = Linear{address - beyond, bytes + beyond};
    return CUDA_SUCCESS;
  });
}
CUresult cuTexRefSetAddress2D_v3(CUtexref reference, const CUDA_ARRAY_DESCRIPTOR* description,
                                 CUdeviceptr address, size_t pitch) {
  return change(reference, [&](Reference& r) {
    if (description == nullptr || address % kAddressAlign != 0) return CUDA_ERROR_INVALID_VALUE;
    r.bound = Pitched{address, description->Width, description->Height, pitch};
    r.format = description->Format;
    r.channels = description->NumChannels;
    return CUDA_SUCCESS;
  });
}
CUresult cuTexRefGetArray(CUarray* array, CUtexref reference) {
  return read_binding(reference, array);
}
CUresult cuTexRefGetMipmappedArray(CUmipmappedArray* array, CUtexref reference) {
  return read_binding(reference, array);
}
CUresult cuTexRefGetAddress_v2(CUdeviceptr* address, CUtexref reference) {
  return read(reference, address != nullptr, [&](const Reference& r) {
    if (const auto* linear = std::get_if<Linear>(&r.bound))
      *address = linear->address;
    else if (const auto* pitched = std::get_if<Pitched>(&r.bound))
      *address = pitched->address;
    else
      *address = 0;
    return *address != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}
CUresult cuSurfRefSetArray(CUsurfref reference, CUarray array, unsigned int flags) {
  return with_reference(reference, Kind::kSurface, [&](const Entered& e, Reference& r) {
    CUDA_ARRAY3D_DESCRIPTOR is{};
    const CUresult status = flags != 0         ? CUDA_ERROR_INVALID_VALUE
                            : array == nullptr ? CUDA_ERROR_INVALID_HANDLE
                                               : cuArray3DGetDescriptor_v2(&is, array);
    if (status != CUDA_SUCCESS) return status;
    if ((is.Flags & CUDA_ARRAY3D_SURFACE_LDST) == 0) return CUDA_ERROR_INVALID_VALUE;
    r.bound = array;
    return apply(e, r);
  });
}
CUresult cuSurfRefGetArray(CUarray* array, CUsurfref reference) {
  return with_reference(reference, Kind::kSurface, [&](const Entered&, const Reference& r) {
    const CUarray* bound = std::get_if<CUarray>(&r.bound);
    if (array == nullptr || bound == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *array = *bound;
    return CUDA_SUCCESS;
  });
}
CUresult cuParamSetTexRef(CUfunction function, int unit, CUtexref reference) {
  return with_reference(reference, Kind::kTexture, [&](const Entered&, const Reference&) {
    return function != nullptr && unit == CU_PARAM_TR_DEFAULT ? CUDA_SUCCESS
                                                              : CUDA_ERROR_INVALID_VALUE;
  });
}

// ---- how it is read ----

CUresult cuTexRefSetFormat(CUtexref reference, CUarray_format format, int channels) {
  return change(reference, [&](Reference& r) {
    if (channels != 1 && channels != 2 && channels != 4) return CUDA_ERROR_INVALID_VALUE;
    r.format = format, r.channels = static_cast<unsigned>(channels);
    return CUDA_SUCCESS;
  });
}
CUresult cuTexRefSetAddressMode(CUtexref reference, int dimension, CUaddress_mode mode) {
  return change(reference, [&](Reference& r) {
    if (dimension < 0 || static_cast<size_t>(dimension) >= kDimensions)
      return CUDA_ERROR_INVALID_VALUE;
    // As NVIDIA's driver takes what is no mode.
    const bool is_mode = static_cast<unsigned>(mode) <= CU_TR_ADDRESS_MODE_BORDER;
    r.how.addressMode[dimension] = is_mode ? mode : CU_TR_ADDRESS_MODE_CLAMP;
    return CUDA_SUCCESS;
  });
}
CUresult cuTexRefSetFlags(CUtexref reference, unsigned int flags) {
  return change(reference, [&](Reference& r) {
    if ((flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
    r.how.flags = flags;
    return CUDA_SUCCESS;
  });
}
CUresult cuTexRefSetFilterMode(CUtexref reference, CUfilter_mode mode) {
  return change(reference, [&](Reference& r) {
    r.how.filterMode = mode;
    return CUDA_SUCCESS;
  });
}
CUresult cuTexRefSetMipmapFilterMode(CUtexref reference, CUfilter_mode mode) {
  return change(reference, [&](Reference& r) {
    r.how.mipmapFilterMode = mode;
    return CUDA_SUCCESS;
  });
}
CUresult cuTexRefSetMipmapLevelBias(CUtexref reference, float bias) {
  return change(reference, [&](Reference& r) {
    r.how.mipmapLevelBias = bias;
    return CUDA_SUCCESS;
  });
}
CUresult cuTexRefSetMipmapLevelClamp(CUtexref reference, float least, float most) {
  return change(reference, [&](Reference& r) {
    r.how.minMipmapLevelClamp = least, r.how.maxMipmapLevelClamp = most;
    return CUDA_SUCCESS;
  });
}
CUresult cuTexRefSetMaxAnisotropy(CUtexref reference, unsigned int most) {
  return change(reference, [&](Reference& r) {
    r.how.maxAnisotropy = most;
    return CUDA_SUCCESS;
  });
}
CUresult cuTexRefSetBorderColor(CUtexref reference, float* color) {
  return change(reference, [&](Reference& r) {
    if (color == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::copy_n(color, 4, r.how.borderColor);
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetFormat(CUarray_format* format, int* channels, CUtexref reference) {
  return read(reference, true, [&](const Reference& r) {
    if (format != nullptr) *format = r.format;
    if (channels != nullptr) *channels = static_cast<int>(r.channels);
    return CUDA_SUCCESS;
  });
}
CUresult cuTexRefGetAddressMode(CUaddress_mode* mode, CUtexref reference, int dimension) {
  const bool there = dimension >= 0 && static_cast<size_t>(dimension) < kDimensions;
  return read(reference, mode != nullptr && there, [&](const Reference& r) {
    *mode = r.how.addressMode[dimension];
    return CUDA_SUCCESS;
  });
}
CUresult cuTexRefGetFlags(unsigned int* flags, CUtexref reference) {
  return read_value<unsigned>(reference, flags, [](const Reference& r) { return r.how.flags; });
}
CUresult cuTexRefGetFilterMode(CUfilter_mode* mode, CUtexref reference) {
  return read_value<CUfilter_mode>(reference, mode,
                                   [](const Reference& r) { return r.how.filterMode; });
}
CUresult cuTexRefGetMipmapFilterMode(CUfilter_mode* mode, CUtexref reference) {
  return read_value<CUfilter_mode>(reference, mode,
                                   [](const Reference& r) { return r.how.mipmapFilterMode; });
}
CUresult cuTexRefGetMipmapLevelBias(float* bias, CUtexref reference) {
  return read_value<float>(reference, bias,
                           [](const Reference& r) { return r.how.mipmapLevelBias; });
}
CUresult cuTexRefGetMipmapLevelClamp(float* least, float* most, CUtexref reference) {
  return read(reference, least != nullptr && most != nullptr, [&](const Reference& r) {
    *least = r.how.minMipmapLevelClamp, *most = r.how.maxMipmapLevelClamp;
    return CUDA_SUCCESS;
  });
}
CUresult cuTexRefGetMaxAnisotropy(int* most, CUtexref reference) {
  return read_value<int>(reference, most,
                         [](const Reference& r) { return static_cast<int>(r.how.maxAnisotropy); });
}
CUresult cuTexRefGetBorderColor(float* color, CUtexref reference) {
  return read(reference, color != nullptr, [&](const Reference& r) {
    std::copy_n(r.how.borderColor, 4, color);
    return CUDA_SUCCESS;
  });
}
