// SPDX-License-Identifier: Apache-2.0
// The driver API's arrays: making them, copies from and to them.
#include <cstring>

#include "abi/array_formats.h"
#include "mediator/softgpu/memory/texture_limits.h"
#include "mediator/softgpu/memory/textures.h"
#include "mediator/softgpu/state/state.h"

using namespace sluice;
using namespace sluice::softgpu;

namespace {

// The array that a description asks for, without memory; null and CUDA's error where there is none.
std::shared_ptr<Array> describe(const CUDA_ARRAY3D_DESCRIPTOR& d, CUresult& status) {
  constexpr unsigned kKnown = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST |
                              CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER;
  status = CUDA_ERROR_INVALID_VALUE;
  if (d.Width == 0) return nullptr;
  if ((d.Flags & ~kKnown) != 0) {  // sparse arrays and the like
    status = CUDA_ERROR_NOT_SUPPORTED;
    return nullptr;
  }
  const bool layered = is_layered(d), volume = d.Depth != 0 && !layered;
  if ((volume && d.Height == 0) || (layered && d.Depth == 0)) return nullptr;
  const size_t max_width = is_cube(d)      ? kMaxCube
                           : volume        ? kMax3d
                           : d.Height == 0 ? kMax1d
                                           : kMax2dWidth;
  const size_t max_height = volume ? kMax3d : kMax2dHeight;
  const size_t max_depth = is_cube(d) ? kMaxCubeFaces : layered ? kMaxLayers : kMax3d;
  if (d.Width > max_width || d.Height > max_height || d.Depth > max_depth) return nullptr;
  const bool one_cube = (d.Flags & CUDA_ARRAY3D_LAYERED) == 0;
  if (is_cube(d) && (d.Width != d.Height || d.Depth % 6 != 0 || (one_cube && d.Depth != 6)))
    return nullptr;
  auto array = std::make_shared<Array>();
  array->descriptor = d;
  array->texel_bytes = sluice::texel_bytes(d.Format, d.NumChannels);
  if (array->texel_bytes == 0) return nullptr;
  array->width = d.Width;
  array->height = d.Height == 0 ? 1 : d.Height;
  array->depth = d.Depth == 0 ? 1 : d.Depth;
  array->context = current().context;
  status = CUDA_SUCCESS;
  return array;
}

CUresult create(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& d) {
  return with_context([&](State& s, Context& context) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUresult status;
    auto array = describe(d, status);
    if (!array) return status;
    array->base = allocate_device(s, context, array->bytes());
    if (array->base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = s.tables.arrays.add(std::move(array));
    return CUDA_SUCCESS;
  });
}

// Each side of a level is half of the one before, at least 1; layers and faces are not halved.
CUDA_ARRAY3D_DESCRIPTOR smaller(CUDA_ARRAY3D_DESCRIPTOR d) {
  const auto halve = [](size_t& side) { side = side > 1 ? side / 2 : side; };
  halve(d.Width);
  halve(d.Height);
  if (!is_layered(d)) halve(d.Depth);
  return d;
}
bool is_smallest(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  return d.Width == 1 && d.Height <= 1 && (is_layered(d) || d.Depth <= 1);
}

CUresult create_mipmap(CUmipmappedArray* out, CUDA_ARRAY3D_DESCRIPTOR d, unsigned levels) {
  return with_context([&](State& s, Context& context) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto mipmap = std::make_shared<Mipmap>();
    mipmap->context = current().context;
    uint64_t bytes = 0;
    do {
      CUresult status;
      auto level = describe(d, status);
      if (!level) return status;
      level->level = true;
      level->base = bytes;
      bytes += (level->bytes() + 255) / 256 * 256;
      mipmap->levels.push_back(std::move(level));
      if (is_smallest(d)) break;
      d = smaller(d);
    } while (mipmap->levels.size() < levels);
    mipmap->base = allocate_device(s, context, bytes);
    if (mipmap->base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    for (auto& level : mipmap->levels) {
      level->base += mipmap->base;
      mipmap->handles.push_back(s.tables.arrays.add(level));
    }
    *out = s.tables.mipmaps.add(std::move(mipmap));
    return CUDA_SUCCESS;
  });
}

struct Side3d {
  uint64_t address = 0;
  size_t row_bytes = 0, slice_bytes = 0;
};

// One side of a copy; `pageable`: host memory that the GPU does not know.
CUresult side_of(Context& context, CUmemorytype type, const void* host, CUdeviceptr device,
                 CUarray array, size_t x, size_t y, size_t z, size_t pitch, size_t rows,
                 const CUDA_MEMCPY3D& c, Side3d& side, bool& pageable) {
  constexpr size_t kLarge = size_t{1} << 40;
  pageable = false;
  if (x > kLarge || y > kLarge || z > kLarge || pitch > kLarge || rows > kLarge)
    return CUDA_ERROR_INVALID_VALUE;
  if (type == CU_MEMORYTYPE_ARRAY) {
    side.address = find_in_array(array, x, y, z, c.WidthInBytes, c.Height, c.Depth, side.row_bytes,
                                 side.slice_bytes);
    return side.address == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  }
  if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
    return CUDA_ERROR_INVALID_VALUE;
  const uint64_t base = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : device;
  if (pitch == 0) pitch = x + c.WidthInBytes;
  if (rows == 0) rows = y + c.Height;
  if (base == 0 || x + c.WidthInBytes > pitch || (c.Depth > 1 && y + c.Height > rows) ||
      y + c.Height > kLarge / pitch || rows > kLarge / pitch || z > kLarge / (pitch * rows) ||
      c.Depth > kLarge / (pitch * rows))
    return CUDA_ERROR_INVALID_VALUE;
  side.row_bytes = pitch;
  side.slice_bytes = pitch * rows;
  side.address = base + z * side.slice_bytes + y * pitch + x;
  const uint64_t span = (c.Depth - 1) * side.slice_bytes + (c.Height - 1) * pitch + c.WidthInBytes;
  const bool known = context.map.find(side.address, span).bytes != 0;
  if (!known && type == CU_MEMORYTYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  pageable = !known;
  return CUDA_SUCCESS;
}

CUresult copy_3d(const CUDA_MEMCPY3D* c, CUstream handle, bool wait) {
  return with_stream(handle, [&](State& s, Context& context, Stream& stream) {
    if (c == nullptr || c->srcLOD != 0 || c->dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
    if (c->WidthInBytes == 0 || c->Height == 0 || c->Depth == 0) return CUDA_SUCCESS;
    constexpr size_t kLarge = size_t{1} << 40;
    if (c->WidthInBytes > kLarge || c->Height > kLarge || c->Depth > kLarge)
      return CUDA_ERROR_INVALID_VALUE;
    Side3d from, to;
    bool from_pageable, to_pageable;
    CUresult r =
        side_of(context, c->srcMemoryType, c->srcHost, c->srcDevice, c->srcArray, c->srcXInBytes,
                c->srcY, c->srcZ, c->srcPitch, c->srcHeight, *c, from, from_pageable);
    if (r == CUDA_SUCCESS)
      r = side_of(context, c->dstMemoryType, c->dstHost, c->dstDevice, c->dstArray, c->dstXInBytes,
                  c->dstY, c->dstZ, c->dstPitch, c->dstHeight, *c, to, to_pageable);
    if (r != CUDA_SUCCESS) return r;
    auto operation = std::make_shared<Operation>();
    operation->kind = Operation::Kind::kTransfer;
    operation->bytes = c->WidthInBytes * c->Height * c->Depth;
    operation->run = [from, to, width = c->WidthInBytes, height = c->Height, depth = c->Depth] {
      for (size_t z = 0; z < depth; ++z)
        for (size_t y = 0; y < height; ++y)
          std::memmove(reinterpret_cast<void*>(to.address + z * to.slice_bytes + y * to.row_bytes),
                       reinterpret_cast<const void*>(from.address + z * from.slice_bytes +
                                                     y * from.row_bytes),
                       width);
    };
    if (wait || from_pageable || to_pageable) {
      s.scheduler.enqueue_and_wait(stream, operation);
      return outcome(context);
    }
    s.scheduler.enqueue(stream, operation);
    return CUDA_SUCCESS;
  });
}

// Copies between a one-dimensional array and a line of memory.
CUresult copy_line(CUarray array, size_t offset, size_t bytes, CUmemorytype type, void* host,
                   CUdeviceptr device, bool to_array, CUstream stream = nullptr, bool wait = true) {
  if (bytes == 0) return CUDA_SUCCESS;
  CUDA_MEMCPY3D c{};
  c.WidthInBytes = bytes;
  c.Height = c.Depth = 1;
  if (to_array) {
    c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    c.dstArray = array;
    c.dstXInBytes = offset;
    c.srcMemoryType = type;
    c.srcHost = host;
    c.srcDevice = device;
  } else {
    c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    c.srcArray = array;
    c.srcXInBytes = offset;
    c.dstMemoryType = type;
    c.dstHost = host;
    c.dstDevice = device;
  }
  return copy_3d(&c, stream, wait);
}

}  // namespace

uint64_t softgpu::find_in_array(CUarray handle, size_t x, size_t y, size_t z, size_t width,
                                size_t height, size_t depth, size_t& row_bytes,
                                size_t& slice_bytes) {
  CUresult status;
  State* s = state(status);
  const auto array = s == nullptr ? nullptr : s->tables.arrays.find(handle);
  if (!array || array->context.lock() == nullptr) return 0;
  row_bytes = array->row_bytes();
  slice_bytes = array->slice_bytes();
  const auto inside = [](size_t at, size_t length, size_t size) {
    return at <= size && length <= size - at;
  };
  if (!inside(x, width, row_bytes) || !inside(y, height, array->height) ||
      !inside(z, depth, array->depth))
    return 0;
  return array->base + z * slice_bytes + y * row_bytes + x;
}

CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* d) {
  if (d == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create(array, {d->Width, d->Height, 0, d->Format, d->NumChannels, 0});
}
CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* d) {
  return d == nullptr ? CUDA_ERROR_INVALID_VALUE : create(array, *d);
}
CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
  return with_context([&](State& s, Context&) {
    const auto array = s.tables.arrays.find(handle);
    if (!array) return CUDA_ERROR_INVALID_HANDLE;
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = array->descriptor;
    return CUDA_SUCCESS;
  });
}
CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* out, CUarray handle) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR whole;
  const CUresult r = cuArray3DGetDescriptor_v2(&whole, handle);
  if (r == CUDA_SUCCESS) *out = {whole.Width, whole.Height, whole.Format, whole.NumChannels};
  return r;
}
CUresult cuArrayDestroy(CUarray handle) {
  return with_context([&](State& s, Context& current) {
    const auto known = s.tables.arrays.find(handle);
    if (!known || known->level) return CUDA_ERROR_INVALID_HANDLE;
    const auto array = s.tables.arrays.remove(handle);
    if (!array) return CUDA_ERROR_INVALID_HANDLE;
    const auto context = array->context.lock();
    if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    s.scheduler.wait(*context);
    free_device(s, *context, array->base);
    return outcome(current);
  });
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* d,
                                unsigned levels) {
  return d == nullptr ? CUDA_ERROR_INVALID_VALUE : create_mipmap(array, *d, levels);
}
CUresult cuMipmappedArrayGetLevel(CUarray* out, CUmipmappedArray handle, unsigned level) {
  return with_context([&](State& s, Context&) {
    const auto mipmap = s.tables.mipmaps.find(handle);
    if (!mipmap) return CUDA_ERROR_INVALID_HANDLE;
    if (out == nullptr || level >= mipmap->levels.size()) return CUDA_ERROR_INVALID_VALUE;
    *out = mipmap->handles[level];
    return CUDA_SUCCESS;
  });
}
CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  return with_context([&](State& s, Context& current) {
    const auto mipmap = s.tables.mipmaps.remove(handle);
    if (!mipmap) return CUDA_ERROR_INVALID_HANDLE;
    for (const CUarray level : mipmap->handles) s.tables.arrays.remove(level);
    const auto context = mipmap->context.lock();
    if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    s.scheduler.wait(*context);
    free_device(s, *context, mipmap->base);
    return outcome(current);
  });
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* c) { return copy_3d(c, nullptr, true); }
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* c, CUstream stream) {
  return copy_3d(c, stream, false);
}
CUresult cuMemcpyHtoA_v2(CUarray to, size_t offset, const void* from, size_t bytes) {
  return copy_line(to, offset, bytes, CU_MEMORYTYPE_HOST, const_cast<void*>(from), 0, true);
}
CUresult cuMemcpyAtoH_v2(void* to, CUarray from, size_t offset, size_t bytes) {
  return copy_line(from, offset, bytes, CU_MEMORYTYPE_HOST, to, 0, false);
}
CUresult cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t bytes) {
  return copy_line(to, offset, bytes, CU_MEMORYTYPE_DEVICE, nullptr, from, true);
}
CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t bytes) {
  return copy_line(from, offset, bytes, CU_MEMORYTYPE_DEVICE, nullptr, to, false);
}
CUresult cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset,
                         size_t bytes) {
  CUDA_MEMCPY3D c{};
  c.dstMemoryType = c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  c.dstArray = to;
  c.dstXInBytes = to_offset;
  c.srcArray = from;
  c.srcXInBytes = from_offset;
  c.WidthInBytes = bytes;
  c.Height = c.Depth = 1;
  return copy_3d(&c, nullptr, true);
}
CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void* from, size_t bytes,
                              CUstream stream) {
  return copy_line(to, offset, bytes, CU_MEMORYTYPE_HOST, const_cast<void*>(from), 0, true, stream,
                   false);
}
CUresult cuMemcpyAtoHAsync_v2(void* to, CUarray from, size_t offset, size_t bytes,
                              CUstream stream) {
  return copy_line(from, offset, bytes, CU_MEMORYTYPE_HOST, to, 0, false, stream, false);
}
