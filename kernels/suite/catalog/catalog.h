// SPDX-License-Identifier: Apache-2.0
// The catalogue: every benchmark of the suite, and every recorded CCCL program (trace.h), as data:
// a module, buffers, the launches in order, and what memory must hold at the end. Whoever has
// something that runs kernels (the interpreter, the software GPU, a real driver, a rewriter with
// evictions) enumerates it and needs to know nothing about any one benchmark.
//
//     for (const Row& row : catalog()) {
//       const Case work = row.make({.scale = 1});
//       ... load work.ptx; give each of work.buffers memory and its contents; for each of
//       ... work.steps: do it, with parameters(launch, addresses) for a launch ...
//       const std::string wrong = work.check(contents);   // empty: all results are right
//     }
//
// Pure: no driver, no files, no clock; any thread. A Case owns all it names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace sluice::suite {

// A piece of device memory. `initial` has its full length. Buffers are at least 256-byte aligned
// when they are placed, as cuMemAlloc aligns.
struct Buffer {
  std::string name;
  std::vector<std::byte> initial;
};

// Somewhere in a parameter block stands the address of a buffer.
struct PointerAt {
  std::uint32_t offset = 0;  // in Launch::params, 8 bytes wide
  std::uint32_t buffer = 0;  // index into Case::buffers
  std::uint64_t addend = 0;  // added to the buffer's address
};

using Extent3 = std::array<std::uint32_t, 3>;

// One kernel launch. `params` is the whole parameter block in the driver's layout, with zeros where
// `pointers` says that an address belongs.
struct Launch {
  std::string kernel;
  Extent3 grid = {1, 1, 1};
  Extent3 block = {1, 1, 1};
  std::uint32_t dynamic_shared = 0;  // bytes
  std::vector<std::byte> params;
  std::vector<std::uint32_t> param_offsets;  // of each parameter, ascending: for void** callers
  std::vector<PointerAt> pointers;
};

// Host to device.
struct Upload {
  std::uint32_t buffer = 0;
  std::uint64_t offset = 0;
  std::vector<std::byte> bytes;
};

// Device to device.
struct Copy {
  std::uint32_t to = 0;
  std::uint64_t to_offset = 0;
  std::uint32_t from = 0;
  std::uint64_t from_offset = 0;
  std::uint64_t bytes = 0;
};

// As cuMemsetD8.
struct Fill {
  std::uint32_t buffer = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint8_t value = 0;
};

// Host to a variable of the module (cuModuleGetGlobal): constant tables and the like.
struct SetSymbol {
  std::string name;
  std::uint64_t offset = 0;
  std::vector<std::byte> bytes;
};

// At this point of the sequence the buffer must hold these bytes: what the program that was
// recorded read back here, and checked against the CPU.
struct Expect {
  std::uint32_t buffer = 0;
  std::uint64_t offset = 0;
  std::vector<std::byte> bytes;
};

using Step = std::variant<Launch, Upload, Copy, Fill, SetSymbol, Expect>;

// Contents of all buffers, in the order of Case::buffers.
using Contents = std::vector<std::vector<std::byte>>;

struct Case {
  std::string name;
  std::string ptx;
  std::vector<Buffer> buffers;
  std::vector<Step> steps;
  // Compares with the CPU reference: empty when right, else the first difference in words. The
  // reference is computed here, not by make(): at GPU sizes it takes a while.
  std::function<std::string(const Contents&)> check;
};

struct CaseOptions {
  double scale = 1;        // 1: some milliseconds on the interpreter; work grows in proportion
  std::uint64_t seed = 1;  // of the input data
};

struct Row {
  const char* name;
  const char* papers;  // which of them measure it: E(ffiSha), F(LEP), R (FRS), P (Preemptive ...)
  // Scale at which the longest of its launches should take 100 us or more on an H200.
  double gpu_scale;
  Case (*make)(const CaseOptions& options);
};

// All benchmarks of kernels/suite/, in the order of the README's table.
std::span<const Row> catalog();
// Null when there is none of this name.
const Row* find_row(std::string_view name);

// The parameter block with the buffers' addresses put in.
std::vector<std::byte> parameters(const Launch& launch, std::span<const std::uint64_t> addresses);

// "kernel<<<(8,1,1), (128,1,1), 0>>>", for messages.
std::string describe(const Launch& launch);

}  // namespace sluice::suite
