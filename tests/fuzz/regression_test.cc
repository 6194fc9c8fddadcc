// Replays every input that fuzzing has found, and every seed: tests/fuzz/regressions/<target>/.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/fuzz/ptx_property.h"

namespace sluice::fuzz {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(FuzzRegressions, Ptx) {
  int inputs = 0;
  const std::filesystem::path folder = std::filesystem::path(SLUICE_FUZZ_ROOT) / "regressions/ptx";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().string());
    check_ptx(read(entry.path()));  // ends the process if a property is broken
    ++inputs;
  }
  EXPECT_GT(inputs, 0);
}

// The properties see what they are meant to see.
TEST(FuzzRegressions, OutcomeIsTold) {
  const PtxOutcome good = check_ptx(
      ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n");
  EXPECT_TRUE(good.parsed && good.decoded);
  const PtxOutcome unknown = check_ptx(
      ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { frobnicate; ret; }\n");
  EXPECT_TRUE(unknown.parsed);
  EXPECT_FALSE(unknown.decoded);
  EXPECT_FALSE(check_ptx(".entry k() { ret").parsed);
}

}  // namespace
}  // namespace sluice::fuzz
