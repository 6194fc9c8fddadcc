// SPDX-License-Identifier: Apache-2.0
#include "kernels/ptx/parse/cursor.h"

#include <array>

namespace sluice::ptx {

namespace lexical {
namespace {
constexpr std::array<std::uint8_t, 256> make_classes() {
  std::array<std::uint8_t, 256> table{};
  for (char c : {' ', '\t', '\n', '\r', '\v', '\f'}) table[static_cast<unsigned char>(c)] |= kSpace;
  for (int c = 'a'; c <= 'z'; ++c) table[c] |= kWord | kOpcode;
  for (int c = 'A'; c <= 'Z'; ++c) table[c] |= kWord | kOpcode;
  for (int c = '0'; c <= '9'; ++c) table[c] |= kWord | kOpcode;
  for (char c : {'_', '$', '%'}) table[static_cast<unsigned char>(c)] |= kWord | kOpcode;
  for (char c : {'.', ':'}) table[static_cast<unsigned char>(c)] |= kOpcode;
  for (char c : {';', ',', '{', '}', '(', ')', '[', ']', '"', '/'})
    table[static_cast<unsigned char>(c)] |= kStop;
  return table;
}
constexpr std::array<std::uint8_t, 256> kTable = make_classes();
}  // namespace

// A plain array, because the accessors in the header are inlined into other files.
#define SLUICE_ROW(i) kTable[i], kTable[i + 1], kTable[i + 2], kTable[i + 3]
#define SLUICE_ROW4(i) SLUICE_ROW(i), SLUICE_ROW(i + 4), SLUICE_ROW(i + 8), SLUICE_ROW(i + 12)
#define SLUICE_ROW16(i) \
  SLUICE_ROW4(i), SLUICE_ROW4(i + 16), SLUICE_ROW4(i + 32), SLUICE_ROW4(i + 48)
const std::uint8_t kClass[256] = {SLUICE_ROW16(0), SLUICE_ROW16(64), SLUICE_ROW16(128),
                                  SLUICE_ROW16(192)};
#undef SLUICE_ROW
#undef SLUICE_ROW4
#undef SLUICE_ROW16
}  // namespace lexical

bool Cursor::skip_trivia() {
  for (;;) {
    while (is(lexical::kSpace)) ++position_;
    if (at_end()) return true;
    const char c = text_[position_];
    if (c == '/' && peek_next() == '/') {
      const auto newline = text_.find('\n', position_);
      position_ = static_cast<std::uint32_t>(newline == text_.npos ? text_.size() : newline);
    } else if (c == '/' && peek_next() == '*') {
      const auto close = text_.find("*/", position_ + 2);
      if (close == text_.npos) return false;
      position_ = static_cast<std::uint32_t>(close + 2);
    } else if (c == '#' && (position_ == 0 || text_[position_ - 1] == '\n')) {
      const auto newline = text_.find('\n', position_);
      position_ = static_cast<std::uint32_t>(newline == text_.npos ? text_.size() : newline);
    } else {
      return true;
    }
  }
}

std::string_view Cursor::take_run(std::uint8_t character_class) {
  const std::uint32_t begin = position_;
  while (is(character_class)) ++position_;
  return text_.substr(begin, position_ - begin);
}

std::string_view Cursor::take_dot_word() {
  if (peek() != '.') return {};
  const std::uint32_t begin = position_;
  ++position_;
  while (is(lexical::kWord)) ++position_;
  if (position_ == begin + 1) {
    position_ = begin;
    return {};
  }
  return text_.substr(begin, position_ - begin);
}

bool Cursor::skip_string() {
  std::uint32_t p = position_ + 1;
  while (p < text_.size() && text_[p] != '"' && text_[p] != '\n') p += text_[p] == '\\' ? 2 : 1;
  if (p >= text_.size() || text_[p] != '"') return false;
  position_ = p + 1;
  return true;
}

}  // namespace sluice::ptx
