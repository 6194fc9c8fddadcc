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

// The words of a copy by a tensor map, and its operands.
struct Decoder::TensorCopyForm {
  TensorCopy copy;
  bool reduce = false, prefetch = false, load = false, multicast = false, hint = false;
  bool offsets_given = false;  // im2col, with offsets as an operand
  bool no_offsets = false;     // im2col_no_offs
  Address map, shared, barrier;
  std::vector<Operand> point, pixel_offsets;
  Operand blocks;  // of the cluster, for a multicast
};

// cp.async.bulk.tensor.RANK.DST.SRC[.MODE].COMPLETION..., the store and the reduction likewise, and
// cp.async.bulk.prefetch.tensor.
bool Decoder::do_tensor_copy() {
  TensorCopyForm form;
  if (!take_tensor_words(form)) return unsupported();
  if (form.prefetch) return tensor_prefetch(form);
  if (!take_tensor_direction(form)) return unsupported();
  if (!all_taken()) return false;
  const bool load = form.load, whole = form.offsets_given;
  if (operand_count() !=
      (load ? 3u : 2u) + (whole ? 1 : 0) + (form.multicast ? 1 : 0) + (form.hint ? 1 : 0))
    return false;
  if (!address(text(load ? 0 : 1), form.shared) ||
      !tensor_point(text(load ? 1 : 0), form.copy.rank, form.map, form.point) ||
      (load && !address(text(2), form.barrier)) || (whole && !tensor_offsets(text(3), form)) ||
      (form.multicast && !source(text(whole ? 4 : 3), Type::kU16, form.blocks)) ||
      !is_word(form.shared.offset) || !is_word(form.barrier.offset))
    return false;
  emit_tensor_copy(form);
  return true;
}

bool Decoder::take_tensor_words(TensorCopyForm& form) {
  form.reduce = take("reduce");
  if (!take("async") || !take("bulk") || !take("tensor")) return false;
  static constexpr std::string_view kRanks[] = {"1d", "2d", "3d", "4d", "5d"};
  for (uint32_t k = 0; k < kMaxTensorRank && form.copy.rank == 0; ++k)
    if (take(kRanks[k])) form.copy.rank = k + 1;
  if (form.copy.rank == 0) return false;
  form.hint = take("L2::cache_hint");
  form.prefetch = !form.reduce && take("prefetch");
  form.offsets_given = take("im2col");
  form.no_offsets = take("im2col_no_offs");
  form.copy.im2col = form.offsets_given || form.no_offsets;
  if (!form.copy.im2col) take("tile");
  return !form.copy.im2col || form.copy.rank >= 3;
}

bool Decoder::tensor_offsets(std::string_view list, TensorCopyForm& form) {
  return register_list(list, form.copy.rank - 2, Type::kU16, false, form.pixel_offsets);
}

// Checked, and then nothing to do.
bool Decoder::tensor_prefetch(TensorCopyForm& form) {
  if (!take("L2") || !take("global") || form.no_offsets || !all_taken()) return unsupported();
  return operand_count() == 1u + (form.offsets_given ? 1 : 0) + (form.hint ? 1 : 0) &&
         tensor_point(text(0), form.copy.rank, form.map, form.point) &&
         (!form.offsets_given || tensor_offsets(text(1), form));
}

// From where to where, how its end is reported, and a reduction's operation.
bool Decoder::take_tensor_direction(TensorCopyForm& form) {
  const std::vector<Space> spaces = take_bulk_spaces();
  if (spaces.size() != 2) return false;
  form.load = spaces[1] == kSpaceGlobal;
  if (form.load ? spaces[0] == kSpaceGlobal || form.reduce || form.no_offsets
                : spaces[0] != kSpaceGlobal || spaces[1] != kSpaceShared || form.offsets_given)
    return false;
  if (!take(form.load ? "mbarrier::complete_tx::bytes" : "bulk_group")) return false;
  form.multicast = form.load && take("multicast::cluster");
  if (form.multicast && spaces[0] != kSpaceCluster) return false;
  if (form.load) take("cta_group::1");
  if (form.reduce) {
    const BulkReduction op = take_reduction();
    if (op == BulkReduction::kNone) return false;
    form.copy.reduction = static_cast<uint32_t>(op);
  }
  form.copy.space = spaces[form.load ? 0 : 1];
  return true;
}

void Decoder::emit_tensor_copy(TensorCopyForm& form) {
  form.copy.narrow_shared = form.shared.narrow;
  form.copy.narrow_barrier = form.barrier.narrow;
  emit(form.load ? "tensorload" : "tensorstore", 0, form.copy.pack(), {}, form.shared.base,
       form.map.base, form.blocks, form.load ? form.barrier.base : Operand{});
  form.point.resize(kMaxTensorRank, raw(kNoOperand));
  form.pixel_offsets.resize(3, raw(kNoOperand));
  emit_aux(
      {raw(static_cast<uint32_t>(form.shared.offset)), raw(static_cast<uint32_t>(form.map.offset)),
       raw(static_cast<uint32_t>(form.barrier.offset))},
      false);
  append_aux(form.point, false);
  append_aux(form.pixel_offsets, false);
}

// tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.SCOPE.sync.aligned.
bool Decoder::publish_tensormap() {
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
  emit_aux({raw(static_cast<uint32_t>(to.offset)), raw(static_cast<uint32_t>(from.offset)), raw(0),
            raw((to.narrow ? 1u : 0u) | (from.narrow ? 2u : 0u)), raw(kNoOperand)},
           false);
  return true;
}

// tensormap.replace.tile.FIELD.SPACE.b1024.TYPE [map][, dimension], value; and the fence above.
bool Decoder::do_tensormap() {
  if (take("cp_fenceproxy")) return publish_tensormap();
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
