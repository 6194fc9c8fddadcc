// SPDX-License-Identifier: Apache-2.0
// wgmma: matrix products of four warps.
#include <string>

#include "kernels/exec/decode/decoder.h"
#include "kernels/exec/program/warpgroup.h"

namespace sluice::exec::detail {
namespace {

struct Types {
  std::string_view word;
  Element element;
};
constexpr Types kTypes[] = {{"f16", Element::kF16},   {"bf16", Element::kBf16},
                            {"tf32", Element::kTf32}, {"e4m3", Element::kE4m3},
                            {"e5m2", Element::kE5m2}, {"u8", Element::kU8},
                            {"s8", Element::kS8},     {"b1", Element::kB1},
                            {"f32", Element::kF32},   {"s32", Element::kS32}};

// "m64n128k16": n of it, or 0. `k` follows from the elements.
bool take_shape(std::string_view word, uint32_t& n, uint32_t& k) {
  if (word.substr(0, 4) != "m64n") return false;
  uint32_t numbers[2] = {};
  size_t at = 4;
  for (int part = 0; part < 2; ++part) {
    const size_t begin = at;
    while (at < word.size() && word[at] >= '0' && word[at] <= '9' && at - begin < 3)
      numbers[part] = numbers[part] * 10 + static_cast<uint32_t>(word[at++] - '0');
    if (at == begin || (part == 0 && (at >= word.size() || word[at++] != 'k'))) return false;
  }
  n = numbers[0];
  k = numbers[1];
  return at == word.size();
}

bool is_float(Element e) {
  return e == Element::kF16 || e == Element::kBf16 || e == Element::kTf32 || e == Element::kE4m3 ||
         e == Element::kE5m2;
}

// The combinations of the manual ("wgmma.mma_async").
bool exists(const WarpgroupShape& s) {
  const bool fp8 = s.b == Element::kE4m3 || s.b == Element::kE5m2;
  const bool bytes = s.b == Element::kU8 || s.b == Element::kS8;
  if (s.n < 8 || s.n > kWarpgroupColumns || s.n % 8 != 0) return false;
  // Integers: 8, 24, or a multiple of 16.
  if (!is_float(s.a) && s.n != 8 && s.n != 24 && s.n % 16 != 0) return false;
  switch (s.a) {
    case Element::kF16:
      return s.b == s.a && (s.d == Element::kF16 || s.d == Element::kF32);
    case Element::kBf16:
    case Element::kTf32:
      return s.b == s.a && s.d == Element::kF32;
    case Element::kE4m3:
    case Element::kE5m2:
      return fp8 && (s.d == Element::kF16 || s.d == Element::kF32);
    case Element::kU8:
    case Element::kS8:
      return bytes && s.d == Element::kS32;
    case Element::kB1:
      return s.b == s.a && s.d == Element::kS32;
    default:
      return false;
  }
}

}  // namespace

// wgmma.fence, .commit_group and .wait_group: products are computed when they are issued.
// wgmma.mma_async[.sp].sync.aligned.SHAPE.D.A.B d, a, b[, metadata, selector], add[, scale-a,
// scale-b[, trans-a], trans-b].
bool Decoder::do_wgmma() {
  if (!take("sync") || !take("aligned")) return unsupported();
  if (take("fence") || take("commit_group")) return all_taken() && operand_count() == 0;
  if (take("wait_group")) {
    uint64_t pending;
    return all_taken() && operand_count() == 1 && immediate(text(0), Type::kU32, pending);
  }
  if (!take("mma_async")) return unsupported();
  WarpgroupShape s;
  s.sparse = take("sp");
  s.saturate = take("satfinite");
  uint32_t depth = 0;
  if (!take_warpgroup_types(s, depth)) return unsupported();
  if (s.a == Element::kB1 && (!take("and") || !take("popc"))) return unsupported();
  const bool bytes = s.a == Element::kU8 || s.a == Element::kS8;
  if (s.sparse && s.a == Element::kB1) return unsupported();
  if (!exists(s) || depth != s.depth() || (s.saturate && !bytes)) return unsupported();
  const size_t more = s.sparse ? 2 : 0;  // operands before the predicate
  if (operand_count() < 4 + more) return false;
  if (uint64_t selector = 0; s.sparse) {  // tensor_shape.h: threads of four that have metadata
    if (!immediate(text(4), Type::kU32, selector)) return false;
    if (selector > (element_bits(s.a) == 8 ? 0u : 1u)) return unsupported();
    s.selector = static_cast<uint8_t>(selector);
  }
  s.a_in_registers = !braces(text(1)).empty();
  if (!warpgroup_flags(s)) return false;
  const Type d_type = s.d == Element::kF32 ? Type::kF32 : Type::kB32;
  std::vector<Operand> d, sums, a, metadata;
  Operand a_matrix, b_matrix;
  uint32_t add;
  if (s.a_in_registers ? !register_list(text(1), 4, Type::kB32, false, a)
                       : !source(text(1), Type::kB64, a_matrix))
    return false;
  if (!source(text(2), Type::kB64, b_matrix) || !source_pred(text(3 + more), add) ||
      (s.sparse && !register_list(text(3), 1, Type::kB32, false, metadata)) ||
      !register_list(text(0), s.d_registers(), d_type, false, sums) ||
      !register_list(text(0), s.d_registers(), d_type, true, d))
    return false;
  emit("wgmma", 0, s.pack(), {}, a_matrix, b_matrix, raw(add));
  emit_aux({constant(0xffffffffu, 4)}, false);
  append_aux(d, true);
  append_aux(sums, false);
  append_aux(a, false);
  append_aux(metadata, false);
  return true;
}

bool Decoder::take_warpgroup_types(WarpgroupShape& s, uint32_t& depth) {
  std::vector<Element> types;
  for (size_t k = 1; k < words_.size(); ++k) {
    if (taken_[k]) continue;
    if (s.n == 0 && take_shape(words_[k], s.n, depth)) taken_[k] = true;
    for (const Types& type : kTypes) {
      if (taken_[k] || type.word != words_[k]) continue;
      taken_[k] = true;
      types.push_back(type.element);
    }
  }
  if (types.size() != 3) return false;
  s.d = types[0];
  s.a = types[1];
  s.b = types[2];
  return true;
}

// The operands behind the predicate: [scale-a, scale-b][, trans-a][, trans-b].
bool Decoder::warpgroup_flags(WarpgroupShape& s) {
  const bool floats = is_float(s.a);
  const bool majors = s.a == Element::kF16 || s.a == Element::kBf16;
  const size_t flags = (floats ? 2u : 0u) + (majors ? (s.a_in_registers ? 1u : 2u) : 0u);
  const size_t first = s.sparse ? 6 : 4;
  if (!all_taken() || operand_count() != first + flags) return false;
  uint64_t flag[4] = {};
  for (size_t k = 0; k < flags; ++k) {
    const bool scale = k < 2;
    if (!immediate(text(first + k), Type::kS32, flag[k])) return false;
    const auto value = static_cast<int32_t>(flag[k]);
    if (scale ? value != 1 && value != -1 : value != 0 && value != 1) return false;
  }
  s.negate_a = floats && static_cast<int32_t>(flag[0]) == -1;
  s.negate_b = floats && static_cast<int32_t>(flag[1]) == -1;
  s.m_major = majors && !s.a_in_registers && flag[2] == 1;
  s.n_major = majors && flag[s.a_in_registers ? 2 : 3] == 1;
  return true;
}

}  // namespace sluice::exec::detail
