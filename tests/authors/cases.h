// SPDX-License-Identifier: Apache-2.0
// Launches of the kernels in authors.cu, which are written with <sluice/preempt.cuh>: for
// tests/unit/passes/authors_test.cc on the interpreter and clone_gpu.cc on a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::authors {

struct Argument {
  enum Kind {
    kNumbers,
    kZeros,
    kNumber
  } kind;               // buffers of random words, of zeros; a 32-bit number
  std::uint32_t value;  // bytes of the buffer, or the number
};

struct Case {
  const char* kernel;
  std::uint32_t grid[3], block[3];
  std::uint32_t dynamic_shared;
  std::vector<Argument> arguments;
};

const std::string& text();         // authors.ptx
const std::string& ask_text();     // ask.ptx, which tests/bench/ask_cost times
const std::string& misuse_text();  // misuse.ptx
// `steps`: how long blocks run: 1 for the interpreter; `blocks`: how many more of them.
std::vector<Case> cases(std::uint32_t steps, std::uint32_t blocks);
// The launch of every kernel of misuse.ptx.
Case misuse(const char* kernel);

}  // namespace sluice::authors
