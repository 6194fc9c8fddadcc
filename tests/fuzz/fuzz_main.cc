// SPDX-License-Identifier: Apache-2.0
// libFuzzer on one row of targets.h, whose function SLUICE_FUZZ_CHECK names. With a mutator that
// knows lines and identifiers, since flipped bytes alone rarely get past a parser.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/targets.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)sluice::fuzz::SLUICE_FUZZ_CHECK({reinterpret_cast<const char*>(data), size});
  return 0;
}

namespace {

struct Word {
  size_t begin = 0, end = 0;
};

bool in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '%' || c == '$' || c == '.';
}

std::vector<Word> words_of(std::string_view text) {
  std::vector<Word> words;
  for (size_t i = 0; i < text.size();) {
    if (!in_word(text[i])) {
      ++i;
      continue;
    }
    const size_t begin = i;
    while (i < text.size() && in_word(text[i])) ++i;
    words.push_back({begin, i});
  }
  return words;
}

std::vector<Word> lines_of(std::string_view text) {
  std::vector<Word> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    lines.push_back({begin, end});
    begin = end;
  }
  return lines;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  std::minstd_rand random(seed);
  const unsigned choice = random() % 8;
  std::string text(reinterpret_cast<const char*>(data), size);
  const auto pick = [&random](const std::vector<Word>& from) {
    return from[random() % from.size()];
  };
  if (choice < 3 || size == 0) return LLVMFuzzerMutate(data, size, max_size);
  if (choice < 6) {  // a word becomes another word of the text
    const std::vector<Word> words = words_of(text);
    if (words.size() < 2) return LLVMFuzzerMutate(data, size, max_size);
    for (unsigned n = random() % 3 + 1; n != 0; --n) {
      const std::vector<Word> now = words_of(text);
      const Word from = pick(now), to = pick(now);
      text.replace(to.begin, to.end - to.begin, text.substr(from.begin, from.end - from.begin));
    }
  } else {  // a line is copied, moved or dropped
    const std::vector<Word> lines = lines_of(text);
    const Word from = pick(lines), to = pick(lines);
    const std::string line = text.substr(from.begin, from.end - from.begin);
    if (random() % 3 != 0)
      text.insert(to.begin, line);
    else
      text.erase(to.begin, to.end - to.begin);
  }
  const size_t bytes = std::min(text.size(), max_size);
  std::memcpy(data, text.data(), bytes);
  return bytes;
}
