// SPDX-License-Identifier: Apache-2.0
// A PTX module as the rewriter and the software GPU see it: the text, cut losslessly into
// statements, with the declarations understood and everything else kept as it was written.
//
// Owner: whoever parsed it; a Module is immutable and may be read by any number of threads. Runs in
// the guest's libcuda, in sluice-worker, in the software GPU and in sluice-ptx.
// It does not know what instructions mean (kernels/exec, kernels/passes do) and rejects only what
// cannot be cut into statements: new opcodes and directives pass through untouched.
// The text comes from a guest: parsing is bounded in depth and linear in the text's size.
// Source: "Parallel Thread Execution ISA", version 9.0, chapters 4, 5 and 11.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mediator/base/result.h"

namespace sluice::ptx {

// What a hostile text may cost us. Real code needs about 6 bytes of memory per byte of text; the
// counts bound texts made of tiny statements. The largest module seen has 34,000 statements.
inline constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;  // offsets are 32 bits
inline constexpr std::size_t kMaxStatements = std::size_t{4} << 20;  // 96 bytes each
inline constexpr std::size_t kMaxOperands = std::size_t{16} << 20;   // 16 bytes each, all together
inline constexpr std::size_t kMaxVariables = std::size_t{1} << 20;   // 200 bytes each
inline constexpr std::size_t kMaxFunctions = std::size_t{1} << 17;   // 500 bytes each
inline constexpr std::uint32_t kMaxScopeDepth = 256;   // real code: 3; passes may recurse this deep
inline constexpr std::uint32_t kMaxBracketDepth = 64;  // brackets within one statement
inline constexpr std::uint32_t kMaxDimensions = 16;    // of one array

// A byte range [begin, end) of the module's text.
struct Range {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint32_t size() const { return end - begin; }
};

enum class StatementKind : std::uint8_t {
  kLabel,        // `NAME:`; opcode = NAME
  kInstruction,  // `[@[!]guard] opcode operands ;`
  kDeclaration,  // `.reg/.local/.shared/.param/.global/.const/... ;`; opcode = the state space
  kDirective,    // `.loc`, `.pragma "..";`, `.branchtargets ..;`, `.calltargets`, `.callprototype`,
                 // anything else that begins with a dot; opcode = its first word with the dot
  kScopeOpen,    // `{`
  kScopeClose,   // `}`
};

// One statement of a function's body, in the order of the text.
struct Statement {
  StatementKind kind = StatementKind::kInstruction;
  bool guard_negated = false;  // `@!p`
  bool never_returns = false;  // calls what ends the thread or the kernel (`.noreturn`)
  std::uint32_t line = 0;      // of its first byte, from 1
  std::uint32_t scope = 0;  // index in Function::scopes of the scope it stands in; for an opening
                            // or closing brace: of the scope that it opens or closes
  Range range;              // first byte .. one past the `;`; no white space around it
  std::string_view guard;   // register of the guard, empty: none
  std::string_view opcode;  // with all modifiers: "ld.global.v4.f32"; see StatementKind for others
  // Operands as written, split at top-level commas and trimmed: "%r1", "{%f1, %f2}", "[%rd1+4]",
  // "%r1|%p1", "(retval0)". Directives: likewise ("nounroll" keeps its quotes). Declarations: none.
  std::span<const std::string_view> operands;
};

enum class Space : std::uint8_t { kReg, kSreg, kConst, kGlobal, kLocal, kParam, kShared, kTex };

// A declared variable or register set, of a module, a function's body or a parameter list.
struct Variable {
  Space space = Space::kGlobal;
  std::string_view linkage;         // ".extern", ".visible", ".weak", ".common" or empty
  std::string_view type;            // without the dot: "f32", "b8", "pred", "texref"
  std::string_view name;            // "%r" for `.reg .b32 %r<5>;`
  std::string_view initializer;     // text after `=`, trimmed; empty: none
  std::uint32_t vector_width = 1;   // .v2, .v4, .v8
  std::uint32_t element_bytes = 0;  // of `type`; 0: no storage (pred) or unknown
  std::uint32_t align = 0;          // in bytes: as declared, otherwise natural
  bool is_array = false;
  bool is_pointer = false;  // parameter with `.ptr`
  bool is_managed = false;  // .attribute(.managed): the host may touch it, too
  // Outermost first; 0 for `[]`, whose size is the initialiser's or, for extern shared, the
  // launch's.
  std::vector<std::uint64_t> dimensions;
  std::uint32_t register_count = 0;  // `%r<5>` -> 5 (%r0 .. %r4); 0: one register named `name`
  std::uint32_t scope = 0;           // body declarations: index in Function::scopes
  std::uint32_t line = 0;
  std::uint64_t bytes = 0;   // storage; 0 for registers and for `[]`
  std::uint64_t offset = 0;  // parameters only: in the parameter buffer
  Range range;               // of the whole declaring statement, or of the parameter
};

// A directive between a function's parameter list and its body.
struct HeaderDirective {
  std::string_view name;  // ".maxntid"
  std::vector<std::string_view> arguments;
  Range range;
};

struct Scope {
  std::uint32_t parent = 0;  // scope 0 is the body itself, its own parent
  std::uint32_t depth = 0;
  std::uint32_t open = 0;  // statement indices of its braces; scope 0: 0 and statements.size()
  std::uint32_t close = 0;
};

// `.entry` or `.func`; without a body it is a forward or external declaration.
struct Function {
  bool is_entry = false;
  bool has_body = false;
  std::string_view linkage;  // ".visible", ".weak", ".extern" or empty
  std::string_view name;
  std::uint32_t line = 0;
  std::vector<Variable> params;
  std::vector<Variable> returns;  // .func only
  std::uint64_t param_bytes = 0;  // end of the last parameter; not rounded up
  std::vector<HeaderDirective> directives;
  // 0: not given. Dimensions that a given directive leaves out are 1.
  std::array<std::uint32_t, 3> maxntid{}, reqntid{};
  std::uint32_t minnctapersm = 0, maxnreg = 0;

  std::vector<Scope> scopes;          // at least one where has_body
  std::vector<Statement> statements;  // without the body's own outermost braces
  std::vector<Variable> variables;    // declared in the body, all scopes, in order

  Range range;  // linkage word .. one past `}` or `;`
  Range name_range;
  Range params_range;  // between the parentheses, exclusive; empty at `after_name` without a list
  bool has_param_list = false;
  Range body_range;  // `{` .. one past `}`
  // Why it could not be cut into statements: then it has a name, a range and a body of unknown
  // contents, and no parameters, statements or variables. Empty: it could.
  std::string not_understood;
};

// Something at module scope, in order; together with the white space and comments between them the
// items make up the text.
struct Item {
  enum class Kind : std::uint8_t { kDirective, kVariable, kFunction };
  Kind kind = Kind::kDirective;
  std::uint32_t index = 0;  // in directives, variables or functions. A statement that declares
                            // several variables has the index of the first.
  Range range;
};

struct ModuleDirective {
  std::string_view name;  // ".version", ".file", ".section", ".pragma", ".alias", ...
  std::uint32_t line = 0;
  Range range;
};

class Module {
 public:
  // Cuts `text` into statements. Errors name line and column. A function that is not understood
  // costs itself only (Function::not_understood), as long as its end can be found.
  static Result<Module> parse(std::string text);
  // The same without what is in bodies: functions have their ranges and no scopes, statements or
  // variables. Takes a tenth of the time, and hardly any memory.
  static Result<Module> parse_declarations(std::string text);

  Module(Module&&) = default;
  Module& operator=(Module&&) = default;
  Module(const Module&) = delete;  // statements point into text and operand pool
  Module& operator=(const Module&) = delete;

  const std::string& text() const { return *text_; }
  std::string_view text_of(Range range) const {
    return std::string_view(*text_).substr(range.begin, range.size());
  }

  // 9.0 -> {9, 0}; {0, 0}: no .version directive.
  struct Version {
    std::uint32_t major = 0, minor = 0;
    auto operator<=>(const Version&) const = default;
  };
  Version version() const { return version_; }
  // As written: "sm_90a"; the other target words ("debug", "texmode_independent") are in `targets`.
  std::string_view target() const;
  const std::vector<std::string_view>& targets() const { return targets_; }
  // 90 for sm_90, sm_90a, sm_90f; 0: not known.
  std::uint32_t sm() const;
  // 32 or 64. Where it is not given (ISA versions before 2.3 have no directive for it), that of the
  // first register that holds an address of global memory, as ptxas has it; 64 where there is none.
  // 0: that was not looked for (parse_declarations).
  std::uint32_t address_size() const { return address_size_; }
  Range version_range() const { return version_range_; }  // of the number; empty if none

  const std::vector<Item>& items() const { return items_; }
  const std::vector<ModuleDirective>& directives() const { return directives_; }
  const std::vector<Variable>& variables() const { return variables_; }
  const std::vector<Function>& functions() const { return functions_; }
  // The pairs {name, function that it means} of `.alias NAME, FUNCTION;`.
  std::vector<std::pair<std::string_view, std::string_view>> aliases() const;
  // The definition if there is one, otherwise a declaration, otherwise null.
  const Function* find_function(std::string_view name) const;

 private:
  friend class Parser;
  Module() = default;

  std::shared_ptr<const std::string> text_;
  std::vector<std::string_view> operand_pool_;
  std::vector<Item> items_;
  std::vector<ModuleDirective> directives_;
  std::vector<Variable> variables_;
  std::vector<Function> functions_;
  std::vector<std::string_view> targets_;
  Version version_;
  Range version_range_;
  std::uint32_t address_size_ = 0;  // 0 while it is not known
};

// PTX integer literals: decimal, 0x, 0b, leading-0 octal, optional `U`; no sign. Writes `value` and
// returns true only if all of `text` is one and it fits.
bool parse_integer(std::string_view text, std::uint64_t& value);

// `text` without the white space around it.
std::string_view trimmed(std::string_view text);

// Storage of a fundamental type named without its dot; 0 for `pred` and for unknown names.
std::uint32_t type_bytes(std::string_view type);

// "ld.global.v4.f32" has modifier "global"; compares whole words between dots, not the first.
bool has_modifier(std::string_view opcode, std::string_view modifier);
// "ld.global.v4.f32" -> "ld". Asked of each instruction many times: a search by a call took longer.
inline std::string_view base_opcode(std::string_view opcode) {
  std::size_t end = 0;
  while (end < opcode.size() && opcode[end] != '.') ++end;
  return opcode.substr(0, end);
}

}  // namespace sluice::ptx
