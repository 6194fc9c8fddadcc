// Golden files of the rewriter: tests/golden/NAME.ptx is rewritten and compared, byte for byte,
// with NAME.expected, which also holds a comment line per kernel with its report. After an intended
// change: UPDATE_GOLDEN=1 meson test ptx_golden, and read the difference before committing it.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "kernels/passes/rewrite.h"

namespace sluice::passes {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream contents;
  contents << file.rdbuf();
  return contents.str();
}

std::vector<fs::path> inputs() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(SLUICE_GOLDEN_DIR))
    if (entry.path().extension() == ".ptx") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string expected_form(const Rewritten& rewritten) {
  std::string out;
  for (const KernelReport& k : rewritten.kernels) {
    out += "// " + k.name + ": " + tier_name(k.tier) + (k.evictable ? ", evictable" : "");
    if (!k.reason.empty()) out += ": " + k.reason;
    out += "; parameters " + std::to_string(k.param_bytes_original) + ", block at " +
           std::to_string(k.param_offset_of_block) + ", slot " +
           std::to_string(static_cast<int>(k.slot)) +
           (k.uses_dynamic_shared ? ", dynamic shared" : "") + "\n";
  }
  return out + rewritten.text;
}

// The first lines that differ, with what stands before them.
std::string difference(const std::string& expected, const std::string& actual) {
  std::istringstream a(expected), b(actual);
  std::string line_a, line_b, before;
  for (int number = 1;; ++number) {
    const bool more_a = static_cast<bool>(std::getline(a, line_a));
    const bool more_b = static_cast<bool>(std::getline(b, line_b));
    if (!more_a && !more_b) return "only the end of the last line differs";
    if (more_a && more_b && line_a == line_b) {
      before = line_a;
      continue;
    }
    return "line " + std::to_string(number) + ", after: " + before +
           "\n  expected: " + (more_a ? line_a : "(end of file)") +
           "\n  is:       " + (more_b ? line_b : "(end of file)");
  }
}

class Golden : public testing::TestWithParam<fs::path> {};

TEST_P(Golden, RewritesToTheExpectedText) {
  const std::string input = read(GetParam());
  auto rewritten = rewrite_module(input);
  ASSERT_TRUE(rewritten) << rewritten.error().message;
  const std::string actual = expected_form(*rewritten);
  fs::path expected_path = GetParam();
  expected_path.replace_extension(".expected");
  if (std::getenv("UPDATE_GOLDEN")) {
    std::ofstream(expected_path, std::ios::binary) << actual;
    GTEST_SKIP() << "wrote " << expected_path;
  }
  const std::string expected = read(expected_path);
  EXPECT_TRUE(expected == actual) << expected_path << " differs at "
                                  << difference(expected, actual);
  // Deterministic, and the result is a module again, in which every original is left as it was.
  EXPECT_EQ(rewrite_module(input)->text, rewritten->text);
  auto again = ptx::Module::parse(rewritten->text);
  ASSERT_TRUE(again) << again.error().message;
  auto original = ptx::Module::parse(input);
  for (const ptx::Function& f : original->functions()) {
    const ptx::Function* kept = again->find_function(f.name);
    ASSERT_NE(kept, nullptr) << f.name;
    EXPECT_EQ(original->text_of(f.range), again->text_of(kept->range)) << f.name;
  }
}

TEST_P(Golden, IsAcceptedByTheAssembler) {
  const char* assembler = SLUICE_PTXAS;
  if (*assembler == '\0') GTEST_SKIP() << "no ptxas on this machine";
  auto rewritten = rewrite_module(read(GetParam()));
  ASSERT_TRUE(rewritten);
  const fs::path text =
      fs::temp_directory_path() / ("sluice_golden_" + std::to_string(::getpid()) + ".ptx");
  const fs::path log = fs::path(text).replace_extension(".log");
  std::ofstream(text, std::ios::binary) << rewritten->text;
  const std::string command = std::string(assembler) + " -c -arch=sm_90 -o /dev/null " +
                              text.string() + " > " + log.string() + " 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << read(log);
  fs::remove(text);
  fs::remove(log);
}

INSTANTIATE_TEST_SUITE_P(All, Golden, testing::ValuesIn(inputs()),
                         [](const auto& test) { return test.param.stem().string(); });

}  // namespace
}  // namespace sluice::passes
