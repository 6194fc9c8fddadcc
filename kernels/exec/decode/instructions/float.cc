// SPDX-License-Identifier: Apache-2.0
// Floating-point instructions.
#include "kernels/exec/decode/decoder.h"

namespace sluice::exec::detail {

// add, sub, mul, div of any floating type; `name` is "fadd" and so on.
bool Decoder::float_binary(const char* name, Type type, bool may_round) {
  bool given;
  const uint16_t round = take_rounding(kRn, given);
  const bool ftz = take("ftz"), sat = take("sat");
  const std::string base(name);
  switch (type) {
    case Type::kF32:
      if (round != kRn || sat) {
        if (!may_round) return unsupported();
        return simple(base + "_rnd_f32", type, {type, type},
                      static_cast<uint16_t>(round | (ftz ? kModFtz : 0) | (sat ? kModSat : 0)));
      }
      return simple(base + (ftz ? "_ftz_f32" : "_f32"), type, {type, type});
    case Type::kF64:
      if (sat || ftz) return unsupported();
      return round != kRn ? simple(base + "_rnd_f64", type, {type, type}, round)
                          : simple(base + "_f64", type, {type, type});
    default:
      break;
  }
  if (round != kRn || (sat && (type == Type::kBf16 || type == Type::kBf16x2)) || base == "fdiv")
    return unsupported();
  if (ftz) {
    if (type == Type::kBf16 || type == Type::kBf16x2) return unsupported();
    return half_any(base.substr(1), type, static_cast<uint16_t>(kModFtz | (sat ? kModSat : 0)));
  }
  if (!simple(base + "_" + exact_name(type), type, {type, type})) return false;
  if (sat) {
    Operand d;
    if (!destination(text(0), type, d)) return false;
    emit(std::string("hsat_") + exact_name(type), 0, 0, d, d);
  }
  return true;
}

bool Decoder::do_fma() {
  Type type = take_type();
  if (type == Type::kNone) type = first_type();  // mad has taken it
  bool given;
  const uint16_t round = take_rounding(kRn, given);
  const bool ftz = take("ftz"), sat = take("sat"), relu = take("relu");
  if (type == Type::kF32 && !relu) {
    if (round != kRn || sat)
      return simple("ffma_rnd_f32", type, {type, type, type},
                    static_cast<uint16_t>(round | (ftz ? kModFtz : 0) | (sat ? kModSat : 0)));
    return simple(ftz ? "ffma_ftz_f32" : "ffma_f32", type, {type, type, type});
  }
  if (type == Type::kF64 && !relu && !sat && !ftz)
    return round != kRn ? simple("ffma_rnd_f64", type, {type, type, type}, round)
                        : simple("ffma_f64", type, {type, type, type});
  if (!is_float(type) || bits_of(type) == 64 || type == Type::kF32 || round != kRn ||
      (sat && (type == Type::kBf16 || type == Type::kBf16x2)))
    return unsupported();
  if (ftz)
    return half_any("fma", type,
                    static_cast<uint16_t>(kModFtz | (sat ? kModSat : 0) | (relu ? kModRelu : 0)));
  if (!simple(std::string("ffma_") + exact_name(type), type, {type, type, type})) return false;
  if (sat || relu) {
    Operand d;
    if (!destination(text(0), type, d)) return false;
    emit(std::string(sat ? "hsat_" : "hrelu_") + exact_name(type), 0, 0, d, d);
  }
  return true;
}

// rcp, sqrt, rsqrt, sin, cos, ex2, lg2, tanh
bool Decoder::do_float_unary() {
  std::string base("f");
  base.append(words_[0]);
  const Type type = take_type();
  const bool approx = take("approx");
  bool given;
  const uint16_t round = take_rounding(kRn, given);
  const bool ftz = take("ftz");
  const bool algebraic = base == "frcp" || base == "fsqrt" || base == "frsqrt";
  if (type == Type::kF64) {
    if (!algebraic) return unsupported();
    if (ftz) {
      Operand a, d;
      if (!all_taken() || operand_count() != 2 || !source(text(1), type, a) ||
          !destination(text(0), type, d))
        return false;
      const Operand flat = temporary(8);
      emit("flush_f64", 0, 0, flat, a);
      emit(base + "_f64", 0, 0, d, flat);
      emit("flush_f64", 0, 0, d, d);
      return true;
    }
    return round != kRn && base != "frsqrt" ? simple(base + "_rnd_f64", type, {type}, round)
                                            : simple(base + "_f64", type, {type});
  }
  if (type == Type::kF32) {
    if (algebraic) {
      if (round != kRn && !approx)
        return simple(base + "_rnd_f32", type, {type},
                      static_cast<uint16_t>(round | (ftz ? kModFtz : 0)));
      return simple(base + (ftz ? "_ftz_f32" : "_f32"), type, {type});
    }
    return simple(base + "_f32", type, {type}, ftz ? kModFtz : kModNone);
  }
  if (base != "fex2" && base != "ftanh") return unsupported();
  return simple(base + "_" + exact_name(type), type, {type});
}

bool Decoder::do_copysign() {
  const Type type = take_type();
  return simple(std::string("copysign_") + exact_name(type), type, {type, type});
}

bool Decoder::do_testp() {
  static constexpr std::string_view properties[] = {"finite",     "infinite", "number",
                                                    "notanumber", "normal",   "subnormal"};
  int64_t property = -1;
  for (int64_t k = 0; k < 6; ++k)
    if (take(properties[k])) property = k;
  const Type type = take_type();
  if (property < 0 || !all_taken()) return unsupported();
  Operand a;
  uint32_t p;
  if (operand_count() != 2 || !destination_pred(text(0), p) || p == kNoOperand ||
      !source(text(1), type, a))
    return false;
  emit(std::string("testp_") + exact_name(type), 0, property, {Operand::Kind::kRaw, p}, a);
  return true;
}

}  // namespace sluice::exec::detail
