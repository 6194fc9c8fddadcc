// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/shim/memory/copy.h"
#include "guest-agent/graphs/in_context.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>

#include "guest-agent/graphs/capture.h"
#include "guest-agent/shim/memory/boxes.h"
#include "guest-agent/shim/memory/registered.h"
#include "guest-agent/shim/memory/staging.h"
#include "guest-agent/shim/state/api.h"

namespace sluice::guest {
namespace {

uint64_t span_of(const Copy& copy, uint64_t pitch) {
  return copy.height == 1 ? copy.width : pitch * (copy.height - 1) + copy.width;
}

// Whether this process has anything at the address. Addresses that were reserved for the GPU are
// the worker's: the program may have memory of its own there.
bool is_here(uint64_t address) {
  const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  unsigned char resident = 0;
  return ::mincore(reinterpret_cast<void*>(address / page * page), page, &resident) == 0;
}

}  // namespace

Place place_of(uint64_t address, uint64_t bytes, End claimed) {
  const auto range = state().pointers.find(address);
  if (range && range->kind == MemoryKind::kRegistered && claimed != End::kDevice &&
      copied_as_pinned(address, bytes))
    return Place::kPinned;
  if (!range || range->kind == MemoryKind::kRegistered) {
    const bool nobodys =
        claimed == End::kAny && state().pointers.is_reserved(address) && !is_here(address);
    return claimed == End::kDevice || nobodys ? Place::kInvalid : Place::kPageable;
  }
  if (bytes > range->bytes - (address - range->base) &&
      !(range->mapped && state().pointers.find(address, bytes)))
    return Place::kInvalid;
  return range->kind == MemoryKind::kDevice ? Place::kDevice : Place::kPinned;
}

uint64_t offset_of_pinned(uint64_t address) {
  return copied_as_pinned(address, 1).value_or(address) - SLUICE_WINDOW_ADDRESS;
}

namespace {

class Copier {
 public:
  Copier(const Entered& e, const Copy& copy) : link_(*e.link), context_(e.context), copy_(copy) {}

  // Both ends are where the worker can reach them.
  CUresult direct(Place dst, Place src) {
    sluice_copy body = base();
    set_end(body.dst, body.dst_kind, copy_.dst, dst);
    set_end(body.src, body.src_kind, copy_.src, src);
    if (!copy_.wait) return link_.post(SLUICE_CALL_COPY, context_, body);
    body.wait = 1;
    return link_.with_deferred(link_.call(SLUICE_CALL_COPY, context_, body));
  }

  // Pageable to device or pinned. The program may reuse its memory when this returns: the pieces
  // have been copied by then. Only the synchronous variant waits for the last to arrive, and not
  // even that one where everything before it is known to have ended.
  CUresult upload(Place dst) {
    Staging& memory = staging(link_);
    CUresult status = copy_.in_graph ? wait_for_stream() : CUDA_SUCCESS;
    if (status != CUDA_SUCCESS) return status;
    const bool early = copy_.wait && dst == Place::kDevice && !copy_.in_graph &&
                       is_legacy(wire(copy_.stream)) && link_.idle(context_);
    link_.poll();  // pieces that came free are still in the cache
    for_pieces(memory, [&](uint64_t row, uint64_t rows, uint64_t column, uint64_t width,
                           bool last) {
      const uint64_t bytes = rows * width;
      std::byte* piece = memory.acquire(bytes);
      if (piece == nullptr) {
        status = no_staging();
        return false;
      }
      const char* from = reinterpret_cast<const char*>(copy_.src) + row * copy_.src_pitch + column;
      for (uint64_t r = 0; r < rows; ++r)
        std::memcpy(piece + r * width, from + r * copy_.src_pitch, width);
      sluice_copy body = piece_body(rows, width);
      set_end(body.dst, body.dst_kind, copy_.dst + row * copy_.dst_pitch + column, dst);
      body.src = link_.offset_of(piece);
      body.src_kind = SLUICE_COPY_BULK;
      body.dst_pitch = rows > 1 ? copy_.dst_pitch : 0;
      body.src_pitch = rows > 1 ? width : 0;
      if (last && copy_.wait && !early) {
        status = link_.with_deferred(link_.call(SLUICE_CALL_COPY, context_, body));
        memory.release(piece, bytes);
        return status == CUDA_SUCCESS;
      }
      // If the session is dead by now, the answer is already given and the piece released.
      const auto done = [link = &link_, &memory, piece, bytes](uint64_t, CUresult r) {
        memory.release(piece, bytes);
        link->defer(r);
      };
      status = early ? link_.start_early(SLUICE_CALL_COPY, context_, body, done)
                     : link_.start_detached(SLUICE_CALL_COPY, context_, body, done);
      return status == CUDA_SUCCESS;
    });
    return early ? link_.with_deferred(status) : status;
  }

  // Device or pinned to pageable: complete when it returns, as CUDA allows for pageable memory.
  // Pieces are fetched ahead while the ones before are copied out.
  CUresult download(Place src) {
    Staging& memory = staging(link_);
    Fetches fetches;
    CUresult status = CUDA_SUCCESS;
    for_pieces(memory, [&](uint64_t row, uint64_t rows, uint64_t column, uint64_t width, bool) {
      std::byte* piece = piece_to_fetch(memory, rows * width, fetches, status);
      if (piece == nullptr) return false;
      auto fetch = std::make_unique<Fetch>();
      fetch->piece = piece;
      fetch->row = row;
      fetch->rows = rows;
      fetch->column = column;
      fetch->width = width;
      status = link_.start(SLUICE_CALL_COPY, context_, fetch_body(*fetch, src), fetch->pending);
      if (status != CUDA_SUCCESS) {
        memory.release(piece, rows * width);
        return false;
      }
      fetches.push_back(std::move(fetch));
      return true;
    });
    while (!fetches.empty()) finish_first(memory, fetches, status);
    return link_.with_deferred(status);
  }

  // Host to host under unified addressing: in the stream's order, then by hand.
  CUresult on_host() {
    if (const CUresult r = wait_for_stream(); r != CUDA_SUCCESS) return r;
    for (uint64_t row = 0; row < copy_.height; ++row)
      std::memmove(reinterpret_cast<char*>(copy_.dst) + row * copy_.dst_pitch,
                   reinterpret_cast<const char*>(copy_.src) + row * copy_.src_pitch, copy_.width);
    return CUDA_SUCCESS;
  }

 private:
  // Pieces of one download that are on their way while the oldest is copied out.
  static constexpr size_t kFetchAhead = 4;
  struct Fetch {
    Pending pending;
    std::byte* piece;
    uint64_t row, rows, column, width;
  };
  using Fetches = std::deque<std::unique_ptr<Fetch>>;

  sluice_copy fetch_body(const Fetch& fetch, Place src) const {
    sluice_copy body = piece_body(fetch.rows, fetch.width);
    set_end(body.src, body.src_kind, copy_.src + fetch.row * copy_.src_pitch + fetch.column, src);
    body.dst = link_.offset_of(fetch.piece);
    body.dst_kind = SLUICE_COPY_BULK;
    body.src_pitch = fetch.rows > 1 ? copy_.src_pitch : 0;
    body.dst_pitch = fetch.rows > 1 ? fetch.width : 0;
    return body;
  }

  // Waits for the oldest, and copies it out unless one has failed.
  void finish_first(Staging& memory, Fetches& fetches, CUresult& status) {
    Fetch& fetch = *fetches.front();
    const CUresult r = link_.wait(fetch.pending);
    if (status == CUDA_SUCCESS) status = r;
    if (status == CUDA_SUCCESS) {
      char* to = reinterpret_cast<char*>(copy_.dst) + fetch.row * copy_.dst_pitch + fetch.column;
      for (uint64_t i = 0; i < fetch.rows; ++i)
        std::memcpy(to + i * copy_.dst_pitch, fetch.piece + i * fetch.width, fetch.width);
    }
    memory.release(fetch.piece, fetch.rows * fetch.width);
    fetches.pop_front();
  }

  // Staging memory for one more; the oldest are finished until there is some. Null: `status` says
  // why.
  std::byte* piece_to_fetch(Staging& memory, uint64_t bytes, Fetches& fetches, CUresult& status) {
    while (status == CUDA_SUCCESS) {
      if (fetches.size() < kFetchAhead)
        if (std::byte* piece = memory.acquire_if_free(bytes)) return piece;
      if (fetches.empty()) {
        if (std::byte* piece = memory.acquire(bytes)) return piece;
        status = no_staging();
      } else {
        finish_first(memory, fetches, status);
      }
    }
    return nullptr;
  }

  CUresult wait_for_stream() {
    sluice_synchronize body{};
    body.what = SLUICE_SYNC_STREAM;
    body.handle = wire(copy_.stream);
    return link_.with_deferred(link_.call(SLUICE_CALL_SYNCHRONIZE, context_, body));
  }
  CUresult no_staging() const {
    return link_.dead() != CUDA_SUCCESS ? link_.dead() : CUDA_ERROR_OUT_OF_MEMORY;
  }

  sluice_copy base() const {
    sluice_copy body{};
    body.dst_pitch = copy_.height > 1 ? copy_.dst_pitch : 0;
    body.src_pitch = copy_.height > 1 ? copy_.src_pitch : 0;
    body.width = copy_.width;
    body.height = copy_.height;
    body.stream = wire(copy_.stream);
    return body;
  }
  sluice_copy piece_body(uint64_t rows, uint64_t width) const {
    sluice_copy body{};
    body.width = width;
    body.height = rows;
    body.stream = wire(copy_.stream);
    body.wait = 1;
    return body;
  }

  void set_end(uint64_t& field, uint32_t& kind, uint64_t address, Place place) const {
    const bool bulk = place == Place::kPinned;
    field = bulk ? offset_of_pinned(address) : address;
    kind = bulk ? SLUICE_COPY_BULK : SLUICE_COPY_DEVICE;
  }

  // Calls piece(row, rows, column, width, last) for parts of at most a staging piece: several whole
  // rows, or part of one row. Stops when it returns false.
  template <class Piece>
  void for_pieces(const Staging& memory, Piece&& piece) {
    const uint64_t most = memory.piece_bytes(copy_.width * copy_.height);
    if (most == 0) {
      piece(0, copy_.height, 0, copy_.width, true);  // its acquire fails and says so
      return;
    }
    if (copy_.width <= most) {
      const uint64_t at_once = most / copy_.width;
      for (uint64_t row = 0; row < copy_.height; row += at_once) {
        const uint64_t rows = std::min(at_once, copy_.height - row);
        if (!piece(row, rows, uint64_t{0}, copy_.width, row + rows == copy_.height)) return;
      }
      return;
    }
    for (uint64_t row = 0; row < copy_.height; ++row) {
      for (uint64_t column = 0; column < copy_.width; column += most) {
        const uint64_t width = std::min(most, copy_.width - column);
        const bool last = row + 1 == copy_.height && column + width == copy_.width;
        if (!piece(row, uint64_t{1}, column, width, last)) return;
      }
    }
  }

  WorkerLink& link_;
  uint64_t context_;
  const Copy& copy_;
};

}  // namespace

namespace {

// Joins rows that lie side by side; tells where the ends are.
CUresult prepare(Copy& copy, End dst_end, End src_end, Place* dst, Place* src) {
  if (copy.dst == 0 || copy.src == 0) return CUDA_ERROR_INVALID_VALUE;
  if (copy.height > 1) {
    if (copy.dst_pitch < copy.width || copy.src_pitch < copy.width ||
        copy.height > UINT64_MAX / 2 / std::max(copy.dst_pitch, copy.src_pitch))
      return CUDA_ERROR_INVALID_VALUE;
    if (copy.dst_pitch == copy.width && copy.src_pitch == copy.width) {
      copy.width *= copy.height;
      copy.height = 1;
    }
  }
  *dst = place_of(copy.dst, span_of(copy, copy.dst_pitch), dst_end);
  *src = place_of(copy.src, span_of(copy, copy.src_pitch), src_end);
  return *dst == Place::kInvalid || *src == Place::kInvalid ? CUDA_ERROR_INVALID_VALUE
                                                            : CUDA_SUCCESS;
}

}  // namespace

// Without access: a node's is checked when it runs.
CUresult check_copy(Copy copy, End dst_end, End src_end) {
  Place dst, src;
  return prepare(copy, dst_end, src_end, &dst, &src);
}

CUresult run_copy(const Entered& e, Copy copy, End dst_end, End src_end) {
  if (const CUresult bad = resolve_stream(copy.stream); bad != CUDA_SUCCESS) return bad;
  if (copy.width == 0 || copy.height == 0) return CUDA_SUCCESS;
  Place dst, src;
  if (const CUresult r = prepare(copy, dst_end, src_end, &dst, &src); r != CUDA_SUCCESS) return r;
  const auto& pointers = state().pointers;
  if ((dst == Place::kDevice &&
       !pointers.may_touch(copy.dst, span_of(copy, copy.dst_pitch), true)) ||
      (src == Place::kDevice &&
       !pointers.may_touch(copy.src, span_of(copy, copy.src_pitch), false)))
    return CUDA_ERROR_INVALID_VALUE;
  if (const auto r = graphs::capture_node(
          copy.stream, [&] { return graphs::box_work(box_of(copy, dst_end, src_end), e.context); }))
    return *r;
  Copier copier(e, copy);
  if (dst != Place::kDevice && src != Place::kDevice) return copier.on_host();
  if (dst == Place::kPageable) return copier.download(src);
  if (src == Place::kPageable) return copier.upload(dst);
  return copier.direct(dst, src);
}

bool valid_fill(CUdeviceptr dst, uint64_t pitch, uint32_t element_bytes, uint64_t width,
                uint64_t height) {
  if (dst % element_bytes != 0 || width > UINT64_MAX / 2 / element_bytes) return false;
  const uint64_t row = width * element_bytes;
  if (height == 1) return state().pointers.find(dst, row).has_value();
  if (pitch < row || pitch % element_bytes != 0 || height > UINT64_MAX / 2 / pitch) return false;
  return state().pointers.find(dst, pitch * (height - 1) + row).has_value();
}

}  // namespace sluice::guest

using namespace sluice::guest;
namespace graphs = sluice::graphs;

namespace {

CUresult copy_1d(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream, bool wait,
                 End dst_end, End src_end) {
  const Entered e = enter_context();
  if (!e) return e.status;
  Copy copy;
  copy.dst = dst;
  copy.src = src;
  copy.width = bytes;
  copy.stream = stream;
  copy.wait = wait;
  return run_copy(e, copy, dst_end, src_end);
}

CUdeviceptr address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

CUresult copy_2d(const CUDA_MEMCPY2D* c, CUstream stream, bool wait) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (c->srcMemoryType == CU_MEMORYTYPE_ARRAY || c->dstMemoryType == CU_MEMORYTYPE_ARRAY) {
    const CUDA_MEMCPY3D box = box_of(*c);
    return copy_box(&box, stream, wait);
  }
  const auto known = [](CUmemorytype type) {
    return type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE ||
           type == CU_MEMORYTYPE_UNIFIED;
  };
  if (!known(c->srcMemoryType) || !known(c->dstMemoryType)) return CUDA_ERROR_INVALID_VALUE;
  auto end = [](CUmemorytype type, const void* host, CUdeviceptr device, uint64_t* at) {
    *at = type == CU_MEMORYTYPE_HOST ? address(host) : device;
    return type == CU_MEMORYTYPE_HOST     ? End::kHost
           : type == CU_MEMORYTYPE_DEVICE ? End::kDevice
                                          : End::kAny;
  };
  Copy copy;
  const End dst = end(c->dstMemoryType, c->dstHost, c->dstDevice, &copy.dst);
  const End src = end(c->srcMemoryType, c->srcHost, c->srcDevice, &copy.src);
  if (copy.dst == 0 || copy.src == 0) return CUDA_ERROR_INVALID_VALUE;
  // A pitch of 0 means rows without gaps.
  copy.dst_pitch = c->dstPitch != 0 ? c->dstPitch : c->WidthInBytes + c->dstXInBytes;
  copy.src_pitch = c->srcPitch != 0 ? c->srcPitch : c->WidthInBytes + c->srcXInBytes;
  if (copy.dst_pitch < c->WidthInBytes + c->dstXInBytes ||
      copy.src_pitch < c->WidthInBytes + c->srcXInBytes)
    return CUDA_ERROR_INVALID_VALUE;
  copy.dst += c->dstXInBytes + c->dstY * copy.dst_pitch;
  copy.src += c->srcXInBytes + c->srcY * copy.src_pitch;
  copy.width = c->WidthInBytes;
  copy.height = c->Height;
  copy.stream = stream;
  copy.wait = wait;
  return run_copy(e, copy, dst, src);
}

}  // namespace

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t byte_count) {
  return copy_1d(dst, src, byte_count, nullptr, true, End::kAny, End::kAny);
}
CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t byte_count, CUstream stream) {
  return copy_1d(dst, src, byte_count, stream, false, End::kAny, End::kAny);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void* src, size_t byte_count) {
  return copy_1d(dst, address(src), byte_count, nullptr, true, End::kDevice, End::kHost);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void* src, size_t byte_count,
                              CUstream stream) {
  return copy_1d(dst, address(src), byte_count, stream, false, End::kDevice, End::kHost);
}
CUresult cuMemcpyDtoH_v2(void* dst, CUdeviceptr src, size_t byte_count) {
  return copy_1d(address(dst), src, byte_count, nullptr, true, End::kHost, End::kDevice);
}
CUresult cuMemcpyDtoHAsync_v2(void* dst, CUdeviceptr src, size_t byte_count, CUstream stream) {
  return copy_1d(address(dst), src, byte_count, stream, false, End::kHost, End::kDevice);
}
// Between device addresses nothing but the device is kept waiting.
CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t byte_count) {
  return copy_1d(dst, src, byte_count, nullptr, false, End::kDevice, End::kDevice);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t byte_count,
                              CUstream stream) {
  return copy_1d(dst, src, byte_count, stream, false, End::kDevice, End::kDevice);
}
// One GPU, whose memory all contexts share. The plain form stands between earlier and later work of
// all three contexts; a copy in the current one's legacy stream is not ordered against the others
// by itself.
CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                      CUcontext src_context, size_t byte_count) {
  const Entered e = enter_context();
  if (!e) return e.status;
  bool others = false;
  for (const CUcontext context : {dst_context, src_context}) {
    if (!state().context(wire(context))) return CUDA_ERROR_INVALID_CONTEXT;
    if (wire(context) == e.context) continue;
    others = true;
    const graphs::InContext there(wire(context));
    const CUresult r = there.status == CUDA_SUCCESS ? cuCtxSynchronize() : there.status;
    if (r != CUDA_SUCCESS) return r;
  }
  return copy_1d(dst, src, byte_count, nullptr, others, End::kDevice, End::kDevice);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                           CUcontext src_context, size_t byte_count, CUstream stream) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (!state().context(wire(dst_context)) || !state().context(wire(src_context)))
    return CUDA_ERROR_INVALID_CONTEXT;
  return copy_1d(dst, src, byte_count, stream, false, End::kDevice, End::kDevice);
}
CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) { return copy_2d(copy, nullptr, true); }
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) { return copy_2d(copy, nullptr, true); }
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return copy_2d(copy, stream, false);
}
