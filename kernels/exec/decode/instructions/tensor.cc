// SPDX-License-Identifier: Apache-2.0
// Matrix instructions: mma, wmma, ldmatrix, stmatrix, movmatrix.
#include <algorithm>

#include "kernels/exec/decode/decoder.h"
#include "kernels/exec/program/tensor_shape.h"

namespace sluice::exec::detail {
namespace {

bool element_of(std::string_view word, Element& e) {
  static constexpr std::pair<std::string_view, Element> kNames[] = {
      {"f16", Element::kF16}, {"bf16", Element::kBf16}, {"tf32", Element::kTf32},
      {"f64", Element::kF64}, {"e4m3", Element::kE4m3}, {"e5m2", Element::kE5m2},
      {"u8", Element::kU8},   {"s8", Element::kS8},     {"u4", Element::kU4},
      {"s4", Element::kS4},   {"b1", Element::kB1},     {"f32", Element::kF32},
      {"s32", Element::kS32}};
  for (const auto& [name, element] : kNames) {
    if (name != word) continue;
    e = element;
    return true;
  }
  return false;
}

// "m16n8k16"
bool shape_of(std::string_view word, MatrixShape& s) {
  uint32_t sizes[3] = {};
  size_t at = 0;
  for (int k = 0; k < 3; ++k) {
    if (at >= word.size() || word[at++] != "mnk"[k]) return false;
    const size_t begin = at;
    while (at < word.size() && word[at] >= '0' && word[at] <= '9' && at - begin < 3)
      sizes[k] = sizes[k] * 10 + static_cast<uint32_t>(word[at++] - '0');
    if (at == begin) return false;
  }
  if (at != word.size() || sizes[0] > 32 || sizes[1] > 32 || sizes[2] > 256) return false;
  s.m = static_cast<uint8_t>(sizes[0]);
  s.n = static_cast<uint8_t>(sizes[1]);
  s.k = static_cast<uint16_t>(sizes[2]);
  return true;
}

bool is_integer(Element e) {
  return e == Element::kU8 || e == Element::kS8 || e == Element::kU4 || e == Element::kS4;
}

// The combinations of the PTX manual for sm_70 to sm_90.
bool is_of_shape(const MatrixShape& s, uint32_t m, uint32_t n,
                 std::initializer_list<uint32_t> depths) {
  return s.m == m && s.n == n && std::find(depths.begin(), depths.end(), s.k) != depths.end();
}
bool sums_are(const MatrixShape& s, Element e) { return s.c == e && s.d == e; }
bool sums_are_halves_or_floats(const MatrixShape& s) {
  return (s.c == Element::kF32 || s.c == Element::kF16) &&
         (s.d == Element::kF32 || s.d == Element::kF16);
}

// mma.sp.
bool sparse_mma_exists(const MatrixShape& s) {
  if (s.selector * s.metadata_threads() >= 4) return false;
  const auto is = [&s](std::initializer_list<uint32_t> depths) {
    return is_of_shape(s, 16, 8, depths);
  };
  const bool f32 = sums_are(s, Element::kF32), s32 = sums_are(s, Element::kS32);
  switch (s.a) {
    case Element::kF16:
      return s.a == s.b && is({16, 32}) && s.c == s.d && sums_are_halves_or_floats(s);
    case Element::kBf16:
      return s.a == s.b && is({16, 32}) && f32;
    case Element::kTf32:
      return s.a == s.b && is({8, 16}) && f32;
    case Element::kE4m3:
    case Element::kE5m2:
      return (s.b == Element::kE4m3 || s.b == Element::kE5m2) && is({64}) && f32;
    case Element::kU8:
    case Element::kS8:
      return (s.b == Element::kU8 || s.b == Element::kS8) && is({32, 64}) && s32;
    case Element::kU4:
    case Element::kS4:
      return (s.b == Element::kU4 || s.b == Element::kS4) && is({64, 128}) && s32;
    default:
      return false;
  }
}

bool wmma_exists(const MatrixShape& s) {
  if (s.a != s.b) return false;
  const bool shape =
      is_of_shape(s, 16, 16, {16}) || is_of_shape(s, 32, 8, {16}) || is_of_shape(s, 8, 32, {16});
  switch (s.a) {
    case Element::kF16:
      return shape && sums_are_halves_or_floats(s);
    case Element::kBf16:
      return shape && sums_are(s, Element::kF32);
    case Element::kU8:
    case Element::kS8:
      return shape && sums_are(s, Element::kS32);
    case Element::kTf32:
      return is_of_shape(s, 16, 16, {8}) && sums_are(s, Element::kF32);
    case Element::kF64:
      return is_of_shape(s, 8, 8, {4}) && sums_are(s, Element::kF64);
    case Element::kU4:
    case Element::kS4:
      return is_of_shape(s, 8, 8, {32}) && sums_are(s, Element::kS32);
    case Element::kB1:
      return is_of_shape(s, 8, 8, {128}) && sums_are(s, Element::kS32);
    default:
      return false;
  }
}

bool mma_exists(const MatrixShape& s) {
  if (s.sparse) return sparse_mma_exists(s);
  if (s.wmma) return wmma_exists(s);
  const auto is = [&s](uint32_t m, uint32_t n, std::initializer_list<uint32_t> depths) {
    return is_of_shape(s, m, n, depths);
  };
  const bool f32 = sums_are(s, Element::kF32), s32 = sums_are(s, Element::kS32);
  const bool same = s.a == s.b, halves = sums_are(s, Element::kF16);
  if (s.of_quads())
    return same && sums_are_halves_or_floats(s) && (s.c == Element::kF16 || s.d == Element::kF32);
  if (s.a_column || s.b_row) return false;
  switch (s.a) {
    case Element::kF16:
      return same && is(16, 8, {8, 16}) && s.c == s.d && sums_are_halves_or_floats(s);
    case Element::kBf16:
      return same && is(16, 8, {8, 16}) && f32;
    case Element::kTf32:
      return same && is(16, 8, {4, 8}) && f32;
    case Element::kF64:
      return same && sums_are(s, Element::kF64) && (is(8, 8, {4}) || is(16, 8, {4, 8, 16}));
    case Element::kE4m3:
    case Element::kE5m2:
      return (s.b == Element::kE4m3 || s.b == Element::kE5m2) && is(16, 8, {16, 32}) &&
             (f32 || halves);
    case Element::kU8:
    case Element::kS8:
      return (s.b == Element::kU8 || s.b == Element::kS8) && s32 &&
             (is(8, 8, {16}) || is(16, 8, {16, 32}));
    case Element::kU4:
    case Element::kS4:
      return (s.b == Element::kU4 || s.b == Element::kS4) && s32 &&
             (is(8, 8, {32}) || is(16, 8, {32, 64}));
    case Element::kB1:
      return same && s32 && (is(8, 8, {128}) || is(16, 8, {128, 256}));
    default:
      return false;
  }
}

Type register_type(Element e) {
  return e == Element::kF64 ? Type::kF64 : e == Element::kF32 ? Type::kF32 : Type::kB32;
}

}  // namespace

// A brace list of exactly `count` registers.
bool Decoder::register_list(std::string_view list, size_t count, Type type, bool def,
                            std::vector<Operand>& out) {
  std::vector<std::string_view> names = braces(list);
  if (names.empty()) names.push_back(list);
  if (names.size() != count) return false;
  for (const std::string_view name : names) {
    Operand operand;
    if (def ? !destination(name, type, operand) : !source(name, type, operand)) return false;
    out.push_back(operand);
  }
  return true;
}

// mma.sync.aligned.shape.alayout.blayout[.satfinite].d.a.b.c[.xor|.and.popc], mma.sp with two more
// operands (metadata, selector), and
// wmma.mma.sync.aligned.alayout.blayout.shape.d[.a.b].c[.rn][.satfinite].
bool Decoder::do_mma() {
  MatrixShape s;
  s.wmma = words_[0] == "wmma";
  if (!take("sync") || !take("aligned")) return unsupported();
  s.sparse = !s.wmma && take_any({"sp", "sp::ordered_metadata"});
  if (uint64_t selector = 0; s.sparse) {
    if (operand_count() != 6 || !immediate(text(5), Type::kU32, selector)) return false;
    if (selector > 3) return unsupported();
    s.selector = static_cast<uint8_t>(selector);
  }
  if (!take_layouts(s)) return unsupported();
  s.saturate = take("satfinite");
  if (!take_shape_and_types(s)) return unsupported();
  if (s.a == Element::kB1) {
    s.bit_and = take("and");
    if ((!s.bit_and && !take("xor")) || !take("popc")) return unsupported();
  }
  if (s.a == Element::kF64) take("rn");  // as without
  if ((s.saturate && !is_integer(s.a)) || !mma_exists(s)) return unsupported();
  if (!all_taken() || operand_count() != (s.sparse ? 6u : 4u)) return false;
  std::vector<Operand> d, a, b, c, metadata;
  const auto list = [&](size_t k, Role role, Element e, bool def, std::vector<Operand>& out) {
    return register_list(text(k), fragment_of(s, role, e).registers, register_type(e), def, out);
  };
  if (!list(1, Role::kA, s.a, false, a) || !list(2, Role::kB, s.b, false, b) ||
      !list(3, Role::kC, s.c, false, c) || !list(0, Role::kC, s.d, true, d) ||
      (s.sparse && !register_list(text(4), 1, Type::kB32, false, metadata)))
    return false;
  emit("mma", 0, s.pack());
  emit_aux({constant(0xffffffffu, 4)}, false);
  append_aux(d, true);
  append_aux(a, false);
  append_aux(b, false);
  append_aux(c, false);
  append_aux(metadata, false);
  return true;
}

// Of wmma the fragments have the same order of elements whatever the layout in memory was.
bool Decoder::take_layouts(MatrixShape& s) {
  if (s.wmma) take("mma");
  size_t layouts = 0;
  for (size_t k = 1; k < words_.size() && layouts < 2; ++k) {
    if (words_[k] != "row" && words_[k] != "col") continue;
    taken_[k] = true;
    if (!s.wmma && layouts == 0) s.a_column = words_[k] == "col";
    if (!s.wmma && layouts == 1) s.b_row = words_[k] == "row";
    ++layouts;
  }
  return s.wmma || layouts == 2;
}

bool Decoder::take_shape_and_types(MatrixShape& s) {
  std::vector<Element> types;
  for (size_t k = 1; k < words_.size(); ++k) {
    Element e;
    if (taken_[k]) continue;
    if (s.m == 0 && shape_of(words_[k], s)) {
      taken_[k] = true;
    } else if (element_of(words_[k], e)) {
      taken_[k] = true;
      types.push_back(e);
    }
  }
  if (types.size() == 2 && s.wmma) types = {types[0], Element::kF16, Element::kF16, types[1]};
  if (types.size() != 4) return false;
  s.d = types[0];
  s.a = types[1];
  s.b = types[2];
  s.c = types[3];
  return true;
}

namespace {
// Whether some wmma.mma has such a fragment: its other types are whatever fits.
bool wmma_fragment_exists(const MatrixShape& s, Role role) {
  const auto fits = [&](Element a, Element c) {
    MatrixShape full = s;
    full.a = full.b = a;
    full.c = full.d = c;
    return (role == Role::kC ? c : a) == s.a && mma_exists(full);
  };
  for (const Element a : {Element::kF16, Element::kBf16, Element::kTf32, Element::kF64,
                          Element::kU8, Element::kS8, Element::kU4, Element::kS4, Element::kB1})
    for (const Element c : {Element::kF16, Element::kF32, Element::kF64, Element::kS32})
      if (fits(a, c)) return true;
  return false;
}
}  // namespace

// wmma.load.{a,b,c}.sync.aligned.layout.shape[.space].type r, [p][, stride];
// wmma.store.d.sync.aligned.layout.shape[.space].type [p], r[, stride];
bool Decoder::do_wmma() {
  if (words_.size() > 1 && words_[1] == "mma") return do_mma();
  const bool load = take("load");
  if (!load && !take("store")) return unsupported();
  if (!take("sync") || !take("aligned")) return unsupported();
  const bool a_matrix = load && take("a"), b_matrix = load && !a_matrix && take("b");
  if (!a_matrix && !b_matrix && !take(load ? "c" : "d")) return unsupported();
  const Role role = a_matrix ? Role::kA : b_matrix ? Role::kB : Role::kC;
  const bool columns = take("col");
  if (!columns && !take("row")) return unsupported();
  Space space;
  memory_space(space);
  MatrixShape s;
  s.wmma = true;
  bool typed = false;
  for (size_t k = 1; k < words_.size(); ++k) {
    if (taken_[k]) continue;
    if (shape_of(words_[k], s) || (!typed && element_of(words_[k], s.a))) {
      typed = typed || s.m == 0 || !shape_of(words_[k], s);
      taken_[k] = true;
    }
  }
  if (!wmma_fragment_exists(s, role)) return unsupported();
  // Less than a byte: one layout each.
  if (element_bits(s.a) < 8 && columns != b_matrix) return unsupported();
  if (!all_taken() || (operand_count() != 2 && operand_count() != 3)) return false;
  Address at;
  Operand stride;
  if (!address(text(load ? 1 : 0), at) || at.offset != static_cast<int32_t>(at.offset))
    return false;
  if (at.known_space && space == kSpaceGeneric) space = at.space;
  if (operand_count() == 3 && !source(text(2), Type::kU32, stride)) return false;
  std::vector<Operand> registers;
  if (!register_list(text(load ? 0 : 1), fragment_of(s, role, s.a).registers, register_type(s.a),
                     load, registers))
    return false;
  emit(load ? "wmmaload" : "wmmastore",
       static_cast<uint16_t>(space | (at.narrow ? kModAddress32 : 0)), s.pack(), {}, at.base,
       stride);
  emit_aux({constant(0xffffffffu, 4), raw(static_cast<uint32_t>(at.offset)),
            raw(static_cast<uint32_t>(role) | (columns ? 4u : 0u))},
           false);
  append_aux(registers, load);
  return true;
}

// ldmatrix.sync.aligned.m8n8.{x1,x2,x4}[.trans][.shared].b16 r, [p]; stmatrix likewise.
bool Decoder::do_ldmatrix() {
  const bool load = words_[0] == "ldmatrix";
  if (!take("sync") || !take("aligned") || !take("m8n8") || !take("b16")) return unsupported();
  const uint32_t matrices = take("x1") ? 1 : take("x2") ? 2 : take("x4") ? 4 : 0;
  const bool transposed = take("trans");
  Space space;
  memory_space(space);
  if (matrices == 0 || (space != kSpaceShared && space != kSpaceGeneric)) return unsupported();
  if (!all_taken() || operand_count() != 2) return false;
  Address at;
  std::vector<Operand> registers;
  if (!address(text(load ? 1 : 0), at) || at.offset != static_cast<int32_t>(at.offset))
    return false;
  if (at.known_space) space = at.space;
  if (!register_list(text(load ? 0 : 1), matrices, Type::kB32, load, registers)) return false;
  emit(load ? "ldmatrix" : "stmatrix",
       static_cast<uint16_t>(space | (at.narrow ? kModAddress32 : 0)),
       matrices | (transposed ? 8 : 0), {}, at.base);
  emit_aux({constant(0xffffffffu, 4), raw(static_cast<uint32_t>(at.offset))}, false);
  append_aux(registers, load);
  return true;
}

bool Decoder::do_movmatrix() {
  if (!take("sync") || !take("aligned") || !take("m8n8") || !take("trans") || !take("b16") ||
      !all_taken())
    return unsupported();
  Operand a, d;
  if (operand_count() != 2 || !source(text(1), Type::kB32, a) ||
      !destination(text(0), Type::kB32, d))
    return false;
  emit("movmatrix", 0, 0, {}, {}, a);
  emit_aux({constant(0xffffffffu, 4)}, false);
  append_aux({d}, true);
  return true;
}

}  // namespace sluice::exec::detail
