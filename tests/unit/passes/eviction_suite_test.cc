// SPDX-License-Identifier: Apache-2.0
// Every benchmark of the suite, original against clone (play_evicted.h).
#include <gtest/gtest.h>

#include "tests/support/play_evicted.h"

namespace sluice::tool {
namespace {

class SuiteEviction : public ::testing::TestWithParam<std::string> {};
std::vector<std::string> rows() {
  std::vector<std::string> names;
  for (const suite::Row& row : suite::catalog()) names.emplace_back(row.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, SuiteEviction, ::testing::ValuesIn(rows()),
                         [](const auto& name) { return name.param; });
TEST_P(SuiteEviction, ClonesDoTheSame) {
  const suite::Case work = suite::find_row(GetParam())->make({.scale = 1, .seed = 1});
  play_evicted(work, number("SLUICE_EVICTION_SEED", "1") * 1000);
}

}  // namespace
}  // namespace sluice::tool
