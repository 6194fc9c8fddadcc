// SPDX-License-Identifier: Apache-2.0
// Textures and surfaces; see ops_texture.h for the list.
//
// Coordinates, address modes and filters follow the CUDA programming guide ("Texture fetching"):
// filters weigh with 9-bit fixed-point numbers, 8 of them behind the point.
#include "kernels/exec/program/ops_texture.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/exec/block/block.h"
#include "kernels/exec/block/block_state.h"
#include "kernels/exec/block/warp.h"
#include "kernels/exec/memory/texture.h"
#include "kernels/exec/ops/lane_memory.h"
#include "kernels/exec/program/inst.h"
#include "kernels/exec/program/plain_ops.h"

namespace sluice::exec::detail {
namespace {

#include "kernels/exec/ops/lanes.inc"

#include "kernels/exec/ops/half.inc"

// The descriptor of a lane's handle, remembered from lane to lane, with its memory found; null: the
// fault is set.
class Lookup {
 public:
  Lookup(Warp& w, bool surface, bool write) : w_(w), surface_(surface), write_(write) {}
  const TextureDescriptor* at(u64 handle, u32 lane) {
    if (found_ != nullptr && handle == handle_) return found_.get();
    handle_ = handle;
    found_ = w_.block->map->textures().find(handle);
    if (found_ == nullptr || found_->surface != surface_) {
      w_.fault(FaultKind::kOutOfBounds, lane, handle, 8);
      return found_ = nullptr, nullptr;
    }
    u64 left = found_->bytes(), at = found_->base;
    CachedRange cached;
    // Pieces, because an access is at most 32 bits long.
    while (left != 0) {
      const u32 piece = static_cast<u32>(left < 0x4000'0000u ? left : 0x4000'0000u);
      if (find_global(w_, at, piece, write_, cached) == 0) {
        w_.fault(FaultKind::kOutOfBounds, lane, at, piece);
        return found_ = nullptr, nullptr;
      }
      at += piece;
      left -= piece;
    }
    return found_.get();
  }

 private:
  Warp& w_;
  bool surface_, write_;
  u64 handle_ = 0;
  std::shared_ptr<const TextureDescriptor> found_;
};

struct Texel {
  u32 bits[4] = {};  // f32, or integers as they are
};

u32 f32_bits(f32 v) { return bit_cast_to<u32>(v); }

// IEC 61966-2-1.
f32 linear_of_srgb(u8 v) {
  const f64 c = v / 255.0;
  return static_cast<f32>(c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4));
}

u32 channel(const TextureDescriptor& t, const u8* p) {
  switch (t.format) {
    case TexelFormat::kU8:
      return t.as_integer ? *p : f32_bits(static_cast<f32>(*p) / 255.0f);
    case TexelFormat::kS8: {
      const s32 v = static_cast<s8>(*p);
      const f32 scaled = static_cast<f32>(v) / 127.0f;
      return t.as_integer ? static_cast<u32>(v) : f32_bits(scaled < -1.0f ? -1.0f : scaled);
    }
    case TexelFormat::kU16:
    case TexelFormat::kS16:
    case TexelFormat::kF16: {
      u16 v;
      std::memcpy(&v, p, 2);
      if (t.format == TexelFormat::kF16) return f32_bits(to_f32(f16{v}));
      if (t.format == TexelFormat::kU16)
        return t.as_integer ? v : f32_bits(static_cast<f32>(v) / 65535.0f);
      const s32 s = static_cast<s16>(v);
      const f32 scaled = static_cast<f32>(s) / 32767.0f;
      return t.as_integer ? static_cast<u32>(s) : f32_bits(scaled < -1.0f ? -1.0f : scaled);
    }
    default: {
      u32 v;
      std::memcpy(&v, p, 4);
      return v;
    }
  }
}
// The texel at whole coordinates inside the level; absent channels are 0.
Texel texel_at(const TextureDescriptor& t, const TextureLevel& level, s64 x, s64 y, s64 z) {
  Texel r;
  const u8* p = reinterpret_cast<const u8*>(level.base + static_cast<u64>(z) * level.slice_bytes +
                                            static_cast<u64>(y) * level.row_bytes +
                                            static_cast<u64>(x) * t.texel_bytes());
  for (u32 k = 0; k < t.channels; ++k)
    r.bits[k] =
        t.srgb && k < 3 ? f32_bits(linear_of_srgb(p[k])) : channel(t, p + k * bytes_of(t.format));
  return r;
}

// Integer texels take the low bits of the border's, whatever number they are.
Texel border_of(const TextureDescriptor& t) {
  Texel r;
  for (u32 k = 0; k < t.channels; ++k) {
    const u32 bits = f32_bits(t.border[k]);
    r.bits[k] = bits;
    if (!t.as_integer) continue;
    if (t.format == TexelFormat::kU8) r.bits[k] = bits & 0xff;
    if (t.format == TexelFormat::kS8) r.bits[k] = static_cast<u32>(s32{static_cast<s8>(bits)});
    if (t.format == TexelFormat::kU16) r.bits[k] = bits & 0xffff;
    if (t.format == TexelFormat::kS16) r.bits[k] = static_cast<u32>(s32{static_cast<s16>(bits)});
  }
  return r;
}

// A whole coordinate into the texture; false: outside, where the border is.
bool place(AddressMode mode, bool normalised, s64& i, s64 size) {
  if (i >= 0 && i < size) return true;
  if (mode == AddressMode::kBorder) return false;
  if (normalised && mode == AddressMode::kWrap) {
    i %= size;
    if (i < 0) i += size;
  } else if (normalised && mode == AddressMode::kMirror) {
    i %= 2 * size;
    if (i < 0) i += 2 * size;
    if (i >= size) i = 2 * size - 1 - i;
  } else {
    i = i < 0 ? 0 : size - 1;
  }
  return true;
}

Texel addressed(const TextureDescriptor& t, const TextureLevel& level, const s64* at,
                u32 dimensions, s64 layer) {
  s64 x = at[0], y = dimensions > 1 ? at[1] : 0, z = dimensions > 2 ? at[2] : 0;
  if (!place(t.address[0], t.normalised, x, level.width) ||
      (dimensions > 1 && !place(t.address[1], t.normalised, y, level.height)) ||
      (dimensions > 2 && !place(t.address[2], t.normalised, z, level.depth)))
    return border_of(t);
  return texel_at(t, level, x, y, t.layered ? layer : z);
}

// Whole coordinates know no address modes: outside (also of the layers) is zero. So is, on an H200,
// all of an array of one dimension that is no layer: such fetches are meant for linear memory.
Texel texel_or_zero(const TextureDescriptor& t, const TextureLevel& level, const s64* at,
                    u32 dimensions, s64 layer) {
  const s64 x = at[0], y = dimensions > 1 ? at[1] : 0, z = dimensions > 2 ? at[2] : 0;
  if (x < 0 || x >= level.width || y < 0 || y >= level.height || z < 0 || z >= level.depth ||
      (dimensions == 1 && !t.linear_memory && !t.layered))
    return {};
  return texel_at(t, level, x, y, t.layered ? layer : z);
}

// A coordinate in texels; far outside is as good as anywhere outside.
f64 texel_coordinate(const TextureDescriptor& t, f32 v, u32 size, AddressMode mode) {
  if (v != v) v = 0;
  f64 x = v;
  if (t.normalised) {
    if (mode == AddressMode::kWrap) x -= std::floor(x);
    if (mode == AddressMode::kMirror)
      x -= 2 * std::floor(x / 2);  // place() mirrors the second half
    x *= size;
  }
  const f64 limit = 1 << 24;
  return x < -limit ? -limit : x > limit ? limit : x;
}

struct Face {
  s64 index = 0;     // +x, -x, +y, -y, +z, -z
  f64 s = 0, t = 0;  // 0 to 1
};
// The face that a direction meets, and where (CUDA programming guide, "Cubemap textures").
Face face_of(f64 x, f64 y, f64 z) {
  const f64 ax = std::fabs(x), ay = std::fabs(y), az = std::fabs(z);
  Face f;
  f64 m = 1, s = 0, t = 0;
  if (ax >= ay && ax >= az) {
    f.index = x >= 0 ? 0 : 1, m = ax, s = x >= 0 ? -z : z, t = -y;
  } else if (ay >= az) {
    f.index = y >= 0 ? 2 : 3, m = ay, s = x, t = y >= 0 ? z : -z;
  } else {
    f.index = z >= 0 ? 4 : 5, m = az, s = z >= 0 ? x : -x, t = -y;
  }
  if (m == 0) m = 1;
  f.s = (s / m + 1) / 2;
  f.t = (t / m + 1) / 2;
  return f;
}
// The direction of a place on a face's plane, -1 to 1 on the face itself.
void direction_of(s64 face, f64 s, f64 t, f64* to) {
  const f64 all[6][3] = {{1, -t, -s}, {-1, -t, s}, {s, 1, t},
                         {s, -1, -t}, {s, -t, 1},  {-s, -t, -1}};
  for (int k = 0; k < 3; ++k) to[k] = all[face][k];
}

// A texel beside a face of a seamless cube map lies on the next face.
Texel across_faces(const TextureDescriptor& t, const TextureLevel& level, const s64* at,
                   s64 layer) {
  const s64 size = level.width, face = layer % 6;
  if (at[0] >= 0 && at[0] < size && at[1] >= 0 && at[1] < size)
    return texel_at(t, level, at[0], at[1], layer);
  const auto centre = [size](s64 i) { return (2 * static_cast<f64>(i) + 1) / size - 1; };
  f64 d[3];
  direction_of(face, centre(at[0]), centre(at[1]), d);
  const Face next = face_of(d[0], d[1], d[2]);
  const auto texel = [size](f64 v) {
    const s64 i = static_cast<s64>(std::floor(v * size));
    return i < 0 ? 0 : i >= size ? size - 1 : i;
  };
  return texel_at(t, level, texel(next.s), texel(next.t), layer - face + next.index);
}

// The mean of the corners. Their weights are 9-bit numbers: of each pair the upper share is rounded
// to 8 bits behind the point and the lower one is what is left. The sum is rounded once.
Texel filtered(const TextureDescriptor& t, const TextureLevel& level, const s64* fixed,
               u32 dimensions, s64 layer) {
  s64 low[3] = {};
  s32 share[8] = {256};
  for (u32 d = 0; d < dimensions; ++d) {
    const s64 at = fixed[d] - 128;
    low[d] = at >> 8;
    const s32 weight = static_cast<s32>(at & 255);
    for (u32 k = 0; k < 1u << d; ++k) {
      const s32 upper = (share[k] * weight + 128) >> 8;
      share[k + (1u << d)] = upper;
      share[k] -= upper;
    }
  }
  f64 sum[4] = {};
  for (u32 corner = 0; corner < 1u << dimensions; ++corner) {
    s64 at[3];
    for (u32 d = 0; d < dimensions; ++d) at[d] = low[d] + (corner >> d & 1);
    const Texel texel =
        t.seamless ? across_faces(t, level, at, layer) : addressed(t, level, at, dimensions, layer);
    for (u32 k = 0; k < 4; ++k)
      sum[k] += share[corner] / 256.0 * static_cast<f64>(bit_cast_to<f32>(texel.bits[k]));
  }
  Texel r;
  for (u32 k = 0; k < 4; ++k) r.bits[k] = f32_bits(static_cast<f32>(sum[k]));
  return r;
}

// x, y, z and layer of a lane.
s64 layer_of(const Warp& w, const u32* aux, const TextureDescriptor& t, bool cube, u32 lane) {
  if (aux[3] == kNoOperand) return 0;
  const u32 layers = cube ? t.depth / 6 : t.depth;
  const u32 layer = lane_u32(w, aux[3], lane);
  return layer < layers ? layer : layers - 1;
}

// A fetch by numbers behind the point from one level.
Texel sample(const TextureDescriptor& t, const TextureLevel& level, const f32* at, u32 dimensions,
             s64 layer) {
  const u32 sizes[3] = {level.width, level.height, level.depth};
  s64 whole[3] = {}, fixed[3] = {};
  for (u32 d = 0; d < dimensions; ++d) {
    const f64 x = texel_coordinate(t, at[d], sizes[d], t.address[d]);
    fixed[d] = static_cast<s64>(std::floor(x * 256.0 + 0.5));
    whole[d] = static_cast<s64>(std::floor(x));
  }
  if (!t.filter) return addressed(t, level, whole, dimensions, layer);
  // A line is filtered as a picture of height 1 at its edge: the border has a share.
  const bool line = dimensions == 1 && !t.layered;
  return filtered(t, level, fixed, line ? 2 : dimensions, layer);
}

// The level that gradients choose: where the longer one is a texel long.
f32 level_of_gradients(const TextureDescriptor& t, const f32* dx, const f32* dy, u32 dimensions) {
  const u32 sizes[3] = {t.width, t.height, t.depth};
  f64 longest = 0;
  for (const f32* d : {dx, dy}) {
    f64 sum = 0;
    for (u32 k = 0; k < dimensions; ++k) {
      const f64 texels = static_cast<f64>(d[k]) * (t.normalised ? sizes[k] : 1);
      sum += texels * texels;
    }
    longest = sum > longest ? sum : longest;
  }
  return longest == 0 ? -1000.0f : static_cast<f32>(std::log2(longest) / 2);
}

// From one level or, where they are filtered, between two: by 8 bits behind the point.
Texel sample_mipmap(const TextureDescriptor& t, f32 lod, const f32* at, u32 dimensions, s64 layer) {
  const f64 last = static_cast<f64>(t.smaller.size());
  f64 level = static_cast<f64>(lod) + static_cast<f64>(t.mip_bias);
  if (!(level >= static_cast<f64>(t.mip_min))) level = static_cast<f64>(t.mip_min);
  if (level > static_cast<f64>(t.mip_max)) level = static_cast<f64>(t.mip_max);
  level = level < 0 ? 0 : level > last ? last : level;
  const bool numbers = t.format == TexelFormat::kF32 || t.format == TexelFormat::kF16;
  if (!t.mip_filter || (t.as_integer && !numbers))  // integers have no mean
    return sample(t, t.level(static_cast<u32>(std::floor(level + 0.5))), at, dimensions, layer);
  const u32 fixed = static_cast<u32>(std::floor(level * 256 + 0.5));
  const u32 low = fixed >> 8;
  const f64 share = (fixed & 255) / 256.0;
  Texel r = sample(t, t.level(low), at, dimensions, layer);
  if (share == 0) return r;
  const Texel upper = sample(t, t.level(low + 1), at, dimensions, layer);
  for (u32 k = 0; k < 4; ++k)
    r.bits[k] =
        f32_bits(static_cast<f32>((1 - share) * static_cast<f64>(bit_cast_to<f32>(r.bits[k])) +
                                  share * static_cast<f64>(bit_cast_to<f32>(upper.bits[k]))));
  return r;
}

Texel gather(const TextureDescriptor& t, const f32* coordinates, u32 component) {
  const u32 sizes[2] = {t.width, t.height};
  s64 low[2];
  for (u32 d = 0; d < 2; ++d) {
    const f64 x = texel_coordinate(t, coordinates[d], sizes[d], t.address[d]);
    low[d] = (static_cast<s64>(std::floor(x * 256.0 + 0.5)) - 128) >> 8;
  }
  const s64 x = low[0], y = low[1];
  const s64 at[4][2] = {{x, y + 1}, {x + 1, y + 1}, {x + 1, y}, {x, y}};
  Texel r;
  for (u32 k = 0; k < 4; ++k) r.bits[k] = addressed(t, t, at[k], 2, 0).bits[component];
  return r;
}

Texel fetch_lane(Warp& w, const TextureAccess& access, const TextureDescriptor& t, const u32* aux,
                 u32 lane) {
  const auto number = [&](u32 k) { return bit_cast_to<f32>(lane_u32(w, aux[k], lane)); };
  const u32* const mip = aux + 8;
  if (access.cube && !t.cube) return {};
  s64 layer = layer_of(w, aux, t, access.cube, lane);
  if (!access.float_coordinates) {
    s64 whole[3] = {};
    for (u32 d = 0; d < access.dimensions; ++d)
      whole[d] = static_cast<s32>(lane_u32(w, aux[d], lane));
    if (aux[3] != kNoOperand && lane_u32(w, aux[3], lane) >= t.depth) return {};
    s64 level = access.mip == MipLevel::kLevel ? static_cast<s32>(lane_u32(w, mip[0], lane)) : 0;
    if (level < 0) level = 0;
    if (level > static_cast<s64>(t.smaller.size())) level = static_cast<s64>(t.smaller.size());
    return texel_or_zero(t, t.level(static_cast<u32>(level)), whole, access.dimensions, layer);
  }
  f32 at[3] = {};
  u32 dimensions = access.dimensions;
  for (u32 d = 0; d < dimensions; ++d) at[d] = number(d);
  if (access.gather) return gather(t, at, access.component);
  if (access.cube) {
    const Face face =
        face_of(static_cast<f64>(at[0]), static_cast<f64>(at[1]), static_cast<f64>(at[2]));
    at[0] = static_cast<f32>(face.s);
    at[1] = static_cast<f32>(face.t);
    layer = layer * 6 + face.index;
    dimensions = 2;
  }
  if (t.smaller.empty()) return sample(t, t, at, dimensions, layer);
  f32 lod = 0;
  if (access.mip == MipLevel::kLevel) lod = number(8);
  if (access.mip == MipLevel::kGradient) {
    f32 gradient[2][3] = {};
    for (u32 k = 0; k < 2; ++k)
      for (u32 d = 0; d < dimensions; ++d) gradient[k][d] = number(8 + 3 * k + d);
    lod = level_of_gradients(t, gradient[0], gradient[1], dimensions);
  }
  return sample_mipmap(t, lod, at, dimensions, layer);
}

Flow fetch(Warp& w, const Inst& in) {
  const TextureAccess access = TextureAccess::unpack(in.imm);
  const u32* aux = w.block->aux + in.aux;
  Lookup lookup(w, false, false);
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const u32 lane = static_cast<u32>(__builtin_ctz(m));
    const TextureDescriptor* t = lookup.at(lane_u64(w, in.a, lane), lane);
    if (t == nullptr) return Flow::kFault;
    const Texel r = fetch_lane(w, access, *t, aux, lane);
    for (u32 k = 0; k < 4; ++k)
      if (aux[4 + k] != kNoOperand) set_lane_u32(w, aux[4 + k], lane, r.bits[k]);
  }
  return Flow::kNext;
}

Flow query(Warp& w, const Inst& in) {
  const TextureAccess access = TextureAccess::unpack(in.imm);
  const bool surface = access.clamp != 0;
  Lookup lookup(w, surface, false);
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const u32 lane = static_cast<u32>(__builtin_ctz(m));
    const TextureDescriptor* t = lookup.at(lane_u64(w, in.a, lane), lane);
    if (t == nullptr) return Flow::kFault;
    set_lane_u32(w, in.d, lane,
                 access.operation == 0   ? t->width
                 : access.operation == 1 ? t->height
                 : access.operation == 2 ? t->depth
                                         : static_cast<u32>(t->smaller.size()) + 1);
  }
  return Flow::kNext;
}

// The host address of a surface access; 0: outside, and *skip says whether that is a fault.
u64 surface_address(Warp& w, const u32* aux, const TextureAccess& access,
                    const TextureDescriptor& t, u32 lane, bool& skip) {
  const u32 bytes = u32{access.bytes} * access.elements;
  s64 x = static_cast<s32>(lane_u32(w, aux[0], lane));
  s64 y = access.dimensions > 1 ? static_cast<s32>(lane_u32(w, aux[1], lane)) : 0;
  s64 z = access.dimensions > 2 ? static_cast<s32>(lane_u32(w, aux[2], lane)) : 0;
  if (access.layered) z = lane_u32(w, aux[3], lane);
  const s64 row = static_cast<s64>(t.width) * t.texel_bytes();
  skip = false;
  if ((x & (bytes - 1)) != 0) {
    w.fault(FaultKind::kMisaligned, lane, static_cast<u64>(x), bytes);
    return 0;
  }
  if (x < 0 || x + bytes > row || y < 0 || y >= t.height || z < 0 || z >= t.depth) {
    if (access.clamp == 2) {
      skip = true;
      return 0;
    }
    if (access.clamp == 0 || row < bytes) {
      w.fault(FaultKind::kOutOfBounds, lane, static_cast<u64>(x), bytes);
      return 0;
    }
    x = x < 0 ? 0 : x + bytes > row ? row - bytes : x;
    y = y < 0 ? 0 : y >= t.height ? t.height - 1 : y;
    z = z < 0 ? 0 : z >= t.depth ? t.depth - 1 : z;
  }
  return t.base + static_cast<u64>(z) * t.slice_bytes + static_cast<u64>(y) * t.row_bytes +
         static_cast<u64>(x);
}

// Calls use(access, aux, lane, host) for each lane; host is null where the access is outside and
// left out for that (.zero).
template <class Use>
Flow each_surface(Warp& w, const Inst& in, bool write, Use use) {
  const TextureAccess access = TextureAccess::unpack(in.imm);
  const u32* aux = w.block->aux + in.aux;
  Lookup lookup(w, true, write);
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const u32 lane = static_cast<u32>(__builtin_ctz(m));
    const TextureDescriptor* t = lookup.at(lane_u64(w, in.a, lane), lane);
    if (t == nullptr) return Flow::kFault;
    bool skip;
    const u64 host = surface_address(w, aux, access, *t, lane, skip);
    if (host == 0 && !skip) return Flow::kFault;
    use(access, aux, lane, reinterpret_cast<u8*>(host));
  }
  return Flow::kNext;
}

Flow surface_load(Warp& w, const Inst& in) {
  return each_surface(w, in, false,
                      [&w](const TextureAccess& access, const u32* aux, u32 lane, const u8* host) {
                        for (u32 k = 0; k < access.elements; ++k) {
                          u64 v = 0;
                          if (host != nullptr)
                            std::memcpy(&v, host + k * access.bytes, access.bytes);
                          if (access.bytes == 8)
                            set_lane_u64(w, aux[4 + k], lane, v);
                          else
                            set_lane_u32(w, aux[4 + k], lane, static_cast<u32>(v));
                        }
                      });
}

Flow surface_store(Warp& w, const Inst& in) {
  return each_surface(
      w, in, true, [&w](const TextureAccess& access, const u32* aux, u32 lane, u8* host) {
        if (host == nullptr) return;
        for (u32 k = 0; k < access.elements; ++k) {
          const u64 v =
              access.bytes == 8 ? lane_u64(w, aux[4 + k], lane) : lane_u32(w, aux[4 + k], lane);
          std::memcpy(host + k * access.bytes, &v, access.bytes);
        }
      });
}

template <class U, class S>
void reduce_word(u8* host, const TextureAccess& access, U value) {
  U* p = reinterpret_cast<U*>(host);
  U old = __atomic_load_n(p, __ATOMIC_RELAXED), next;
  do {
    const bool less = access.is_signed ? static_cast<S>(value) < static_cast<S>(old) : value < old;
    switch (access.operation) {
      case 0:
        next = old + value;
        break;
      case 1:
        next = less ? value : old;
        break;
      case 2:
        next = less ? old : value;
        break;
      case 3:
        next = old & value;
        break;
      default:
        next = old | value;
        break;
    }
  } while (!__atomic_compare_exchange_n(p, &old, next, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
}
Flow surface_reduce(Warp& w, const Inst& in) {
  return each_surface(w, in, true,
                      [&w](const TextureAccess& access, const u32* aux, u32 lane, u8* host) {
                        if (host == nullptr) return;
                        if (access.bytes == 8)
                          reduce_word<u64, s64>(host, access, lane_u64(w, aux[4], lane));
                        else
                          reduce_word<u32, s32>(host, access, lane_u32(w, aux[4], lane));
                      });
}

}  // namespace

void fill_texture(Handler* table) { SLUICE_EXEC_TEXTURE_OPS(SLUICE_EXEC_FILL_PLAIN) }

}  // namespace sluice::exec::detail
