// SPDX-License-Identifier: Apache-2.0
// The recorded CCCL programs, original against clone (play_evicted.h). SLUICE_EVICTION_CASES=n:
// only n of them, chosen by SLUICE_EVICTION_SEED.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/support/cccl_cases.h"
#include "tests/support/play_evicted.h"

namespace sluice::tool {
namespace {

class CcclEviction : public ::testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CcclEviction);
std::vector<std::string> sampled_cases() {
  std::vector<std::string> names = sluice::testing::cccl_names(SLUICE_CCCL_FOLDER);
  std::mt19937_64 random(number("SLUICE_EVICTION_SEED", "1"));
  std::shuffle(names.begin(), names.end(), random);
  names.resize(std::min<std::size_t>(names.size(), number("SLUICE_EVICTION_CASES", "1000000")));
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, CcclEviction, ::testing::ValuesIn(sampled_cases()),
                         [](const auto& name) { return name.param; });
TEST_P(CcclEviction, ClonesDoTheSame) {
  play_evicted(sluice::testing::load_cccl(SLUICE_CCCL_FOLDER, GetParam()).work,
               number("SLUICE_EVICTION_SEED", "1") * 1000);
}

}  // namespace
}  // namespace sluice::tool
