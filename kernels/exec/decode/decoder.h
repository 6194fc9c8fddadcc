// SPDX-License-Identifier: Apache-2.0
// Decoder of one function's body, and what the functions of a module share while they are decoded.
// Internal to kernels/exec; lives only inside decode(); one thread. The text comes from a guest:
// whatever is not understood ends in fail(), with the statement's line.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/exec/block/block.h"
#include "kernels/exec/decode/register_slots.h"
#include "kernels/exec/program/inst.h"
#include "kernels/exec/program/ops_async.h"
#include "kernels/exec/program/ops_texture.h"
#include "kernels/ptx/module.h"

namespace sluice::exec::detail {

enum class Type : uint8_t {
  kNone,
  kPred,
  kB8,
  kU8,
  kS8,
  kB16,
  kU16,
  kS16,
  kB32,
  kU32,
  kS32,
  kB64,
  kU64,
  kS64,
  kF16,
  kBf16,
  kF16x2,
  kBf16x2,
  kF32,
  kF64,
  kTf32,
  kB128,
};
Type type_of(std::string_view word);
uint32_t bits_of(Type type);
bool is_signed(Type type);
bool is_float(Type type);  // f32, f64 and the halves
// "u32"; for the untyped and for operations that do not mind the sign: "b32".
const char* exact_name(Type type);
const char* bits_name(Type type);

// Where a function's (or the module's) variable lives.
struct Place {
  Space space = kSpaceGeneric;
  uint64_t offset = 0;  // inside the space
  uint32_t symbol = 0;  // global and const: index of the symbol
  bool is_symbol = false;
  bool in_frame = false;        // local: relative to the function's frame
  bool dynamic_shared = false;  // where the launch's dynamic shared memory begins
  uint64_t bytes = 0;
  uint32_t count = 0;   // `%P<2>`: of so many, %P0 and %P1; 0: one of exactly that name
  uint64_t stride = 0;  // from one of them to the next
};

// Where a function's parameters and results lie in its frame.
struct Layout {
  std::vector<Piece> params, returns;
  uint64_t end = 0;
  uint32_t align = 1;
  uint32_t signature = 0;  // ModuleContext::signature()
};

struct ParameterShape {
  uint64_t bytes = 0;
  uint32_t align = 0;
};
// False: too large, or a parameter of no size.
bool make_layout(const std::vector<ParameterShape>& params,
                 const std::vector<ParameterShape>& returns, Layout& layout);

// A .func as its callers see it.
struct Callee {
  const ptx::Function* function = nullptr;
  uint32_t index = 0;
  Layout layout;
  bool builtin = false;
  bool address_taken = false;
  std::string unread;  // why its header is not understood
};

// What a function or a kernel calls: for the depth of its stack.
struct CallNode {
  std::vector<uint32_t> callees;
  std::vector<uint32_t> signatures;  // called through pointers
  bool alloca = false;
};

class Decoder;

struct ModuleContext {
  ProgramData* program = nullptr;
  std::unordered_map<std::string_view, Place> places;  // module scope
  std::unordered_map<std::string_view, uint32_t> callee_index;
  std::unordered_map<std::string_view, uint32_t> kernels;  // their numbers, in kernel_names
  std::vector<Callee> callees;
  std::unordered_map<uint32_t, uint32_t> constants32;
  std::unordered_map<uint64_t, uint32_t> constants64;
  std::vector<CallNode> nodes;  // the callees, then the kernels in the order of their decoding
  std::unordered_map<std::string, uint32_t> signatures;
  // Opcodes seen, with all modifiers.
  struct Opcode {
    std::vector<std::string_view> words;
    bool (Decoder::*method)() = nullptr;  // null: there is none
    bool known = false;                   // by check_form
  };
  std::unordered_map<std::string_view, Opcode> opcodes;

  // Sets layout.signature from the places of its parameters and results.
  void sign(Layout& layout);
  uint32_t constant32(uint32_t value);
  uint32_t constant64(uint64_t value);
  uint32_t symbol_address(uint32_t symbol, int64_t addend);

 private:
  uint32_t append(uint64_t value, uint32_t width);
  std::unordered_map<std::string, uint32_t> symbol_constants_;
};

struct MatrixShape;
struct WarpgroupShape;

// A name, in the module's text, and the scope that declares it.
struct ScopedName {
  uint32_t scope = 0;
  std::string_view name;
  bool operator==(const ScopedName&) const = default;
};
struct ScopedNameHash {
  size_t operator()(const ScopedName& of) const {
    return std::hash<std::string_view>()(of.name) + of.scope;
  }
};
template <class T>
using ByScopedName = std::unordered_map<ScopedName, T, ScopedNameHash>;

// A decoded operand before registers have slots.
struct Operand {
  enum class Kind : uint8_t { kNone, kRegister, kConstant, kRaw } kind = Kind::kNone;
  uint32_t value = kNoOperand;  // virtual register, constant-pool reference, or as it is
};
inline Operand raw(uint32_t value) { return {Operand::Kind::kRaw, value}; }

// What finish() makes of a body: placed behind the program's code.
struct FunctionFrame {
  uint32_t register_bytes = 0;
  std::vector<uint32_t> slots;  // Callable::slots
  uint64_t local_end = 0;       // of the frame, with what calls need for arguments in registers
};

class Decoder {
 public:
  // `locals`: the function's own variables and parameters.
  Decoder(ModuleContext& module, const ptx::Function& function, const ByScopedName<Place>& locals)
      : module_(module), function_(function), locals_(locals) {}

  // Decodes the whole body and appends it to the program's code, its registers beginning at
  // `register_base`, its frame's variables ending at `local_end`. `node`: its index in
  // ModuleContext::nodes, for a .func the same as its callee's. False: error().
  bool run(uint32_t register_base, uint64_t local_end, uint32_t node, FunctionFrame& frame);
  const Error& error() const { return error_; }

 private:
  struct Register {
    bool is_pred = false;
    uint8_t width = 4;   // bytes of a lane: 4 or 8; 16: two registers of 8
    uint8_t bits = 32;   // as declared
    uint8_t parts = 1;   // `.reg .v2`: registers one behind the other, named with .x, .y, .z, .w
    uint32_t index = 0;  // virtual register or predicate
  };
  struct Address {
    Operand base;
    bool narrow = false;
    int64_t offset = 0;
    Space space = kSpaceGeneric;  // of a variable named directly
    bool known_space = false;
  };
  struct Conversion {  // the words of a cvt
    Type to = Type::kNone, from = Type::kNone;
    uint16_t round = 0;
    bool integral = false, ftz = false, sat = false, relu = false;
    uint16_t modifiers() const;
  };
  struct LabelUse {
    uint32_t inst;
    uint32_t label;
    bool in_aux;
    uint32_t aux;
  };

  // Errors. All return false. fail(): what no PTX has, which costs the module. absent(): what this
  // interpreter has not, or may have misunderstood, with the code ENOTSUP: it costs the kernel.
  bool fail(const std::string& what);
  bool absent(const std::string& what);
  bool unsupported();
  bool bad_operands();
  bool is_declared(std::string_view name);

  // The current statement's words.
  bool take(std::string_view word);  // a modifier, once
  bool take_any(std::initializer_list<std::string_view> words);
  Type take_type();  // the next untaken word that is a type
  bool all_taken();  // false and fail(): an unknown modifier
  uint16_t take_rounding(uint16_t otherwise, bool& given);
  Type first_type() const;
  size_t operand_count() const { return statement_->operands.size(); }
  std::string_view text(size_t k) const { return statement_->operands[k]; }

  // Operands. decoder_operands.cc.
  bool declare_registers();
  bool declare_labels();
  bool find_register(std::string_view name, Register& reg);
  const Place* find_place(std::string_view name);
  // A whole register, vectors too; find_register(): what holds one value, of vectors a part.
  bool find_declared(std::string_view name, Register& reg);
  bool width_fits(const Register& reg, Type type, std::string_view name);
  bool source(std::string_view text, Type type, Operand& out);
  // The halves of a register of 128 bits; "_" has none as a destination.
  bool pair128(std::string_view text, bool destination, Operand (&out)[2]);
  bool source_pred(std::string_view text, uint32_t& out);
  bool destination(std::string_view text, Type type, Operand& out);
  bool destination_pred(std::string_view text, uint32_t& out);
  bool immediate(std::string_view text, Type type, uint64_t& value);
  bool special_register(std::string_view name, Type type, Operand& out);
  static bool is_special_register(std::string_view name);
  bool address(std::string_view text, Address& out);
  Operand place_base(const Place& place);
  bool symbol_value(std::string_view text, Type type, Operand& out);
  std::vector<std::string_view> braces(std::string_view text);  // {a, b} -> a, b
  Operand temporary(uint8_t width);
  Operand constant(uint64_t value, uint8_t width);

  // Emission.
  uint32_t emit(std::string_view op, uint16_t mod, int64_t imm, Operand d = {}, Operand a = {},
                Operand b = {}, Operand c = {}, Operand e = {});
  void emit_aux(const std::vector<Operand>& operands, bool def);    // of the last instruction
  void append_aux(const std::vector<Operand>& operands, bool def);  // more of it, at once
  bool finish_statement();  // conversions into destinations of another width

  // Instructions, by family: a file each in instructions/.
  bool statement(const ptx::Statement& s);
  bool instruction();
  using Method = bool (Decoder::*)();
  static const std::unordered_map<std::string_view, Method>& methods();
  bool do_add_sub();
  bool do_mul();
  bool do_mad();
  bool do_div();
  bool do_rem();
  bool do_abs_neg();
  bool do_min_max();
  bool do_logic();
  bool do_not();
  bool do_shift();
  bool do_shf();
  bool do_prmt();
  bool do_bfe();
  bool do_bfi();
  bool do_popc_clz();
  bool do_bfind();
  bool do_lop3();
  bool do_sad();
  bool do_carry();
  bool do_mul24();
  bool do_dp();
  bool do_mov();
  bool move_dimensions(Type type);
  bool move_parts(Type type, size_t width);
  bool unpack(Type type, const std::vector<std::string_view>& to);
  bool pack(Type type, const std::vector<std::string_view>& from);
  bool do_setp();
  bool do_set();
  bool do_selp();
  bool do_slct();
  bool do_cvt();
  bool cvt_to_pair(const Conversion& c);
  bool cvt_to_integer(const Conversion& c);
  bool cvt_to_float(const Conversion& c);
  bool do_bmsk();
  bool do_szext();
  bool do_fns();
  bool do_fma();
  bool do_float_unary();
  bool do_copysign();
  bool do_testp();
  bool do_ld_st();
  uint16_t take_order_and_hints();
  bool vector_values(std::string_view list, bool store, Type type, std::vector<Operand>& values);
  bool do_atom();
  bool do_fence();
  bool do_cp();
  bool do_cvta();
  bool do_isspacep();
  bool do_nop();
  bool do_bra();
  bool do_brx();
  bool do_call();
  bool place_in_frame(std::string_view operand, const Piece& piece, bool& in_register,
                      uint64_t& offset);
  bool pass_arguments(const std::vector<std::string_view>& arguments, const Layout& layout,
                      std::vector<Operand>& copies);
  bool take_results(const std::vector<std::string_view>& results, const Layout& layout);
  bool do_video();
  bool do_video_simd();
  bool do_vmad();
  bool video_operand(std::string_view text, uint32_t& select, Operand& out, bool negatable,
                     bool& negated);
  bool do_prefetch();
  bool do_setmaxnreg();
  bool do_mapa();
  bool do_getctarank();
  bool do_mov128();
  bool do_atom_vector(bool reduction, Space space);
  bool do_atom128(Space space);
  bool has_word(std::string_view word) const;
  bool do_alloca();
  bool do_stack();
  bool do_ret();
  bool do_exit();
  bool do_trap();
  bool do_bar();
  bool do_shfl();
  bool do_vote();
  bool do_match();
  bool do_redux();
  bool do_elect();
  bool do_activemask();
  bool do_nanosleep();
  bool do_mma();
  bool take_layouts(MatrixShape& s);
  bool take_shape_and_types(MatrixShape& shape);
  bool do_wmma();
  bool do_ldmatrix();
  bool do_movmatrix();
  bool do_mbarrier();
  bool mbarrier_pending_count();
  bool do_cp_mbarrier();
  bool do_cp_bulk();
  bool do_tensor_copy();
  struct TensorCopyForm;
  bool take_tensor_words(TensorCopyForm& form);
  bool tensor_offsets(std::string_view list, TensorCopyForm& form);
  bool tensor_prefetch(TensorCopyForm& form);
  bool take_tensor_direction(TensorCopyForm& form);
  void emit_tensor_copy(TensorCopyForm& form);
  bool tensor_point(std::string_view operand, size_t rank, Address& map,
                    std::vector<Operand>& point);
  bool do_tensormap();
  bool publish_tensormap();
  bool do_wgmma();
  bool take_warpgroup_types(WarpgroupShape& shape, uint32_t& depth);
  bool warpgroup_flags(WarpgroupShape& shape);
  bool do_store_async(bool reduction);
  BulkReduction take_reduction();
  bool take_bulk_reduction(BulkReduction& op, BulkType& type);
  std::vector<Space> take_bulk_spaces();
  bool do_createpolicy();
  bool half_any(std::string_view name, Type type, uint16_t mod = 0);
  Operand flushed_half(Operand value, Type type);
  bool cvt_narrow(bool& handled);
  bool cvt_pack();
  bool integer_pair(bool& handled);
  bool do_tex();
  bool do_txq();
  bool do_surface();
  bool texture_geometry(TextureAccess& access);
  bool mip_operands(const TextureAccess& access, std::vector<Operand>& mip);
  bool texture_point(std::string_view operand, const TextureAccess& access, Operand& handle,
                     std::vector<Operand>& point);
  bool register_list(std::string_view list, size_t count, Type type, bool def,
                     std::vector<Operand>& out);
  bool float_binary(const char* name, Type type, bool may_round);
  bool simple(const std::string& op, Type d, std::initializer_list<Type> sources, uint16_t mod = 0,
              int64_t imm = 0);
  bool memory_space(Space& space);
  Operand half_of(Operand pair, int64_t part);
  bool compare_words(Type& type, std::string& name, uint16_t& mod);
  bool label(std::string_view name, uint32_t& id);
  bool call_builtin(const Callee& callee, const std::vector<std::string_view>& results,
                    const std::vector<std::string_view>& arguments);
  bool call_prototype(std::string_view name, Layout& layout);
  // Stores to, or loads from, a place in the own frame.
  bool frame_access(bool store, std::string_view operand, uint64_t offset, uint32_t bytes);
  Operand frame_base();
  bool register_parameters();  // formal parameters in .reg: from and to the frame
  bool register_results();

  // Analysis of the finished body. decoder_flow.cc.
  bool place_joins();
  void append_to_program();
  bool resolve_labels();
  uint32_t allocate_registers(uint32_t base, std::vector<uint32_t>& slots);

  ModuleContext& module_;
  const ptx::Function& function_;
  const ByScopedName<Place>& locals_;
  std::deque<Place> numbered_places_;  // what find_place() found in sets
  Error error_;
  uint32_t node_ = 0;
  uint64_t local_end_ = 0;

  const ptx::Statement* statement_ = nullptr;
  std::vector<std::string_view> words_;
  std::vector<bool> taken_;
  uint32_t guard_ = kPredTrue;
  bool flush_compared_ = false;  // compare_words: halves whose subnormals count as zero
  struct Widening {
    Operand from;
    Register to;
    bool is_signed;
  };
  std::vector<Widening> widenings_;

  struct RegisterSet {
    Register first;
    uint32_t count = 0;  // 0: one register of exactly that name
  };
  ByScopedName<RegisterSet> registers_;  // by prefix
  bool has_vectors_ = false;
  std::deque<std::string> part_names_;  // of vectors, for braces()
  // A scope's, where they are few, as they mostly are: compared faster than hashed.
  struct ScopeRegisters {
    bool many = false;
    std::vector<std::pair<std::string_view, const RegisterSet*>> few;
  };
  static constexpr size_t kFewRegisters = 16;
  std::vector<ScopeRegisters> scope_registers_;
  // Of numbered registers: the set whose name is the shortest beginning of `name`, which has digits
  // from `digits` on.
  bool find_in_set(std::string_view prefix, const RegisterSet& set, std::string_view name,
                   Register& reg) const;
  bool find_in_few(const ScopeRegisters& scope, std::string_view name, size_t digits,
                   Register& reg) const;
  std::vector<uint8_t> vreg_width_;
  ByScopedName<uint32_t> labels_;  // their ids
  std::vector<uint32_t> label_position_;
  ByScopedName<std::vector<std::string_view>> branch_targets_;
  ByScopedName<const ptx::Statement*> prototypes_;  // and .calltargets

  std::vector<Inst> code_;
  std::vector<uint32_t> lines_;
  std::vector<Reference> references_;
  std::vector<LabelUse> label_uses_;
  std::vector<bool> uniform_;  // per instruction: a branch marked .uni
};

// Of a callee's index: what a pointer to the function holds. No function has address 0.
inline uint64_t function_address(uint32_t callee) {
  return kCodeWindow + (uint64_t{callee} + 1) * kFunctionStride;
}

inline uint64_t kernel_address(uint32_t number) {
  return kKernelWindow + uint64_t{number} * kFunctionStride;
}

inline constexpr uint64_t kMaxLocalBytes = 512 * 1024;  // per thread, as the hardware
inline constexpr uint64_t kMaxParamBytes = 32764;       // PTX ISA 8.1 and later

}  // namespace sluice::exec::detail
