// SPDX-License-Identifier: Apache-2.0
// Copies: of bytes, rows, boxes, symbols, between devices.
#include "guest-agent/cudart/binaries.h"
#include "guest-agent/cudart/calls.h"
#include "guest-agent/cudart/memory/boxes.h"

namespace sluice::cudart {
namespace {

enum class Wait { kNo, kYes };

// A copy in the thread's own stream is waited for there: the driver's waiting forms are for the
// legacy stream.
cudaError_t finish(CUresult r, DefaultStream mode, Wait wait) {
  if (r == CUDA_SUCCESS && wait == Wait::kYes && mode == DefaultStream::kPerThread) {
    r = driver().cuStreamSynchronize(kPerThreadStream);
  }
  return to_runtime(r);
}

CUresult copy_and_wait(void* to, const void* from, size_t bytes, int kind) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return driver().cuMemcpyHtoD_v2(device_address(to), from, bytes);
    case cudaMemcpyDeviceToHost:
      return driver().cuMemcpyDtoH_v2(to, device_address(from), bytes);
    case cudaMemcpyDeviceToDevice:
      return driver().cuMemcpyDtoD_v2(device_address(to), device_address(from), bytes);
    default:
      return driver().cuMemcpy(device_address(to), device_address(from), bytes);
  }
}
CUresult copy_in_stream(void* to, const void* from, size_t bytes, int kind, cudaStream_t stream) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return driver().cuMemcpyHtoDAsync_v2(device_address(to), from, bytes, stream);
    case cudaMemcpyDeviceToHost:
      return driver().cuMemcpyDtoHAsync_v2(to, device_address(from), bytes, stream);
    case cudaMemcpyDeviceToDevice:
      return driver().cuMemcpyDtoDAsync_v2(device_address(to), device_address(from), bytes, stream);
    default:
      return driver().cuMemcpyAsync(device_address(to), device_address(from), bytes, stream);
  }
}

cudaError_t copy_bytes(DefaultStream mode, Wait wait, void* to, const void* from, size_t bytes,
                       int kind, cudaStream_t stream) {
  if (!is_copy_kind(kind)) return cudaErrorInvalidMemcpyDirection;
  if (bytes == 0) return cudaSuccess;
  if (wait == Wait::kYes && mode == DefaultStream::kLegacy)
    return to_runtime(copy_and_wait(to, from, bytes, kind));
  return finish(copy_in_stream(to, from, bytes, kind, stream_for(mode, stream)), mode, wait);
}

cudaError_t copy_box(DefaultStream mode, Wait wait, const CUDA_MEMCPY3D& box, cudaStream_t stream) {
  if (box.WidthInBytes == 0 || box.Height == 0 || box.Depth == 0) return cudaSuccess;
  if (wait == Wait::kYes && mode == DefaultStream::kLegacy) {
    return to_runtime(call_driver<const CUDA_MEMCPY3D*>("cuMemcpy3D_v2", &box));
  }
  const CUresult r = call_driver<const CUDA_MEMCPY3D*, cudaStream_t>("cuMemcpy3DAsync_v2", &box,
                                                                     stream_for(mode, stream));
  return finish(r, mode, wait);
}

cudaError_t copy_rows(DefaultStream mode, Wait wait, const CopyEnd& to, const CopyEnd& from,
                      size_t width, size_t height, int kind, cudaStream_t stream) {
  if (!is_copy_kind(kind)) return cudaErrorInvalidMemcpyDirection;
  if (width == 0 || height == 0) return cudaSuccess;
  const auto too_narrow = [&](const CopyEnd& end) {
    return end.array == nullptr && end.pitch < width;
  };
  // Of one row NVIDIA's runtime (13.0, H200) returns another error.
  if (too_narrow(to) || too_narrow(from))
    return height == 1 ? cudaErrorInvalidValue : cudaErrorInvalidPitchValue;
  CUDA_MEMCPY3D box;
  if (const cudaError_t error = make_box(to, from, {width, height, 1}, kind, &box);
      error != cudaSuccess)
    return error;
  CUDA_MEMCPY2D rows = {box.srcXInBytes, box.srcY,          box.srcMemoryType, box.srcHost,
                        box.srcDevice,   box.srcArray,      box.srcPitch,      box.dstXInBytes,
                        box.dstY,        box.dstMemoryType, box.dstHost,       box.dstDevice,
                        box.dstArray,    box.dstPitch,      box.WidthInBytes,  box.Height};
  if (wait == Wait::kYes && mode == DefaultStream::kLegacy)
    return to_runtime(driver().cuMemcpy2DUnaligned_v2(&rows));
  return finish(driver().cuMemcpy2DAsync_v2(&rows, stream_for(mode, stream)), mode, wait);
}

// A piece of a variable. `kind` says which directions its use allows.
cudaError_t piece_of_symbol(const void* symbol, size_t offset, size_t bytes, void** address) {
  CUdeviceptr at = 0;
  size_t size = 0;
  if (const cudaError_t error = address_of(symbol, &at, &size); error != cudaSuccess) return error;
  if (offset > size || bytes > size - offset) return cudaErrorInvalidValue;
  *address = reinterpret_cast<void*>(at + offset);
  return cudaSuccess;
}
bool goes_to_device(int kind) {
  return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice ||
         kind == cudaMemcpyDefault;
}
bool comes_from_device(int kind) {
  return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice ||
         kind == cudaMemcpyDefault;
}
cudaError_t copy_to_symbol(DefaultStream mode, Wait wait, const void* symbol, const void* from,
                           size_t bytes, size_t offset, int kind, cudaStream_t stream) {
  if (!goes_to_device(kind)) return cudaErrorInvalidMemcpyDirection;
  void* to = nullptr;
  const cudaError_t error = piece_of_symbol(symbol, offset, bytes, &to);
  return error != cudaSuccess ? error : copy_bytes(mode, wait, to, from, bytes, kind, stream);
}
cudaError_t copy_from_symbol(DefaultStream mode, Wait wait, void* to, const void* symbol,
                             size_t bytes, size_t offset, int kind, cudaStream_t stream) {
  if (!comes_from_device(kind)) return cudaErrorInvalidMemcpyDirection;
  void* from = nullptr;
  const cudaError_t error = piece_of_symbol(symbol, offset, bytes, &from);
  return error != cudaSuccess ? error : copy_bytes(mode, wait, to, from, bytes, kind, stream);
}

// Between devices: each named by number, each with its primary context.
cudaError_t primary_of(int device, CUcontext* context) {
  if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
  *context = primary_context(device);
  if (*context != nullptr) return cudaSuccess;
  return to_runtime(driver().cuDevicePrimaryCtxRetain(context, device));
}
cudaError_t copy_between(DefaultStream mode, Wait wait, void* to, int to_device, const void* from,
                         int from_device, size_t bytes, cudaStream_t stream) {
  CUcontext to_context = nullptr, from_context = nullptr;
  if (const cudaError_t error = primary_of(to_device, &to_context); error != cudaSuccess)
    return error;
  if (const cudaError_t error = primary_of(from_device, &from_context); error != cudaSuccess)
    return error;
  if (bytes == 0) return cudaSuccess;
  if (wait == Wait::kYes) {
    return to_runtime(call_driver<CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t>(
        "cuMemcpyPeer", device_address(to), to_context, device_address(from), from_context, bytes));
  }
  return to_runtime(
      call_driver<CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, cudaStream_t>(
          "cuMemcpyPeerAsync", device_address(to), to_context, device_address(from), from_context,
          bytes, stream_for(mode, stream)));
}
cudaError_t copy_box_between(DefaultStream mode, Wait wait, const cudaMemcpy3DPeerParms* p,
                             cudaStream_t stream) {
  if (p == nullptr) return cudaErrorInvalidValue;
  CUcontext context = nullptr;
  if (const cudaError_t error = primary_of(p->srcDevice, &context); error != cudaSuccess)
    return error;
  if (const cudaError_t error = primary_of(p->dstDevice, &context); error != cudaSuccess)
    return error;
  const cudaMemcpy3DParms same = {p->srcArray, p->srcPos, p->srcPtr, p->dstArray,
                                  p->dstPos,   p->dstPtr, p->extent, cudaMemcpyDeviceToDevice};
  CUDA_MEMCPY3D box;
  const cudaError_t error = make_box(same, &box);
  return error != cudaSuccess ? error : copy_box(mode, wait, box, stream);
}

CopyEnd rows_at(const void* address, size_t pitch) {
  return {address, pitch, 0, nullptr, {0, 0, 0}};
}
CopyEnd in_array(cudaArray_const_t array, size_t x_bytes, size_t y) {
  return {nullptr, 0, 0, array, {x_bytes, y, 0}};
}

// A run of bytes into or out of an array's row: it may go over the end of a row into the next.
cudaError_t copy_run(DefaultStream mode, Wait wait, CopyEnd to, CopyEnd from, size_t bytes,
                     int kind, cudaStream_t stream) {
  cudaArray_const_t array = to.array != nullptr ? to.array : from.array;
  const size_t element = element_bytes(array);
  cudaChannelFormatDesc format;
  cudaExtent extent;
  unsigned flags = 0;
  if (element == 0) return cudaErrorInvalidResourceHandle;
  const cudaError_t error =
      impl::cudaArrayGetInfo(&format, &extent, &flags, const_cast<cudaArray_t>(array));
  if (error != cudaSuccess) return error;
  const size_t row = extent.width * element;
  while (bytes != 0) {
    size_t piece = bytes;
    for (const CopyEnd* end : {&to, &from}) {
      if (end->array != nullptr && row - end->at.x < piece) piece = row - end->at.x;
    }
    if (piece == 0) return cudaErrorInvalidValue;
    to.pitch = from.pitch = piece;
    if (const cudaError_t e = copy_rows(mode, wait, to, from, piece, 1, kind, stream);
        e != cudaSuccess)
      return e;
    for (CopyEnd* end : {&to, &from}) {
      if (end->array == nullptr) {
        end->address = static_cast<const char*>(end->address) + piece;
      } else if ((end->at.x += piece) == row) {
        end->at = {0, end->at.y + 1, 0};
      }
    }
    bytes -= piece;
  }
  return cudaSuccess;
}

}  // namespace

namespace impl {

cudaError_t cudaMemcpy(DefaultStream mode, void* dst, const void* src, size_t count,
                       cudaMemcpyKind kind) {
  return copy_bytes(mode, Wait::kYes, dst, src, count, kind, nullptr);
}
cudaError_t cudaMemcpyAsync(DefaultStream mode, void* dst, const void* src, size_t count,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_bytes(mode, Wait::kNo, dst, src, count, kind, stream);
}
cudaError_t cudaMemcpy2D(DefaultStream mode, void* dst, size_t dpitch, const void* src,
                         size_t spitch, size_t width, size_t height, cudaMemcpyKind kind) {
  return copy_rows(mode, Wait::kYes, rows_at(dst, dpitch), rows_at(src, spitch), width, height,
                   kind, nullptr);
}
cudaError_t cudaMemcpy2DAsync(DefaultStream mode, void* dst, size_t dpitch, const void* src,
                              size_t spitch, size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  return copy_rows(mode, Wait::kNo, rows_at(dst, dpitch), rows_at(src, spitch), width, height, kind,
                   stream);
}
cudaError_t cudaMemcpy3D(DefaultStream mode, const cudaMemcpy3DParms* p) {
  if (p == nullptr) return cudaErrorInvalidValue;
  CUDA_MEMCPY3D box;
  const cudaError_t error = make_box(*p, &box);
  return error != cudaSuccess ? error : copy_box(mode, Wait::kYes, box, nullptr);
}
cudaError_t cudaMemcpy3DAsync(DefaultStream mode, const cudaMemcpy3DParms* p, cudaStream_t stream) {
  if (p == nullptr) return cudaErrorInvalidValue;
  CUDA_MEMCPY3D box;
  const cudaError_t error = make_box(*p, &box);
  return error != cudaSuccess ? error : copy_box(mode, Wait::kNo, box, stream);
}

cudaError_t cudaMemcpyToSymbol(DefaultStream mode, const void* symbol, const void* src,
                               size_t count, size_t offset, cudaMemcpyKind kind) {
  return copy_to_symbol(mode, Wait::kYes, symbol, src, count, offset, kind, nullptr);
}
cudaError_t cudaMemcpyToSymbolAsync(DefaultStream mode, const void* symbol, const void* src,
                                    size_t count, size_t offset, cudaMemcpyKind kind,
                                    cudaStream_t stream) {
  return copy_to_symbol(mode, Wait::kNo, symbol, src, count, offset, kind, stream);
}
cudaError_t cudaMemcpyFromSymbol(DefaultStream mode, void* dst, const void* symbol, size_t count,
                                 size_t offset, cudaMemcpyKind kind) {
  return copy_from_symbol(mode, Wait::kYes, dst, symbol, count, offset, kind, nullptr);
}
cudaError_t cudaMemcpyFromSymbolAsync(DefaultStream mode, void* dst, const void* symbol,
                                      size_t count, size_t offset, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
  return copy_from_symbol(mode, Wait::kNo, dst, symbol, count, offset, kind, stream);
}

cudaError_t cudaMemcpyPeer(void* dst, int dst_device, const void* src, int src_device,
                           size_t count) {
  return copy_between(DefaultStream::kLegacy, Wait::kYes, dst, dst_device, src, src_device, count,
                      nullptr);
}
cudaError_t cudaMemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device,
                                size_t count, cudaStream_t stream) {
  return copy_between(DefaultStream::kLegacy, Wait::kNo, dst, dst_device, src, src_device, count,
                      stream);
}
cudaError_t cudaMemcpy3DPeer(DefaultStream mode, const cudaMemcpy3DPeerParms* p) {
  return copy_box_between(mode, Wait::kYes, p, nullptr);
}
cudaError_t cudaMemcpy3DPeerAsync(DefaultStream mode, const cudaMemcpy3DPeerParms* p,
                                  cudaStream_t stream) {
  return copy_box_between(mode, Wait::kNo, p, stream);
}

cudaError_t cudaMemcpy2DToArray(DefaultStream mode, cudaArray_t dst, size_t x, size_t y,
                                const void* src, size_t spitch, size_t width, size_t height,
                                cudaMemcpyKind kind) {
  return copy_rows(mode, Wait::kYes, in_array(dst, x, y), rows_at(src, spitch), width, height, kind,
                   nullptr);
}
cudaError_t cudaMemcpy2DToArrayAsync(DefaultStream mode, cudaArray_t dst, size_t x, size_t y,
                                     const void* src, size_t spitch, size_t width, size_t height,
                                     cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_rows(mode, Wait::kNo, in_array(dst, x, y), rows_at(src, spitch), width, height, kind,
                   stream);
}
cudaError_t cudaMemcpy2DFromArray(DefaultStream mode, void* dst, size_t dpitch,
                                  cudaArray_const_t src, size_t x, size_t y, size_t width,
                                  size_t height, cudaMemcpyKind kind) {
  return copy_rows(mode, Wait::kYes, rows_at(dst, dpitch), in_array(src, x, y), width, height, kind,
                   nullptr);
}
cudaError_t cudaMemcpy2DFromArrayAsync(DefaultStream mode, void* dst, size_t dpitch,
                                       cudaArray_const_t src, size_t x, size_t y, size_t width,
                                       size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_rows(mode, Wait::kNo, rows_at(dst, dpitch), in_array(src, x, y), width, height, kind,
                   stream);
}
cudaError_t cudaMemcpy2DArrayToArray(DefaultStream mode, cudaArray_t dst, size_t dst_x,
                                     size_t dst_y, cudaArray_const_t src, size_t src_x,
                                     size_t src_y, size_t width, size_t height,
                                     cudaMemcpyKind kind) {
  return copy_rows(mode, Wait::kYes, in_array(dst, dst_x, dst_y), in_array(src, src_x, src_y),
                   width, height, kind, nullptr);
}
cudaError_t cudaMemcpyToArray(DefaultStream mode, cudaArray_t dst, size_t x, size_t y,
                              const void* src, size_t count, cudaMemcpyKind kind) {
  return copy_run(mode, Wait::kYes, in_array(dst, x, y), rows_at(src, 0), count, kind, nullptr);
}
cudaError_t cudaMemcpyToArrayAsync(DefaultStream mode, cudaArray_t dst, size_t x, size_t y,
                                   const void* src, size_t count, cudaMemcpyKind kind,
                                   cudaStream_t stream) {
  return copy_run(mode, Wait::kNo, in_array(dst, x, y), rows_at(src, 0), count, kind, stream);
}
cudaError_t cudaMemcpyFromArray(DefaultStream mode, void* dst, cudaArray_const_t src, size_t x,
                                size_t y, size_t count, cudaMemcpyKind kind) {
  return copy_run(mode, Wait::kYes, rows_at(dst, 0), in_array(src, x, y), count, kind, nullptr);
}
cudaError_t cudaMemcpyFromArrayAsync(DefaultStream mode, void* dst, cudaArray_const_t src, size_t x,
                                     size_t y, size_t count, cudaMemcpyKind kind,
                                     cudaStream_t stream) {
  return copy_run(mode, Wait::kNo, rows_at(dst, 0), in_array(src, x, y), count, kind, stream);
}
cudaError_t cudaMemcpyArrayToArray(DefaultStream mode, cudaArray_t dst, size_t dst_x, size_t dst_y,
                                   cudaArray_const_t src, size_t src_x, size_t src_y, size_t count,
                                   cudaMemcpyKind kind) {
  return copy_run(mode, Wait::kYes, in_array(dst, dst_x, dst_y), in_array(src, src_x, src_y), count,
                  kind, nullptr);
}

}  // namespace impl
}  // namespace sluice::cudart
