// SPDX-License-Identifier: Apache-2.0
// Random kernels, original against clone: evicted at random, every byte of memory must be the same
// in the end, and what the kernel's scalar evaluator says. The number of kernels can be raised
// (SLUICE_RANDOM_KERNELS), the first seed changed (SLUICE_RANDOM_SEED).
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>

#include "kernels/tool/eviction_run.h"
#include "tests/support/random/random_kernel.h"

namespace sluice::tool {
namespace {

using random_kernels::make_random_kernel;
using random_kernels::RandomKernel;
using random_kernels::RandomKernelOptions;

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct Tally {
  std::map<std::string, int> tiers;
  std::uint64_t runs = 0, evictions = 0;
};

std::vector<std::uint8_t> bytes_of(EvictionRun& run, std::size_t buffer) {
  std::vector<std::uint8_t> bytes(run.bytes(buffer));
  std::memcpy(bytes.data(), run.data(buffer), bytes.size());
  return bytes;
}

void run_one(std::uint64_t seed, Tally& tally) {
  RandomKernelOptions options;
  options.seed = seed;
  options.statements = 15 + static_cast<std::uint32_t>(seed % 40);
  options.grid[0] = 1 + static_cast<std::uint32_t>(seed % 9);
  options.grid[1] = 1 + static_cast<std::uint32_t>(seed % 3);
  options.grid[2] = 1 + static_cast<std::uint32_t>(seed % 2);
  const RandomKernel kernel = make_random_kernel(options);
  auto run = EvictionRun::load(kernel.ptx);
  ASSERT_TRUE(run) << run.error().message;
  const passes::KernelReport* report = (*run)->report(RandomKernel::kEntry);
  ASSERT_NE(report, nullptr);
  ++tally.tiers[passes::tier_name(report->tier) +
                std::string(report->code.empty() ? "" : ": ").append(report->code)];
  if (!report->evictable) return;

  KernelLaunch launch;
  launch.kernel = RandomKernel::kEntry;
  launch.grid = {kernel.grid[0], kernel.grid[1], kernel.grid[2]};
  launch.block = {kernel.block[0], kernel.block[1], kernel.block[2]};
  launch.dynamic_shared = kernel.dynamic_shared_bytes;
  const std::vector<std::uint8_t>* sources[] = {&kernel.input, &kernel.output,
                                                &kernel.accumulators};
  for (const auto* source : sources) {
    const std::size_t b = (*run)->add_buffer(source->size());
    std::memcpy((*run)->data(b), source->data(), source->size());
  }
  launch.params = kernel.params((*run)->address(0), (*run)->address(1), (*run)->address(2));
  const auto before = (*run)->contents();
  auto original = (*run)->run_original(launch, seed);
  ASSERT_TRUE(original) << original.error().message;
  const auto expected = (*run)->contents();
  const random_kernels::RandomKernelResult expected_result = random_kernels::evaluate(kernel);
  const random_kernels::RandomKernelResult got{bytes_of(**run, 1), bytes_of(**run, 2)};
  ASSERT_EQ(random_kernels::describe_difference(kernel, expected_result, got), "") << kernel.ptx;
  for (std::uint64_t round = 0; round < 4; ++round) {
    (*run)->restore(before);
    EvictionOptions evict;
    evict.seed = seed * 16 + round;
    evict.most_evictions = round == 0 ? 0 : round == 3 ? 50 : 6;
    evict.expected_steps = original->steps;
    auto clone = (*run)->run_clone(launch, evict);
    ASSERT_TRUE(clone) << clone.error().message << "\n" << kernel.ptx;
    ++tally.runs;
    tally.evictions += clone->evictions;
    ASSERT_EQ(first_difference(expected, (*run)->contents()), "") << clone->setting << "\n"
                                                                  << kernel.ptx;
  }
}

TEST(RandomEviction, ClonesOfRandomKernelsDoTheSame) {
  const std::uint64_t first = from_environment("SLUICE_RANDOM_SEED", 1);
  const std::uint64_t count = from_environment("SLUICE_RANDOM_KERNELS", 200);
  Tally tally;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    run_one(seed, tally);
    if (HasFatalFailure()) break;
  }
  for (const auto& [tier, kernels] : tally.tiers) std::cout << tier << ": " << kernels << "\n";
  std::cout << tally.runs << " runs, " << tally.evictions << " evictions\n";
  if (count >= 100) {
    EXPECT_GT(tally.evictions, tally.runs / 2);
  }
}

}  // namespace
}  // namespace sluice::tool
