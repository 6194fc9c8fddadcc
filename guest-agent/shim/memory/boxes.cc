// SPDX-License-Identifier: Apache-2.0
// Copies of boxes (cuMemcpy3D): slice by slice, each a rectangle (copy.h).
#include "guest-agent/shim/memory/boxes.h"

#include <cstring>

#include "guest-agent/graphs/capture.h"
#include "guest-agent/graphs/in_context.h"
#include "guest-agent/shim/memory/arrays.h"
#include "guest-agent/shim/state/api.h"

namespace sluice::guest {

CUresult box_end(CUmemorytype type, const void* host, CUdeviceptr device, size_t x, size_t y,
                 size_t z, size_t pitch, size_t rows, const CUDA_MEMCPY3D& box, BoxEnd* to) {
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      to->end = End::kHost;
      break;
    case CU_MEMORYTYPE_DEVICE:
      to->end = End::kDevice;
      break;
    case CU_MEMORYTYPE_UNIFIED:
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  to->at = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : device;
  // Sums that wrap around would name a place that may be copied to.
  const auto beyond = [](uint64_t a, uint64_t b) { return a > UINT64_MAX - b; };
  if (beyond(x, box.WidthInBytes) || beyond(y, box.Height) || beyond(z, box.Depth))
    return CUDA_ERROR_INVALID_VALUE;
  to->pitch = pitch != 0 ? pitch : box.WidthInBytes + x;  // 0: rows without gaps
  to->rows = rows != 0 ? rows : box.Height + y;
  if (to->at == 0 || to->pitch < box.WidthInBytes + x ||
      (box.Depth > 1 && to->rows < box.Height + y))
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t rows_before = 0, bytes = 0;  // before the last row; to its end
  if (__builtin_mul_overflow(z + box.Depth - 1, to->rows, &rows_before) ||
      __builtin_add_overflow(rows_before, y + box.Height - 1, &rows_before) ||
      __builtin_mul_overflow(rows_before, to->pitch, &bytes) ||
      __builtin_add_overflow(bytes, x + box.WidthInBytes, &bytes) || beyond(to->at, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  to->at += x + (y + z * to->rows) * to->pitch;
  return CUDA_SUCCESS;
}

namespace {

CUresult box_ends(const CUDA_MEMCPY3D& c, BoxEnd* dst, BoxEnd* src) {
  if (c.srcLOD != 0 || c.dstLOD != 0 || c.reserved0 != nullptr || c.reserved1 != nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  const CUresult r = box_end(c.dstMemoryType, c.dstHost, c.dstDevice, c.dstXInBytes, c.dstY, c.dstZ,
                             c.dstPitch, c.dstHeight, c, dst);
  if (r != CUDA_SUCCESS) return r;
  return box_end(c.srcMemoryType, c.srcHost, c.srcDevice, c.srcXInBytes, c.srcY, c.srcZ, c.srcPitch,
                 c.srcHeight, c, src);
}

template <class Each>
CUresult each_slice(const CUDA_MEMCPY3D& box, Each&& each) {
  BoxEnd dst, src;
  if (const CUresult r = box_ends(box, &dst, &src); r != CUDA_SUCCESS) return r;
  for (size_t z = 0; z < box.Depth; ++z) {
    Copy copy;
    copy.dst = dst.at + z * dst.rows * dst.pitch;
    copy.src = src.at + z * src.rows * src.pitch;
    copy.dst_pitch = dst.pitch;
    copy.src_pitch = src.pitch;
    copy.width = box.WidthInBytes;
    copy.height = box.Height;
    if (const CUresult r = each(copy, dst.end, src.end); r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult check_box(const CUDA_MEMCPY3D& box) {
  if (has_array(box)) return check_array_box(box);
  return each_slice(box,
                    [](const Copy& copy, End dst, End src) { return check_copy(copy, dst, src); });
}

CUresult run_box(const Entered& entered, const CUDA_MEMCPY3D& box, const Copy& how) {
  if (has_array(box)) return run_array_box(entered, box, how);
  return each_slice(box, [&](Copy copy, End dst, End src) {
    copy.stream = how.stream;
    copy.wait = how.wait;
    copy.in_graph = how.in_graph;
    return run_copy(entered, copy, dst, src);
  });
}

CUDA_MEMCPY3D box_of(const Copy& copy, End dst, End src) {
  const auto type = [](End end) {
    return end == End::kHost     ? CU_MEMORYTYPE_HOST
           : end == End::kDevice ? CU_MEMORYTYPE_DEVICE
                                 : CU_MEMORYTYPE_UNIFIED;
  };
  CUDA_MEMCPY3D box{};
  box.dstMemoryType = type(dst);
  box.srcMemoryType = type(src);
  if (dst == End::kHost)
    box.dstHost = reinterpret_cast<void*>(copy.dst);
  else
    box.dstDevice = copy.dst;
  if (src == End::kHost)
    box.srcHost = reinterpret_cast<void*>(copy.src);
  else
    box.srcDevice = copy.src;
  box.dstPitch = copy.dst_pitch;
  box.srcPitch = copy.src_pitch;
  box.WidthInBytes = copy.width;
  box.Height = copy.height;
  box.Depth = 1;
  return box;
}

CUDA_MEMCPY3D box_of(const CUDA_MEMCPY2D& c) {
  CUDA_MEMCPY3D box{};
  box.srcXInBytes = c.srcXInBytes;
  box.srcY = c.srcY;
  box.srcMemoryType = c.srcMemoryType;
  box.srcHost = c.srcHost;
  box.srcDevice = c.srcDevice;
  box.srcArray = c.srcArray;
  box.srcPitch = c.srcPitch;
  box.dstXInBytes = c.dstXInBytes;
  box.dstY = c.dstY;
  box.dstMemoryType = c.dstMemoryType;
  box.dstHost = c.dstHost;
  box.dstDevice = c.dstDevice;
  box.dstArray = c.dstArray;
  box.dstPitch = c.dstPitch;
  box.WidthInBytes = c.WidthInBytes;
  box.Height = c.Height;
  box.Depth = 1;
  return box;
}

CUresult copy_box(const CUDA_MEMCPY3D* box, CUstream stream, bool wait) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (box == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = resolve_stream(stream); bad != CUDA_SUCCESS) return bad;
  if (box->WidthInBytes == 0 || box->Height == 0 || box->Depth == 0) return CUDA_SUCCESS;
  if (const CUresult r = check_box(*box); r != CUDA_SUCCESS) return r;
  if (const auto captured =
          graphs::capture_node(stream, [&] { return graphs::box_work(*box, e.context); }))
    return *captured;
  Copy how;
  how.stream = stream;
  how.wait = wait;
  return run_box(e, *box, how);
}

}  // namespace sluice::guest

using namespace sluice::guest;
namespace graphs = sluice::graphs;

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) { return copy_box(copy, nullptr, true); }
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return copy_box(copy, stream, false);
}

// One GPU, whose memory all contexts share: a copy between contexts is a copy in the current one.
// The plain form stands between earlier and later work of all three contexts.
namespace {

// Whether both ends' contexts live; the same box without them.
CUresult plain_box(const CUDA_MEMCPY3D_PEER* from, CUDA_MEMCPY3D* to) {
  if (from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const CUcontext context : {from->dstContext, from->srcContext})
    if (context != nullptr && !state().context(wire(context))) return CUDA_ERROR_INVALID_CONTEXT;
  static_assert(sizeof *from == sizeof *to);
  std::memcpy(to, from, sizeof *to);
  to->reserved0 = to->reserved1 = nullptr;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* copy) {
  const Entered e = enter_context();
  if (!e) return e.status;
  CUDA_MEMCPY3D box;
  if (const CUresult r = plain_box(copy, &box); r != CUDA_SUCCESS) return r;
  for (const CUcontext context : {copy->dstContext, copy->srcContext}) {
    if (context == nullptr || wire(context) == e.context) continue;
    const graphs::InContext there(wire(context));
    const CUresult r = there.status == CUDA_SUCCESS ? cuCtxSynchronize() : there.status;
    if (r != CUDA_SUCCESS) return r;
  }
  return copy_box(&box, nullptr, true);
}
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* copy, CUstream stream) {
  const Entered e = enter_context();
  if (!e) return e.status;
  CUDA_MEMCPY3D box;
  const CUresult r = plain_box(copy, &box);
  return r == CUDA_SUCCESS ? copy_box(&box, stream, false) : r;
}

// ---- batches ----

namespace {

// attrs[i] is for the copies from attr_indices[i] on.
bool valid_attributes(const CUmemcpyAttributes* attrs, const size_t* indices, size_t attr_count,
                      size_t count) {
  if (attrs == nullptr || indices == nullptr || attr_count == 0 || attr_count > count ||
      indices[0] != 0)
    return false;
  for (size_t i = 0; i < attr_count; ++i) {
    if (attrs[i].srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
        attrs[i].srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY || indices[i] >= count ||
        (i != 0 && indices[i] <= indices[i - 1]))
      return false;
  }
  return true;
}

// Pageable sources are read before the copy's call returns, all others in the stream's order. So a
// batch waits when the program may write to one of the others at once.
bool must_wait(CUmemcpySrcAccessOrder order, uint64_t source) {
  return order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL &&
         place_of(source, 1, End::kAny) != Place::kPageable;
}
bool must_wait(CUmemcpySrcAccessOrder order, const CUDA_MEMCPY3D& box) {
  if (box.srcMemoryType != CU_MEMORYTYPE_ARRAY) return must_wait(order, box.srcDevice);
  return order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
}

// Whether a batch may go into this stream; not into a default stream, nor into a capture.
CUresult check_batch_stream(CUstream& stream) {
  if (const CUresult bad = resolve_stream(stream); bad != CUDA_SUCCESS) return bad;
  if (wire(stream) <= wire(CU_STREAM_LEGACY)) return CUDA_ERROR_INVALID_VALUE;
  return graphs::refuse_in_capture(stream);
}

// The bytes of an element of an operand; 1 for memory. 0: an operand that is neither, or no array.
size_t element_bytes(const CUmemcpy3DOperand& operand) {
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_POINTER) return 1;
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_ARRAY) return 0;
  const ArrayInfo* info = state().arrays.find(wire(operand.op.array.array));
  return info == nullptr ? 0 : info->texel_bytes;
}

// Where one end of a batch's copy begins. Lengths are in bytes.
struct OperandPlace {
  CUmemorytype type = CU_MEMORYTYPE_UNIFIED;
  CUdeviceptr memory = 0;
  CUarray array = nullptr;
  size_t x = 0, y = 0, z = 0, pitch = 0, rows = 0;
};

bool operand_place(const CUmemcpy3DOperand& operand, const CUextent3D& extent, size_t element,
                   OperandPlace* to) {
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    to->type = CU_MEMORYTYPE_ARRAY;
    to->array = operand.op.array.array;
    to->y = operand.op.array.offset.y;
    to->z = operand.op.array.offset.z;
    return !__builtin_mul_overflow(operand.op.array.offset.x, element, &to->x);
  }
  const auto& memory = operand.op.ptr;
  if ((memory.rowLength != 0 && memory.rowLength < extent.width) ||
      (memory.layerHeight != 0 && memory.layerHeight < extent.height))
    return false;
  to->memory = memory.ptr;
  to->rows = memory.layerHeight;
  return !__builtin_mul_overflow(memory.rowLength, element, &to->pitch);
}

// The box that one copy of a batch is.
bool batched_box(const CUDA_MEMCPY3D_BATCH_OP& op, CUDA_MEMCPY3D* box) {
  const size_t src_element = element_bytes(op.src), dst_element = element_bytes(op.dst);
  const bool arrays =
      op.src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY && op.dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY;
  if (src_element == 0 || dst_element == 0 || (arrays && src_element != dst_element)) return false;
  // Memory takes the element of the array at the other end.
  const size_t element = op.src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY ? src_element : dst_element;
  OperandPlace src, dst;
  *box = {};
  if (op.extent.width == 0 || op.extent.height == 0 || op.extent.depth == 0 ||
      op.srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
      op.srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY ||
      __builtin_mul_overflow(op.extent.width, element, &box->WidthInBytes) ||
      !operand_place(op.src, op.extent, element, &src) ||
      !operand_place(op.dst, op.extent, element, &dst))
    return false;
  box->Height = op.extent.height;
  box->Depth = op.extent.depth;
  box->srcMemoryType = src.type, box->dstMemoryType = dst.type;
  box->srcDevice = src.memory, box->dstDevice = dst.memory;
  box->srcArray = src.array, box->dstArray = dst.array;
  box->srcXInBytes = src.x, box->dstXInBytes = dst.x;
  box->srcY = src.y, box->dstY = dst.y;
  box->srcZ = src.z, box->dstZ = dst.z;
  box->srcPitch = src.pitch, box->dstPitch = dst.pitch;
  box->srcHeight = src.rows, box->dstHeight = dst.rows;
  return true;
}

}  // namespace

// Batches copy one after the other, where CUDA may in any order. All copies are checked before the
// first is queued.
// CUDA 12.8's forms also say which copy is wrong: none of them in particular, as they may.
CUresult sluice_memcpy_batch_v1(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                                CUmemcpyAttributes* attrs, size_t* attr_indices, size_t attr_count,
                                size_t* failed, CUstream stream) {
  const CUresult r =
      cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attrs, attr_indices, attr_count, stream);
  if (r != CUDA_SUCCESS && failed != nullptr) *failed = SIZE_MAX;
  return r;
}
CUresult sluice_memcpy_3d_batch_v1(size_t count, CUDA_MEMCPY3D_BATCH_OP* ops, size_t* failed,
                                   unsigned long long flags, CUstream stream) {
  const CUresult r = cuMemcpy3DBatchAsync_v2(count, ops, flags, stream);
  if (r != CUDA_SUCCESS && failed != nullptr) *failed = SIZE_MAX;
  return r;
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                               CUmemcpyAttributes* attrs, size_t* attr_indices, size_t attr_count,
                               CUstream stream) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (dsts == nullptr || srcs == nullptr || sizes == nullptr || count == 0 ||
      !valid_attributes(attrs, attr_indices, attr_count, count))
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = check_batch_stream(stream); bad != CUDA_SUCCESS) return bad;
  const auto copy_at = [&](size_t i) {
    Copy copy;
    copy.dst = dsts[i];
    copy.src = srcs[i];
    copy.width = sizes[i];
    copy.stream = stream;
    return copy;
  };
  bool wait = false;
  for (size_t i = 0, attribute = 0; i < count; ++i) {
    const CUresult r = check_copy(copy_at(i), End::kAny, End::kAny);
    if (sizes[i] == 0 || r != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
    if (attribute + 1 < attr_count && attr_indices[attribute + 1] == i) ++attribute;
    wait = wait || must_wait(attrs[attribute].srcAccessOrder, srcs[i]);
  }
  for (size_t i = 0; i < count; ++i)
    if (const CUresult r = run_copy(e, copy_at(i), End::kAny, End::kAny); r != CUDA_SUCCESS)
      return r;
  const graphs::RelaxedHere here;
  return wait ? cuStreamSynchronize(stream) : CUDA_SUCCESS;
}

CUresult cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP* ops,
                                 unsigned long long flags, CUstream stream) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (count == 0 || ops == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = check_batch_stream(stream); bad != CUDA_SUCCESS) return bad;
  CUDA_MEMCPY3D box;
  bool wait = false;
  for (size_t i = 0; i < count; ++i) {
    if (!batched_box(ops[i], &box) || check_box(box) != CUDA_SUCCESS)
      return CUDA_ERROR_INVALID_VALUE;
    wait = wait || must_wait(ops[i].srcAccessOrder, box);
  }
  Copy how;
  how.stream = stream;
  for (size_t i = 0; i < count; ++i) {
    if (!batched_box(ops[i], &box)) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult r = run_box(e, box, how); r != CUDA_SUCCESS) return r;
  }
  const graphs::RelaxedHere here;
  return wait ? cuStreamSynchronize(stream) : CUDA_SUCCESS;
}
