// SPDX-License-Identifier: Apache-2.0
#include "kernels/ptx/parse/parser.h"

#include <algorithm>
#include <unordered_set>

#include "kernels/ptx/known_functions.h"
#include "kernels/ptx/registers.h"

namespace sluice::ptx {

using lexical::kWord;

namespace {

std::uint32_t to_u32(std::string_view text) {
  std::uint64_t value = 0;
  if (!parse_integer(text, value) || value > 0xffffffffu) return 0;
  return static_cast<std::uint32_t>(value);
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  while (!text.empty() &&
         (lexical::kClass[static_cast<unsigned char>(text.front())] & lexical::kSpace))
    text.remove_prefix(1);
  while (!text.empty() &&
         (lexical::kClass[static_cast<unsigned char>(text.back())] & lexical::kSpace))
    text.remove_suffix(1);
  return text;
}

Parser::Parser(std::string text, bool bodies) : bodies_(bodies) {
  module_.text_ = std::make_shared<const std::string>(std::move(text));
  text_ = *module_.text_;
  cursor_ = Cursor(text_);
}

// See Module::address_size().
static std::uint32_t used_address_size(const Module& module) {
  for (const Function& f : module.functions())
    for (const Statement& s : f.statements) {
      if (s.kind != StatementKind::kInstruction) continue;
      const std::string_view base = base_opcode(s.opcode);
      const bool loads = base == "ld" || base == "ldu" || base == "atom";
      if ((!loads && base != "st" && base != "red") || s.operands.size() <= loads ||
          has_modifier(s.opcode, "param") || has_modifier(s.opcode, "local") ||
          s.opcode.find(".shared") != s.opcode.npos)
        continue;
      std::size_t at = 0;
      const std::uint32_t bits = register_bits(f, next_identifier(s.operands[loads], at), s);
      if (bits == 32 || bits == 64) return bits;
    }
  return 64;
}

Result<Module> Parser::run() {
  if (text_.size() > kMaxTextBytes) return Error{0, "PTX text is larger than 64 MiB"};
  // A NUL would end the text for the driver but not for us: the two must see the same module.
  if (const auto nul = text_.find('\0'); nul != text_.npos) {
    fail(static_cast<std::uint32_t>(nul), "a NUL byte inside the text");
    return std::move(error_);
  }
  for (;;) {
    if (!trivia()) return std::move(error_);
    if (cursor_.at_end()) break;
    if (!module_item()) return std::move(error_);
  }
  const std::string_view* next = module_.operand_pool_.data();
  std::size_t statement_index = 0;
  for (Function& f : module_.functions_) {
    for (Statement& s : f.statements) {
      const std::uint32_t count = operand_counts_[statement_index++];
      s.operands = {next, count};
      next += count;
    }
  }
  find_calls_that_never_return();
  if (bodies_ && module_.address_size_ == 0) module_.address_size_ = used_address_size(module_);
  return std::move(module_);
}

void Parser::find_calls_that_never_return() {
  // The device's runtime has them; a function of the module with such a name may return.
  std::unordered_set<std::string_view> ends;
  for (const KnownFunction& f : kKnownFunctions)
    if (f.ends_thread) ends.insert(f.name);
  for (const Function& f : module_.functions_) {
    const bool says_so = std::any_of(f.directives.begin(), f.directives.end(),
                                     [](const auto& d) { return d.name == ".noreturn"; });
    if (says_so)
      ends.insert(f.name);
    else if (f.has_body)
      ends.erase(f.name);
  }
  for (Function& f : module_.functions_)
    for (Statement& s : f.statements) {
      if (s.kind != StatementKind::kInstruction || base_opcode(s.opcode) != "call") continue;
      const std::size_t callee = !s.operands.empty() && s.operands[0].starts_with('(') ? 1 : 0;
      s.never_returns = callee < s.operands.size() && ends.count(s.operands[callee]) != 0;
    }
}

bool Parser::fail(std::uint32_t position, const std::string& what) {
  // Functions that are not understood are many in hostile text: lines are counted from the function
  // on, and columns as far back as anybody reads.
  constexpr std::size_t kMaxColumn = 4096;
  const auto until = text_.substr(0, std::min<std::size_t>(position, text_.size()));
  const bool here = until.size() >= function_position_;
  const auto line = (here ? function_line_ : 1) +
                    std::count(until.begin() + (here ? function_position_ : 0), until.end(), '\n');
  const auto tail = until.substr(until.size() - std::min(until.size(), kMaxColumn));
  const auto newline = tail.rfind('\n');
  const auto column = tail.size() - (newline == tail.npos ? 0 : newline + 1) + 1;
  error_ = {0, "line " + std::to_string(line) + ", column " + std::to_string(column) + ": " + what};
  return false;
}

std::uint32_t Parser::line_at(std::uint32_t position) {
  line_ += static_cast<std::uint32_t>(
      std::count(text_.begin() + line_position_, text_.begin() + position, '\n'));
  line_position_ = position;
  return line_;
}

bool Parser::trivia() {
  if (cursor_.skip_trivia()) return true;
  return fail(cursor_.position(), "comment is not closed");
}

bool Parser::skip_balanced() {
  char stack[kMaxBracketDepth];
  std::uint32_t depth = 0;
  const std::uint32_t begin = cursor_.position();
  for (;;) {
    if (!trivia()) return false;
    if (cursor_.at_end()) return fail(begin, "bracket is not closed");
    const char c = cursor_.peek();
    if (c == '"') {
      if (!cursor_.skip_string()) return fail(cursor_.position(), "string is not closed");
      continue;
    }
    if (c == '(' || c == '[' || c == '{') {
      if (depth == kMaxBracketDepth) return fail(cursor_.position(), "brackets nest too deep");
      stack[depth++] = closer_of(c);
    } else if (c == ')' || c == ']' || c == '}') {
      if (c != stack[depth - 1]) return fail(cursor_.position(), "brackets do not match");
      if (--depth == 0) {
        cursor_.advance();
        return true;
      }
    }
    cursor_.advance();
  }
}

bool Parser::skip_unknown(std::uint32_t begin, bool before_functions) {
  for (;;) {
    if (!trivia()) return false;
    if (cursor_.at_end()) return fail(begin, "statement has no end");
    switch (cursor_.peek()) {
      case ';':
        cursor_.advance();
        return true;
      case '{':
        return skip_balanced();
      case '(':
      case '[':
        if (!skip_balanced()) return false;
        break;
      case '}':
      case ')':
      case ']':
        return fail(cursor_.position(), "bracket was not opened");
      case '"':
        if (!cursor_.skip_string()) return fail(cursor_.position(), "string is not closed");
        break;
      case '.':
        if (before_functions) {
          const std::uint32_t at = cursor_.position();
          const std::string_view word = cursor_.take_dot_word();
          const bool begins = word == ".entry" || word == ".func" || is_linkage(word);
          cursor_.seek(begins ? at : std::max(at + 1, cursor_.position()));
          if (begins) return true;
          break;
        }
        cursor_.advance();
        break;
      default:
        cursor_.advance();
    }
  }
}

bool Parser::module_item() {
  const std::uint32_t begin = cursor_.position();
  std::string_view linkage;
  if (cursor_.peek() == '@' && cursor_.peek_next() == '@') {
    // `@@DWARF ...`, which ends with its line: debug information of ISA versions before 2.0.
    while (!cursor_.at_end() && cursor_.peek() != '\n') cursor_.advance();
    const Range line{begin, cursor_.position()};
    module_.items_.push_back(
        {Item::Kind::kDirective, static_cast<std::uint32_t>(module_.directives_.size()), line});
    module_.directives_.push_back({slice(begin, begin + 2), line_at(begin), line});
    return true;
  }
  std::string_view word = cursor_.take_dot_word();
  while (is_linkage(word)) {
    linkage = word;
    if (!trivia()) return false;
    word = cursor_.take_dot_word();
  }
  if (word.empty()) return fail(cursor_.position(), "expected a directive");
  if (module_.variables_.size() > kMaxVariables || module_.functions_.size() > kMaxFunctions ||
      module_.directives_.size() > kMaxVariables)
    return fail(begin, "more declarations than are allowed");
  if (word == ".entry" || word == ".func") return function(begin, linkage, word == ".entry");
  if (is_space(word)) {
    cursor_.seek(begin);
    return module_variable(begin);
  }
  return simple_directive(begin, word);
}

bool Parser::simple_directive(std::uint32_t begin, std::string_view name) {
  const std::uint32_t line = line_at(begin);
  std::uint32_t end = 0;
  const bool good = name == ".version"        ? version_directive(end)
                    : name == ".target"       ? target_directive(end)
                    : name == ".address_size" ? address_size_directive(end)
                    : name == ".file"         ? file_directive(end)
                    : name == ".section"      ? section_directive(begin, end)
                                              : unknown_directive(begin, end);
  if (!good) return false;
  const Range range{begin, end};
  module_.items_.push_back(
      {Item::Kind::kDirective, static_cast<std::uint32_t>(module_.directives_.size()), range});
  module_.directives_.push_back({name, line, range});
  return true;
}

bool Parser::version_directive(std::uint32_t& end) {
  if (!trivia()) return false;
  const std::uint32_t number = cursor_.position();
  const std::string_view major = cursor_.take_run(kWord);
  std::uint64_t a = 0, b = 0;
  bool good = parse_integer(major, a) && cursor_.accept('.');
  good = good && parse_integer(cursor_.take_run(kWord), b) && a < 1000 && b < 1000;
  if (!good) return fail(number, "expected a version number such as 9.0");
  module_.version_ = {static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(b)};
  end = cursor_.position();
  module_.version_range_ = {number, end};
  return true;
}

bool Parser::target_directive(std::uint32_t& end) {
  do {
    if (!trivia()) return false;
    const std::string_view word = cursor_.take_run(kWord);
    if (word.empty()) return fail(cursor_.position(), "expected a target such as sm_90");
    module_.targets_.push_back(word);
    end = cursor_.position();
    if (!trivia()) return false;
  } while (cursor_.accept(','));
  return true;
}

bool Parser::address_size_directive(std::uint32_t& end) {
  if (!trivia()) return false;
  const std::uint32_t size = to_u32(cursor_.take_run(kWord));
  end = cursor_.position();
  if (size != 32 && size != 64) return fail(end, "address size must be 32 or 64");
  module_.address_size_ = size;
  return true;
}

// .file INDEX "NAME" [, TIMESTAMP, SIZE]
bool Parser::file_directive(std::uint32_t& end) {
  if (!trivia()) return false;
  cursor_.take_run(kWord);
  if (!trivia()) return false;
  if (cursor_.peek() != '"' || !cursor_.skip_string())
    return fail(cursor_.position(), "expected a file name in quotes");
  end = cursor_.position();
  if (!trivia()) return false;
  while (cursor_.accept(',')) {
    if (!trivia()) return false;
    cursor_.take_run(kWord);
    end = cursor_.position();
    if (!trivia()) return false;
  }
  return true;
}

// Its name may have dots; then a block.
bool Parser::section_directive(std::uint32_t begin, std::uint32_t& end) {
  while (!cursor_.at_end() && cursor_.peek() != '{') {
    if (!trivia()) return false;
    if (cursor_.peek() != '{') cursor_.advance();
  }
  if (cursor_.at_end()) return fail(begin, "section has no block");
  if (!skip_balanced()) return false;
  end = cursor_.position();
  return true;
}

bool Parser::unknown_directive(std::uint32_t begin, std::uint32_t& end) {
  if (!skip_unknown(begin, true)) return false;
  end = begin + static_cast<std::uint32_t>(trimmed(slice(begin, cursor_.position())).size());
  cursor_.seek(end);
  return true;
}

bool Parser::module_variable(std::uint32_t begin) {
  const std::uint32_t line = line_at(begin);
  const std::size_t first = module_.variables_.size();
  if (!declaration(module_.variables_, false) || !cursor_.accept(';')) {
    // Not a declaration that we understand: keep it whole.
    module_.variables_.resize(first);
    cursor_.seek(begin);
    if (!skip_unknown(begin)) return false;
    const Range range{begin, cursor_.position()};
    Cursor name(text_, begin);
    module_.items_.push_back(
        {Item::Kind::kDirective, static_cast<std::uint32_t>(module_.directives_.size()), range});
    module_.directives_.push_back({name.take_dot_word(), line, range});
    return true;
  }
  const Range range{begin, cursor_.position()};
  for (std::size_t i = first; i < module_.variables_.size(); ++i) {
    module_.variables_[i].line = line;
    module_.variables_[i].range = range;
  }
  module_.items_.push_back({Item::Kind::kVariable, static_cast<std::uint32_t>(first), range});
  return true;
}

bool Parser::function(std::uint32_t begin, std::string_view linkage, bool is_entry) {
  Function f;
  f.is_entry = is_entry;
  f.linkage = linkage;
  f.line = line_at(begin);
  function_position_ = line_position_;
  function_line_ = line_;
  const std::size_t operands = module_.operand_pool_.size();
  const std::size_t statements = operand_counts_.size(), variables = variable_count_;
  if (!cut_function(f, begin)) {
    module_.operand_pool_.resize(operands);
    operand_counts_.resize(statements);
    variable_count_ = variables;
    line_position_ = function_position_;
    line_ = function_line_;
    if (!recover(f, begin)) return false;
  }
  const auto index = static_cast<std::uint32_t>(f.name.empty() ? module_.directives_.size()
                                                               : module_.functions_.size());
  module_.items_.push_back(
      {f.name.empty() ? Item::Kind::kDirective : Item::Kind::kFunction, index, f.range});
  if (f.name.empty())
    module_.directives_.push_back({is_entry ? ".entry" : ".func", f.line, f.range});
  else
    module_.functions_.push_back(std::move(f));
  return true;
}

bool Parser::cut_function(Function& f, std::uint32_t begin) {
  if (!trivia()) return false;
  while (cursor_.peek() == '.') {  // `.attribute(...)` before the name
    // A dot alone is no word: without this it would be read for ever.
    if (cursor_.take_dot_word().empty())
      return fail(cursor_.position(), "expected the name of a function");
    if (!trivia()) return false;
    if (cursor_.peek() == '(') {
      if (!skip_balanced() || !trivia()) return false;
    }
    if (cursor_.at_end()) return fail(begin, "function has no name");
  }
  if (!f.is_entry && cursor_.peek() == '(') {
    if (!parameter_list(f.returns, nullptr, nullptr) || !trivia()) return false;
  }
  const std::uint32_t name_begin = cursor_.position();
  f.name = cursor_.take_run(kWord);
  if (f.name.empty()) return fail(name_begin, "expected the name of a function");
  f.name_range = {name_begin, cursor_.position()};
  f.params_range = {cursor_.position(), cursor_.position()};
  if (!trivia()) return false;
  if (cursor_.peek() == '(') {
    f.has_param_list = true;
    if (!parameter_list(f.params, &f.params_range, &f.param_bytes) || !trivia()) return false;
  }
  if (!header_directives(f)) return false;
  if (cursor_.accept(';')) {
    f.range = {begin, cursor_.position()};
    return true;
  }
  f.has_body = true;
  const std::uint32_t body_begin = cursor_.position();
  cursor_.advance();  // header_directives has seen the brace
  if (bodies_ ? !body(f) : !skip_body()) return false;
  f.body_range = {body_begin, cursor_.position()};
  f.range = {begin, cursor_.position()};
  return true;
}

bool Parser::recover(Function& f, std::uint32_t begin) {
  const Error why = error_;
  // From its name on, where it has one: what is before that has no semicolon or brace.
  cursor_.seek(f.name.empty() ? begin : f.name_range.end);
  for (;;) {
    const std::uint32_t part = cursor_.position();
    if (!skip_unknown(part)) {
      error_ = why;  // the first thing that was wrong tells more
      return false;
    }
    // The pragmas of its head end with semicolons; so does a function without a body.
    const std::string_view skipped = slice(part, cursor_.position());
    if (skipped.ends_with('}') || skipped.find(".pragma") == skipped.npos) break;
  }
  Function left;
  left.is_entry = f.is_entry;
  left.has_body = true;
  left.linkage = f.linkage;
  left.name = f.name;
  left.name_range = f.name_range;
  left.line = f.line;
  left.params_range = {f.name_range.end, f.name_range.end};
  left.body_range = {cursor_.position() - 1, cursor_.position()};
  left.range = {begin, cursor_.position()};
  left.scopes.push_back({});
  left.not_understood = why.message;
  f = std::move(left);
  return true;
}

bool Parser::parameter_list(std::vector<Variable>& out, Range* inside, std::uint64_t* bytes) {
  cursor_.advance();  // (
  if (inside) inside->begin = cursor_.position();
  std::uint64_t offset = 0;
  if (!trivia()) return false;
  if (cursor_.peek() != ')') {
    do {
      if (!trivia()) return false;
      const std::uint32_t begin = cursor_.position();
      const std::size_t first = out.size();
      if (!declaration(out, true) || out.size() != first + 1)
        return fail(begin, "parameter is not understood");
      Variable& p = out.back();
      p.range = {begin, declaration_end_};
      p.line = line_at(begin);
      const std::uint64_t align = std::max<std::uint64_t>(p.align, 1);
      p.offset = (offset + align - 1) / align * align;
      offset = p.offset + p.bytes;
      if (offset > kMaxTextBytes) return fail(begin, "parameters are too large");
      if (!trivia()) return false;
    } while (cursor_.accept(','));
  }
  if (inside) inside->end = cursor_.position();
  if (bytes) *bytes = offset;
  if (!cursor_.accept(')')) return fail(cursor_.position(), "expected `,` or `)`");
  return true;
}

bool Parser::header_directives(Function& f) {
  for (;;) {
    if (!trivia()) return false;
    const char c = cursor_.peek();
    if (c == ';' || c == '{') return true;
    HeaderDirective d;
    d.range.begin = cursor_.position();
    d.name = cursor_.take_dot_word();
    if (d.name.empty())
      return fail(cursor_.position(), "expected a directive, `{` or `;` after the function's head");
    d.range.end = cursor_.position();
    std::uint32_t argument_begin = cursor_.position(), argument_end = argument_begin;
    bool any = false;
    const auto push = [&] { d.arguments.push_back(trimmed(slice(argument_begin, argument_end))); };
    for (;;) {
      if (!trivia()) return false;
      if (cursor_.at_end()) return fail(d.range.begin, "function has no body");
      const char a = cursor_.peek();
      if (a == '{' || a == '.' || a == ';') break;
      if (!any) argument_begin = cursor_.position();
      any = true;
      if (a == ',') {
        push();
        cursor_.advance();
        argument_begin = argument_end = cursor_.position();
        continue;
      }
      if (a == '"') {
        if (!cursor_.skip_string()) return fail(cursor_.position(), "string is not closed");
      } else if (a == '(' || a == '[') {
        if (!skip_balanced()) return false;
      } else {
        cursor_.advance();
      }
      argument_end = cursor_.position();
      d.range.end = argument_end;
    }
    if (any) push();
    if (d.name == ".pragma" && cursor_.peek() == ';') {
      cursor_.advance();
      d.range.end = cursor_.position();
    }
    const auto dimensions = [&](std::array<std::uint32_t, 3>& out) {
      for (std::size_t i = 0; i < 3; ++i)
        out[i] = i < d.arguments.size() ? to_u32(d.arguments[i]) : 1;
    };
    if (d.name == ".maxntid") dimensions(f.maxntid);
    if (d.name == ".reqntid") dimensions(f.reqntid);
    if (d.name == ".minnctapersm" && !d.arguments.empty()) f.minnctapersm = to_u32(d.arguments[0]);
    if (d.name == ".maxnreg" && !d.arguments.empty()) f.maxnreg = to_u32(d.arguments[0]);
    f.directives.push_back(std::move(d));
  }
}

Result<Module> Module::parse(std::string text) { return Parser(std::move(text)).run(); }
Result<Module> Module::parse_declarations(std::string text) {
  return Parser(std::move(text), false).run();
}

}  // namespace sluice::ptx
