// SPDX-License-Identifier: Apache-2.0
// Every benchmark of the suite's catalogue, as nvcc compiled it, on the interpreter: right results
// at the test size and at an odd one, however many blocks are resident.
#include <gtest/gtest.h>

#include <ostream>
#include <set>

#include "tests/support/play_exec.h"

namespace sluice::suite {

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

namespace {

class ExecCatalog : public ::testing::TestWithParam<Row> {};

INSTANTIATE_TEST_SUITE_P(All, ExecCatalog, ::testing::ValuesIn(catalog().begin(), catalog().end()),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_P(ExecCatalog, IsRight) {
  const Case work = GetParam().make({});
  EXPECT_EQ(work.name, GetParam().name);
  const sluice::testing::Played played = sluice::testing::play_on_exec(work);
  EXPECT_EQ(played.wrong, "");
  RecordProperty("steps", std::to_string(played.steps));
}

TEST_P(ExecCatalog, IsRightAtAnOddSizeAndBlockByBlock) {
  const Case work = GetParam().make({.scale = 0.37, .seed = 5});
  EXPECT_EQ(sluice::testing::play_on_exec(work, nullptr, 1).wrong, "");
}

// The check can fail: without its last launch no benchmark is right.
TEST_P(ExecCatalog, MissesALaunch) {
  Case work = GetParam().make({.scale = 0.2});
  for (std::size_t k = work.steps.size(); k-- > 0;) {
    if (!std::holds_alternative<Launch>(work.steps[k])) continue;
    work.steps.erase(work.steps.begin() + static_cast<std::ptrdiff_t>(k));
    break;
  }
  EXPECT_NE(sluice::testing::play_on_exec(work).wrong, "");
}

TEST(Catalog, NamesAreUnique) {
  std::set<std::string> names;
  for (const Row& row : catalog()) EXPECT_TRUE(names.insert(row.name).second) << row.name;
  EXPECT_EQ(find_row("no such benchmark"), nullptr);
}

}  // namespace
}  // namespace sluice::suite
