// SPDX-License-Identifier: Apache-2.0
// Copies by tensor maps, and changes of maps; see ops_tensor_map.h for the list.
//
// A copy moves rows between a tensor in global memory and shared memory, where they lie one behind
// the other (TensorMap::row_bytes()), their chunks of 16 bytes swizzled. A row is a run of elements
// along dimension 0: of a box one for each place of its other sides, of an im2col copy one for each
// pixel. What is outside the tensor is read as zero or NaN and not written. Copies happen at once,
// when they are issued.
#include "kernels/exec/program/ops_tensor_map.h"

#include <algorithm>
#include <cstring>

#include "kernels/exec/block/block.h"
#include "kernels/exec/block/block_state.h"
#include "kernels/exec/block/warp.h"
#include "kernels/exec/memory/tensor_map.h"
#include "kernels/exec/ops/bulk.h"
#include "kernels/exec/ops/lane_memory.h"
#include "kernels/exec/program/inst.h"
#include "kernels/exec/program/plain_ops.h"

namespace sluice::exec::detail {
namespace {

// Places in Code::aux of tensorload and tensorstore.
constexpr uint32_t kSharedOffset = 0, kMapOffset = 1, kBarrierOffset = 2, kPoint = 3,
                   kPixelOffsets = kPoint + kMaxTensorRank;
constexpr uint32_t kMaxRowBytes = kMaxTensorBox * 8;
constexpr uint32_t kSharedAlign = 128;

uint64_t offset_of(uint32_t word) {
  return static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(word)));
}

// The rows of one copy, in their order in shared memory.
class Rows {
 public:
  Rows(const TensorMap& map, const int64_t* point, const int64_t* pixel_offsets)
      : map_(map), bytes_(element_bytes(map.element)), im2col_(map.kind == TensorKind::kIm2col) {
    for (uint32_t k = 0; k < map.rank; ++k) start_[k] = at_[k] = point[k];
    for (uint32_t k = 0; k + 2 < map.rank && im2col_; ++k) shift_[k + 1] = pixel_offsets[k];
    count_ = im2col_ ? map.pixels : 1;
    for (uint32_t k = 1; k < map.rank && !im2col_; ++k) count_ *= side(k);
  }
  uint64_t count() const { return count_; }
  uint32_t elements() const { return im2col_ ? map_.channels : map_.box[0]; }
  uint32_t bytes() const { return elements() * bytes_; }

  // The part of this row that is inside the tensor: `bytes` at global `address`, which stand
  // `skipped` bytes behind the row's beginning. No bytes: none.
  struct Part {
    uint64_t address = 0;
    uint32_t skipped = 0, bytes = 0;
  };
  Part part() const {
    Part part;
    part.address = map_.address;
    for (uint32_t k = 1; k < map_.rank; ++k) {
      const int64_t at = at_[k] + shift_[k];
      if (at < 0 || at > map_.last[k]) return part;
      part.address += static_cast<uint64_t>(at) * map_.strides[k - 1];
    }
    const int64_t begin = std::max<int64_t>(start_[0], 0);
    const int64_t end = std::min<int64_t>(start_[0] + elements(), int64_t{map_.last[0]} + 1);
    if (begin >= end) return part;
    part.address += static_cast<uint64_t>(begin) * bytes_;
    part.skipped = static_cast<uint32_t>(begin - start_[0]) * bytes_;
    part.bytes = static_cast<uint32_t>(end - begin) * bytes_;
    return part;
  }
  void next() {
    for (uint32_t k = 1; k < map_.rank; ++k) {
      const bool outermost = k + 1 == map_.rank;
      if (im2col_) {
        at_[k] += outermost ? 1 : map_.steps[k];
        if (outermost || at_[k] <= int64_t{map_.last[k]} + map_.upper[k - 1]) return;
        at_[k] = map_.lower[k - 1];
      } else {
        at_[k] += map_.steps[k];
        if (at_[k] < start_[k] + map_.box[k]) return;
        at_[k] = start_[k];
      }
    }
  }

 private:
  uint32_t side(uint32_t k) const { return (map_.box[k] + map_.steps[k] - 1u) / map_.steps[k]; }

  const TensorMap& map_;
  const uint32_t bytes_;  // of an element
  const bool im2col_;
  uint64_t count_ = 1;
  int64_t start_[kMaxTensorRank] = {}, at_[kMaxTensorRank] = {}, shift_[kMaxTensorRank] = {};
};

// A lane's operands.
struct LaneCopy {
  TensorMap map;
  uint64_t shared = 0;
  int64_t point[kMaxTensorRank] = {}, pixel_offsets[3] = {};
};

// False: the fault is set.
bool read_operands(Warp& w, const Inst& in, const TensorCopy& form, uint32_t lane, LaneCopy& out) {
  const uint32_t* aux = w.block->aux + in.aux;
  const uint64_t map = lane_u64(w, in.b, lane) + offset_of(aux[kMapOffset]);
  const uint64_t host =
      resolve_lane_access(w, {kSpaceGeneric, kTensorMapBytes, kTensorMapAlign, false}, map, lane);
  if (host == 0) return false;
  std::memcpy(&out.map, reinterpret_cast<const void*>(host), sizeof out.map);
  if (!out.map.valid() || out.map.rank != form.rank ||
      (out.map.kind == TensorKind::kIm2col) != form.im2col) {
    w.fault(FaultKind::kBadTensorMap, lane, map, kTensorMapBytes);
    return false;
  }
  out.shared = lane_address(w, in.a, form.narrow_shared, lane) + offset_of(aux[kSharedOffset]);
  if (form.narrow_shared) out.shared = static_cast<uint32_t>(out.shared);
  if (out.shared % kSharedAlign != 0) {
    w.fault(FaultKind::kMisaligned, lane, out.shared, kSharedAlign);
    return false;
  }
  for (uint32_t k = 0; k < form.rank; ++k)
    out.point[k] = static_cast<int32_t>(lane_u32(w, aux[kPoint + k], lane));
  for (uint32_t k = 0; k < 3; ++k)
    if (aux[kPixelOffsets + k] != kNoOperand)
      out.pixel_offsets[k] = static_cast<uint16_t>(lane_u32(w, aux[kPixelOffsets + k], lane));
  return true;
}

// False: it is more than any block's shared memory, and the fault is set. So no copy is long.
bool fits(Warp& w, uint32_t lane, const LaneCopy& copy, const Rows& rows, uint32_t pitch) {
  if (rows.count() <= kMaxSharedBytes / pitch) return true;
  w.fault(FaultKind::kSharedBounds, lane, copy.shared, pitch);
  return false;
}

// What is outside the tensor, for a whole row.
void fill_row(const TensorMap& map, uint8_t* row, uint32_t bytes) {
  std::memset(row, 0, bytes);
  if (map.nan_fill == 0 || !is_float(map.element)) return;
  const uint32_t size = element_bytes(map.element);
  const uint64_t nan = size == 2 ? 0x7fffu : size == 4 ? 0x7fffffffu : 0x7fffffffffffffffull;
  for (uint32_t k = 0; k < bytes; k += size) std::memcpy(row + k, &nan, size);
}

void flush_subnormals(const TensorMap& map, uint8_t* row, uint32_t bytes) {
  if (map.element != TensorElement::kF32Ftz && map.element != TensorElement::kTf32Ftz) return;
  for (uint32_t k = 0; k < bytes; k += 4) {
    uint32_t word;
    std::memcpy(&word, row + k, 4);
    if ((word & 0x7f800000u) == 0) word &= 0x80000000u;
    std::memcpy(row + k, &word, 4);
  }
}

// Chunks of a row to (`load`) or from shared memory at `address`, which is the host's `host`. A
// chunk stays within the row's bytes in memory: rows are as long as the pattern at least.
void move_chunks(const TensorMap& map, uint64_t address, uint64_t host, uint8_t* row,
                 uint32_t bytes, bool load) {
  const auto base = static_cast<uint32_t>(address);
  for (uint32_t k = 0; k < bytes; k += 16) {
    void* const at = reinterpret_cast<void*>(host + (swizzled(map.swizzle, base + k) - base));
    if (load)
      std::memcpy(at, row + k, 16);
    else
      std::memcpy(row + k, at, 16);
  }
}

// The blocks of the cluster that a copy goes to: the same places in each, with its own mbarrier.
// Without a mask the one that the address names.
template <class F>
bool each_destination(const Warp& w, const Inst& in, uint32_t lane, F f) {
  if (in.c == kNoOperand) return f(~uint64_t{0}, uint64_t{0});
  for (uint32_t m = lane_u32(w, in.c, lane) & 0xffff; m != 0; m &= m - 1) {
    const uint64_t rank = static_cast<uint64_t>(__builtin_ctz(m));
    if (!f(kRankStride - 1, (rank + 1) << kRankShift)) return false;
  }
  return true;
}

bool load_lane(Warp& w, const Inst& in, const TensorCopy& form, uint32_t lane) {
  LaneCopy copy;
  if (!read_operands(w, in, form, lane, copy)) return false;
  Rows rows(copy.map, copy.point, copy.pixel_offsets);
  const uint32_t pitch = copy.map.row_bytes(), bytes = rows.bytes();
  if (!fits(w, lane, copy, rows, pitch)) return false;
  for (uint32_t k = 0; k < rows.count(); ++k, rows.next()) {
    uint8_t row[kMaxRowBytes];
    fill_row(copy.map, row, bytes);
    if (const Rows::Part part = rows.part(); part.bytes != 0) {
      const uint64_t from =
          resolve_lane_access(w, {kSpaceGlobal, part.bytes, 1, false}, part.address, lane);
      if (from == 0) return false;
      std::memcpy(row + part.skipped, reinterpret_cast<const void*>(from), part.bytes);
      flush_subnormals(copy.map, row, bytes);
    }
    const bool written = each_destination(w, in, lane, [&](uint64_t inside, uint64_t place) {
      const uint64_t at = ((copy.shared + uint64_t{k} * pitch) & inside) | place;
      const uint64_t to = resolve_lane_access(w, {form.space, pitch, 16, true}, at, lane);
      if (to != 0) move_chunks(copy.map, at, to, row, bytes, true);
      return to != 0;
    });
    if (!written) return false;
  }
  const uint64_t barrier = lane_address(w, in.e, form.narrow_barrier, lane) +
                           offset_of(w.block->aux[in.aux + kBarrierOffset]);
  return each_destination(w, in, lane, [&](uint64_t inside, uint64_t place) {
    const uint64_t at = form.narrow_barrier ? static_cast<uint32_t>(barrier) : barrier;
    const uint64_t host =
        resolve_lane_access(w, {kSpaceCluster, 8, 8, true}, (at & inside) | place, lane);
    if (host != 0) complete_bytes(host, static_cast<uint32_t>(rows.count()) * bytes);
    return host != 0;
  });
}

// a = shared memory, b = map, c = mask of blocks or none, e = mbarrier.
Flow load_box(Warp& w, const Inst& in) {
  const TensorCopy form = TensorCopy::unpack(in.imm);
  for (uint32_t m = w.exec; m != 0; m &= m - 1)
    if (!load_lane(w, in, form, static_cast<uint32_t>(__builtin_ctz(m)))) return Flow::kFault;
  return Flow::kNext;
}

// The elements of a reduction; false: none of that type (PTX ISA, cp.reduce.async.bulk.tensor).
bool reduced_type(TensorElement element, BulkReduction op, BulkType& type) {
  const bool sum = op == BulkReduction::kAdd;
  const bool order = op == BulkReduction::kMin || op == BulkReduction::kMax;
  const bool bitwise =
      op == BulkReduction::kAnd || op == BulkReduction::kOr || op == BulkReduction::kXor;
  switch (element) {
    case TensorElement::kU32:
      type = BulkType::kU32;
      return true;
    case TensorElement::kS32:
      type = BulkType::kS32;
      return sum || order || bitwise;
    case TensorElement::kU64:
      type = BulkType::kU64;
      return sum || order || bitwise;
    case TensorElement::kS64:
      type = BulkType::kS64;
      return order || bitwise;
    case TensorElement::kF16:
      type = BulkType::kF16;
      return sum || order;
    case TensorElement::kBf16:
      type = BulkType::kBf16;
      return sum || order;
    case TensorElement::kF32:
    case TensorElement::kF32Ftz:
      type = BulkType::kF32;
      return sum;
    default:
      return false;
  }
}

bool store_lane(Warp& w, const Inst& in, const TensorCopy& form, uint32_t lane) {
  LaneCopy copy;
  if (!read_operands(w, in, form, lane, copy)) return false;
  const auto op = static_cast<BulkReduction>(form.reduction);
  BulkType type = BulkType::kU32;
  if (op != BulkReduction::kNone && !reduced_type(copy.map.element, op, type)) {
    w.fault(FaultKind::kBadTensorMap, lane, lane_u64(w, in.b, lane), kTensorMapBytes);
    return false;
  }
  Rows rows(copy.map, copy.point, copy.pixel_offsets);
  const uint32_t pitch = copy.map.row_bytes();
  if (!fits(w, lane, copy, rows, pitch)) return false;
  for (uint32_t k = 0; k < rows.count(); ++k, rows.next()) {
    const Rows::Part part = rows.part();
    if (part.bytes == 0) continue;
    const uint64_t at = copy.shared + uint64_t{k} * pitch;
    const uint64_t from = resolve_lane_access(w, {kSpaceShared, pitch, 16, false}, at, lane);
    if (from == 0) return false;
    const uint64_t to =
        resolve_lane_access(w, {kSpaceGlobal, part.bytes, 1, true}, part.address, lane);
    if (to == 0) return false;
    alignas(8) uint8_t row[kMaxRowBytes];
    move_chunks(copy.map, at, from, row, rows.bytes(), false);
    if (op == BulkReduction::kNone)
      std::memcpy(reinterpret_cast<void*>(to), row + part.skipped, part.bytes);
    else
      reduce_bytes(op, type, to, row + part.skipped, part.bytes);
  }
  return true;
}

// a = shared memory, b = map.
Flow store_box(Warp& w, const Inst& in) {
  const TensorCopy form = TensorCopy::unpack(in.imm);
  for (uint32_t m = w.exec; m != 0; m &= m - 1)
    if (!store_lane(w, in, form, static_cast<uint32_t>(__builtin_ctz(m)))) return Flow::kFault;
  return Flow::kNext;
}

void set_field(TensorMap& map, TensorField field, uint32_t dimension, uint64_t value) {
  const auto byte = static_cast<uint8_t>(std::min<uint64_t>(value, 255));
  switch (field) {
    case TensorField::kAddress:
      map.address = value;
      break;
    case TensorField::kRank:  // counts from zero
      map.rank = static_cast<uint8_t>(std::min<uint64_t>(value, 254) + 1);
      break;
    case TensorField::kBox:
      map.box[dimension] = static_cast<uint16_t>(std::min<uint64_t>(value, 0xffff));
      break;
    case TensorField::kSize:
      map.last[dimension] = static_cast<uint32_t>(value - 1);
      break;
    case TensorField::kStride:
      map.strides[dimension] = value;
      break;
    case TensorField::kStep:
      map.steps[dimension] = byte;
      break;
    case TensorField::kElement:
      map.element = static_cast<TensorElement>(byte);
      break;
    case TensorField::kInterleave:
      map.interleave = byte;
      break;
    case TensorField::kSwizzle:
      map.swizzle = static_cast<TensorSwizzle>(byte);
      break;
    case TensorField::kFill:
      map.nan_fill = byte;
      break;
  }
}

// a = map (offset in aux[0]), b = the new value, of 64 bits where aux[1] is not 0.
Flow replace_field(Warp& w, const Inst& in) {
  const uint32_t* aux = w.block->aux + in.aux;
  const bool narrow = (in.mod & kModAddress32) != 0;
  for (uint32_t m = w.exec; m != 0; m &= m - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(m));
    const uint64_t at = lane_address(w, in.a, narrow, lane) + offset_of(aux[0]);
    const uint64_t host = resolve_lane_access(
        w, {static_cast<uint32_t>(in.mod & kSpaceMask), kTensorMapBytes, kTensorMapAlign, true},
        narrow ? static_cast<uint32_t>(at) : at, lane);
    if (host == 0) return Flow::kFault;
    TensorMap map;
    std::memcpy(&map, reinterpret_cast<const void*>(host), sizeof map);
    set_field(map, static_cast<TensorField>(in.imm & 15), static_cast<uint32_t>(in.imm >> 4),
              aux[1] != 0 ? lane_u64(w, in.b, lane) : lane_u32(w, in.b, lane));
    std::memcpy(reinterpret_cast<void*>(host), &map, sizeof map);
  }
  return Flow::kNext;
}

}  // namespace

void fill_tensor_map(Handler* table) { SLUICE_EXEC_TENSOR_MAP_OPS(SLUICE_EXEC_FILL_PLAIN) }

}  // namespace sluice::exec::detail
