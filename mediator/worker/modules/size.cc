// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/modules/size.h"

#include <algorithm>
#include <cctype>
#include <limits>

#include "mediator/base/find_text.h"
#include "mediator/worker/limits.h"
#include "mediator/worker/ptx_chars.h"

namespace sluice::worker {

namespace {

using Bytes = std::optional<uint64_t>;

Bytes add(Bytes a, Bytes b) {
  uint64_t sum;
  if (!a || !b || __builtin_add_overflow(*a, *b, &sum)) return std::nullopt;
  return sum;
}
Bytes multiply(Bytes a, Bytes b) {
  uint64_t product;
  if (!a || !b || __builtin_mul_overflow(*a, *b, &product)) return std::nullopt;
  return product;
}

// Whether the `.global` or `.const` at `at` is no modifier of an instruction (ld.global), whose
// name stands before it without a blank. Where what stands there is long: yes.
bool begins_directive(std::string_view text, size_t at) {
  constexpr size_t kLongest = 64;
  size_t from = at;
  while (from > 0 && (is_ptx_word(text[from - 1]) || text[from - 1] == '.'))
    if (at - --from > kLongest) return true;
  return text[from] < 'a' || text[from] > 'z';
}

// Tokens of PTX: directives and modifiers (".u32"), words and numbers, single characters. Comments,
// line directives and strings are passed over; a string is the token `"`.
class Tokens {
 public:
  explicit Tokens(std::string_view text) : text_(text) { advance(); }
  std::string_view token() const { return token_; }
  bool end() const { return token_.empty(); }
  bool is_space() const { return token_ == ".global" || token_ == ".const"; }
  // ... and begins a declaration of variables.
  bool declares() const {
    return is_space() && begins_directive(text_, static_cast<size_t>(token_.data() - text_.data()));
  }
  const char* text_end() const { return text_.data() + text_.size(); }
  // There was something that another reader may take for more than it is here.
  bool broken() const { return broken_; }
  void advance() {
    skip_blank();
    if (at_ >= text_.size()) {
      token_ = {};
      return;
    }
    const size_t from = at_++;
    const char c = text_[from];
    if (c == '"') {
      skip_string();
      token_ = text_.substr(from, 1);
      return;
    }
    // Old debug information: other readers skip the line, comments in it included.
    broken_ |= c == '@' && text_.substr(at_, 1) == "@";
    if (c == '.' || is_ptx_word(c))
      while (at_ < text_.size() && is_ptx_word(text_[at_])) ++at_;
    token_ = text_.substr(from, at_ - from);
  }
  bool accept(std::string_view wanted) {
    if (token_ != wanted) return false;
    advance();
    return true;
  }

 private:
  void skip_blank() {
    while (at_ < text_.size()) {
      if (is_ptx_blank(text_[at_])) {
        ++at_;
      } else if (is_ptx_pair(text_, at_, '/', '/')) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (is_ptx_pair(text_, at_, '/', '*')) {
        const size_t close = text_.find("*/", at_ + 2);
        broken_ |= close == std::string_view::npos;
        at_ = close == std::string_view::npos ? text_.size() : close + 2;
      } else if (text_[at_] == '#') {
        // A macro could stand for anything; a line's number cannot, at the beginning of one.
        const std::string_view line = text_.substr(at_, text_.find('\n', at_) - at_);
        const size_t word = line.find_first_not_of(" \t", 1);
        const bool number = word != std::string_view::npos &&
                            (std::isdigit(static_cast<unsigned char>(line[word])) ||
                             line.substr(word, 4) == "line");
        const bool begins = at_ == 0 || text_[at_ - 1] == '\n';
        broken_ |= !begins || !number || line.find('\\') != std::string_view::npos;
        at_ += line.size();
      } else {
        return;
      }
    }
  }

  // Behind its first quote. Whether `\"` ends it, and whether it may go over lines, readers say
  // differently; in `.section` a quote is no string's for some.
  void skip_string() {
    const size_t close = std::min(text_.find('"', at_), text_.size());
    const std::string_view inside = text_.substr(at_, close - at_);
    broken_ |= close == text_.size() || inside.ends_with('\\') ||
               inside.find('\n') != std::string_view::npos || declares_variables(inside);
    at_ = std::min(close + 1, text_.size());
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string_view token_;
  bool broken_ = false;
};

// Decimal, hexadecimal, octal or binary, with or without U.
Bytes number(std::string_view word) {
  if (!word.empty() && (word.back() == 'U' || word.back() == 'u')) word.remove_suffix(1);
  unsigned base = 10;
  if (word.size() > 1 && word[0] == '0') {
    const char second = word[1];
    base = second == 'x' || second == 'X' ? 16 : second == 'b' || second == 'B' ? 2 : 8;
    word.remove_prefix(base == 8 ? 1 : 2);
  }
  if (word.empty()) return std::nullopt;
  Bytes value = 0;
  for (const char c : word) {
    const int lower = std::tolower(static_cast<unsigned char>(c));
    const unsigned digit = static_cast<unsigned>(c <= '9' ? c - '0' : lower - 'a' + 10);
    if (!is_ptx_word(c) || digit >= base) return std::nullopt;
    value = add(multiply(value, base), digit);
  }
  return value;
}

// What an array's size may be: sums and products of numbers, with brackets. Nothing else (a
// difference, a shift, a cast) is needed by any compiler, and is refused.
class Size {
 public:
  explicit Size(Tokens& tokens) : t_(tokens) {}
  Bytes sum() {
    Bytes value = product();
    while (value && t_.accept("+")) value = add(value, product());
    return value;
  }

 private:
  Bytes product() {
    Bytes value = factor();
    while (value && t_.accept("*")) value = multiply(value, factor());
    return value;
  }
  Bytes factor() {
    constexpr int kMaxDepth = 64;
    if (t_.accept("(")) {
      if (++depth_ > kMaxDepth) return std::nullopt;
      const Bytes value = sum();
      --depth_;
      return t_.accept(")") ? value : std::nullopt;
    }
    const Bytes value = number(t_.token());
    t_.advance();
    return value;
  }

  Tokens& t_;
  int depth_ = 0;
};

constexpr uint64_t kMostVector = 8;
// All types whose names do not say (.texref, types to come) take no more than a tensor map.
constexpr uint64_t kMostElementBytes = 128;

// Of one element: the number in a type's name is its bits (.u32, .f16x2, .b128).
uint64_t element_bytes(std::string_view type) {
  const auto digits = [&](size_t* at) {
    uint64_t value = 0;
    while (*at < type.size() && std::isdigit(static_cast<unsigned char>(type[*at])) && value < 4096)
      value = value * 10 + static_cast<uint64_t>(type[(*at)++] - '0');
    return value;
  };
  if (type.size() < 3 || std::string_view("usbf").find(type[1]) == std::string_view::npos)
    return kMostElementBytes;
  size_t at = 2;
  uint64_t bits = digits(&at);
  if (at < type.size() && type[at] == 'x') bits *= digits(&++at);
  return at != type.size() || bits == 0 ? kMostElementBytes : (bits + 7) / 8;
}

// A constant bank ([1], of old texts) and what follows it up to the variables' names. No value: an
// alignment that cannot be.
struct Layout {
  uint64_t element = 0, vector = 1, align = kLeastVariableAlign;
  bool here = false;  // .visible and the like, which take .extern back
};
std::optional<Layout> layout(Tokens& t) {
  Layout of;
  if (t.token() == "[") {
    Tokens bank = t;
    bank.advance();
    if (!number(bank.token())) return of;  // an operand
    bank.advance();
    bank.accept("]");
    t = bank;
  }
  while (t.token().starts_with('.')) {
    const std::string_view word = t.token();
    t.advance();
    if (word == ".align") {
      const Bytes value = number(t.token());
      if (!value || *value > kMostVariableAlign) return std::nullopt;
      of.align = std::max(of.align, *value);
      t.advance();
    } else if (word == ".attribute") {
      int depth = 0;  // .attribute(.managed, .unified(1, 2))
      do {
        depth += t.token() == "(" ? 1 : t.token() == ")" ? -1 : 0;
        t.advance();
      } while (depth > 0 && !t.end());
    } else if (word == ".visible" || word == ".weak" || word == ".common") {
      of.here = true;
    } else if (word == ".v2" || word == ".v4" || word == ".v8") {
      of.vector = std::max(of.vector, static_cast<uint64_t>(word[2] - '0'));
    } else {
      of.element = std::max(of.element, element_bytes(word));
    }
  }
  return of;
}

// What stands before `.global` or `.const`.
struct Before {
  bool external = false;     // .extern
  bool pointer = false;      // .ptr: a parameter's
  bool other_space = false;  // `.local .v4 .global`: what is said there holds for some
  bool instruction = false;  // if not, what is not understood is refused
};
// Behind it: the variables declared there. What is an instruction's (ld.global.u32 ...) or points
// there (.ptr .global) is counted as a variable or two of some bytes.
Bytes declared(Tokens& t, const Before& before) {
  std::optional<Layout> of = layout(t);
  if (!of) return std::nullopt;
  const bool sure = !before.instruction && !before.pointer;
  const bool mixed = before.other_space && !before.pointer;
  if (mixed || (sure && of->element == 0)) of->element = kMostElementBytes;
  if (mixed) of->vector = kMostVector;
  const uint64_t align = of->align;
  Bytes total = 0;
  bool named = false;
  while (!t.end() && is_ptx_word(t.token()[0])) {
    named = true;
    t.advance();
    Bytes bytes = multiply(of->element, of->vector);
    bool open = false;  // an array as long as its initial value: [], and [0] for some
    while (t.accept("[")) {
      if (t.accept("]")) {
        open = true;
        continue;
      }
      const Bytes size = Size(t).sum();
      if (size == Bytes(0))
        open = true;
      else
        bytes = multiply(bytes, size);
      if (!bytes || !t.accept("]")) return std::nullopt;
    }
    if (t.accept("=")) {
      uint64_t values = 1;
      int depth = 0;
      for (; !t.end() && t.token() != ";" && (depth > 0 || t.token() != ","); t.advance()) {
        if (t.token() == "{") ++depth;
        if (t.token() == "}" && --depth < 0) break;
        if (t.is_space()) return std::nullopt;
        ++values;
      }
      if (open) bytes = multiply(bytes, values);
    }
    bytes = add(bytes, align - 1);
    if (!bytes) return std::nullopt;
    if (!before.external || of->here) total = add(total, *bytes / align * align);
    if (!t.accept(",")) break;
  }
  return sure && (!named || t.token() != ";") ? std::nullopt : total;
}

bool ends_a_declaration(char c) {
  return c == ';' || c == ',' || c == '{' || c == '}' || c == '(' || c == ')';
}

bool is_other_space(std::string_view token) {
  return token == ".local" || token == ".shared" || token == ".param" || token == ".reg" ||
         token == ".sreg" || token == ".tex";
}

// Counts what takes host memory; sees every token in turn.
class HostCount {
 public:
  uint64_t variables = 0, labels = 0;
  void see(const Tokens& t) {
    const std::string_view token = t.token();
    if (token.data() < from_) return;  // of a declaration that has been counted
    if (!pointer_ && t.declares()) return count(t);
    labels += token == ":";
    pointer_ = token == ".ptr";
  }
  // All from `t` up to where `end` is.
  void see(Tokens t, const Tokens& end) {
    for (; !t.end() && (end.end() || t.token().data() < end.token().data()); t.advance()) see(t);
  }

 private:
  void count(Tokens t) {
    ++variables;
    int depth = 0;  // of an initial value
    for (; !t.end() && t.token() != ";"; t.advance()) {
      depth += t.token() == "{" ? 1 : t.token() == "}" ? -1 : 0;
      variables += t.token() == "," && depth == 0;
    }
    from_ = t.end() ? t.text_end() : t.token().data() + 1;
    pointer_ = false;
  }
  const char* from_ = nullptr;
  bool pointer_ = false;  // the token before was .ptr: of a parameter
};

// Both in one walk: texts have megabytes.
Bytes walk(std::string_view ptx, HostCount& host) {
  Bytes total = 0;
  Before before;
  Tokens t(ptx);
  while (!t.end()) {
    const std::string_view token = t.token();
    if (t.is_space() && total) {
      const Tokens from = t;
      before.instruction = !t.declares();
      t.advance();
      total = add(total, declared(t, before));
      before = {};
      host.see(from, t);
      continue;
    }
    host.see(t);
    before.external = token == ".extern";
    before.pointer = token == ".ptr";
    if (ends_a_declaration(token[0]))
      before.other_space = false;
    else if (token[0] == '.' && is_other_space(token))
      before.other_space = true;
    t.advance();
  }
  return t.broken() ? std::nullopt : total;
}

}  // namespace

std::optional<uint64_t> variable_bytes(std::string_view ptx) {
  HostCount unused;
  return walk(ptx, unused);
}

bool declares_variables(std::string_view ptx) {
  for (const std::string_view space : {".global", ".const"})
    for (size_t at = find_text(ptx, space); at != ptx.npos; at = find_text(ptx, space, at + 1))
      if (begins_directive(ptx, at)) return true;
  return false;
}

ModuleBytes module_bytes(std::string_view ptx) {
  HostCount host;
  const Bytes variables = walk(ptx, host);
  return {add(variables, ptx.size()), kModuleHostBytes + ptx.size() * kModuleHostFactor +
                                          host.variables * kVariableHostBytes +
                                          host.labels * kLabelHostBytes};
}

uint64_t cubin_host_bytes(std::string_view image) {
  return kModuleHostBytes + image.size() * kCubinHostFactor;
}

}  // namespace sluice::worker
