// SPDX-License-Identifier: Apache-2.0
// Operands: registers, immediates, special registers, variables and addresses.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "kernels/exec/decode/decoder.h"

namespace sluice::exec::detail {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool parse_hex(std::string_view digits, uint64_t& value) {
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return code == std::errc() && end == digits.data() + digits.size();
}

uint64_t bits_of_float(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return bits;
}
uint64_t bits_of_double(double d) {
  uint64_t bits;
  std::memcpy(&bits, &d, 8);
  return bits;
}

// 0fXXXXXXXX, 0dXXXXXXXXXXXXXXXX or a decimal fraction, as bits of `type`. `is_float` false: it is
// none of these. False: it is one, and malformed.
bool floating_immediate(std::string_view text, bool negative, Type type, uint64_t& value,
                        bool& is_float) {
  is_float = true;
  const char kind = text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : ' ';
  if (kind == 'f' && text.size() == 10) {
    if (!parse_hex(text.substr(2), value)) return false;
    if (negative) value ^= 0x80000000u;
    if (type != Type::kF64) return true;
    float f;
    const auto bits = static_cast<uint32_t>(value);
    std::memcpy(&f, &bits, 4);
    value = bits_of_double(f);
    return true;
  }
  if (kind == 'd' && text.size() == 18) {
    if (!parse_hex(text.substr(2), value)) return false;
    if (negative) value ^= 1ull << 63;
    if (type != Type::kF32) return true;
    double d;
    std::memcpy(&d, &value, 8);
    value = bits_of_float(static_cast<float>(d));
    return true;
  }
  const bool fraction = text.find('.') != std::string_view::npos ||
                        (text.find_first_of("eE") != std::string_view::npos && kind != 'x');
  is_float = is_digit(text[0]) && fraction;
  if (!is_float) return true;
  double d = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), d);
  if (code != std::errc() || end != text.data() + text.size()) return false;
  if (negative) d = -d;
  value = type == Type::kF32 ? bits_of_float(static_cast<float>(d)) : bits_of_double(d);
  return true;
}

struct SpecialRegister {
  Special special;
  uint8_t width;
};
const std::unordered_map<std::string_view, SpecialRegister> kSpecialRegisters = {
    {"%tid.x", {Special::kTidX, 4}},
    {"%tid.y", {Special::kTidY, 4}},
    {"%tid.z", {Special::kTidZ, 4}},
    {"%ntid.x", {Special::kNtidX, 4}},
    {"%ntid.y", {Special::kNtidY, 4}},
    {"%ntid.z", {Special::kNtidZ, 4}},
    {"%ctaid.x", {Special::kCtaidX, 4}},
    {"%ctaid.y", {Special::kCtaidY, 4}},
    {"%ctaid.z", {Special::kCtaidZ, 4}},
    {"%nctaid.x", {Special::kNctaidX, 4}},
    {"%nctaid.y", {Special::kNctaidY, 4}},
    {"%nctaid.z", {Special::kNctaidZ, 4}},
    {"%laneid", {Special::kLaneId, 4}},
    {"%warpid", {Special::kWarpId, 4}},
    {"%nwarpid", {Special::kNwarpId, 4}},
    {"%smid", {Special::kSmId, 4}},
    {"%nsmid", {Special::kNsmId, 4}},
    {"%gridid", {Special::kGridId, 8}},
    {"%lanemask_eq", {Special::kMaskEq, 4}},
    {"%lanemask_lt", {Special::kMaskLt, 4}},
    {"%lanemask_le", {Special::kMaskLe, 4}},
    {"%lanemask_gt", {Special::kMaskGt, 4}},
    {"%lanemask_ge", {Special::kMaskGe, 4}},
    {"%clock", {Special::kClock, 4}},
    {"%clock_hi", {Special::kClockHi, 4}},
    {"%clock64", {Special::kClock64, 8}},
    {"%globaltimer", {Special::kGlobalTimer, 8}},
    {"%globaltimer_lo", {Special::kGlobalTimerLo, 4}},
    {"%globaltimer_hi", {Special::kGlobalTimerHi, 4}},
    {"%dynamic_smem_size", {Special::kDynamicSmem, 4}},
    {"%total_smem_size", {Special::kTotalSmem, 4}},
    {"%aggr_smem_size", {Special::kTotalSmem, 4}},
    {"%clusterid.x", {Special::kClusterIdX, 4}},
    {"%clusterid.y", {Special::kClusterIdY, 4}},
    {"%clusterid.z", {Special::kClusterIdZ, 4}},
    {"%nclusterid.x", {Special::kNclusterIdX, 4}},
    {"%nclusterid.y", {Special::kNclusterIdY, 4}},
    {"%nclusterid.z", {Special::kNclusterIdZ, 4}},
    {"%cluster_ctaid.x", {Special::kClusterCtaidX, 4}},
    {"%cluster_ctaid.y", {Special::kClusterCtaidY, 4}},
    {"%cluster_ctaid.z", {Special::kClusterCtaidZ, 4}},
    {"%cluster_nctaid.x", {Special::kClusterNctaidX, 4}},
    {"%cluster_nctaid.y", {Special::kClusterNctaidY, 4}},
    {"%cluster_nctaid.z", {Special::kClusterNctaidZ, 4}},
    {"%cluster_ctarank", {Special::kClusterCtaRank, 4}},
    {"%cluster_nctarank", {Special::kClusterNctaRank, 4}},
    {"%envreg1", {Special::kGridWorkspaceHi, 4}},
    {"%envreg2", {Special::kGridWorkspaceLo, 4}},
    // Nothing of the block's shared memory is reserved.
    {"%reserved_smem_offset_begin", {Special::kReservedBegin, 4}},
    {"%reserved_smem_offset_end", {Special::kReservedEnd, 4}},
    {"%reserved_smem_offset_cap", {Special::kReservedCap, 4}},
    {"%reserved_smem_offset_0", {Special::kReserved0, 4}},
    {"%reserved_smem_offset_1", {Special::kReserved1, 4}}};

// What a driver may tell kernels: nothing but where the grid's barrier is. Counters that nobody has
// set up, and the graph that launched the kernel from the GPU.
bool is_always_zero(std::string_view name) {
  if (name == "%current_graph_exec") return true;
  const bool counter = name.starts_with("%pm");
  if (counter && name.ends_with("_64")) name.remove_suffix(3);
  const std::string_view prefix = counter ? "%pm" : "%envreg";
  uint64_t number;
  return name.starts_with(prefix) && name != "%envreg1" && name != "%envreg2" &&
         ptx::parse_integer(name.substr(prefix.size()), number) && number < (counter ? 8u : 32u);
}

}  // namespace

bool Decoder::declare_registers() {
  std::vector<const ptx::Variable*> all;
  for (const auto* list : {&function_.params, &function_.returns, &function_.variables})
    for (const ptx::Variable& v : *list) all.push_back(&v);
  for (const ptx::Variable* each : all) {
    const ptx::Variable& v = *each;
    if (v.space == ptx::Space::kSreg)
      return error_ = {ENOTSUP, "line " + std::to_string(v.line) + ": .sreg is not supported"},
             false;
    if (v.space != ptx::Space::kReg) continue;
    const Type type = type_of(v.type);
    const bool vector = v.vector_width != 1;
    const bool scalar = type != Type::kNone && type != Type::kPred && bits_of(type) <= 64;
    if (type == Type::kNone || (vector && (v.vector_width > 4 || !scalar)))
      return error_ = {ENOTSUP, "line " + std::to_string(v.line) + ": registers of type " +
                                    (vector ? "vector of " : "") + std::string(v.type) +
                                    " are not supported"},
             false;
    const uint32_t count = v.register_count == 0 ? 1 : v.register_count;
    RegisterSet set;
    set.count = v.register_count;
    set.first.is_pred = type == Type::kPred;
    set.first.width = type == Type::kB128 ? 16 : bits_of(type) == 64 ? 8 : 4;
    set.first.bits = static_cast<uint8_t>(bits_of(type));
    if (vector) set.first.parts = static_cast<uint8_t>(v.vector_width);
    has_vectors_ |= vector;
    const uint32_t parts = type == Type::kB128 ? 2 : v.vector_width;  // registers
    if (count > (1u << 24) || (set.first.is_pred && count > (1u << 20)))
      return error_ = {0, "line " + std::to_string(v.line) + ": too many registers"}, false;
    if (set.first.is_pred) {
      set.first.index = module_.program->code.predicates;
      module_.program->code.predicates += count;
    } else {
      set.first.index = static_cast<uint32_t>(vreg_width_.size());
      // A guest may declare more than it uses; a name costs one byte here, a use costs a slot.
      if (vreg_width_.size() + size_t{count} * parts > (16u << 20))
        return error_ = {0, "line " + std::to_string(v.line) + ": too many registers"}, false;
      vreg_width_.resize(vreg_width_.size() + size_t{count} * parts,
                         type == Type::kB128 ? uint8_t{8} : set.first.width);
    }
    if (module_.program->code.predicates > (1u << 20))
      return error_ = {0, "line " + std::to_string(v.line) + ": too many predicates"}, false;
    registers_[{v.scope, v.name}] = set;
  }
  scope_registers_.resize(std::max<size_t>(function_.scopes.size(), 1));
  for (const auto& [where, set] : registers_) {
    ScopeRegisters& scope = scope_registers_[where.scope];
    scope.many |= scope.few.size() == kFewRegisters;
    if (!scope.many) scope.few.emplace_back(where.name, &set);
  }
  return true;
}

bool Decoder::find_in_set(std::string_view prefix, const RegisterSet& set, std::string_view name,
                          Register& reg) const {
  uint64_t n = 0;
  std::from_chars(name.data() + prefix.size(), name.data() + name.size(), n);
  if (n >= set.count) return false;
  reg = set.first;
  reg.index += static_cast<uint32_t>(n) * (reg.width == 16 ? 2 : reg.parts);
  return true;
}

bool Decoder::find_in_few(const ScopeRegisters& scope, std::string_view name, size_t digits,
                          Register& reg) const {
  size_t shortest = name.size();
  bool found = false;
  for (const auto& [prefix, set] : scope.few) {
    if (set->count == 0) {
      if (prefix != name) continue;
      reg = set->first;
      return true;
    }
    if (prefix.size() >= digits && prefix.size() < shortest && name.starts_with(prefix) &&
        find_in_set(prefix, *set, name, reg)) {
      shortest = prefix.size();
      found = true;
    }
  }
  return found;
}

bool Decoder::find_register(std::string_view name, Register& reg) {
  if (has_vectors_ && name.size() > 2 && name[name.size() - 2] == '.') {
    const size_t part = std::string_view("xyzwrgba").find(name.back());
    Register whole;
    if (part != std::string_view::npos && find_declared(name.substr(0, name.size() - 2), whole) &&
        part % 4 < whole.parts && whole.parts > 1) {
      reg = whole;
      reg.parts = 1;
      reg.index += static_cast<uint32_t>(part % 4);
      return true;
    }
  }
  return find_declared(name, reg) && reg.parts == 1;
}

bool Decoder::find_declared(std::string_view name, Register& reg) {
  size_t digits = name.size();
  while (digits > 0 && is_digit(name[digits - 1])) --digits;
  uint64_t number = 0;
  const bool numbered = digits < name.size() && name.size() - digits <= 9;
  if (numbered) std::from_chars(name.data() + digits, name.data() + name.size(), number);
  for (uint32_t scope = statement_->scope;; scope = function_.scopes[scope].parent) {
    if (!scope_registers_[scope].many) {
      if (find_in_few(scope_registers_[scope], name, numbered ? digits : name.size(), reg))
        return true;
      if (scope == 0) return false;
      continue;
    }
    auto found = registers_.find({scope, name});
    if (found != registers_.end() && found->second.count == 0) {
      reg = found->second.first;
      return true;
    }
    // %r12 of %r<20>; the prefix itself may end in digits (%ra1<4>: %ra10), so try longer ones.
    for (size_t cut = digits; numbered && cut < name.size(); ++cut) {
      found = registers_.find({scope, name.substr(0, cut)});
      if (found == registers_.end() || found->second.count == 0) continue;
      if (find_in_set(found->first.name, found->second, name, reg)) return true;
    }
    if (scope == 0) return false;
  }
}

const Place* Decoder::find_place(std::string_view name) {
  size_t digits = name.size();
  while (digits > 0 && is_digit(name[digits - 1])) --digits;
  if (name.size() - digits > 9) digits = name.size();
  for (uint32_t scope = statement_->scope;; scope = function_.scopes[scope].parent) {
    auto found = locals_.find({scope, name});
    if (found != locals_.end() && found->second.count == 0) return &found->second;
    for (size_t cut = digits; cut < name.size(); ++cut) {  // %P1 of `.param .u64 %P<2>`
      if (name[cut] == '0' && cut + 1 < name.size()) continue;
      found = locals_.find({scope, name.substr(0, cut)});
      uint64_t number = 0;
      if (found == locals_.end() || !ptx::parse_integer(name.substr(cut), number) ||
          number >= found->second.count)
        continue;
      Place place = found->second;
      place.offset += number * place.stride;
      place.count = 0;
      return &numbered_places_.emplace_back(place);
    }
    if (scope == 0) break;
  }
  const auto found = module_.places.find(name);
  return found == module_.places.end() ? nullptr : &found->second;
}

Operand Decoder::temporary(uint8_t width) {
  vreg_width_.push_back(width);
  return {Operand::Kind::kRegister, static_cast<uint32_t>(vreg_width_.size() - 1)};
}

Operand Decoder::constant(uint64_t value, uint8_t width) {
  return {Operand::Kind::kConstant, width == 8 ? module_.constant64(value)
                                               : module_.constant32(static_cast<uint32_t>(value))};
}

bool Decoder::immediate(std::string_view text, Type type, uint64_t& value) {
  text = ptx::trimmed(text);
  bool negative = false;
  while (!text.empty() && (text.front() == '-' || text.front() == '+')) {
    if (text.front() == '-') negative = !negative;
    text = ptx::trimmed(text.substr(1));
  }
  if (text.empty()) return false;
  bool is_float;
  if (!floating_immediate(text, negative, type, value, is_float)) return false;
  if (is_float) return true;
  const bool warp_size = text == "WARP_SZ";
  if (warp_size)
    value = 32;
  else if (!ptx::parse_integer(text, value))
    return false;
  if (negative) value = 0 - value;
  // An integer where a float is expected is its value.
  if (type == Type::kF32 && !warp_size)
    value = bits_of_float(negative ? -static_cast<float>(0 - value) : static_cast<float>(value));
  else if (type == Type::kF64)
    value = bits_of_double(negative ? -static_cast<double>(0 - value) : static_cast<double>(value));
  return true;
}

bool Decoder::is_special_register(std::string_view name) {
  return is_always_zero(name) || kSpecialRegisters.contains(name);
}

bool Decoder::special_register(std::string_view name, Type type, Operand& out) {
  if (is_always_zero(name)) {
    out = constant(0, bits_of(type) == 64 ? 8 : 4);
    return true;
  }
  const auto found = kSpecialRegisters.find(name);
  if (found == kSpecialRegisters.end()) return false;
  const Operand read = temporary(found->second.width);
  emit("special", 0, static_cast<int64_t>(found->second.special), read);
  const uint8_t wanted = bits_of(type) == 64 ? 8 : 4;
  if (wanted == found->second.width) {
    out = read;
  } else {
    out = temporary(wanted);
    emit(wanted == 8 ? "cvt_u64_u32" : "cvt_u32_u64", 0, 0, out, read);
  }
  return true;
}

// What the offsets of a place are relative to, where that is not known before the launch.
Operand Decoder::place_base(const Place& place) {
  if (place.in_frame) return {Operand::Kind::kRaw, kFramePointer};
  const Operand narrow = temporary(4), base = temporary(8);
  emit("special", 0, static_cast<int64_t>(Special::kDynamicBase), narrow);
  emit("cvt_u64_u32", 0, 0, base, narrow);
  return base;
}

bool Decoder::symbol_value(std::string_view text, Type type, Operand& out) {
  // NAME, NAME+n, NAME-n
  int64_t addend = 0;
  const size_t sign = text.find_first_of("+-");
  std::string_view name = ptx::trimmed(text.substr(0, sign));
  if (sign != std::string_view::npos) {
    uint64_t value;
    if (!immediate(text.substr(sign), Type::kS64, value)) return false;
    addend = static_cast<int64_t>(value);
  }
  const Place* place = find_place(name);
  const uint8_t width = bits_of(type) == 64 ? 8 : 4;
  if (place == nullptr) {
    const auto kernel = module_.kernels.find(name);
    if (kernel != module_.kernels.end() && width == 8 && addend == 0) {
      out = constant(kernel_address(kernel->second), 8);
      return true;
    }
    const auto callee = module_.callee_index.find(name);
    if (callee == module_.callee_index.end() || width != 8 || addend != 0) return false;
    Callee& target = module_.callees[callee->second];
    if (!target.function->has_body)
      return fail("the address of the external function " + std::string(name) +
                  " is not supported");
    target.address_taken = true;
    out = constant(function_address(callee->second), 8);
    return true;
  }
  if (place->in_frame || place->dynamic_shared) {
    const Operand at = place_base(*place);
    const Operand whole = temporary(8);
    emit("add_b64", 0, 0, whole, at, constant(place->offset + static_cast<uint64_t>(addend), 8));
    out = whole;
    if (width == 4) {
      out = temporary(4);
      emit("cvt_u32_u64", 0, 0, out, whole);
    }
    return true;
  }
  if (place->is_symbol) {
    const Operand value{Operand::Kind::kConstant, module_.symbol_address(place->symbol, addend)};
    if (width == 8) {
      out = value;
    } else {
      out = temporary(4);
      emit("cvt_u32_u64", 0, 0, out, value);
    }
  } else {
    out = constant(place->offset + static_cast<uint64_t>(addend), width);
  }
  return true;
}

// Operands are as wide as the instruction's type; those of ld, st and cvt may be wider (PTX ISA,
// "Operand Size Exceeding Instruction-Type Size").
bool Decoder::width_fits(const Register& reg, Type type, std::string_view name) {
  const uint32_t bits = bits_of(type);
  if (reg.width != 16 && reg.bits == bits) return true;  // nearly all
  const std::string_view op = words_[0];
  const bool relaxed = op == "ld" || op == "st" || op == "cvt" || op == "ldu" || op == "call" ||
                       op == "suld" || op == "sust";
  if (reg.width != 16 && ((relaxed && reg.bits > bits) || op == "func")) return true;
  return fail("the register " + std::string(name) + " of " + std::to_string(reg.bits) +
              " bits is no operand of " + std::string(statement_->opcode));
}

bool Decoder::source(std::string_view text, Type type, Operand& out) {
  text = ptx::trimmed(text);
  if (text.empty()) return false;
  const uint8_t width = bits_of(type) == 64 ? 8 : 4;
  Register reg;
  if (find_register(text, reg)) {
    if (reg.is_pred || !width_fits(reg, type, text)) return false;
    const Operand whole{Operand::Kind::kRegister, reg.index};
    if (reg.width == width) {
      out = whole;
    } else {
      // A wider register is read in its low bits; a narrower one is extended (ld, st and cvt allow
      // registers wider than the type; nothing allows narrower ones, but they cost nothing).
      out = temporary(width);
      emit(width == 4        ? "cvt_u32_u64"
           : is_signed(type) ? "cvt_s64_s32"
                             : "cvt_u64_u32",
           0, 0, out, whole);
    }
    return true;
  }
  if (text.starts_with('%') && special_register(text, type, out)) return true;
  uint64_t value;
  if (immediate(text, type, value)) {
    out = constant(value, width);
    return true;
  }
  return symbol_value(text, type, out);
}

bool Decoder::source_pred(std::string_view text, uint32_t& out) {
  text = ptx::trimmed(text);
  uint32_t negate = 0;
  if (!text.empty() && text.front() == '!') {
    negate = kPredNegate;
    text = ptx::trimmed(text.substr(1));
  }
  if (text == "%is_explicit_cluster") {
    const Operand word = temporary(4);
    emit("special", 0, static_cast<int64_t>(Special::kExplicitCluster), word);
    const uint32_t p = module_.program->code.predicates++;
    emit("setp_ne_u32", 0, 0, raw(p), word, constant(0, 4));
    out = p | negate;
    return true;
  }
  Register reg;
  if (find_register(text, reg)) {
    if (!reg.is_pred) return false;
    out = reg.index | negate;
    return true;
  }
  uint64_t value;
  if (!immediate(text, Type::kU32, value)) return false;
  out = (value != 0 ? kPredTrue : kPredFalse) | negate;
  return true;
}

bool Decoder::destination(std::string_view text, Type type, Operand& out) {
  text = ptx::trimmed(text);
  const uint8_t width = bits_of(type) == 64 ? 8 : 4;
  if (text == "_") {
    out = temporary(width);
    return true;
  }
  Register reg;
  if (!find_register(text, reg) || reg.is_pred || !width_fits(reg, type, text)) return false;
  if (reg.width == width) {
    out = {Operand::Kind::kRegister, reg.index};
  } else {
    out = temporary(width);
    widenings_.push_back({out, reg, is_signed(type)});
  }
  return true;
}

bool Decoder::destination_pred(std::string_view text, uint32_t& out) {
  text = ptx::trimmed(text);
  if (text == "_") {
    out = kNoOperand;
    return true;
  }
  Register reg;
  if (!find_register(text, reg) || !reg.is_pred) return false;
  out = reg.index;
  return true;
}

std::vector<std::string_view> Decoder::braces(std::string_view text) {
  std::vector<std::string_view> parts;
  text = ptx::trimmed(text);
  if (Register reg; has_vectors_ && find_declared(text, reg) && reg.parts > 1) {
    for (size_t k = 0; k < reg.parts; ++k)
      parts.push_back(part_names_.emplace_back(std::string(text) + '.' + "xyzw"[k]));
    return parts;
  }
  if (text.size() < 2 || (text.front() != '{' && text.front() != '(')) return parts;
  text = text.substr(1, text.size() - 2);
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t comma = text.find(',', begin);
    const size_t end = comma == std::string_view::npos ? text.size() : comma;
    const std::string_view part = ptx::trimmed(text.substr(begin, end - begin));
    if (!part.empty()) parts.push_back(part);
    begin = end + 1;
  }
  return parts;
}

bool Decoder::address(std::string_view text, Address& out) {
  text = ptx::trimmed(text);
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return false;
  text = ptx::trimmed(text.substr(1, text.size() - 2));
  // base, base+offset, base+-offset, base-offset, offset
  size_t sign = 1;
  while (sign < text.size() && text[sign] != '+' && text[sign] != '-') ++sign;
  if (sign >= text.size()) sign = std::string_view::npos;
  const std::string_view base = ptx::trimmed(text.substr(0, sign));
  uint64_t offset = 0;
  if (sign != std::string_view::npos && !immediate(text.substr(sign), Type::kS64, offset))
    return false;
  out.offset = static_cast<int64_t>(offset);
  Register reg;
  if (find_register(base, reg)) {
    if (reg.is_pred || (reg.bits != 32 && reg.bits != 64)) return false;
    out.base = {Operand::Kind::kRegister, reg.index};
    out.narrow = reg.width == 4;
    return true;
  }
  const Place* place = find_place(base);
  if (place != nullptr) {
    out.space = place->space;
    out.known_space = true;
    if (place->in_frame || place->dynamic_shared) {
      out.base = place_base(*place);
      out.offset += static_cast<int64_t>(place->offset);
      return true;
    }
    out.base = place->is_symbol
                   ? Operand{Operand::Kind::kConstant, module_.symbol_address(place->symbol, 0)}
                   : constant(place->offset, 8);
    return true;
  }
  uint64_t value;
  if (!immediate(base, Type::kU64, value)) return false;
  out.base = constant(value, 8);
  return true;
}

}  // namespace sluice::exec::detail
