// SPDX-License-Identifier: Apache-2.0
// Copies by tensor maps (cp.async.bulk.tensor, cp.reduce.async.bulk.tensor), tensormap, and the
// fences and prefetches of maps.
#include <string>

#include "kernels/exec/decode/decoder.h"
#include "kernels/exec/memory/tensor_map.h"
#include "kernels/exec/program/ops_tensor_map.h"

namespace sluice::exec::detail {
namespace {

bool is_word(int64_t offset) { return offset == static_cast<int32_t>(offset); }

}  // namespace

// "[map, {coordinates}]".
bool Decoder::tensor_point(std::string_view operand, size_t rank, Address& map,
                           std::vector<Operand>& point) {
  operand = ptx::trimmed(operand);
  const size_t comma = operand.find(',');
  if (operand.size() < 2 || operand.front() != '[' || operand.back() != ']' ||
      comma == std::string_view::npos)
    return false;
  if (!address(std::string(operand.substr(0, comma)) + "]", map) || map.narrow ||
      !is_word(map.offset) || (map.known_space && map.space != kSpaceGlobal))
    return false;
  const std::string_view rest = ptx::trimmed(operand.substr(comma + 1, operand.size() - comma - 2));
  std::vector<std::string_view> names = braces(rest);
  if (names.empty()) names.push_back(rest);
  if (names.size() != rank) return false;
  for (const std::string_view name : names) {
    Operand at;
    if (!source(name, Type::kS32, at)) return false;
    point.push_back(at);
  }
  return true;
}

// cp.async.bulk.tensor.RANK.DST.SRC[.MODE].COMPLETION..., the store and the reduction likewise, and
// cp.async.bulk.prefetch.tensor.
bool Decoder::do_tensor_copy() {
  TensorCopy form;
  const bool reduce = take("reduce");
  if (!take("async") || !take("bulk") || !take("tensor")) return unsupported();
  static constexpr std::string_view kRanks[] = {"1d", "2d", "3d", "4d", "5d"};
  for (uint32_t k = 0; k < kMaxTensorRank && form.rank == 0; ++k)
    if (take(kRanks[k])) form.rank = k + 1;
  if (form.rank == 0) return unsupported();
  const bool hint = take("L2::cache_hint");
  const bool prefetch = !reduce && take("prefetch");
  const bool whole = take("im2col"), no_offsets = take("im2col_no_offs");
  form.im2col = whole || no_offsets;
  if (!form.im2col) take("tile");
  if (form.im2col && form.rank < 3) return unsupported();
  std::vector<Operand> point, pixel_offsets;
  Address map;
  const auto offsets = [&](std::string_view list) {
    return register_list(list, form.rank - 2, Type::kU16, false, pixel_offsets);
  };
  if (prefetch) {
    if (!take("L2") || !take("global") || no_offsets || !all_taken()) return unsupported();
    return operand_count() == 1u + (whole ? 1 : 0) + (hint ? 1 : 0) &&
           tensor_point(text(0), form.rank, map, point) && (!whole || offsets(text(1)));
  }
  const std::vector<Space> spaces = take_bulk_spaces();
  if (spaces.size() != 2) return unsupported();
  const bool load = spaces[1] == kSpaceGlobal;
  if (load ? spaces[0] == kSpaceGlobal || reduce || no_offsets
           : spaces[0] != kSpaceGlobal || spaces[1] != kSpaceShared || whole)
    return unsupported();
  if (!take(load ? "mbarrier::complete_tx::bytes" : "bulk_group")) return unsupported();
  const bool multicast = load && take("multicast::cluster");
  if (multicast && spaces[0] != kSpaceCluster) return unsupported();
  if (load) take("cta_group::1");
  if (reduce) {
    const BulkReduction op = take_reduction();
    if (op == BulkReduction::kNone) return unsupported();
    form.reduction = static_cast<uint32_t>(op);
  }
  if (!all_taken()) return false;
  if (operand_count() != (load ? 3u : 2u) + (whole ? 1 : 0) + (multicast ? 1 : 0) + (hint ? 1 : 0))
    return false;
  Address shared, barrier;
  Operand blocks;
  if (!address(text(load ? 0 : 1), shared) ||
      !tensor_point(text(load ? 1 : 0), form.rank, map, point) ||
      (load && !address(text(2), barrier)) || (whole && !offsets(text(3))) ||
      (multicast && !source(text(whole ? 4 : 3), Type::kU16, blocks)) || !is_word(shared.offset) ||
      !is_word(barrier.offset))
    return false;
  form.space = spaces[load ? 0 : 1];
  form.narrow_shared = shared.narrow;
  form.narrow_barrier = barrier.narrow;
  emit(load ? "tensorload" : "tensorstore", 0, form.pack(), {}, shared.base, map.base, blocks,
       load ? barrier.base : Operand{});
  point.resize(kMaxTensorRank, raw(kNoOperand));
  pixel_offsets.resize(3, raw(kNoOperand));
  emit_aux({raw(static_cast<uint32_t>(shared.offset)), raw(static_cast<uint32_t>(map.offset)),
            raw(static_cast<uint32_t>(barrier.offset))},
           false);
  append_aux(point, false);
  append_aux(pixel_offsets, false);
  return true;
}

// tensormap.replace.tile.FIELD.SPACE.b1024.TYPE [map][, dimension], value; and
// tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.SCOPE.sync.aligned.
bool Decoder::do_tensormap() {
  if (take("cp_fenceproxy")) {
    const std::vector<Space> spaces = take_bulk_spaces();
    if (spaces.size() != 2 || spaces[0] != kSpaceGlobal || spaces[1] != kSpaceShared ||
        !take("tensormap::generic") || !take("release") ||
        !take_any({"cta", "cluster", "gpu", "sys"}) || !take("sync") || !take("aligned") ||
        !all_taken())
      return unsupported();
    Address to, from;
    uint64_t bytes;
    if (operand_count() != 3 || !address(text(0), to) || !address(text(1), from) ||
        !immediate(text(2), Type::kU32, bytes) || bytes != kTensorMapBytes || !is_word(to.offset) ||
        !is_word(from.offset))
      return false;
    emit("cpbulk", 0, static_cast<int64_t>(kSpaceGlobal) | static_cast<int64_t>(kSpaceShared) << 4,
         {}, to.base, from.base, constant(bytes, 4));
    emit_aux({raw(static_cast<uint32_t>(to.offset)), raw(static_cast<uint32_t>(from.offset)),
              raw(0), raw((to.narrow ? 1u : 0u) | (from.narrow ? 2u : 0u)), raw(kNoOperand)},
             false);
    return true;
  }
  struct Field {
    std::string_view word;
    TensorField field;
    bool wide, by_dimension;
  };
  static constexpr Field kFields[] = {{"global_address", TensorField::kAddress, true, false},
                                      {"rank", TensorField::kRank, false, false},
                                      {"box_dim", TensorField::kBox, false, true},
                                      {"global_dim", TensorField::kSize, false, true},
                                      {"global_stride", TensorField::kStride, true, true},
                                      {"element_stride", TensorField::kStep, false, true},
                                      {"elemtype", TensorField::kElement, false, false},
                                      {"interleave_layout", TensorField::kInterleave, false, false},
                                      {"swizzle_mode", TensorField::kSwizzle, false, false},
                                      {"fill_mode", TensorField::kFill, false, false}};
  if (!take("replace") || !take("tile")) return unsupported();
  const Field* field = nullptr;
  for (const Field& f : kFields)
    if (field == nullptr && take(f.word)) field = &f;
  Space space;
  memory_space(space);
  if (field == nullptr || !take("b1024") || !take(field->wide ? "b64" : "b32") ||
      (space != kSpaceGlobal && space != kSpaceShared && space != kSpaceGeneric) || !all_taken())
    return unsupported();
  Address at;
  Operand value;
  uint64_t dimension = 0;
  const size_t last = field->by_dimension ? 2 : 1;
  if (operand_count() != last + 1 || !address(text(0), at) || !is_word(at.offset) ||
      !source(text(last), field->wide ? Type::kB64 : Type::kB32, value))
    return false;
  if (field->by_dimension &&
      (!immediate(text(1), Type::kU32, dimension) ||
       dimension >= kMaxTensorRank - (field->field == TensorField::kStride ? 1 : 0)))
    return false;
  if (at.known_space && space == kSpaceGeneric) space = at.space;
  emit("tensormap", static_cast<uint16_t>(space | (at.narrow ? kModAddress32 : 0)),
       static_cast<int64_t>(field->field) | static_cast<int64_t>(dimension) << 4, {}, at.base,
       value);
  emit_aux({raw(static_cast<uint32_t>(at.offset)), raw(field->wide ? 1 : 0)}, false);
  return true;
}

}  // namespace sluice::exec::detail
