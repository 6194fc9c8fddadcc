// SPDX-License-Identifier: Apache-2.0
#include "tests/authors/cases.h"

#include "ask.ptx.h"
#include "authors.ptx.h"
#include "misuse.ptx.h"

namespace sluice::authors {

const std::string& text() {
  static const std::string kText(suite::kAuthorsPtx);
  return kText;
}
const std::string& ask_text() {
  static const std::string kText(suite::kAskPtx);
  return kText;
}
const std::string& misuse_text() {
  static const std::string kText(suite::kMisusePtx);
  return kText;
}

std::vector<Case> cases(std::uint32_t steps, std::uint32_t blocks) {
  const std::uint32_t items = 37 * steps;
  return {
      {"work_queue",
       {5 * blocks, 1, 1},
       {64, 1, 1},
       0,
       {{Argument::kZeros, 4},
        {Argument::kNumbers, items * 256},
        {Argument::kZeros, items * 256},
        {Argument::kNumber, items}}},
      {"one_wave",
       {3 * blocks, 1, 1},
       {96, 1, 1},
       0,
       {{Argument::kNumbers, 4096},
        {Argument::kZeros, 3 * blocks * 96 * 8},
        {Argument::kNumber, 25 * steps}}},
      {"two_places",
       {3 * blocks, 2, 3},
       {6, 3, 2},
       36 * 4,
       {{Argument::kNumbers, 4096},
        {Argument::kZeros, 18 * blocks * 36 * 16},
        {Argument::kNumber, 12 * steps}}},
  };
}

Case misuse(const char* kernel) {
  return {kernel,
          {3, 1, 1},
          {40, 1, 1},
          0,
          {{Argument::kNumbers, 4096}, {Argument::kZeros, 480}, {Argument::kNumber, 12}}};
}

}  // namespace sluice::authors
