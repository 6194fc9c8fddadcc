// SPDX-License-Identifier: Apache-2.0
#include "kernels/exec/decode/initializer.h"

#include <charconv>
#include <cstring>

namespace sluice::exec::detail {
namespace {

struct Reader {
  const ptx::Variable& v;
  const std::function<Named(std::string_view)>& find;
  SymbolInfo& symbol;
  uint64_t max_bytes;
  std::string_view text;
  size_t at = 0;
  std::vector<uint64_t> sizes;  // bytes of one element at each nesting depth

  void skip() {
    while (at < text.size() &&
           (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r'))
      ++at;
  }
  Error wrong() const {
    return {0, "line " + std::to_string(v.line) + ": the initialiser of " + std::string(v.name) +
                   " is not understood"};
  }

  Result<void> scalar(uint64_t offset) {
    const size_t begin = at;
    int depth = 0;
    while (at < text.size() && (depth > 0 || (text[at] != ',' && text[at] != '}'))) {
      if (text[at] == '(') ++depth;
      if (text[at] == ')') --depth;
      ++at;
    }
    std::string_view word = text.substr(begin, at - begin);
    while (!word.empty() && (word.back() == ' ' || word.back() == '\n' || word.back() == '\t' ||
                             word.back() == '\r'))
      word.remove_suffix(1);
    const uint32_t width = v.element_bytes;
    if (width == 0 || width > 8 || symbol.bytes < width || offset > symbol.bytes - width ||
        offset > max_bytes)
      return wrong();
    uint64_t value = 0;
    if (!number(word, value)) return address(word, offset);
    if (symbol.initial.size() < offset + width) symbol.initial.resize(offset + width);
    std::memcpy(symbol.initial.data() + offset, &value, width);
    return {};
  }

  bool number(std::string_view word, uint64_t& value) const {
    bool negative = false;
    if (!word.empty() && word[0] == '-') {
      negative = true;
      word.remove_prefix(1);
    }
    const bool f32 = v.type == "f32", f64 = v.type == "f64";
    if (word.size() > 2 && word[0] == '0' &&
        (word[1] == 'f' || word[1] == 'F' || word[1] == 'd' || word[1] == 'D')) {
      const auto [end, code] =
          std::from_chars(word.data() + 2, word.data() + word.size(), value, 16);
      if (code != std::errc() || end != word.data() + word.size()) return false;
      if (negative) value ^= word[1] == 'f' || word[1] == 'F' ? 0x80000000ull : 1ull << 63;
      if ((word[1] == 'd' || word[1] == 'D') && f32) {
        double d;
        std::memcpy(&d, &value, 8);
        const float f = static_cast<float>(d);
        value = 0;
        std::memcpy(&value, &f, 4);
      }
      return true;
    }
    if (f32 || f64) {
      double d = 0;
      const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), d);
      if (code != std::errc() || end != word.data() + word.size()) return false;
      if (negative) d = -d;
      if (f64) {
        std::memcpy(&value, &d, 8);
      } else {
        const float f = static_cast<float>(d);
        std::memcpy(&value, &f, 4);
      }
      return true;
    }
    if (!ptx::parse_integer(word, value)) return false;
    if (negative) value = 0 - value;
    return true;
  }

  // NAME, NAME+4, generic(NAME), generic(NAME)+4; one byte of any of them: 0xff00(NAME)
  Result<void> address(std::string_view word, uint64_t offset) {
    Relocation r;
    r.offset = offset;
    r.width = static_cast<uint8_t>(v.element_bytes);
    if (const size_t open = word.find('('); open != word.npos && word[0] >= '0' && word[0] <= '9') {
      uint64_t mask;
      if (!ptx::parse_integer(ptx::trimmed(word.substr(0, open)), mask) || word.back() != ')' ||
          r.width != 1)
        return wrong();
      while (r.shift < 64 && mask >> r.shift != 0xff) r.shift = static_cast<uint8_t>(r.shift + 8);
      if (r.shift >= 64 || mask != 0xffull << r.shift) return wrong();
      word = ptx::trimmed(word.substr(open + 1, word.size() - open - 2));
    } else if (r.width != 8) {
      return wrong();  // addresses do not fit
    }
    std::string_view name;
    if (word.substr(0, 7) == "generic") {
      word = ptx::trimmed(word.substr(7));
      const size_t close = word.find(')');
      if (word.empty() || word.front() != '(' || close == word.npos) return wrong();
      name = ptx::trimmed(word.substr(1, close - 1));
      word = ptx::trimmed(word.substr(close + 1));
    } else {
      const size_t sign = word.find_first_of("+-");
      name = ptx::trimmed(word.substr(0, sign));
      word = sign == word.npos ? std::string_view() : word.substr(sign);
    }
    const Named target = find(name);
    if (target.kind == Named::kNothing) return wrong();
    r.target = target.index;
    r.function = target.kind == Named::kFunction;
    if (!word.empty()) {
      uint64_t value;
      const bool negative = word[0] == '-';
      if ((word[0] != '+' && !negative) || !ptx::parse_integer(ptx::trimmed(word.substr(1)), value))
        return wrong();
      r.addend = static_cast<int64_t>(negative ? 0 - value : value);
    }
    if (symbol.initial.size() < offset + r.width) symbol.initial.resize(offset + r.width);
    symbol.relocations.push_back(r);
    return {};
  }

  Result<void> list(uint64_t offset, size_t depth) {
    skip();
    if (at >= text.size() || text[at] != '{') return scalar(offset);
    if (depth >= sizes.size()) return wrong();
    ++at;
    uint64_t element = 0;
    for (;;) {
      skip();
      if (at < text.size() && text[at] == '}') break;
      if (auto done = list(offset + element * sizes[depth], depth + 1); !done) return done;
      ++element;
      skip();
      if (at < text.size() && text[at] == ',')
        ++at;
      else if (at >= text.size() || text[at] != '}')
        return wrong();
    }
    ++at;
    return {};
  }
};

}  // namespace

Result<void> read_initializer(const ptx::Variable& v,
                              const std::function<Named(std::string_view)>& find,
                              uint64_t max_bytes, SymbolInfo& symbol) {
  if (v.initializer.empty()) return {};
  Reader reader{v, find, symbol, max_bytes, v.initializer, 0, {}};
  const uint64_t item = uint64_t{v.element_bytes} * v.vector_width;
  std::vector<uint64_t> dimensions(v.dimensions.begin(), v.dimensions.end());
  uint64_t size = item;
  std::vector<uint64_t> sizes;
  for (size_t k = dimensions.size(); k-- > 0;) {
    sizes.insert(sizes.begin(), size);
    size *= dimensions[k] == 0 ? 1 : dimensions[k];
  }
  if (v.vector_width > 1) sizes.push_back(v.element_bytes);
  reader.sizes = std::move(sizes);
  if (symbol.bytes == 0 && !dimensions.empty() && dimensions[0] == 0) {
    // `[]`: as many as there are. Counted by commas at the first depth.
    uint64_t count = 1;
    int depth = 0;
    for (const char c : v.initializer) {
      if (c == '{') ++depth;
      if (c == '}') --depth;
      if (c == ',' && depth == 1) ++count;
    }
    symbol.bytes = count * reader.sizes[0];
  }
  return reader.list(0, 0);
}

}  // namespace sluice::exec::detail
