// SPDX-License-Identifier: Apache-2.0
// Random kernels (tests/support/random/random_kernel.h): the interpreter against the plain scalar
// evaluator, bit for bit. A seed that fails is made as short as it still fails, and its PTX is
// shown.
//
// More of them: SLUICE_RANDOM_SEEDS=FIRST:COUNT exec_random_kernel_test
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "kernels/exec/block/block.h"
#include "kernels/exec/checker/checker.h"
#include "tests/support/random/random_kernel.h"
#include "tests/support/rounds.h"
#include "tests/unit/exec/harness.h"

namespace sluice::exec {
namespace {

using random_kernels::make_random_kernel;
using random_kernels::RandomKernel;
using random_kernels::RandomKernelOptions;
using random_kernels::RandomKernelResult;

struct AlignedCopy {
  explicit AlignedCopy(const std::vector<uint8_t>& from)
      : bytes(from.size()), data(static_cast<uint8_t*>(std::aligned_alloc(256, rounded()))) {
    std::memcpy(data, from.data(), bytes);
  }
  ~AlignedCopy() { std::free(data); }
  AlignedCopy(const AlignedCopy&) = delete;
  AlignedCopy& operator=(const AlignedCopy&) = delete;
  size_t rounded() const { return (bytes + 255) / 256 * 256; }
  uint64_t address() const { return reinterpret_cast<uint64_t>(data); }
  std::vector<uint8_t> contents() const { return {data, data + bytes}; }

  size_t bytes;
  uint8_t* data;
};

// What the interpreter leaves behind; an error text where it could not.
std::string interpret(const RandomKernel& kernel, uint64_t slice, RandomKernelResult& result,
                      Checker* checker = nullptr) {
  auto program = decode_text(kernel.ptx);
  if (!program) return program.error().message;
  auto image = Image::make(*program, {});
  if (!image) return image.error().message;
  AlignedCopy input(kernel.input), output(kernel.output), accumulators(kernel.accumulators);
  MemoryMap map;
  if (!map.add(input.address(), input.bytes, false) || !map.add(output.address(), output.bytes) ||
      !map.add(accumulators.address(), accumulators.bytes))
    return "memory map refuses the buffers";
  TestEnvironment environment;
  environment.checker = checker;
  LaunchShape shape;
  shape.grid = {kernel.grid[0], kernel.grid[1], kernel.grid[2]};
  shape.block = {kernel.block[0], kernel.block[1], kernel.block[2]};
  shape.dynamic_shared_bytes = kernel.dynamic_shared_bytes;
  auto made = Block::make(*image, RandomKernel::kEntry, shape,
                          kernel.params(input.address(), output.address(), accumulators.address()),
                          map, environment);
  if (!made) return made.error().message;
  for (uint32_t z = 0; z < shape.grid.z; ++z)
    for (uint32_t y = 0; y < shape.grid.y; ++y)
      for (uint32_t x = 0; x < shape.grid.x; ++x) {
        (*made)->start({x, y, z}, {0, 1});
        for (uint64_t steps = 0;;) {
          const RunResult run = (*made)->run(slice);
          steps += run.steps;
          if (run.state == RunState::kDone) break;
          if (run.state == RunState::kFault) return (*made)->fault().describe();
          if (steps > 50'000'000) return "the kernel does not end";
        }
      }
  result = {output.contents(), accumulators.contents()};
  return {};
}

// Empty: the same.
std::string compare(const RandomKernelOptions& options) {
  const RandomKernel kernel = make_random_kernel(options);
  const RandomKernelResult expected = random_kernels::evaluate(kernel);
  RandomKernelResult got;
  // Now and then the block is interrupted all the time, as preemption does.
  const std::string error = interpret(kernel, options.seed % 3 == 0 ? 50 : 100'000, got);
  return !error.empty() ? error : random_kernels::describe_difference(kernel, expected, got);
}

// As few statements as still fail.
std::string report(RandomKernelOptions options) {
  for (uint32_t few = 1; few < options.statements; ++few) {
    RandomKernelOptions shorter = options;
    shorter.statements = few;
    if (compare(shorter).empty()) continue;
    options = shorter;
    break;
  }
  const RandomKernel kernel = make_random_kernel(options);
  std::string text = "seed " + std::to_string(options.seed) + " with " +
                     std::to_string(options.statements) + " statements: " + compare(options);
  if (std::getenv("SLUICE_RANDOM_SHOW") != nullptr) text += "\n" + kernel.ptx;
  return text;
}

void run_seeds(uint64_t first, uint64_t count, RandomKernelOptions options, int limit = 3) {
  int failures = 0;
  for (uint64_t seed = first; seed < first + count && failures < limit; ++seed) {
    options.seed = seed;
    if (compare(options).empty()) continue;
    ADD_FAILURE() << report(options);
    ++failures;
  }
}

// Each operation alone, so that a mistake in one has its name.
TEST(RandomKernels, EachOperation) {
  RandomKernelOptions options;
  options.barriers = options.local_memory = options.calls = false;
  options.grid[0] = 2;
  options.block[0] = 64;
  options.statements = 24;
  for (uint32_t k = 0; k < random_kernels::operation_count(); ++k) {
    options.only_operation = static_cast<int32_t>(k);
    options.seed = 1 + k;
    EXPECT_EQ(compare(options), "") << random_kernels::operation_text(k);
  }
}

TEST(RandomKernels, Everything) {
  uint64_t first = 1, count = rounds<uint64_t>(200);
  if (const char* seeds = std::getenv("SLUICE_RANDOM_SEEDS"); seeds != nullptr) {
    char* rest = nullptr;
    first = std::strtoull(seeds, &rest, 10);
    count = *rest == ':' ? std::strtoull(rest + 1, nullptr, 10) : 1;
  }
  run_seeds(first, count, {});
}

TEST(RandomKernels, IntegersAndControlFlowOnly) {
  RandomKernelOptions options;
  options.floats = options.atomics = options.calls = false;
  options.statements = 60;
  run_seeds(10'001, rounds<uint64_t>(60), options);
}

TEST(RandomKernels, StraightAndUniform) {
  RandomKernelOptions options;
  options.divergence = false;
  run_seeds(20'001, rounds<uint64_t>(60), options);
}

// What the generator makes has no races, reads nothing that nobody wrote, and all meet at its
// barriers: the checker has nothing to say, and changes nothing.
TEST(RandomKernels, TheCheckerIsSilent) {
  for (uint64_t seed = 30'001; seed < 30'001 + rounds<uint64_t>(60); ++seed) {
    RandomKernelOptions options;
    options.seed = seed;
    const RandomKernel kernel = make_random_kernel(options);
    Checker checker(*CheckOptions::parse("all"));
    RandomKernelResult got;
    ASSERT_EQ(interpret(kernel, 100'000, got, &checker), "");
    EXPECT_EQ(random_kernels::describe_difference(kernel, random_kernels::evaluate(kernel), got),
              "")
        << "seed " << seed;
    for (const Finding& f : checker.findings())
      ADD_FAILURE() << "seed " << seed << ": " << f.describe();
  }
}

// The evaluator is no echo of the interpreter: a wrong result is seen.
TEST(RandomKernels, DifferencesAreSeen) {
  RandomKernelOptions options;
  options.seed = 7;
  const RandomKernel kernel = make_random_kernel(options);
  const RandomKernelResult expected = random_kernels::evaluate(kernel);
  RandomKernelResult got;
  ASSERT_EQ(interpret(kernel, 1000, got), "");
  EXPECT_EQ(random_kernels::describe_difference(kernel, expected, got), "");
  got.output[4] ^= 1;
  EXPECT_NE(random_kernels::describe_difference(kernel, expected, got).find("thread 0, %r1"),
            std::string::npos);
  // And what the kernel writes is something.
  EXPECT_NE(expected.output, kernel.output);
}

// The same options, the same kernel: failures can be repeated, and other tests can rely on it.
TEST(RandomKernels, Deterministic) {
  RandomKernelOptions options;
  options.seed = 99;
  EXPECT_EQ(make_random_kernel(options).ptx, make_random_kernel(options).ptx);
  RandomKernelOptions other = options;
  other.seed = 100;
  EXPECT_NE(make_random_kernel(options).ptx, make_random_kernel(other).ptx);
}

}  // namespace
}  // namespace sluice::exec
