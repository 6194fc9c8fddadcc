// SPDX-License-Identifier: Apache-2.0
// Declarations: variables, registers and parameters, and how large they are.
#include <algorithm>
#include <limits>

#include "kernels/ptx/parse/parser.h"

namespace sluice::ptx {

namespace {

bool space_of(std::string_view word, Space& space) {
  struct Row {
    std::string_view word;
    Space space;
  };
  static constexpr Row kRows[] = {{".reg", Space::kReg},       {".sreg", Space::kSreg},
                                  {".const", Space::kConst},   {".global", Space::kGlobal},
                                  {".local", Space::kLocal},   {".param", Space::kParam},
                                  {".shared", Space::kShared}, {".tex", Space::kTex}};
  for (const Row& row : kRows) {
    if (row.word == word) {
      space = row.space;
      return true;
    }
  }
  return false;
}

bool power_of_two(std::uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

}  // namespace

bool finish_layout(Variable& v, std::uint32_t declared_align) {
  v.element_bytes = type_bytes(v.type);
  v.align = declared_align != 0 ? declared_align
                                : std::max<std::uint32_t>(1, v.element_bytes * v.vector_width);
  if (v.space == Space::kReg || v.space == Space::kSreg) return true;
  std::uint64_t bytes = std::uint64_t{v.element_bytes} * v.vector_width;
  for (std::uint64_t d : v.dimensions) {
    if (d != 0 && bytes > std::numeric_limits<std::uint64_t>::max() / d) return false;
    bytes *= d;
  }
  v.bytes = bytes;
  return true;
}

bool Parser::declaration_words(Variable& prototype, std::uint32_t& align, bool parameter) {
  bool space_seen = false;
  for (;;) {
    if (!cursor_.skip_trivia()) return false;
    const std::string_view word = cursor_.take_dot_word();
    if (word.empty()) break;
    Space space{};
    if (word == ".visible" || word == ".extern" || word == ".weak" || word == ".common") {
      prototype.linkage = word;
    } else if (word == ".hidden" && parameter) {
      // Of parameters that the compiler added (Triton on CUDA 13.1): no other difference.
    } else if (word == ".align") {
      if (!cursor_.skip_trivia()) return false;
      std::uint64_t value = 0;
      if (!parse_integer(cursor_.take_run(lexical::kWord), value) || !power_of_two(value) ||
          value > 4096)
        return false;
      // After `.ptr` it is the alignment of what the parameter points to.
      if (!prototype.is_pointer) align = static_cast<std::uint32_t>(value);
    } else if (word == ".ptr") {
      prototype.is_pointer = true;
    } else if (word == ".v2" || word == ".v4" || word == ".v8") {
      prototype.vector_width = static_cast<std::uint32_t>(word[2] - '0');
    } else if (word == ".attribute") {
      if (!cursor_.skip_trivia() || cursor_.peek() != '(') return false;
      const std::uint32_t begin = cursor_.position();
      if (!skip_balanced()) return false;
      if (slice(begin, cursor_.position()).find(".managed") != std::string_view::npos)
        prototype.is_managed = true;
    } else if (space_of(word, space)) {
      if (!prototype.is_pointer) {
        prototype.space = space;
        space_seen = true;
      } else if (space_seen && prototype.space != Space::kParam) {
        return false;
      }
    } else if (prototype.type.empty()) {
      prototype.type = word.substr(1);
    } else {
      return false;  // two types: something newer than we are
    }
  }
  return space_seen && !prototype.type.empty();
}

bool Parser::declared_name(Variable& v) {
  if (!cursor_.skip_trivia()) return false;
  v.name = cursor_.take_run(lexical::kWord);
  if (v.name.empty()) return false;
  declaration_end_ = cursor_.position();
  if (!cursor_.skip_trivia()) return false;
  if (cursor_.accept('<')) {
    if (!cursor_.skip_trivia()) return false;
    std::uint64_t count = 0;
    if (!parse_integer(cursor_.take_run(lexical::kWord), count) || count > 0xffffffffu)
      return false;
    if (!cursor_.skip_trivia() || !cursor_.accept('>') || !cursor_.skip_trivia()) return false;
    v.register_count = static_cast<std::uint32_t>(count);
  }
  while (cursor_.accept('[')) {
    v.is_array = true;
    if (v.dimensions.size() == kMaxDimensions || !cursor_.skip_trivia()) return false;
    std::uint64_t dimension = 0;
    if (cursor_.peek() != ']' && !parse_integer(cursor_.take_run(lexical::kWord), dimension))
      return false;
    if (!cursor_.skip_trivia() || !cursor_.accept(']')) return false;
    declaration_end_ = cursor_.position();
    if (!cursor_.skip_trivia()) return false;
    v.dimensions.push_back(dimension);
  }
  return true;
}

bool Parser::initializer(Variable& v) {
  if (!cursor_.skip_trivia()) return false;
  const std::uint32_t begin = cursor_.position();
  std::uint32_t end = begin;
  while (!cursor_.at_end() && cursor_.peek() != ',' && cursor_.peek() != ';') {
    const char c = cursor_.peek();
    if (c == '{' || c == '(' || c == '[') {
      if (!skip_balanced()) return false;
    } else if (c == '}' || c == ')' || c == ']') {
      return false;
    } else if (c == '"') {
      if (!cursor_.skip_string()) return false;
    } else {
      cursor_.advance();
    }
    end = cursor_.position();
    if (!cursor_.skip_trivia()) return false;
  }
  v.initializer = slice(begin, end);
  return true;
}

bool Parser::declaration(std::vector<Variable>& out, bool parameter) {
  Variable prototype;
  std::uint32_t align = 0;
  if (!declaration_words(prototype, align, parameter)) return false;
  for (;;) {
    Variable v = prototype;
    if (!declared_name(v) || !finish_layout(v, align)) return false;
    if (!parameter && cursor_.accept('=') && !initializer(v)) return false;
    if (out.size() > kMaxVariables) return false;
    out.push_back(std::move(v));
    if (parameter) return true;
    if (cursor_.peek() != ',') return true;
    cursor_.advance();
  }
}

}  // namespace sluice::ptx
