// SPDX-License-Identifier: Apache-2.0
#include "tests/support/play_evicted.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>

#include "kernels/tool/eviction_run.h"

namespace sluice::tool {

std::string setting(const char* name, const char* otherwise) {
  const char* text = std::getenv(name);
  return text ? text : otherwise;
}
std::uint64_t number(const char* name, const char* otherwise) {
  return std::strtoull(setting(name, otherwise).c_str(), nullptr, 10);
}

namespace {

struct Tally {
  std::map<std::string, std::pair<int, int>> tiers;  // launches, evictions
};
Tally& tally() {
  static Tally t;
  return t;
}

class Player {
 public:
  Player(const suite::Case& work, EvictionRun& run, std::uint64_t seed)
      : work_(work), run_(run), seed_(seed) {
    for (const suite::Buffer& b : work.buffers) {
      const std::size_t k = run_.add_buffer(b.initial.size());
      numbers_.push_back(k);
      addresses_.push_back(run_.address(k));
      std::memcpy(run_.data(k), b.initial.data(), b.initial.size());
    }
  }

  void play() {
    for (const suite::Step& step : work_.steps) {
      std::visit([&](const auto& s) { does(s); }, step);
      if (::testing::Test::HasFatalFailure()) return;
    }
    suite::Contents contents;
    for (std::size_t k = 0; k < numbers_.size(); ++k)
      contents.emplace_back(run_.data(numbers_[k]),
                            run_.data(numbers_[k]) + work_.buffers[k].initial.size());
    if (work_.check) {
      EXPECT_EQ(work_.check(contents), "");
    }
  }

 private:
  std::byte* at(std::uint32_t buffer, std::uint64_t offset) {
    return run_.data(numbers_[buffer]) + offset;
  }
  void does(const suite::Upload& s) {
    std::memcpy(at(s.buffer, s.offset), s.bytes.data(), s.bytes.size());
  }
  void does(const suite::Copy& s) {
    std::memmove(at(s.to, s.to_offset), at(s.from, s.from_offset), s.bytes);
  }
  void does(const suite::Fill& s) { std::memset(at(s.buffer, s.offset), s.value, s.bytes); }
  void does(const suite::SetSymbol& s) {
    std::byte* symbol = run_.symbol(s.name);
    ASSERT_NE(symbol, nullptr) << s.name;
    std::memcpy(symbol + s.offset, s.bytes.data(), s.bytes.size());
  }
  void does(const suite::Expect& s) {
    EXPECT_EQ(std::memcmp(at(s.buffer, s.offset), s.bytes.data(), s.bytes.size()), 0)
        << "what the program read back is not there";
  }

  void does(const suite::Launch& s) {
    KernelLaunch launch;
    launch.kernel = s.kernel;
    launch.grid = {s.grid[0], s.grid[1], s.grid[2]};
    launch.block = {s.block[0], s.block[1], s.block[2]};
    launch.dynamic_shared = s.dynamic_shared;
    launch.params = suite::parameters(s, addresses_);
    const passes::KernelReport* report = run_.report(s.kernel);
    ASSERT_NE(report, nullptr) << s.kernel;
    const auto before = run_.contents();
    auto original = run_.run_original(launch, seed_);
    ASSERT_TRUE(original) << original.error().message;
    auto& [launches, evictions] = tally().tiers[passes::tier_name(report->tier)];
    ++launches;
    if (!report->evictable) return;
    const auto expected = run_.contents();
    const std::uint64_t rounds = number("SLUICE_EVICTION_ROUNDS", "6");
    for (std::uint64_t round = 0; round < rounds; ++round) {
      run_.restore(before);
      EvictionOptions options;
      options.seed = ++seed_;
      options.most_evictions = seed_ % 8 == 0 ? 50 : 4;
      options.expected_steps = original->steps;
      auto clone = run_.run_clone(launch, options);
      ASSERT_TRUE(clone) << suite::describe(s) << ": " << clone.error().message;
      evictions += static_cast<int>(clone->evictions);
      const auto got = run_.contents();
      const std::string difference = first_difference(expected, got);
      if (difference.empty()) continue;
      // Blocks that draw their share of the data leave partial results that depend on their order;
      // what becomes of them is checked by the case's later steps.
      ASSERT_TRUE(depends_on_order(launch, before, expected)) << difference << "\n"
                                                              << clone->setting;
      run_.restore(got);
    }
  }

  bool depends_on_order(const KernelLaunch& launch,
                        const std::vector<std::vector<std::byte>>& before,
                        const std::vector<std::vector<std::byte>>& expected) {
    for (std::uint64_t order = 1; order <= 8; ++order) {
      run_.restore(before);
      auto again = run_.run_original(launch, seed_ * 8 + order);
      if (!again || !first_difference(expected, run_.contents()).empty()) return true;
    }
    return false;
  }

  const suite::Case& work_;
  EvictionRun& run_;
  std::uint64_t seed_;
  std::vector<std::size_t> numbers_;
  std::vector<std::uint64_t> addresses_;
};

class Summary : public ::testing::Environment {
 public:
  void TearDown() override {
    for (const auto& [tier, counts] : tally().tiers)
      std::cout << tier << ": " << counts.first << " launches, clones evicted " << counts.second
                << " times\n";
  }
};
const auto* const kSummary = ::testing::AddGlobalTestEnvironment(new Summary);

}  // namespace

void play_evicted(const suite::Case& work, std::uint64_t seed) {
  auto run = EvictionRun::load(work.ptx);
  ASSERT_TRUE(run) << run.error().message;
  Player(work, **run, seed).play();
}

}  // namespace sluice::tool
