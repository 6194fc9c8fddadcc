// SPDX-License-Identifier: Apache-2.0
// The checker on Thrust's, CUB's and libcu++'s kernels, as recorded (tests/cccl): decoupled
// look-back, locks, barriers and semaphores of libcu++, warp-wide exchanges. They are right;
// whatever it says here is a false report.
#include <gtest/gtest.h>

#include <map>

#include "tests/support/cccl_cases.h"
#include "tests/support/play_exec.h"

namespace sluice::testing {
namespace {

class CheckerOnCccl : public ::testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CheckerOnCccl);

INSTANTIATE_TEST_SUITE_P(All, CheckerOnCccl, ::testing::ValuesIn(cccl_names(SLUICE_CCCL_FOLDER)),
                         [](const auto& name) { return name.param; });

TEST_P(CheckerOnCccl, FindsNothing) {
  static std::map<std::string, std::shared_ptr<const exec::Program>> kept;
  const suite::Trace trace = load_cccl(SLUICE_CCCL_FOLDER, GetParam());
  auto& program = kept[trace.module];
  if (!program) {
    auto decoded = exec::decode_text(trace.work.ptx);
    ASSERT_TRUE(decoded) << decoded.error().message;
    program = *decoded;
  }
  exec::Checker checker(*exec::CheckOptions::parse("all"));
  const Played played = play_on_exec(trace.work, program, 4, &checker);
  EXPECT_EQ(played.wrong, "");
  for (const exec::Finding& f : checker.findings()) {
    // It does read one element behind its tile and branches on it, on both ways to the same result.
    const bool known =
        GetParam() == "thrust_set_intersection" && f.kind == exec::CheckKind::kUninit;
    EXPECT_TRUE(known) << f.describe();
  }
}

}  // namespace
}  // namespace sluice::testing
