// SPDX-License-Identifier: Apache-2.0
// The checker on kernels that are right: every benchmark of the suite's catalogue as nvcc compiled
// it. Whatever it says here is a false report.
#include <gtest/gtest.h>

#include <ostream>

#include "tests/support/play_exec.h"

namespace sluice::suite {

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

namespace {

class CheckerOnSuite : public ::testing::TestWithParam<Row> {};

INSTANTIATE_TEST_SUITE_P(All, CheckerOnSuite,
                         ::testing::ValuesIn(catalog().begin(), catalog().end()),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_P(CheckerOnSuite, FindsNothing) {
  const Case work = GetParam().make({.scale = 0.15});
  exec::Checker checker(*exec::CheckOptions::parse("all"));
  const sluice::testing::Played played = sluice::testing::play_on_exec(work, nullptr, 4, &checker);
  EXPECT_EQ(played.wrong, "");
  for (const exec::Finding& f : checker.findings()) ADD_FAILURE() << f.describe();
}

// And whatever has barriers needs them: without them the checker finds a race. (The results may
// even be right: the interpreter runs a warp for a while before it turns to the next.)
TEST_P(CheckerOnSuite, FindsTheRaceWithoutBarriers) {
  Case work = GetParam().make({.scale = 0.3});
  size_t barriers = 0;
  for (size_t at = work.ptx.find("bar.sync"); at != work.ptx.npos;
       at = work.ptx.find("bar.sync", at)) {
    const size_t end = work.ptx.find(';', at);
    work.ptx.replace(at, end - at, std::string(end - at, ' '));  // an empty statement; lines stay
    work.ptx[end] = ' ';
    ++barriers;
  }
  if (barriers == 0) GTEST_SKIP() << "has no barrier";
  exec::Checker checker(*exec::CheckOptions::parse("race"));
  (void)sluice::testing::play_on_exec(work, nullptr, 4, &checker);
  EXPECT_FALSE(checker.findings().empty());
  for (const exec::Finding& f : checker.findings()) {
    EXPECT_EQ(f.kind, exec::CheckKind::kRace);
    EXPECT_NE(f.party.line, 0u);
  }
}

}  // namespace
}  // namespace sluice::suite
