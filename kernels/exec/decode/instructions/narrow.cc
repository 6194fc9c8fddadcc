// SPDX-License-Identifier: Apache-2.0
// Half arithmetic with the rarer modifiers, narrow conversions, cvt.pack, pairs of 16-bit integers.
#include "kernels/exec/decode/decoder.h"
#include "kernels/exec/program/ops_narrow.h"

namespace sluice::exec::detail {
namespace {

int64_t half_code(HalfOperation op, Type type) {
  const bool bf16 = type == Type::kBf16 || type == Type::kBf16x2;
  const bool pair = type == Type::kF16x2 || type == Type::kBf16x2;
  return static_cast<int64_t>(op) | (bf16 ? kHalfBf16 : 0) | (pair ? kHalfPair : 0);
}

bool narrow_format(std::string_view word, NarrowFormat& format, bool& pair) {
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
  for (const Entry& e : kEntries) {
    if (e.name != word) continue;
    format = e.format;
    pair = e.pair;
    return true;
  }
  return false;
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
  NarrowFormat formats[2] = {};
  bool pairs[2] = {};
  size_t types = 0;
  bool fp8 = false, tf32 = false, modified = false, rna = false;
  std::string_view rounding;
  for (size_t k = 1; k < words_.size(); ++k) {
    NarrowFormat format;
    bool pair;
    if (narrow_format(words_[k], format, pair)) {
      if (types < 2) {
        formats[types] = format;
        pairs[types] = pair;
      }
      ++types;
      fp8 = fp8 || format == NarrowFormat::kE4m3 || format == NarrowFormat::kE5m2;
      tf32 = tf32 || format == NarrowFormat::kTf32;
    } else if (words_[k] == "satfinite") {
      modified = true;
    } else if (words_[k] == "rna") {
      rna = true;
    } else if (words_[k] == "rz") {
      rounding = "rz";
    }
  }
  const NarrowFormat to = formats[0], from = formats[1];
  const bool to_pair = pairs[0], from_pair = pairs[1];
  handled =
      types == 2 && (fp8 || (tf32 && !(rna && !modified)) ||
                     (from == NarrowFormat::kF32 && (modified || (to_pair && rounding == "rz"))));
  if (!handled) return true;
  bool given;
  const uint16_t round = take_rounding(kRn, given);
  const bool relu = take("relu"), finite = take("satfinite");
  for (size_t k = 1; k < words_.size(); ++k) {
    NarrowFormat format;
    bool pair;
    if (narrow_format(words_[k], format, pair)) taken_[k] = true;
  }
  const bool to_fp8 = to == NarrowFormat::kE4m3 || to == NarrowFormat::kE5m2;
  const bool from_fp8 = from == NarrowFormat::kE4m3 || from == NarrowFormat::kE5m2;
  const uint16_t mod =
      static_cast<uint16_t>(round | (relu ? kModRelu : 0) | (finite ? kModSat : 0));
  const int64_t code = static_cast<int64_t>(to) | static_cast<int64_t>(from) << 4;
  if (!given || round == kRm || round == kRp) return unsupported();
  if (from_fp8)
    return to == NarrowFormat::kF16 && to_pair && round == kRn && !finite
               ? simple("cvtnarrow", Type::kB32, {Type::kB16}, mod, code | kNarrowPair)
               : unsupported();
  if (to_fp8) {
    if (round != kRn || !finite) return unsupported();
    if (from == NarrowFormat::kF32)
      return simple("cvtnarrow", Type::kB16, {Type::kF32, Type::kF32}, mod, code | kNarrowPair);
    return from == NarrowFormat::kF16 && from_pair
               ? simple("cvtnarrow", Type::kB16, {Type::kB32}, mod, code | kNarrowPair)
               : unsupported();
  }
  if (from != NarrowFormat::kF32 || to == NarrowFormat::kF32) return unsupported();
  if (to == NarrowFormat::kTf32) {
    // With .rn and .rz saturation belongs to later chips.
    if (finite && round != kRna) return unsupported();
    return simple("cvtnarrow", Type::kB32, {Type::kF32}, mod, code);
  }
  if (round == kRna) return unsupported();
  if (to_pair)
    return simple("cvtnarrow", Type::kB32, {Type::kF32, Type::kF32}, mod, code | kNarrowPair);
  return simple("cvtnarrow", to == NarrowFormat::kF16 ? Type::kF16 : Type::kBf16, {Type::kF32}, mod,
                code);
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
  const bool s32 = words_.back() == "s32" && words_.size() == 3 && words_[1] == "relu";
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
