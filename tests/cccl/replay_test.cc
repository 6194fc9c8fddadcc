// SPDX-License-Identifier: Apache-2.0
// Every recorded CCCL case on the interpreter: what the program read back, and checked against the
// CPU when it was recorded, is there again. And every module of every program, compiled for sm_75
// and sm_90, is decoded whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "kernels/exec/program/program.h"
#include "tests/support/cccl_cases.h"
#include "tests/support/play_exec.h"

namespace sluice::testing {
namespace {

std::shared_ptr<const exec::Program> program_of(const std::string& module) {
  static std::map<std::string, std::shared_ptr<const exec::Program>> kept;
  auto& program = kept[module];
  if (!program) {
    auto decoded = exec::decode_text(read_file(cccl_file(SLUICE_CCCL_FOLDER, module)));
    if (!decoded) throw std::runtime_error(module + ": " + decoded.error().message);
    program = *decoded;
  }
  return program;
}

class CcclModule : public ::testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CcclModule);
INSTANTIATE_TEST_SUITE_P(All, CcclModule, ::testing::ValuesIn(cccl_modules(SLUICE_CCCL_FOLDER)),
                         [](const auto& module) {
                           std::string name = module.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });
TEST_P(CcclModule, Decodes) { EXPECT_FALSE(program_of(GetParam())->entries().empty()); }

class CcclCase : public ::testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CcclCase);
INSTANTIATE_TEST_SUITE_P(All, CcclCase, ::testing::ValuesIn(cccl_names(SLUICE_CCCL_FOLDER)),
                         [](const auto& name) { return name.param; });
TEST_P(CcclCase, Replays) {
  const suite::Trace trace = load_cccl(SLUICE_CCCL_FOLDER, GetParam());
  const Played played = play_on_exec(trace.work, program_of(trace.module));
  EXPECT_EQ(played.wrong, "");
  RecordProperty("steps", std::to_string(played.steps));
}

// Results do not hang on how many blocks are resident: block after block, and many at once.
TEST_P(CcclCase, ReplaysHoweverManyBlocksAreResident) {
  const suite::Trace trace = load_cccl(SLUICE_CCCL_FOLDER, GetParam());
  for (const std::uint32_t resident : {1u, 16u})
    EXPECT_EQ(play_on_exec(trace.work, program_of(trace.module), resident).wrong, "") << resident;
}

// A replay can fail: without its last launch no case is right.
TEST_P(CcclCase, MissesALaunch) {
  suite::Trace trace = load_cccl(SLUICE_CCCL_FOLDER, GetParam());
  auto& steps = trace.work.steps;
  for (std::size_t k = steps.size(); k-- > 0;) {
    if (!std::holds_alternative<suite::Launch>(steps[k])) continue;
    steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(k));
    break;
  }
  EXPECT_NE(play_on_exec(trace.work, program_of(trace.module)).wrong, "");
}

TEST(Cccl, AtLeastSixty) {
  const std::size_t cases = cccl_names(SLUICE_CCCL_FOLDER).size();
  if (cases == 0)
    GTEST_SKIP()
        << "no recordings of CCCL's programs: 'ninja -C BUILD cccl-cases' makes them where "
           "nvcc and CCCL are installed";
  EXPECT_GE(cases, 60u);
}

}  // namespace
}  // namespace sluice::testing
