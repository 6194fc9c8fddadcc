// SPDX-License-Identifier: Apache-2.0
// Fills of memory (cuMemset*): one record each, whatever their size.
#include "guest-agent/graphs/capture.h"
#include "guest-agent/shim/memory/copy.h"
#include "guest-agent/shim/state/api.h"

using namespace sluice::guest;
namespace graphs = sluice::graphs;

namespace {

// Without "Async" in its name: CUDA's fills of device memory end later all the same, those of
// memory that the program sees, too, do not (CUDA Driver API, "API synchronization behavior").
enum class Ends { kLater, kBeforeItReturnsIfSeen };

CUresult fill(CUdeviceptr dst, uint64_t pitch, uint32_t value, uint32_t element_bytes,
              uint64_t width, uint64_t height, CUstream stream, Ends ends = Ends::kLater) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (const CUresult bad = resolve_stream(stream); bad != CUDA_SUCCESS) return bad;
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  if (!valid_fill(dst, pitch, element_bytes, width, height) ||
      !state().pointers.may_touch(
          dst, (height > 1 ? pitch * (height - 1) : 0) + width * element_bytes, true))
    return CUDA_ERROR_INVALID_VALUE;
  sluice_memset body{};
  body.dst = dst;
  body.pitch = height > 1 ? pitch : 0;
  body.width = width;
  body.height = height;
  body.stream = wire(stream);
  body.value = value;
  body.element_bytes = element_bytes;
  if (const auto r = graphs::capture_node(stream, [&] {
        return graphs::fill_work({dst, body.pitch, value, element_bytes, width, height}, e.context);
      })) {
    return *r;
  }
  const auto is_seen = [dst] {
    const auto range = state().pointers.find(dst);
    return range && range->kind != MemoryKind::kDevice;
  };
  if (ends == Ends::kLater || !is_seen()) return e.link->post(SLUICE_CALL_MEMSET, e.context, body);
  body.wait = 1;
  return e.link->with_deferred(e.link->call(SLUICE_CALL_MEMSET, e.context, body));
}

CUresult fill_now(CUdeviceptr dst, uint64_t pitch, uint32_t value, uint32_t element_bytes,
                  uint64_t width, uint64_t height) {
  return fill(dst, pitch, value, element_bytes, width, height, nullptr,
              Ends::kBeforeItReturnsIfSeen);
}

}  // namespace

CUresult cuMemsetD8_v2(CUdeviceptr dst, unsigned char uc, size_t n) {
  return fill_now(dst, 0, uc, 1, n, 1);
}
CUresult cuMemsetD16_v2(CUdeviceptr dst, unsigned short us, size_t n) {
  return fill_now(dst, 0, us, 2, n, 1);
}
CUresult cuMemsetD32_v2(CUdeviceptr dst, unsigned int ui, size_t n) {
  return fill_now(dst, 0, ui, 4, n, 1);
}
CUresult cuMemsetD2D8_v2(CUdeviceptr dst, size_t pitch, unsigned char uc, size_t width,
                         size_t height) {
  return fill_now(dst, pitch, uc, 1, width, height);
}
CUresult cuMemsetD2D16_v2(CUdeviceptr dst, size_t pitch, unsigned short us, size_t width,
                          size_t height) {
  return fill_now(dst, pitch, us, 2, width, height);
}
CUresult cuMemsetD2D32_v2(CUdeviceptr dst, size_t pitch, unsigned int ui, size_t width,
                          size_t height) {
  return fill_now(dst, pitch, ui, 4, width, height);
}
CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char uc, size_t n, CUstream stream) {
  return fill(dst, 0, uc, 1, n, 1, stream);
}
CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned short us, size_t n, CUstream stream) {
  return fill(dst, 0, us, 2, n, 1, stream);
}
CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned int ui, size_t n, CUstream stream) {
  return fill(dst, 0, ui, 4, n, 1, stream);
}
CUresult cuMemsetD2D8Async(CUdeviceptr dst, size_t pitch, unsigned char uc, size_t width,
                           size_t height, CUstream stream) {
  return fill(dst, pitch, uc, 1, width, height, stream);
}
CUresult cuMemsetD2D16Async(CUdeviceptr dst, size_t pitch, unsigned short us, size_t width,
                            size_t height, CUstream stream) {
  return fill(dst, pitch, us, 2, width, height, stream);
}
CUresult cuMemsetD2D32Async(CUdeviceptr dst, size_t pitch, unsigned int ui, size_t width,
                            size_t height, CUstream stream) {
  return fill(dst, pitch, ui, 4, width, height, stream);
}
