// SPDX-License-Identifier: Apache-2.0
// Replays every input that fuzzing has found, and every seed: tests/fuzz/regressions/<target>/; and
// mutates them a little, so that every build feeds every parser some garbage.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <vector>

#include "tests/fuzz/ptx_property.h"
#include "tests/fuzz/targets.h"
#include "tests/support/rounds.h"

namespace sluice::fuzz {
namespace {

const std::filesystem::path kRoot = std::filesystem::path(SLUICE_FUZZ_ROOT) / "regressions";

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct Target {
  const char* name;
  bool (*check)(std::string_view input);
};
#define SLUICE_FUZZ_ROW(name) {#name, check_##name},
constexpr Target kTargets[] = {SLUICE_FUZZ_TARGETS(SLUICE_FUZZ_ROW)};

// By file name, in order, so that a random seed means the same everywhere.
std::map<std::string, std::string> inputs_of(const Target& target) {
  std::map<std::string, std::string> inputs;
  for (const auto& entry : std::filesystem::directory_iterator(kRoot / target.name))
    inputs[entry.path().filename()] = read(entry.path());
  return inputs;
}

class FuzzRegressions : public ::testing::TestWithParam<Target> {};

TEST_P(FuzzRegressions, Replayed) {
  int seeds = 0;
  for (const auto& [name, input] : inputs_of(GetParam())) {
    const bool taken = GetParam().check(input);  // ends the process if a property is broken
    if (!name.starts_with("seed")) continue;
    EXPECT_TRUE(taken) << name << " should be right";
    ++seeds;
  }
  EXPECT_GT(seeds, 0);
}

TEST_P(FuzzRegressions, CutFlippedAndSpliced) {
  std::minstd_rand random(7);
  std::vector<std::string> inputs;
  for (auto& [name, input] : inputs_of(GetParam())) inputs.push_back(std::move(input));
  for (int round = 0; round < rounds(2000); ++round) {
    std::string mutant = inputs[random() % inputs.size()];
    const std::string& other = inputs[random() % inputs.size()];
    for (unsigned k = random() % 4 + 1; k != 0 && !mutant.empty(); --k) {
      const std::size_t at = random() % mutant.size(), bytes = random() % 32 + 1;
      switch (random() % 5) {
        case 0:
          mutant[at] = static_cast<char>(random());
          break;
        case 1:
          mutant.erase(at, bytes);
          break;
        case 2:
          mutant.insert(at, other, other.empty() ? 0 : random() % other.size(), bytes);
          break;
        case 3:
          mutant.resize(at);
          break;
        default:
          mutant.replace(at, 1, random() % 2 == 0 ? "18446744073709551615" : "-1");
          break;
      }
    }
    GetParam().check(mutant);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzRegressions, ::testing::ValuesIn(kTargets),
                         [](const auto& target) { return std::string(target.param.name); });

// The properties see what they are meant to see.
TEST(FuzzProperties, OutcomeIsDescribed) {
  const PtxOutcome good = check_ptx_text(
      ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n");
  EXPECT_TRUE(good.parsed && good.decoded);
  const PtxOutcome unknown = check_ptx_text(
      ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { frobnicate; ret; }\n");
  EXPECT_TRUE(unknown.parsed);
  EXPECT_FALSE(unknown.decoded);
  EXPECT_FALSE(check_ptx_text(".entry k() { ret").parsed);
}

TEST(FuzzPropertiesDeathTest, ABrokenOneEndsTheProcess) {
  EXPECT_DEATH(require(false, "what", "detail"), "property broken: what: detail");
}

}  // namespace
}  // namespace sluice::fuzz
