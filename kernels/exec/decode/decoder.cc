// SPDX-License-Identifier: Apache-2.0
// The decoder's own machinery: statements, words, emission. The instructions are in decoder_*.cc.
#include "kernels/exec/decode/decoder.h"

#include "kernels/exec/program/forms.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_set>

namespace sluice::exec::detail {
namespace {

// Instructions of PTX 9.0 that are not carried out here, or not in all forms (PTX ISA, chapter 9.7:
// gradients on cube maps, clusters, bulk copies, matrices of Hopper and Blackwell).
bool is_known_to_ptx(std::string_view opcode) {
  static constexpr std::string_view kBeginnings[] = {"barrier.cluster",
                                                     "clusterlaunchcontrol",
                                                     "cp.async.bulk",
                                                     "cp.reduce",
                                                     "fence.mbarrier_init",
                                                     "fence.proxy",
                                                     "istypep",
                                                     "ldmatrix",
                                                     "mbarrier",
                                                     "mma",
                                                     "multimem",
                                                     "prefetch.const.tensormap",
                                                     "prefetch.param.tensormap",
                                                     "prefetch.tensormap",
                                                     "red.async",
                                                     "st.async",
                                                     "st.bulk",
                                                     "stmatrix",
                                                     "suld",
                                                     "suq",
                                                     "sured",
                                                     "sust",
                                                     "tcgen05",
                                                     "tensormap",
                                                     "tex",
                                                     "tld4",
                                                     "txq",
                                                     "wgmma",
                                                     "wmma"};
  return std::any_of(std::begin(kBeginnings), std::end(kBeginnings), [&](std::string_view b) {
    return opcode.substr(0, b.size()) == b &&
           (opcode.size() == b.size() || opcode[b.size()] == '.');
  });
}

// Of a name, with the part of it that is meant: %r1.b0.
bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '%' || c == '.';
}

}  // namespace

bool Decoder::fail(const std::string& what) {
  if (error_.message.empty()) {
    const uint32_t line = statement_ != nullptr ? statement_->line : function_.line;
    error_ = {0, "line " + std::to_string(line) + ": " + what};
  }
  return false;
}
bool Decoder::absent(const std::string& what) {
  if (!error_.message.empty()) return false;
  fail(what);
  error_.code = ENOTSUP;
  return false;
}
// A form that is not here of an instruction that PTX has may be one of a newer PTX.
bool Decoder::unsupported() {
  const std::string what = std::string(statement_->opcode) + " is not supported";
  const bool has_it = methods().contains(ptx::base_opcode(statement_->opcode));
  return has_it || is_known_to_ptx(statement_->opcode) ? absent(what) : fail(what);
}
// Operands that name what is nowhere declared are wrong; others may be of a newer PTX.
bool Decoder::bad_operands() {
  const std::string what =
      "the operands of " + std::string(statement_->opcode) + " are not understood";
  for (const std::string_view operand : statement_->operands) {
    for (size_t k = 0; k < operand.size();) {
      size_t end = k;
      while (end < operand.size() && is_word(operand[end])) ++end;
      if (end > k && !is_declared(operand.substr(k, end - k))) return fail(what);
      k = end + 1;
    }
  }
  return absent(what);
}

bool Decoder::is_declared(std::string_view name) {
  if (name == "_" || name == "WARP_SZ" || (name.front() >= '0' && name.front() <= '9') ||
      is_special_register(name))
    return true;
  name = name.substr(0, name.find('.'));  // a part of a register
  Register reg;
  if (find_declared(name, reg) || find_place(name) != nullptr ||
      module_.callee_index.contains(name) || module_.kernels.contains(name))
    return true;
  for (uint32_t scope = statement_->scope;; scope = function_.scopes[scope].parent) {
    const ScopedName key{scope, name};
    if (labels_.contains(key) || prototypes_.contains(key)) return true;
    if (scope == 0) return false;
  }
}

bool Decoder::take(std::string_view word) {
  for (size_t k = 1; k < words_.size(); ++k) {
    if (!taken_[k] && words_[k] == word) {
      taken_[k] = true;
      return true;
    }
  }
  return false;
}
bool Decoder::take_any(std::initializer_list<std::string_view> words) {
  bool any = false;
  for (const std::string_view word : words) any = take(word) || any;
  return any;
}
Type Decoder::take_type() {
  for (size_t k = 1; k < words_.size(); ++k) {
    if (taken_[k]) continue;
    const Type type = type_of(words_[k]);
    if (type == Type::kNone) continue;
    taken_[k] = true;
    return type;
  }
  return Type::kNone;
}
bool Decoder::all_taken() {
  for (size_t k = 1; k < words_.size(); ++k)
    if (!taken_[k]) return unsupported();
  return true;
}
uint16_t Decoder::take_rounding(uint16_t otherwise, bool& given) {
  given = true;
  if (take_any({"rn", "rni"})) return kRn;
  if (take_any({"rz", "rzi"})) return kRz;
  if (take_any({"rm", "rmi"})) return kRm;
  if (take_any({"rp", "rpi"})) return kRp;
  if (take("rna")) return kRna;
  given = false;
  return otherwise;
}
Type Decoder::first_type() const {
  for (size_t k = 1; k < words_.size(); ++k)
    if (const Type type = type_of(words_[k]); type != Type::kNone) return type;
  return Type::kNone;
}

uint32_t Decoder::emit(std::string_view name, uint16_t mod, int64_t imm, Operand d, Operand a,
                       Operand b, Operand c, Operand e) {
  const Op op = find_op(name.data(), static_cast<uint32_t>(name.size()));
  if (op == Op::kCount) {
    unsupported();
    return 0;
  }
  const uint32_t index = static_cast<uint32_t>(code_.size());
  Inst in;
  in.op = static_cast<uint16_t>(op);
  in.mod = mod;
  in.guard = guard_;
  in.imm = imm;
  const Operand* operands[5] = {&d, &a, &b, &c, &e};
  uint32_t* fields[5] = {&in.d, &in.a, &in.b, &in.c, &in.e};
  for (uint32_t k = 0; k < 5; ++k) {
    *fields[k] = operands[k]->value;
    if (operands[k]->kind == Operand::Kind::kRegister)
      references_.push_back({index, k, operands[k]->value, k == 0});
  }
  code_.push_back(in);
  lines_.push_back(statement_ != nullptr ? statement_->line : function_.line);
  uniform_.push_back(false);
  return index;
}

void Decoder::emit_aux(const std::vector<Operand>& operands, bool def) {
  std::vector<uint32_t>& aux = module_.program->code.aux;
  code_.back().aux = static_cast<uint32_t>(aux.size());
  append_aux(operands, def);
}

void Decoder::append_aux(const std::vector<Operand>& operands, bool def) {
  std::vector<uint32_t>& aux = module_.program->code.aux;
  const uint32_t index = static_cast<uint32_t>(code_.size() - 1);
  for (const Operand& operand : operands) {
    if (operand.kind == Operand::Kind::kRegister)
      references_.push_back({index, 5 + static_cast<uint32_t>(aux.size()), operand.value, def});
    aux.push_back(operand.value);
  }
}

bool Decoder::finish_statement() {
  for (const Widening& widening : widenings_) {
    const char* op = widening.to.width == 8 ? (widening.is_signed ? "cvt_s64_s32" : "cvt_u64_u32")
                                            : "cvt_u32_u64";
    emit(op, 0, 0, {Operand::Kind::kRegister, widening.to.index}, widening.from);
  }
  widenings_.clear();
  return error_.message.empty();
}

bool Decoder::label(std::string_view name, uint32_t& id) {
  // The innermost scope that declares it; labels may be used before they are declared.
  for (uint32_t scope = statement_->scope;; scope = function_.scopes[scope].parent) {
    const auto found = labels_.find({scope, name});
    if (found != labels_.end()) {
      id = found->second;
      return true;
    }
    if (scope == 0) break;
  }
  return fail("unknown label " + std::string(name));
}

bool Decoder::statement(const ptx::Statement& s) {
  statement_ = &s;
  switch (s.kind) {
    case ptx::StatementKind::kLabel:
      label_position_[labels_.at({s.scope, s.opcode})] = static_cast<uint32_t>(code_.size());
      return true;
    case ptx::StatementKind::kInstruction:
      return instruction();
    case ptx::StatementKind::kDirective: {
      static const std::unordered_set<std::string_view> known = {
          ".loc", ".pragma", ".branchtargets", ".callprototype", ".calltargets", ".section", ";"};
      if (known.count(s.opcode) == 0) return absent(std::string(s.opcode) + " is not supported");
      return true;
    }
    case ptx::StatementKind::kDeclaration:
    case ptx::StatementKind::kScopeOpen:
    case ptx::StatementKind::kScopeClose:
      return true;
  }
  return true;
}

bool Decoder::instruction() {
  const ptx::Statement& s = *statement_;
  const auto [seen, fresh] = module_.opcodes.try_emplace(s.opcode);
  ModuleContext::Opcode& opcode = seen->second;
  if (fresh) {
    // "ld.shared::cta.u32" splits at dots only.
    for (size_t begin = 0; begin <= s.opcode.size();) {
      const size_t end = std::min(s.opcode.find('.', begin), s.opcode.size());
      opcode.words.push_back(s.opcode.substr(begin, end - begin));
      begin = end + 1;
    }
    const auto found = methods().find(opcode.words[0]);
    if (found != methods().end()) opcode.method = found->second;
    opcode.known = opcode.method != nullptr && check_form(s.opcode) != Form::kUnknown;
  }
  words_ = opcode.words;
  taken_.assign(words_.size(), false);
  guard_ = kPredTrue;
  if (!s.guard.empty()) {
    Register reg;
    if (!find_register(s.guard, reg) || !reg.is_pred) return fail("unknown guard");
    guard_ = reg.index | (s.guard_negated ? kPredNegate : 0);
  }
  if (!opcode.known) return unsupported();
  if (!(this->*opcode.method)()) {
    if (error_.message.empty()) return bad_operands();
    return false;
  }
  return finish_statement();
}

const std::unordered_map<std::string_view, Decoder::Method>& Decoder::methods() {
  using D = Decoder;
  static const std::unordered_map<std::string_view, Method> map = {
      {"add", &D::do_add_sub},
      {"sub", &D::do_add_sub},
      {"mul", &D::do_mul},
      {"mad", &D::do_mad},
      {"fma", &D::do_fma},
      {"div", &D::do_div},
      {"rem", &D::do_rem},
      {"abs", &D::do_abs_neg},
      {"neg", &D::do_abs_neg},
      {"min", &D::do_min_max},
      {"max", &D::do_min_max},
      {"and", &D::do_logic},
      {"or", &D::do_logic},
      {"xor", &D::do_logic},
      {"not", &D::do_not},
      {"cnot", &D::do_not},
      {"shl", &D::do_shift},
      {"shr", &D::do_shift},
      {"shf", &D::do_shf},
      {"prmt", &D::do_prmt},
      {"bfe", &D::do_bfe},
      {"bfi", &D::do_bfi},
      {"popc", &D::do_popc_clz},
      {"clz", &D::do_popc_clz},
      {"brev", &D::do_popc_clz},
      {"bfind", &D::do_bfind},
      {"lop3", &D::do_lop3},
      {"sad", &D::do_sad},
      {"addc", &D::do_carry},
      {"subc", &D::do_carry},
      {"madc", &D::do_mad},
      {"mul24", &D::do_mul24},
      {"mad24", &D::do_mul24},
      {"dp4a", &D::do_dp},
      {"dp2a", &D::do_dp},
      {"mov", &D::do_mov},
      {"setp", &D::do_setp},
      {"set", &D::do_set},
      {"selp", &D::do_selp},
      {"slct", &D::do_slct},
      {"cvt", &D::do_cvt},
      {"bmsk", &D::do_bmsk},
      {"szext", &D::do_szext},
      {"fns", &D::do_fns},
      {"rcp", &D::do_float_unary},
      {"sqrt", &D::do_float_unary},
      {"rsqrt", &D::do_float_unary},
      {"sin", &D::do_float_unary},
      {"cos", &D::do_float_unary},
      {"ex2", &D::do_float_unary},
      {"lg2", &D::do_float_unary},
      {"tanh", &D::do_float_unary},
      {"copysign", &D::do_copysign},
      {"testp", &D::do_testp},
      {"ld", &D::do_ld_st},
      {"ldu", &D::do_ld_st},
      {"st", &D::do_ld_st},
      {"atom", &D::do_atom},
      {"red", &D::do_atom},
      {"fence", &D::do_fence},
      {"membar", &D::do_fence},
      {"cp", &D::do_cp},
      {"cvta", &D::do_cvta},
      {"isspacep", &D::do_isspacep},
      {"prefetch", &D::do_prefetch},
      {"prefetchu", &D::do_prefetch},
      {"pmevent", &D::do_nop},
      {"discard", &D::do_prefetch},
      {"applypriority", &D::do_prefetch},
      {"setmaxnreg", &D::do_setmaxnreg},
      {"mapa", &D::do_mapa},
      {"getctarank", &D::do_getctarank},
      {"vadd", &D::do_video},
      {"vsub", &D::do_video},
      {"vabsdiff", &D::do_video},
      {"vmin", &D::do_video},
      {"vmax", &D::do_video},
      {"vset", &D::do_video},
      {"vshl", &D::do_video},
      {"vshr", &D::do_video},
      {"vmad", &D::do_vmad},
      {"vadd2", &D::do_video_simd},
      {"vsub2", &D::do_video_simd},
      {"vavrg2", &D::do_video_simd},
      {"vabsdiff2", &D::do_video_simd},
      {"vmin2", &D::do_video_simd},
      {"vmax2", &D::do_video_simd},
      {"vset2", &D::do_video_simd},
      {"vadd4", &D::do_video_simd},
      {"vsub4", &D::do_video_simd},
      {"vavrg4", &D::do_video_simd},
      {"vabsdiff4", &D::do_video_simd},
      {"vmin4", &D::do_video_simd},
      {"vmax4", &D::do_video_simd},
      {"vset4", &D::do_video_simd},
      {"griddepcontrol", &D::do_nop},
      {"bra", &D::do_bra},
      {"brx", &D::do_brx},
      {"call", &D::do_call},
      {"alloca", &D::do_alloca},
      {"stacksave", &D::do_stack},
      {"stackrestore", &D::do_stack},
      {"ret", &D::do_ret},
      {"exit", &D::do_exit},
      {"trap", &D::do_trap},
      {"brkpt", &D::do_trap},
      {"bar", &D::do_bar},
      {"barrier", &D::do_bar},
      {"shfl", &D::do_shfl},
      {"vote", &D::do_vote},
      {"match", &D::do_match},
      {"redux", &D::do_redux},
      {"elect", &D::do_elect},
      {"activemask", &D::do_activemask},
      {"nanosleep", &D::do_nanosleep},
      {"mbarrier", &D::do_mbarrier},
      {"createpolicy", &D::do_createpolicy},
      {"tex", &D::do_tex},
      {"tld4", &D::do_tex},
      {"txq", &D::do_txq},
      {"suq", &D::do_txq},
      {"suld", &D::do_surface},
      {"sust", &D::do_surface},
      {"sured", &D::do_surface},
      {"mma", &D::do_mma},
      {"wmma", &D::do_wmma},
      {"ldmatrix", &D::do_ldmatrix},
      {"stmatrix", &D::do_ldmatrix},
      {"movmatrix", &D::do_movmatrix},
      {"wgmma", &D::do_wgmma},
      {"tensormap", &D::do_tensormap}};
  return map;
}

bool Decoder::run(uint32_t register_base, uint64_t local_end, uint32_t node, FunctionFrame& frame) {
  node_ = node;
  local_end_ = local_end;
  if (!declare_registers() || !declare_labels()) return false;
  ptx::Statement outermost;  // what is not a statement of the text belongs to the body's own scope
  outermost.line = function_.line;
  statement_ = &outermost;
  words_ = {"call"};
  if (!register_parameters()) return false;
  for (const ptx::Statement& s : function_.statements)
    if (!statement(s)) return false;
  // Running off the end returns.
  statement_ = &outermost;
  guard_ = kPredTrue;
  if (!register_results()) return false;
  emit("ret", 0, 0);
  if (!resolve_labels() || !place_joins()) return false;
  frame.register_bytes = allocate_registers(register_base, frame.slots);
  frame.local_end = local_end_;
  append_to_program();
  return true;
}

bool Decoder::declare_labels() {
  for (const ptx::Statement& s : function_.statements) {
    if (s.kind != ptx::StatementKind::kLabel) continue;
    const uint32_t id = static_cast<uint32_t>(label_position_.size());
    if (!labels_.emplace(ScopedName{s.scope, s.opcode}, id).second) {
      statement_ = &s;
      return fail("label " + std::string(s.opcode) + " is declared twice");
    }
    label_position_.push_back(0);
    // `.branchtargets` and what describes calls follow their own labels.
    const size_t next = static_cast<size_t>(&s - function_.statements.data()) + 1;
    if (next >= function_.statements.size()) continue;
    const ptx::Statement& after = function_.statements[next];
    if (after.kind != ptx::StatementKind::kDirective) continue;
    if (after.opcode == ".branchtargets")
      branch_targets_[{s.scope, s.opcode}].assign(after.operands.begin(), after.operands.end());
    if (after.opcode == ".callprototype" || after.opcode == ".calltargets")
      prototypes_[{s.scope, s.opcode}] = &after;
  }
  return true;
}

// Behind the program's code; branch targets become absolute.
void Decoder::append_to_program() {
  Code& code = module_.program->code;
  const uint32_t base = static_cast<uint32_t>(code.code.size());
  const auto is = [](const Inst& in, Op op) { return in.op == static_cast<uint16_t>(op); };
  for (size_t k = 0; k < code_.size(); ++k) {
    Inst in = code_[k];
    if (is(in, Op::k_bra)) in.imm += base;
    if ((is(in, Op::k_bra) || is(in, Op::k_brx)) && in.e != kNoTarget) in.e += base;
    if (is(in, Op::k_brx))
      for (uint32_t t = 1; t <= code.aux[in.aux]; ++t) code.aux[in.aux + t] += base;
    code.code.push_back(in);
    code.lines.push_back(lines_[k]);
  }
  code.functions.push_back({std::string(function_.name), function_.is_entry, base,
                            static_cast<uint32_t>(code.code.size())});
}

}  // namespace sluice::exec::detail
