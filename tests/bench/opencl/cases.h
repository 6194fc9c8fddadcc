// SPDX-License-Identifier: Apache-2.0
// The cases of the side-by-side benchmark: for each a kernel of the suite (or of twins.cu) in PTX,
// its OpenCL twin of the same name, and one launch of it. Pure data; used by one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::bench {

struct Buffer {
  std::vector<std::uint8_t> bytes;  // what it holds before the launch
  bool output = false;              // compared between the engines
};

// A kernel argument: the address of buffers[buffer], or, if that is negative, a value.
struct Argument {
  int buffer = -1;
  std::uint64_t value = 0;
  unsigned bytes = 8;
};

struct Case {
  std::string name;    // of both kernels
  std::string module;  // PTX file, from the source root
  unsigned grid[2] = {1, 1}, block[2] = {1, 1};
  std::vector<Buffer> buffers;
  std::vector<Argument> arguments;
  std::uint64_t items = 0;  // what one launch does, in units of `unit`
  std::string unit;
};

// Names, in the order of the table in docs/notes/2026-11-22-benchmarks.md.
std::vector<std::string> case_names();

// The case at about 2^log_items items; throws std::invalid_argument for a name that is none.
Case make_case(const std::string& name, unsigned log_items);

}  // namespace sluice::bench
