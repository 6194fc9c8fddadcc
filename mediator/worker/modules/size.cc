// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/modules/size.h"

#include <algorithm>
#include <cctype>
#include <limits>

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

// Tokens of PTX: directives and modifiers (".u32"), words and numbers, single characters. Comments,
// line directives and strings are passed over; a string is the token `"`.
class Tokens {
 public:
  explicit Tokens(std::string_view text) : text_(text) { advance(); }
  std::string_view token() const { return token_; }
  bool end() const { return token_.empty(); }
  // The token begins a declaration of variables, and no modifier of an instruction (ld.global).
  bool declares() const {
    if (token_ != ".global" && token_ != ".const") return false;
    const auto from = static_cast<size_t>(token_.data() - text_.data());
    return from == 0 || !is_ptx_word(text_[from - 1]);
  }
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
      while (at_ < text_.size() && text_[at_] != '"') ++at_;
      broken_ |= at_ >= text_.size();
      at_ = std::min(at_ + 1, text_.size());
      token_ = text_.substr(from, 1);
      return;
    }
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
      } else if (text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_.substr(at_, 2) == "/*") {
        const size_t close = text_.find("*/", at_ + 2);
        broken_ |= close == std::string_view::npos;
        at_ = close == std::string_view::npos ? text_.size() : close + 2;
      } else if (text_[at_] == '#') {
        // A macro could stand for anything; a line's number cannot.
        const std::string_view line = text_.substr(at_, text_.find('\n', at_) - at_);
        const size_t word = line.find_first_not_of(" \t", 1);
        const bool number = word != std::string_view::npos &&
                            (std::isdigit(static_cast<unsigned char>(line[word])) ||
                             line.substr(word, 4) == "line");
        broken_ |= !number || line.find('\\') != std::string_view::npos;
        at_ += line.size();
      } else {
        return;
      }
    }
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

// Of one element: the number in a type's name is its bits (.u32, .f16x2, .b128); all others
// (.texref, types to come) take no more than a tensor map.
uint64_t element_bytes(std::string_view type) {
  constexpr uint64_t kMost = 128;
  const auto digits = [&](size_t* at) {
    uint64_t value = 0;
    while (*at < type.size() && std::isdigit(static_cast<unsigned char>(type[*at])) && value < 4096)
      value = value * 10 + static_cast<uint64_t>(type[(*at)++] - '0');
    return value;
  };
  if (type.size() < 3 || std::string_view("usbf").find(type[1]) == std::string_view::npos)
    return kMost;
  size_t at = 2;
  uint64_t bits = digits(&at);
  if (at < type.size() && type[at] == 'x') bits *= digits(&++at);
  return at != type.size() || bits == 0 ? kMost : (bits + 7) / 8;
}

// Behind `.global` or `.const`: the variables declared there. What is an instruction's
// (ld.global.u32 ...) is counted as a variable or two of some bytes.
Bytes declared(Tokens& t, bool external) {
  uint64_t element = 0, vector = 1, align = kLeastVariableAlign;
  while (t.token().starts_with('.')) {
    const std::string_view word = t.token();
    t.advance();
    if (word == ".align") {
      const Bytes value = number(t.token());
      if (!value || *value > kMostVariableAlign) return std::nullopt;
      align = std::max(align, *value);
      t.advance();
    } else if (word == ".attribute") {
      while (!t.end() && t.token() != ")") t.advance();
      t.advance();
    } else if (word == ".v2" || word == ".v4" || word == ".v8") {
      vector = static_cast<uint64_t>(word[2] - '0');
    } else {
      element = std::max(element, element_bytes(word));
    }
  }
  Bytes total = 0;
  while (!t.end() && is_ptx_word(t.token()[0])) {
    t.advance();
    Bytes bytes = multiply(element, vector);
    bool open = false;  // an array as long as its initial value
    while (t.accept("[")) {
      if (t.accept("]")) {
        open = true;
        continue;
      }
      bytes = multiply(bytes, Size(t).sum());
      if (!bytes || !t.accept("]")) return std::nullopt;
    }
    if (t.accept("=")) {
      uint64_t values = 1;
      int depth = 0;
      for (; !t.end() && t.token() != ";" && (depth > 0 || t.token() != ","); t.advance()) {
        if (t.token() == "{") ++depth;
        if (t.token() == "}") --depth;
        ++values;
      }
      if (open) bytes = multiply(bytes, values);
    }
    bytes = add(bytes, align - 1);
    if (!bytes) return std::nullopt;
    if (!external) total = add(total, *bytes / align * align);
    if (!t.accept(",")) break;
  }
  return total;
}

}  // namespace

std::optional<uint64_t> variable_bytes(std::string_view ptx) {
  Bytes total = 0;
  bool external = false;  // the word before was .extern
  Tokens t(ptx);
  while (!t.end() && total) {
    if (t.token() == ".global" || t.token() == ".const") {
      t.advance();
      total = add(total, declared(t, external));
      external = false;
    } else {
      external = t.token() == ".extern";
      t.advance();
    }
  }
  return t.broken() ? std::nullopt : total;
}

bool declares_variables(std::string_view ptx) {
  for (const std::string_view space : {".global", ".const"})
    for (size_t at = ptx.find(space); at != ptx.npos; at = ptx.find(space, at + 1))
      if (at == 0 || !is_ptx_word(ptx[at - 1])) return true;  // else of an instruction: ld.global
  return false;
}

std::optional<uint64_t> module_device_bytes(std::string_view ptx) {
  return add(variable_bytes(ptx), ptx.size());
}

uint64_t module_host_bytes(std::string_view ptx) {
  uint64_t variables = 0, labels = 0;
  bool pointer = false;  // the token before was .ptr: of a parameter
  for (Tokens t(ptx); !t.end(); t.advance()) {
    if (!pointer && t.declares()) {
      ++variables;
      int depth = 0;  // of an initial value
      for (; !t.end() && t.token() != ";"; t.advance()) {
        depth += t.token() == "{" ? 1 : t.token() == "}" ? -1 : 0;
        variables += t.token() == "," && depth == 0;
      }
    }
    labels += t.token() == ":";
    pointer = t.token() == ".ptr";
  }
  return kModuleHostBytes + ptx.size() * kModuleHostFactor + variables * kVariableHostBytes +
         labels * kLabelHostBytes;
}

uint64_t cubin_host_bytes(std::string_view image) {
  return kModuleHostBytes + image.size() * kCubinHostFactor;
}

}  // namespace sluice::worker
