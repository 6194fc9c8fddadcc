// SPDX-License-Identifier: Apache-2.0
// The lexical layer: a position in PTX text that knows white space, comments, words and strings.
//
// Owner: the parser (one per parse, single thread). It knows nothing of statements. Every member
// moves forward only, so that a parse is linear in the text.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::ptx {

namespace lexical {
// Bits of the character classes.
inline constexpr std::uint8_t kSpace = 1;   // white space
inline constexpr std::uint8_t kWord = 2;    // [A-Za-z0-9_$%]: identifiers and numbers
inline constexpr std::uint8_t kOpcode = 4;  // kWord, '.' and ':' : an opcode with its modifiers
inline constexpr std::uint8_t kStop = 8;    // ends or structures a statement: ; , { } ( ) [ ] " /
extern const std::uint8_t kClass[256];
}  // namespace lexical

class Cursor {
 public:
  explicit Cursor(std::string_view text, std::uint32_t begin = 0) : text_(text), position_(begin) {}

  std::uint32_t position() const { return position_; }
  void seek(std::uint32_t position) { position_ = position; }
  bool at_end() const { return position_ >= text_.size(); }
  // The character here, '\0' at the end (the parser refuses texts with NUL inside).
  char peek() const { return at_end() ? '\0' : text_[position_]; }
  char peek_next() const { return position_ + 1 < text_.size() ? text_[position_ + 1] : '\0'; }
  void advance() { ++position_; }
  bool is(std::uint8_t character_class) const {
    return !at_end() &&
           (lexical::kClass[static_cast<unsigned char>(text_[position_])] & character_class) != 0;
  }

  // Past white space, `//` and `/* */` comments and `#` lines (which the C preprocessor leaves).
  // False: a `/*` without its end; the position is then at it.
  bool skip_trivia();
  // The longest run of the class here; empty if there is none.
  std::string_view take_run(std::uint8_t character_class);
  // `.word`, with its dot; empty (and no move) if there is none here.
  std::string_view take_dot_word();
  // Past a string literal that begins here, backslash escapes included. False: not closed on this
  // line; the position does not move.
  bool skip_string();
  // Past `c` if it is here.
  bool accept(char c) {
    if (peek() != c || at_end()) return false;
    ++position_;
    return true;
  }

 private:
  std::string_view text_;
  std::uint32_t position_;
};

}  // namespace sluice::ptx
