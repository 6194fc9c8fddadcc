// SPDX-License-Identifier: Apache-2.0
// The driver API's copies and fills.
//
// A transfer is checked when it is called and done when its turn comes in its stream. Pageable host
// memory follows CUDA's rules: an asynchronous copy from it may be called back at once (it is
// staged), one to it has happened when the call returns.
#include <cstring>
#include <limits>

#include "mediator/softgpu/state/state.h"

using namespace sluice;
using namespace sluice::softgpu;

namespace {

// Larger pageable sources are waited for instead of being staged.
constexpr size_t kMaxStagedBytes = size_t{4} << 20;

// Rows of bytes: a plain copy has one.
struct Rows {
  uint64_t address = 0;
  size_t pitch = 0;
};
struct Extent {
  size_t width = 0;
  size_t height = 1;
};

// Bytes from the first row's begin to the last one's end; false: too large to be true.
bool span_of(const Rows& rows, const Extent& extent, uint64_t& bytes) {
  if (extent.height == 0 || extent.width == 0) return false;
  if (rows.pitch != 0 &&
      (extent.height - 1) > (std::numeric_limits<int64_t>::max() - extent.width) / rows.pitch) {
    return false;
  }
  bytes = (extent.height - 1) * rows.pitch + extent.width;
  return true;
}

enum class Side { kHost, kDevice, kEither };

// Addresses are unified: a copy may go to and from the other contexts of the process.
exec::MemoryRange find_elsewhere(State& s, uint64_t address, uint64_t bytes) {
  std::vector<std::shared_ptr<Context>> contexts;  // their last use must not end under the lock
  {
    std::lock_guard lock(s.mutex);
    for (const std::weak_ptr<Context>& weak : s.live_contexts)
      if (auto context = weak.lock(); context && !context->destroyed)
        contexts.push_back(std::move(context));
  }
  for (const auto& context : contexts)
    if (const auto range = context->map.find(address, bytes); range.bytes != 0) return range;
  return {};
}

// What one side of a copy is. False: it should be memory the GPU knows and is not, or is mapped for
// reading only.
bool classify(State& s, Context& context, Side side, const Rows& rows, const Extent& extent,
              bool written, bool& pageable) {
  uint64_t bytes;
  if (rows.address == 0 || !span_of(rows, extent, bytes)) return false;
  exec::MemoryRange range = context.map.find(rows.address, bytes);
  if (range.bytes == 0) range = find_elsewhere(s, rows.address, bytes);
  pageable = range.bytes == 0;
  if (!pageable && (range.writable || !written)) return true;
  std::lock_guard lock(s.mutex);
  // Addresses that are reserved are the GPU's, whether or not anything is there.
  return !s.virtual_memory.ranges.is_reserved(rows.address) && side != Side::kDevice;
}

void copy_rows(const Rows& to, const Rows& from, const Extent& extent) {
  for (size_t row = 0; row < extent.height; ++row) {
    std::memmove(reinterpret_cast<void*>(to.address + row * to.pitch),
                 reinterpret_cast<const void*>(from.address + row * from.pitch), extent.width);
    if (exec::Checker* const c = checker(); c != nullptr)
      c->on_copy(to.address + row * to.pitch, from.address + row * from.pitch, extent.width);
  }
}

// `wait`: the call is a synchronous one.
CUresult copy(CUstream handle, bool wait, Side to_side, Rows to, Side from_side, Rows from,
              Extent extent) {
  return with_stream(handle, [&](State& s, Context& context, Stream& stream) {
    if (extent.width == 0 || extent.height == 0) return CUDA_SUCCESS;
    bool to_pageable, from_pageable;
    if (!classify(s, context, to_side, to, extent, true, to_pageable) ||
        !classify(s, context, from_side, from, extent, false, from_pageable)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    auto operation = std::make_shared<Operation>();
    operation->kind = Operation::Kind::kTransfer;
    operation->bytes = extent.width * extent.height;
    operation->to_host = to_side == Side::kHost;
    bool synchronous = wait || to_pageable;
    if (from_pageable && !synchronous) {
      if (operation->bytes <= kMaxStagedBytes) {
        auto staged = std::make_shared<std::vector<std::byte>>(operation->bytes);
        copy_rows({reinterpret_cast<uint64_t>(staged->data()), extent.width}, from, extent);
        operation->run = [staged, to, extent] {
          copy_rows(to, {reinterpret_cast<uint64_t>(staged->data()), extent.width}, extent);
        };
      } else {
        synchronous = true;
      }
    }
    if (!operation->run) operation->run = [to, from, extent] { copy_rows(to, from, extent); };
    if (synchronous) {
      s.scheduler.enqueue_and_wait(stream, operation);
      return outcome(context);
    }
    s.scheduler.enqueue(stream, operation);
    return CUDA_SUCCESS;
  });
}

CUresult copy_line(CUstream stream, bool wait, Side to_side, uint64_t to, Side from_side,
                   uint64_t from, size_t bytes) {
  return copy(stream, wait, to_side, {to, bytes}, from_side, {from, bytes}, {bytes, 1});
}

uint64_t address_of(const void* p) { return reinterpret_cast<uint64_t>(p); }

// One side of a CUDA_MEMCPY2D.
CUresult resolve(CUmemorytype type, const void* host, CUdeviceptr device, CUarray array,
                 size_t pitch, size_t x, size_t y, const Extent& extent, Side& side, Rows& rows) {
  uint64_t base;
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      side = Side::kHost;
      base = address_of(host);
      break;
    case CU_MEMORYTYPE_DEVICE:
      side = Side::kDevice;
      base = device;
      break;
    case CU_MEMORYTYPE_UNIFIED:
      side = Side::kEither;
      base = device;
      break;
    case CU_MEMORYTYPE_ARRAY: {
      size_t slice_bytes;
      side = Side::kDevice;
      rows.address =
          find_in_array(array, x, y, 0, extent.width, extent.height, 1, rows.pitch, slice_bytes);
      return rows.address == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  constexpr size_t kLarge = std::numeric_limits<size_t>::max() / 4;
  if (x > kLarge || extent.width > kLarge) return CUDA_ERROR_INVALID_VALUE;
  if (pitch == 0) pitch = x + extent.width;
  if (x + extent.width > pitch || y > kLarge / pitch) return CUDA_ERROR_INVALID_VALUE;
  rows = {base == 0 ? 0 : base + y * pitch + x, pitch};
  return CUDA_SUCCESS;
}

CUresult copy_2d(const CUDA_MEMCPY2D* c, CUstream stream, bool wait) {
  if (c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Extent extent{c->WidthInBytes, c->Height};
  Side from_side, to_side;
  Rows from, to;
  if (const CUresult r = resolve(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcArray,
                                 c->srcPitch, c->srcXInBytes, c->srcY, extent, from_side, from);
      r != CUDA_SUCCESS) {
    return r;
  }
  if (const CUresult r = resolve(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstArray,
                                 c->dstPitch, c->dstXInBytes, c->dstY, extent, to_side, to);
      r != CUDA_SUCCESS) {
    return r;
  }
  return copy(stream, wait, to_side, to, from_side, from, extent);
}

// Fills `height` rows of `width` elements.
template <class T>
CUresult fill(CUstream handle, bool wait, CUdeviceptr address, size_t pitch, T value, size_t width,
              size_t height) {
  return with_stream(handle, [&](State& s, Context& context, Stream& stream) {
    if (width == 0 || height == 0) return CUDA_SUCCESS;
    if (width > std::numeric_limits<size_t>::max() / sizeof(T) / 4) return CUDA_ERROR_INVALID_VALUE;
    const Extent extent{width * sizeof(T), height};
    if (height == 1) pitch = extent.width;
    bool pageable;
    if (address % sizeof(T) != 0 || pitch % sizeof(T) != 0 || pitch < extent.width ||
        !classify(s, context, Side::kDevice, {address, pitch}, extent, true, pageable)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    auto operation = std::make_shared<Operation>();
    operation->kind = Operation::Kind::kTransfer;
    operation->bytes = extent.width * extent.height;
    operation->run = [address, pitch, value, width, height] {
      for (size_t row = 0; row < height; ++row) {
        auto* out = reinterpret_cast<T*>(address + row * pitch);
        std::fill(out, out + width, value);
        if (exec::Checker* const c = checker(); c != nullptr)
          c->on_write(address + row * pitch, width * sizeof(T));
      }
    };
    if (wait) {
      s.scheduler.enqueue_and_wait(stream, operation);
      return outcome(context);
    }
    s.scheduler.enqueue(stream, operation);
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy_line(nullptr, true, Side::kEither, to, Side::kEither, from, bytes);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return copy_line(nullptr, true, Side::kDevice, to, Side::kHost, address_of(from), bytes);
}
CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return copy_line(nullptr, true, Side::kHost, address_of(to), Side::kDevice, from, bytes);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy_line(nullptr, true, Side::kDevice, to, Side::kDevice, from, bytes);
}
CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* c) { return copy_2d(c, nullptr, true); }
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* c) { return copy_2d(c, nullptr, true); }
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_line(stream, false, Side::kEither, to, Side::kEither, from, bytes);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return copy_line(stream, false, Side::kDevice, to, Side::kHost, address_of(from), bytes);
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_line(stream, false, Side::kHost, address_of(to), Side::kDevice, from, bytes);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_line(stream, false, Side::kDevice, to, Side::kDevice, from, bytes);
}
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* c, CUstream stream) {
  return copy_2d(c, stream, false);
}

CUresult cuMemsetD8_v2(CUdeviceptr a, unsigned char v, size_t n) {
  return fill(nullptr, true, a, 0, v, n, 1);
}
CUresult cuMemsetD16_v2(CUdeviceptr a, unsigned short v, size_t n) {
  return fill(nullptr, true, a, 0, v, n, 1);
}
CUresult cuMemsetD32_v2(CUdeviceptr a, unsigned int v, size_t n) {
  return fill(nullptr, true, a, 0, v, n, 1);
}
CUresult cuMemsetD2D8_v2(CUdeviceptr a, size_t pitch, unsigned char v, size_t width,
                         size_t height) {
  return fill(nullptr, true, a, pitch, v, width, height);
}
CUresult cuMemsetD2D16_v2(CUdeviceptr a, size_t pitch, unsigned short v, size_t width,
                          size_t height) {
  return fill(nullptr, true, a, pitch, v, width, height);
}
CUresult cuMemsetD2D32_v2(CUdeviceptr a, size_t pitch, unsigned int v, size_t width,
                          size_t height) {
  return fill(nullptr, true, a, pitch, v, width, height);
}
CUresult cuMemsetD8Async(CUdeviceptr a, unsigned char v, size_t n, CUstream stream) {
  return fill(stream, false, a, 0, v, n, 1);
}
CUresult cuMemsetD16Async(CUdeviceptr a, unsigned short v, size_t n, CUstream stream) {
  return fill(stream, false, a, 0, v, n, 1);
}
CUresult cuMemsetD32Async(CUdeviceptr a, unsigned int v, size_t n, CUstream stream) {
  return fill(stream, false, a, 0, v, n, 1);
}
CUresult cuMemsetD2D8Async(CUdeviceptr a, size_t pitch, unsigned char v, size_t width,
                           size_t height, CUstream stream) {
  return fill(stream, false, a, pitch, v, width, height);
}
CUresult cuMemsetD2D16Async(CUdeviceptr a, size_t pitch, unsigned short v, size_t width,
                            size_t height, CUstream stream) {
  return fill(stream, false, a, pitch, v, width, height);
}
CUresult cuMemsetD2D32Async(CUdeviceptr a, size_t pitch, unsigned int v, size_t width,
                            size_t height, CUstream stream) {
  return fill(stream, false, a, pitch, v, width, height);
}
