// SPDX-License-Identifier: Apache-2.0
// Cuts PTX text into a Module. Internal to kernels/ptx: everybody else calls Module::parse.
//
// Owner: one parse, one thread. No recursion and no look-behind, so hostile text costs linear time
// and the stack does not grow. What is not understood becomes a directive or an instruction that
// keeps its bytes; an error is only what leaves it open where a statement ends.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/ptx/module.h"
#include "kernels/ptx/parse/cursor.h"

namespace sluice::ptx {

// Words that may begin a declaration.
inline bool is_linkage(std::string_view word) {
  return word == ".visible" || word == ".extern" || word == ".weak" || word == ".common";
}

inline bool is_space(std::string_view word) {
  return word == ".reg" || word == ".sreg" || word == ".const" || word == ".global" ||
         word == ".local" || word == ".param" || word == ".shared" || word == ".tex";
}

inline char closer_of(char open) { return open == '(' ? ')' : open == '[' ? ']' : '}'; }

class Parser {
 public:
  explicit Parser(std::string text, bool bodies = true);
  Result<Module> run();

 private:
  // All of these return false after fail(); the cursor is then anywhere.
  bool module_item();
  bool simple_directive(std::uint32_t begin, std::string_view name);
  // Each sets `end` to behind its last word.
  bool version_directive(std::uint32_t& end);
  bool target_directive(std::uint32_t& end);
  bool address_size_directive(std::uint32_t& end);
  bool file_directive(std::uint32_t& end);
  bool section_directive(std::uint32_t begin, std::uint32_t& end);
  bool unknown_directive(std::uint32_t begin, std::uint32_t& end);
  bool module_variable(std::uint32_t begin);
  bool function(std::uint32_t begin, std::string_view linkage, bool is_entry);
  bool cut_function(Function& function, std::uint32_t begin);
  // What is left of a function that cannot be cut: `error_` becomes its reason. False: its end
  // cannot be found.
  bool recover(Function& function, std::uint32_t begin);
  void find_calls_that_never_return();
  bool parameter_list(std::vector<Variable>& out, Range* inside, std::uint64_t* bytes);
  bool header_directives(Function& function);
  bool body(Function& function);
  // Past the body whose brace has been read; nothing is looked at but where it ends.
  bool skip_body();
  bool statement(Function& function, std::vector<std::uint32_t>& open_scopes);
  bool label_or_instruction(Statement& statement, std::uint32_t& operand_count);
  // A dot word at the start of a statement.
  bool dot_statement(Function& function, Statement& statement);
  bool location_directive();  // `.loc` and its operands, which no semicolon ends
  // Declared names up to and including `terminator` (or, in a parameter list, up to `,` or `)`).
  // Does not fail(): false means that the text is something else, for the caller to keep as is.
  bool declaration(std::vector<Variable>& out, bool parameter);
  // Its parts: the words before the names; one name with its size; what stands behind `=`.
  bool declaration_words(Variable& prototype, std::uint32_t& align, bool parameter);
  bool declared_name(Variable& variable);
  bool initializer(Variable& variable);
  // Operands up to and including the `;`; they go to the pool, their count to `count`.
  bool operands(std::uint32_t& count);
  struct Brackets {
    char closers[kMaxBracketDepth];
    std::uint32_t depth = 0;
  };
  bool bracket(char c, Brackets& open);
  // Past everything up to and including a `;` or a balanced `{}` at depth 0; `before_functions`:
  // or up to a word that begins a function.
  bool skip_unknown(std::uint32_t begin, bool before_functions = false);
  // Past a balanced bracket that begins here.
  bool skip_balanced();
  bool trivia();

  bool fail(std::uint32_t position, const std::string& what);
  std::uint32_t line_at(std::uint32_t position);  // positions must not go down
  std::string_view slice(std::uint32_t begin, std::uint32_t end) const {
    return text_.substr(begin, end - begin);
  }

  Module module_;
  const bool bodies_;
  std::string_view text_;
  Cursor cursor_{std::string_view()};
  Error error_;
  // Operand counts of all statements, in order: the pool moves while it grows, so the spans are
  // set at the end.
  std::vector<std::uint32_t> operand_counts_;
  std::uint32_t declaration_end_ = 0;  // of the last declared name, without white space behind it
  std::size_t variable_count_ = 0;     // in all bodies
  std::uint32_t line_position_ = 0;
  std::uint32_t line_ = 1;
  // The same where the function begins that is being cut.
  std::uint32_t function_position_ = 0;
  std::uint32_t function_line_ = 1;
};

// Sets bytes (and align, where not declared) from type, vector width and dimensions. False: the
// size does not fit.
bool finish_layout(Variable& variable, std::uint32_t declared_align);

}  // namespace sluice::ptx
