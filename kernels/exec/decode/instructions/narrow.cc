// SPDX-License-Identifier: Apache-2.0
// Half arithmetic with the rarer modifiers, narrow conversions, cvt.pack, pairs of 16-bit integers.
#include <optional>

#include "kernels/exec/decode/decoder.h"
#include "kernels/exec/program/ops_narrow.h"

namespace sluice::exec::detail {
namespace {

int64_t half_code(HalfOperation op, Type type) {
  const bool bf16 = type == Type::kBf16 || type == Type::kBf16x2;
  const bool pair = type == Type::kF16x2 || type == Type::kBf16x2;
  return static_cast<int64_t>(op) | (bf16 ? kHalfBf16 : 0) | (pair ? kHalfPair : 0);
}

// A format of one number, or of two in a register.
struct Format {
  NarrowFormat of = {};
  bool pair = false;
  bool is_fp8() const { return of == NarrowFormat::kE4m3 || of == NarrowFormat::kE5m2; }
};

std::optional<Format> format_of(std::string_view word) {
  struct Entry {
    std::string_view name;
    NarrowFormat format;
    bool pair;
  };
  static constexpr Entry kEntries[] = {
      {"f16", NarrowFormat::kF16, false},    {"bf16", NarrowFormat::kBf16, false},
      {"tf32", NarrowFormat::kTf32, false},  {"f32", NarrowFormat::kF32, false},
      {"f16x2", NarrowFormat::kF16, true},   {"bf16x2", NarrowFormat::kBf16, true},
      {"e4m3x2", NarrowFormat::kE4m3, true}, {"e5m2x2", NarrowFormat::kE5m2, true}};
  for (const Entry& e : kEntries)
    if (e.name == word) return Format{e.format, e.pair};
  return std::nullopt;
}

// What a cvt converts between, where it has two formats of these and do_cvt has no operation for
// that.
struct NarrowTypes {
  Format to, from;
};
std::optional<NarrowTypes> narrow_types(const std::vector<std::string_view>& words) {
  std::vector<Format> formats;
  bool finite = false, rna = false, rz = false;
  for (size_t k = 1; k < words.size(); ++k) {
    if (const auto format = format_of(words[k])) formats.push_back(*format);
    finite |= words[k] == "satfinite";
    rna |= words[k] == "rna";
    rz |= words[k] == "rz";
  }
  if (formats.size() != 2) return std::nullopt;
  const Format to = formats[0], from = formats[1];
  const bool fp8 = to.is_fp8() || from.is_fp8();
  const bool tf32 = to.of == NarrowFormat::kTf32 || from.of == NarrowFormat::kTf32;
  const bool of_f32 = from.of == NarrowFormat::kF32 && (finite || (to.pair && rz));
  if (!fp8 && !(tf32 && (!rna || finite)) && !of_f32) return std::nullopt;
  return NarrowTypes{to, from};
}

}  // namespace

// add, sub, mul, fma, min, max, neg, abs of halves with whatever modifiers the statement still has.
bool Decoder::half_any(std::string_view name, Type type, uint16_t mod) {
  static constexpr std::pair<std::string_view, HalfOperation> kNames[] = {
      {"add", HalfOperation::kAdd}, {"sub", HalfOperation::kSub}, {"mul", HalfOperation::kMul},
      {"fma", HalfOperation::kFma}, {"min", HalfOperation::kMin}, {"max", HalfOperation::kMax},
      {"neg", HalfOperation::kNeg}, {"abs", HalfOperation::kAbs}};
  const bool bf16 = type == Type::kBf16 || type == Type::kBf16x2;
  if (take("ftz")) mod |= kModFtz;
  if (take("sat")) mod |= kModSat;
  if (take("relu")) mod |= kModRelu;
  if (bf16 && (mod & (kModFtz | kModSat)) != 0) return unsupported();
  for (const auto& [known, op] : kNames) {
    if (known != name) continue;
    const int64_t code = half_code(op, type);
    if (op == HalfOperation::kFma) return simple("halfany", type, {type, type, type}, mod, code);
    if (op == HalfOperation::kNeg || op == HalfOperation::kAbs)
      return simple("halfany", type, {type}, mod, code);
    if ((mod & kModRelu) != 0) return unsupported();
    return simple("halfany", type, {type, type}, mod, code);
  }
  return unsupported();
}

// A half or pair with its subnormals flushed.
Operand Decoder::flushed_half(Operand value, Type type) {
  const Operand flushed = temporary(4);
  emit("halfany", kModFtz, half_code(HalfOperation::kFlush, type), flushed, value);
  return flushed;
}

// cvt between fp8, tf32, halves and f32 beyond what do_cvt has operations for. `handled` false:
// none of those.
bool Decoder::cvt_narrow(bool& handled) {
  const auto types = narrow_types(words_);
  handled = types.has_value();
  if (!handled) return true;
  const auto [to, from] = *types;
  bool given;
  const uint16_t round = take_rounding(kRn, given);
  const bool relu = take("relu"), finite = take("satfinite");
  for (size_t k = 1; k < words_.size(); ++k)
    if (format_of(words_[k])) taken_[k] = true;
  const uint16_t mod =
      static_cast<uint16_t>(round | (relu ? kModRelu : 0) | (finite ? kModSat : 0));
  const int64_t code = static_cast<int64_t>(to.of) | static_cast<int64_t>(from.of) << 4;
  const auto convert = [&](Type result, std::initializer_list<Type> sources, bool pair) {
    return simple("cvtnarrow", result, sources, mod, code | (pair ? kNarrowPair : 0));
  };
  if (!given || round == kRm || round == kRp) return unsupported();
  if (from.is_fp8())
    return to.of == NarrowFormat::kF16 && to.pair && round == kRn && !finite
               ? convert(Type::kB32, {Type::kB16}, true)
               : unsupported();
  if (to.is_fp8()) {
    if (round != kRn || !finite) return unsupported();
    if (from.of == NarrowFormat::kF32) return convert(Type::kB16, {Type::kF32, Type::kF32}, true);
    return from.of == NarrowFormat::kF16 && from.pair ? convert(Type::kB16, {Type::kB32}, true)
                                                      : unsupported();
  }
  if (from.of != NarrowFormat::kF32 || to.of == NarrowFormat::kF32) return unsupported();
  if (to.of == NarrowFormat::kTf32)  // with .rn and .rz saturation belongs to later chips
    return finite && round != kRna ? unsupported() : convert(Type::kB32, {Type::kF32}, false);
  if (round == kRna) return unsupported();
  if (to.pair) return convert(Type::kB32, {Type::kF32, Type::kF32}, true);
  return convert(to.of == NarrowFormat::kF16 ? Type::kF16 : Type::kBf16, {Type::kF32}, false);
}

// cvt.pack.sat.{u16,s16}.s32 d, a, b; cvt.pack.sat.{u8,s8,u4,s4,u2,s2}.s32.b32 d, a, b, c.
bool Decoder::cvt_pack() {
  if (!take("pack") || !take("sat") || !take("s32")) return unsupported();
  const bool three = take("b32");
  for (const int bits : {16, 8, 4, 2}) {
    for (const bool is_signed : {false, true}) {
      if (!take((is_signed ? "s" : "u") + std::to_string(bits))) continue;
      if ((bits == 16) == three) return unsupported();
      const int64_t code = bits | (is_signed ? 256 : 0);
      return three ? simple("cvtpack", Type::kB32, {Type::kS32, Type::kS32, Type::kB32}, 0, code)
                   : simple("cvtpack", Type::kB32, {Type::kS32, Type::kS32}, 0, code);
    }
  }
  return unsupported();
}

// add, min and max of .u16x2 and .s16x2; min.relu and max.relu of .s16x2 and .s32. `handled` false:
// none of those.
bool Decoder::integer_pair(bool& handled) {
  const bool s32 = words_.size() == 3 && (words_[1] == "relu" || words_[2] == "relu") &&
                   (words_[1] == "s32" || words_[2] == "s32");
  const bool is_unsigned = take("u16x2"), is_signed = take("s16x2");
  handled = is_unsigned || is_signed || s32;
  if (!handled) return true;
  const bool relu = take("relu");
  if (relu && is_unsigned) return unsupported();
  PairOperation op;
  if (words_[0] == "add" && !relu)
    op = PairOperation::kAdd;
  else if (words_[0] == "min")
    op = s32 ? PairOperation::kMinS32 : is_signed ? PairOperation::kMinS : PairOperation::kMinU;
  else if (words_[0] == "max")
    op = s32 ? PairOperation::kMaxS32 : is_signed ? PairOperation::kMaxS : PairOperation::kMaxU;
  else
    return unsupported();
  if (s32) take("s32");
  return simple("pair16", Type::kB32, {Type::kB32, Type::kB32}, relu ? kModRelu : kModNone,
                static_cast<int64_t>(op));
}

}  // namespace sluice::exec::detail
