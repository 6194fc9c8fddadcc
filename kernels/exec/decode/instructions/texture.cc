// SPDX-License-Identifier: Apache-2.0
// Texture and surface instructions through 64-bit handles: tex, tld4, txq, suld, sust, sured, suq.
#include "kernels/exec/decode/decoder.h"
#include "kernels/exec/program/ops_texture.h"

namespace sluice::exec::detail {

bool Decoder::texture_geometry(TextureAccess& access) {
  if (take("1d")) {
    access.dimensions = 1;
  } else if (take("2d")) {
    access.dimensions = 2;
  } else if (take("3d")) {
    access.dimensions = 3;
  } else if (take("a1d")) {
    access.dimensions = 1;
    access.layered = true;
  } else if (take("a2d")) {
    access.dimensions = 2;
    access.layered = true;
  } else if (take("cube")) {
    access.dimensions = 3;
    access.cube = true;
  } else if (take("acube")) {
    access.dimensions = 3;
    access.cube = access.layered = true;
  } else {
    return unsupported();  // multisampled textures
  }
  return true;
}

// "[handle, {coordinates}]" into the handle and x, y, z, layer.
bool Decoder::texture_point(std::string_view operand, const TextureAccess& access, Operand& handle,
                            std::vector<Operand>& point) {
  operand = ptx::trimmed(operand);
  if (operand.size() < 2 || operand.front() != '[' || operand.back() != ']') return false;
  operand = operand.substr(1, operand.size() - 2);
  const size_t comma = operand.find(',');
  if (comma == std::string_view::npos) return false;
  const std::string_view name = ptx::trimmed(operand.substr(0, comma));
  Register reg;
  if (!find_register(name, reg) || reg.is_pred || reg.width != 8)
    return absent("textures and surfaces are supported through 64-bit handles only");
  handle = {Operand::Kind::kRegister, reg.index};
  const std::string_view rest = ptx::trimmed(operand.substr(comma + 1));
  std::vector<std::string_view> names = braces(rest);
  if (names.empty()) names.push_back(rest);
  // The manual has vectors of 1, 2 or 4: the rest is not read.
  const size_t needed = access.dimensions + (access.layered ? 1u : 0u);
  if (names.size() < needed || names.size() > 4) return false;
  point.assign(4, Operand{Operand::Kind::kRaw, kNoOperand});
  size_t k = 0;
  if (access.layered && !source(names[k++], Type::kB32, point[3])) return false;
  for (size_t d = 0; d < access.dimensions; ++d)
    if (!source(names[k++], access.float_coordinates ? Type::kF32 : Type::kB32, point[d]))
      return false;
  return true;
}

// tex[.base|.level|.grad].geometry.v4.{f32,u32,s32}.{f32,s32} d, [t, c][, level | dx, dy];
// tld4.{r,g,b,a}.2d.v4.{f32,u32,s32}.f32 d, [t, c];
bool Decoder::do_tex() {
  TextureAccess access;
  access.gather = words_[0] == "tld4";
  if (access.gather) {
    bool known = false;
    for (uint8_t k = 0; k < 4 && !known; ++k) {
      known = take(std::string_view("rgba").substr(k, 1));
      access.component = k;
    }
    if (!known) return unsupported();
  } else {
    if (take("level"))
      access.mip = MipLevel::kLevel;
    else if (take("grad"))
      access.mip = MipLevel::kGradient;
    else
      take("base");
  }
  if (!texture_geometry(access) || !take("v4")) return unsupported();
  if (access.gather && (access.dimensions != 2 || access.layered)) return unsupported();
  if (access.cube && access.mip == MipLevel::kGradient) return unsupported();
  const Type d = take_type(), c = take_type();
  if ((d != Type::kF32 && d != Type::kU32 && d != Type::kS32) ||
      (c != Type::kF32 && (c != Type::kS32 || access.gather)))
    return unsupported();
  access.float_result = d == Type::kF32;
  access.float_coordinates = c == Type::kF32;
  if (access.cube && !access.float_coordinates) return unsupported();
  if (access.mip == MipLevel::kGradient && !access.float_coordinates) return unsupported();
  if (!all_taken() || operand_count() != 2u + static_cast<unsigned>(access.mip))
    return unsupported();
  size_t bar = text(0).find('|');
  if (bar != std::string_view::npos) return unsupported();  // residency
  Operand handle;
  std::vector<Operand> point, results;
  if (!texture_point(text(1), access, handle, point)) return false;
  const std::vector<std::string_view> names = braces(text(0));
  if (names.size() != 4) return false;
  for (const std::string_view name : names) {
    Operand r{Operand::Kind::kRaw, kNoOperand};
    if (name != "_" && !destination(name, d, r)) return false;
    results.push_back(r);
  }
  emit("tex", 0, access.pack(), {}, handle);
  emit_aux(point, false);
  append_aux(results, true);
  std::vector<Operand> mip;
  if (!mip_operands(access, mip)) return false;
  append_aux(mip, false);
  return true;
}

// The level of a fetch, or its two gradients of three components each.
bool Decoder::mip_operands(const TextureAccess& access, std::vector<Operand>& mip) {
  if (access.mip == MipLevel::kLevel) {
    const Type type = access.float_coordinates ? Type::kF32 : Type::kB32;
    return source(text(2), type, mip.emplace_back());
  }
  for (unsigned k = 2; access.mip == MipLevel::kGradient && k < 4; ++k) {
    std::vector<std::string_view> names = braces(text(k));
    if (names.empty()) names.push_back(text(k));
    if (names.size() < access.dimensions || names.size() > 4) return false;
    for (size_t d = 0; d < 3; ++d) {
      Operand& one = mip.emplace_back(Operand{Operand::Kind::kRaw, kNoOperand});
      if (d < access.dimensions && !source(names[d], Type::kF32, one)) return false;
    }
  }
  return true;
}

// txq.{width,height,depth,array_size,num_mipmap_levels}.b32 d, [t]; suq likewise.
bool Decoder::do_txq() {
  TextureAccess access;
  access.clamp = words_[0] == "suq" ? 1 : 0;
  if (take("width"))
    access.operation = 0;
  else if (take("height"))
    access.operation = 1;
  else if (take_any({"depth", "array_size"}))
    access.operation = 2;
  else if (access.clamp == 0 && take("num_mipmap_levels"))
    access.operation = 3;
  else
    return unsupported();
  if (!take("b32") || !all_taken() || operand_count() != 2) return unsupported();
  Operand d;
  Address at;
  if (!address(text(1), at) || at.base.kind != Operand::Kind::kRegister || at.narrow ||
      at.offset != 0 || !destination(text(0), Type::kB32, d))
    return false;
  emit("txq", 0, access.pack(), d, at.base);
  return true;
}

// suld.b.geometry[.cop][.vec].type.clamp d, [s, c]; sust.b likewise [s, c], d;
// sured.b.geometry.op.type.clamp [s, c], d. x counts bytes.
bool Decoder::do_surface() {
  TextureAccess access;
  const bool load = words_[0] == "suld", store = words_[0] == "sust";
  if (!take("b")) return unsupported();
  if (!texture_geometry(access)) return false;
  if (access.cube) return unsupported();  // a face is a layer there
  take_any({"ca", "cg", "cs", "cv", "wb", "wt"});
  if (!load && !store) {
    access.operation = take("add")   ? 0
                       : take("min") ? 1
                       : take("max") ? 2
                       : take("and") ? 3
                       : take("or")  ? 4
                                     : 255;
    if (access.operation == 255) return unsupported();
  }
  access.elements = take("v2") ? 2 : take("v4") ? 4 : 1;
  const Type type = take_type();
  if (type == Type::kNone || type == Type::kPred || bits_of(type) * access.elements > 128)
    return unsupported();
  access.bytes = static_cast<uint8_t>(bits_of(type) / 8);
  access.is_signed = is_signed(type);
  access.clamp = take("trap") ? 0 : take("clamp") ? 1 : take("zero") ? 2 : 0;
  if (!all_taken() || operand_count() != 2) return false;
  if (!load && !store && (is_float(type) || access.bytes < 4 || access.elements != 1))
    return unsupported();
  Operand handle;
  std::vector<Operand> point, values;
  if (!texture_point(text(load ? 1 : 0), access, handle, point) ||
      !register_list(text(load ? 0 : 1), access.elements, type, load, values))
    return false;
  emit(words_[0], 0, access.pack(), {}, handle);
  emit_aux(point, false);
  append_aux(values, load);
  return true;
}

}  // namespace sluice::exec::detail
