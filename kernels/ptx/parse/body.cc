// SPDX-License-Identifier: Apache-2.0
// A function's body: its statements, scopes and declarations.
#include <algorithm>
#include <cstring>

#include "kernels/ptx/parse/parser.h"

namespace sluice::ptx {

using lexical::kOpcode;
using lexical::kStop;
using lexical::kWord;

bool Parser::body(Function& f) {
  f.scopes.push_back({});
  std::vector<std::uint32_t> open_scopes{0};
  const std::uint32_t begin = cursor_.position();
  while (!open_scopes.empty()) {
    if (!trivia()) return false;
    if (cursor_.at_end()) return fail(begin, "function's body is not closed");
    if (operand_counts_.size() > kMaxStatements || module_.operand_pool_.size() > kMaxOperands ||
        variable_count_ > kMaxVariables)
      return fail(cursor_.position(), "more statements than are allowed");
    if (!statement(f, open_scopes)) return false;
  }
  f.scopes[0].close = static_cast<std::uint32_t>(f.statements.size());
  return true;
}

bool Parser::skip_body() {
  const std::uint32_t begin = cursor_.position();
  for (std::uint32_t depth = 1;;) {
    const std::uint32_t at = cursor_.position();
    // The text has no NUL inside and one behind it.
    cursor_.seek(at + static_cast<std::uint32_t>(std::strcspn(text_.data() + at, "{}\"/#")));
    if (cursor_.at_end()) return fail(begin, "function's body is not closed");
    switch (cursor_.peek()) {
      case '{':
        ++depth;
        cursor_.advance();
        break;
      case '}':
        cursor_.advance();
        if (--depth == 0) return true;
        break;
      case '"':
        if (!cursor_.skip_string()) return fail(cursor_.position(), "string is not closed");
        break;
      default: {  // a comment, a line of the preprocessor, or neither
        const std::uint32_t before = cursor_.position();
        if (!trivia()) return false;
        if (cursor_.position() == before) cursor_.advance();
      }
    }
  }
}

bool Parser::statement(Function& f, std::vector<std::uint32_t>& open_scopes) {
  Statement s;
  const std::uint32_t begin = cursor_.position();
  std::uint32_t operand_count = 0;
  const auto index = static_cast<std::uint32_t>(f.statements.size());
  s.line = line_at(begin);
  s.scope = open_scopes.back();
  const char c = cursor_.peek();
  if (c == '{') {
    if (open_scopes.size() == kMaxScopeDepth) return fail(begin, "scopes nest too deep");
    s.kind = StatementKind::kScopeOpen;
    cursor_.advance();
    const auto scope = static_cast<std::uint32_t>(f.scopes.size());
    f.scopes.push_back({s.scope, f.scopes[s.scope].depth + 1, index, 0});
    open_scopes.push_back(scope);
    s.scope = scope;
  } else if (c == '}') {
    cursor_.advance();
    f.scopes[s.scope].close = index;
    open_scopes.pop_back();
    if (open_scopes.empty()) return true;  // the body's own brace is not a statement
    s.kind = StatementKind::kScopeClose;
  } else if (c == '.') {
    const std::size_t pool = module_.operand_pool_.size();
    if (!dot_statement(f, s)) return false;
    operand_count = static_cast<std::uint32_t>(module_.operand_pool_.size() - pool);
  } else if (c == ';') {  // an empty statement
    s.kind = StatementKind::kDirective;
    cursor_.advance();
    s.opcode = slice(begin, cursor_.position());
  } else if (!label_or_instruction(s, operand_count)) {
    return false;
  }
  s.range = {begin, cursor_.position()};
  f.statements.push_back(s);
  operand_counts_.push_back(operand_count);
  return true;
}

bool Parser::label_or_instruction(Statement& s, std::uint32_t& operand_count) {
  if (cursor_.accept('@')) {
    if (!trivia()) return false;
    s.guard_negated = cursor_.accept('!');
    if (s.guard_negated && !trivia()) return false;
    s.guard = cursor_.take_run(kWord);
    if (s.guard.empty()) return fail(cursor_.position(), "expected a predicate after `@`");
    if (!trivia()) return false;
  }
  const std::uint32_t word_begin = cursor_.position();
  const std::string_view word = cursor_.take_run(kWord);
  if (word.empty()) return fail(word_begin, "expected an instruction or a label");
  const std::uint32_t word_end = cursor_.position();
  if (!trivia()) return false;
  if (s.guard.empty() && cursor_.peek() == ':' && cursor_.peek_next() != ':') {
    cursor_.advance();
    s.kind = StatementKind::kLabel;
    s.opcode = word;
    return true;
  }
  s.kind = StatementKind::kInstruction;
  cursor_.seek(word_end);
  cursor_.take_run(kOpcode);
  std::uint32_t opcode_end = cursor_.position();
  // `ld .global` is one opcode; no operand begins with a dot.
  for (;;) {
    if (!trivia()) return false;
    if (cursor_.peek() != '.') break;
    cursor_.take_run(kOpcode);
    opcode_end = cursor_.position();
  }
  s.opcode = slice(word_begin, opcode_end);
  return operands(operand_count);
}

bool Parser::dot_statement(Function& f, Statement& s) {
  const std::uint32_t begin = cursor_.position();
  s.opcode = cursor_.take_dot_word();
  if (s.opcode.empty()) return fail(begin, "expected a directive");
  std::string_view space = s.opcode;
  while (is_linkage(space)) {
    if (!trivia()) return false;
    space = cursor_.take_dot_word();
  }
  if (is_space(space)) {
    cursor_.seek(begin);
    const std::size_t first = f.variables.size();
    if (declaration(f.variables, false) && cursor_.accept(';')) {
      s.kind = StatementKind::kDeclaration;
      s.opcode = space;
      for (std::size_t i = first; i < f.variables.size(); ++i) {
        f.variables[i].scope = s.scope;
        f.variables[i].line = s.line;
        f.variables[i].range = {begin, cursor_.position()};
      }
      variable_count_ += f.variables.size() - first;
      return true;
    }
    f.variables.resize(first);  // not a declaration that we understand
    cursor_.seek(begin);
    cursor_.take_dot_word();
  }
  s.kind = StatementKind::kDirective;
  if (s.opcode == ".loc") return location_directive();
  std::uint32_t count = 0;
  return operands(count);
}

bool Parser::location_directive() {
  // .loc FILE LINE COLUMN [, function_name LABEL [+ IMM]] [, inlined_at FILE LINE COLUMN]
  std::uint32_t end = cursor_.position();
  for (int i = 0; i < 3; ++i) {
    if (!trivia()) return false;
    std::uint64_t ignored = 0;
    if (!parse_integer(cursor_.take_run(kWord), ignored))
      return fail(cursor_.position(), "expected a number in .loc");
    end = cursor_.position();
  }
  for (;;) {
    if (!trivia()) return false;
    if (!cursor_.accept(',')) break;
    if (!trivia()) return false;
    const std::string_view word = cursor_.take_run(kWord);
    int words = 0;
    if (word == "function_name") words = 1;
    if (word == "inlined_at") words = 3;
    if (words == 0) return fail(cursor_.position(), "unknown attribute of .loc");
    for (int i = 0; i < words; ++i) {
      if (!trivia()) return false;
      cursor_.take_run(kWord);
      end = cursor_.position();
    }
    if (!trivia()) return false;
    if (words == 1 && cursor_.accept('+')) {
      if (!trivia()) return false;
      cursor_.take_run(kWord);
      end = cursor_.position();
    }
  }
  cursor_.seek(end);  // white space belongs to no statement
  return true;
}

// One of ( [ { ) ] }.
bool Parser::bracket(char c, Brackets& open) {
  if (c == '(' || c == '[' || c == '{') {
    if (open.depth == kMaxBracketDepth) return fail(cursor_.position(), "brackets nest too deep");
    open.closers[open.depth++] = closer_of(c);
    return true;
  }
  if (open.depth == 0 || open.closers[open.depth - 1] != c)
    return fail(cursor_.position(), open.depth == 0 && c == '}'
                                        ? "`}` where a statement should end with `;`"
                                        : "brackets do not match");
  --open.depth;
  return true;
}

bool Parser::operands(std::uint32_t& count) {
  std::vector<std::string_view>& pool = module_.operand_pool_;
  const std::size_t first = pool.size();
  Brackets open;
  if (!trivia()) return false;
  const std::uint32_t statement_begin = cursor_.position();
  std::uint32_t begin = statement_begin;
  std::uint32_t end = begin;  // of the last byte that is not trivia
  for (;;) {
    while (!cursor_.at_end() && !cursor_.is(kStop | lexical::kSpace)) {
      cursor_.advance();
      end = cursor_.position();
    }
    if (cursor_.at_end()) return fail(statement_begin, "statement has no `;`");
    const char c = cursor_.peek();
    switch (c) {
      case ';':
        if (open.depth != 0) return fail(cursor_.position(), "`;` inside brackets");
        if (end > begin || pool.size() > first) pool.push_back(slice(begin, std::max(begin, end)));
        cursor_.advance();
        count = static_cast<std::uint32_t>(pool.size() - first);
        return true;
      case ',':
        cursor_.advance();
        if (open.depth == 0) {
          if (pool.size() > kMaxOperands) return fail(cursor_.position(), "too many operands");
          pool.push_back(slice(begin, std::max(begin, end)));
          if (!trivia()) return false;
          begin = end = cursor_.position();
        }
        continue;
      case '(':
      case '[':
      case '{':
      case ')':
      case ']':
      case '}':
        if (!bracket(c, open)) return false;
        break;
      case '"':
        if (!cursor_.skip_string()) return fail(cursor_.position(), "string is not closed");
        end = cursor_.position();
        continue;
      default: {  // white space or `/`
        const std::uint32_t before = cursor_.position();
        if (!trivia()) return false;
        if (cursor_.position() != before) continue;
      }
    }
    cursor_.advance();
    end = cursor_.position();
  }
}

}  // namespace sluice::ptx
