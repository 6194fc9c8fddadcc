// SPDX-License-Identifier: Apache-2.0
// Instructions that programs use seldom: hints, 128-bit moves and atomics, vector atomics.
#include "kernels/exec/program/rare.h"
#include "kernels/exec/decode/decoder.h"

namespace sluice::exec::detail {

bool Decoder::has_word(std::string_view word) const {
  for (size_t k = 1; k < words_.size(); ++k)
    if (words_[k] == word) return true;
  return false;
}

// prefetch, prefetchu, discard, applypriority: nothing that a program could see. Their addresses
// need not even be valid.
bool Decoder::do_prefetch() {
  const bool sized = words_[0] == "discard" || words_[0] == "applypriority";
  Address at;
  uint64_t bytes;
  if (operand_count() != (sized ? 2u : 1u) || !address(text(0), at)) return false;
  return !sized || (immediate(text(1), Type::kU32, bytes) && bytes == 128);
}

// How many registers a warp has is nothing that it can see, but the wrong way round is undefined.
bool Decoder::do_setmaxnreg() {
  const bool more = take("inc");
  uint64_t count;
  if (operand_count() != 1 || !immediate(text(0), Type::kU32, count) || count < 24 || count > 256 ||
      count % 8 != 0)
    return false;
  emit("setmaxnreg", 0, static_cast<int64_t>(count) * 2 + (more ? 1 : 0));
  return true;
}

bool Decoder::do_mapa() {
  const bool generic = !take("shared::cluster");
  const Type type = take_type();
  Operand a, rank, d;
  if (operand_count() != 3 || !source(text(1), type, a) || !source(text(2), Type::kU32, rank) ||
      !destination(text(0), type, d))
    return false;
  emit("mapa", 0, (generic ? 1 : 0) | (bits_of(type) == 64 ? 2 : 0), d, a, rank);
  return true;
}
bool Decoder::do_getctarank() {
  const bool generic = !take("shared::cluster");
  const Type type = take_type();
  Operand a, d;
  if (operand_count() != 2 || !source(text(1), type, a) || !destination(text(0), Type::kU32, d))
    return false;
  emit("getctarank", 0, (generic ? 1 : 0) | (bits_of(type) == 64 ? 2 : 0), d, a);
  return true;
}

bool Decoder::pair128(std::string_view text, bool destination, Operand (&out)[2]) {
  Register reg;
  if (destination && text == "_") {
    out[0] = temporary(8);
    out[1] = temporary(8);
    return true;
  }
  if (!find_register(text, reg) || reg.width != 16) return false;
  out[0] = {Operand::Kind::kRegister, reg.index};
  out[1] = {Operand::Kind::kRegister, reg.index + 1};
  return true;
}

bool Decoder::do_mov128() {
  const std::vector<std::string_view> to = braces(text(0)), from = braces(text(1));
  Operand a[2], d[2];
  const auto halves = [this](const std::vector<std::string_view>& parts, bool destination_,
                             Operand(&out)[2]) {
    if (parts.size() != 2) return false;
    for (size_t k = 0; k < 2; ++k)
      if (destination_ ? !destination(parts[k], Type::kB64, out[k])
                       : !source(parts[k], Type::kB64, out[k]))
        return false;
    return true;
  };
  if (from.empty() ? !pair128(text(1), false, a) : !halves(from, false, a)) return false;
  if (to.empty() ? !pair128(text(0), true, d) : !halves(to, true, d)) return false;
  // One of the halves may be both a source and a destination.
  const Operand low = temporary(8);
  emit("mov_b64", 0, 0, low, a[0]);
  emit("mov_b64", 0, 0, d[1], a[1]);
  emit("mov_b64", 0, 0, d[0], low);
  return true;
}

bool Decoder::do_atom128(Space space) {
  const bool cas = has_word("cas"), hint = has_word("L2::cache_hint");
  if (operand_count() != (cas ? 4u : 3u) + (hint ? 1u : 0u)) return false;
  Address at;
  Operand b[2], c[2], d[2];
  if (!address(text(1), at) || !pair128(text(2), false, b) ||
      (cas && !pair128(text(3), false, c)) || !pair128(text(0), true, d))
    return false;
  if (at.known_space && space == kSpaceGeneric) space = at.space;
  emit("atom128", static_cast<uint16_t>(space | (at.narrow ? kModAddress32 : 0)), at.offset, {},
       at.base);
  emit_aux({b[0], b[1], cas ? c[0] : raw(kNoOperand), cas ? c[1] : raw(kNoOperand)}, false);
  const uint32_t aux = code_.back().aux;
  emit_aux({d[0], d[1]}, true);
  code_.back().aux = aux;  // the two lists are one
  return true;
}

bool Decoder::do_atom_vector(bool reduction, Space space) {
  const size_t vector = has_word("v2") ? 2 : has_word("v4") ? 4 : 8;
  const bool hint = has_word("L2::cache_hint");
  const Type type = first_type();
  AtomVectorForm f;
  f.op = has_word("add") ? 0 : has_word("min") ? 1 : 2;
  f.element = type == Type::kF32                           ? kElementF32
              : type == Type::kF16 || type == Type::kF16x2 ? kElementF16
                                                           : kElementBf16;
  f.pairs = type == Type::kF16x2 || type == Type::kBf16x2 ? 1 : 0;
  f.count = static_cast<uint32_t>(vector);
  f.returns = reduction ? 0 : 1;
  const size_t first = reduction ? 0 : 1;
  if (operand_count() != first + 2 + (hint ? 1u : 0u)) return false;
  Address at;
  if (!address(text(first), at)) return false;
  if (at.known_space && space == kSpaceGeneric) space = at.space;
  if (space == kSpaceShared || space == kSpaceCluster) return unsupported();
  const std::vector<std::string_view> from = braces(text(first + 1));
  if (from.size() != vector) return false;
  std::vector<Operand> aux = {raw(f.op), raw(f.element), raw(f.pairs), raw(f.count),
                              raw(f.returns)};
  static_assert(sizeof(AtomVectorForm) == 5 * 4);
  for (const std::string_view part : from) {
    Operand value;
    if (!source(part, type, value)) return false;
    aux.push_back(value);
  }
  std::vector<Operand> to;
  if (!reduction) {
    const std::vector<std::string_view> parts = braces(text(0));
    if (parts.size() != vector) return false;
    for (const std::string_view part : parts) {
      Operand value;
      if (!destination(part, type, value)) return false;
      to.push_back(value);
    }
  }
  emit("atomvec", static_cast<uint16_t>(space | (at.narrow ? kModAddress32 : 0)), at.offset, {},
       at.base);
  emit_aux(aux, false);
  const uint32_t begin = code_.back().aux;
  emit_aux(to, true);
  code_.back().aux = begin;
  return true;
}

}  // namespace sluice::exec::detail
