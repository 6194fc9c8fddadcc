// SPDX-License-Identifier: Apache-2.0
// The conformance set: single PTX instructions, each as a kernel of its own, with operands that are
// the same everywhere. The same module runs on a real GPU (record_gpu.cc writes what it answers
// into golden/) and on kernels/exec (exec_conformance_test.cc compares). Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice::conformance {

// Threads per kernel: as many operand tuples are tried.
inline constexpr std::size_t kThreads = 256;

// What an operand or result is: the register class, and what random values make sense.
enum class Kind : std::uint8_t {
  kNone,
  kPred,
  kB16,
  kB32,
  kB64,
  kF16,
  kBf16,
  kF16x2,
  kBf16x2,
  kF32,
  kF64,
  kShift,    // 32 bits, mostly below 70
  kDivisor,  // not zero; kDivisor32 and so on by width
  kDivisor16,
  kDivisor64,
  kUnit,      // f32 in [-8, 8]: for approximations
  kPositive,  // f32, positive and normal
};

struct Case {
  std::string name;  // also the kernel's
  std::string text;  // with $d, $a, $b, $c, $e for the operands
  Kind d = Kind::kB32, a = Kind::kNone, b = Kind::kNone, c = Kind::kNone, e = Kind::kNone;
  // Approximations: results may differ by so much, relative and absolute; 0, 0: bit for bit.
  double relative = 0, absolute = 0;
};

std::vector<Case> all_cases();
// One kernel per case: name(out, in) with kThreads threads; in has five 64-bit words per thread,
// out one.
std::string module_text(const std::vector<Case>& cases);
// kThreads * 5 words; depends on the case's name and kinds only.
std::vector<std::uint64_t> operands(const Case& c);

// Where record_gpu leaves its results, little-endian: per case the name's length (4 bytes), the
// name, the bytes of one result (1 byte: 1, 2, 4 or 8), and kThreads results.
struct Golden {
  std::string name;
  std::vector<std::uint64_t> results;
};
bool write_golden(const std::string& path, const std::vector<Golden>& golden);
std::vector<Golden> read_golden(const std::string& path);

}  // namespace sluice::conformance
