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
// The texel at whole coordinates inside the texture; absent channels are 0.
Texel texel_at(const TextureDescriptor& t, s64 x, s64 y, s64 z) {
  Texel r;
  const u8* p = reinterpret_cast<const u8*>(t.base + static_cast<u64>(z) * t.slice_bytes +
                                            static_cast<u64>(y) * t.row_bytes +
                                            static_cast<u64>(x) * t.texel_bytes());
  for (u32 k = 0; k < t.channels; ++k) r.bits[k] = channel(t, p + k * bytes_of(t.format));
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

Texel addressed(const TextureDescriptor& t, const s64* at, u32 dimensions, s64 layer) {
  s64 x = at[0], y = dimensions > 1 ? at[1] : 0, z = dimensions > 2 ? at[2] : 0;
  if (!place(t.address[0], t.normalised, x, t.width) ||
      (dimensions > 1 && !place(t.address[1], t.normalised, y, t.height)) ||
      (dimensions > 2 && !place(t.address[2], t.normalised, z, t.depth)))
    return border_of(t);
  return texel_at(t, x, y, t.layered ? layer : z);
}

// Whole coordinates know no address modes: outside (also of the layers) is zero. So is, on an H200,
// all of an array of one dimension that is no layer: such fetches are meant for linear memory.
Texel texel_or_zero(const TextureDescriptor& t, const s64* at, u32 dimensions, s64 layer) {
  const s64 x = at[0], y = dimensions > 1 ? at[1] : 0, z = dimensions > 2 ? at[2] : 0;
  if (x < 0 || x >= t.width || y < 0 || y >= t.height || z < 0 || z >= t.depth ||
      (dimensions == 1 && !t.linear_memory && !t.layered))
    return {};
  return texel_at(t, x, y, t.layered ? layer : z);
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

// The mean of the corners. Their weights are 9-bit numbers: of each pair the upper share is rounded
// to 8 bits behind the point and the lower one is what is left. The sum is rounded once.
Texel filtered(const TextureDescriptor& t, const s64* fixed, u32 dimensions, s64 layer) {
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
    const Texel texel = addressed(t, at, dimensions, layer);
    for (u32 k = 0; k < 4; ++k)
      sum[k] += share[corner] / 256.0 * static_cast<f64>(bit_cast_to<f32>(texel.bits[k]));
  }
  Texel r;
  for (u32 k = 0; k < 4; ++k) r.bits[k] = f32_bits(static_cast<f32>(sum[k]));
  return r;
}

// x, y, z and layer of a lane.
s64 layer_of(const Warp& w, const u32* aux, const TextureDescriptor& t, u32 lane) {
  if (aux[3] == kNoOperand) return 0;
  const u32 layer = lane_u32(w, aux[3], lane);
  return layer < t.depth ? layer : t.depth - 1;
}

Flow fetch(Warp& w, const Inst& in) {
  const TextureAccess access = TextureAccess::unpack(in.imm);
  const u32* aux = w.block->aux + in.aux;
  Lookup lookup(w, false, false);
  for (u32 m = w.exec; m != 0; m &= m - 1) {
    const u32 lane = static_cast<u32>(__builtin_ctz(m));
    const TextureDescriptor* t = lookup.at(lane_u64(w, in.a, lane), lane);
    if (t == nullptr) return Flow::kFault;
    const u32 sizes[3] = {t->width, t->height, t->depth};
    const s64 layer = layer_of(w, aux, *t, lane);
    s64 whole[3] = {}, fixed[3] = {};
    for (u32 d = 0; d < access.dimensions; ++d) {
      const u32 bits = lane_u32(w, aux[d], lane);
      if (access.float_coordinates) {
        const f64 x = texel_coordinate(*t, bit_cast_to<f32>(bits), sizes[d], t->address[d]);
        fixed[d] = static_cast<s64>(std::floor(x * 256.0 + 0.5));
        whole[d] = static_cast<s64>(std::floor(x));
      } else {
        whole[d] = static_cast<s32>(bits);
      }
    }
    Texel r;
    if (access.gather) {
      const s64 x = (fixed[0] - 128) >> 8, y = (fixed[1] - 128) >> 8;
      const s64 at[4][2] = {{x, y + 1}, {x + 1, y + 1}, {x + 1, y}, {x, y}};
      for (u32 k = 0; k < 4; ++k) r.bits[k] = addressed(*t, at[k], 2, 0).bits[access.component];
    } else if (!access.float_coordinates) {
      const bool outside = aux[3] != kNoOperand && lane_u32(w, aux[3], lane) >= t->depth;
      r = outside ? Texel{} : texel_or_zero(*t, whole, access.dimensions, layer);
    } else if (t->filter && access.float_coordinates) {
      // A line is filtered as a picture of height 1 at its edge: the border has a share.
      const bool line = access.dimensions == 1 && !t->layered;
      r = filtered(*t, fixed, line ? 2 : access.dimensions, layer);
    } else {
      r = addressed(*t, whole, access.dimensions, layer);
    }
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
                                         : t->depth);
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
