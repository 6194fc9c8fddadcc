// SPDX-License-Identifier: Apache-2.0
// Kinds of characters in PTX, for what walks over a guest's text (modules/size.cc,
// launch/plan/register_clamp.cc). A table: texts have megabytes, and the C library's functions,
// which look at the locale, took a fifth of the time that loading a large module takes.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace sluice::worker {

enum class PtxChar : uint8_t { kOther, kWord, kBlank };  // kWord: of names and numbers

inline constexpr auto kPtxChars = [] {
  std::array<PtxChar, 256> kinds{};
  for (unsigned c = 0; c < 256; ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool digit = c >= '0' && c <= '9';
    if (letter || digit || c == '_' || c == '$' || c == '%') kinds[c] = PtxChar::kWord;
    if (c == ' ' || (c >= '\t' && c <= '\r')) kinds[c] = PtxChar::kBlank;
  }
  return kinds;
}();

inline bool is_ptx_word(char c) { return kPtxChars[static_cast<uint8_t>(c)] == PtxChar::kWord; }
inline bool is_ptx_blank(char c) { return kPtxChars[static_cast<uint8_t>(c)] == PtxChar::kBlank; }
// Whether `first` and `second` are at `at`: asked at each token, where a call to compare texts took
// as long as the rest.
inline bool is_ptx_pair(std::string_view text, size_t at, char first, char second) {
  return text[at] == first && at + 1 < text.size() && text[at + 1] == second;
}

}  // namespace sluice::worker
