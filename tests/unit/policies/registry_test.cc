// SPDX-License-Identifier: Apache-2.0
// The registry of policies.
#include <gtest/gtest.h>

#include <set>

#include "policies/policy.h"

namespace sluice::policy {
namespace {

TEST(Registry, NamesAreUniqueAndTheDefaultIsFirst) {
  std::set<std::string_view> names;
  for (const Registration& row : registry()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_TRUE(row.exclusive || row.proportional);
    EXPECT_EQ(row.make(Config{})->name(), row.name);
    EXPECT_EQ(find_policy(row.name), &row);
  }
  EXPECT_EQ(registry().front().name, "wfq");
  EXPECT_EQ(find_policy("no such policy"), nullptr);
}

}  // namespace
}  // namespace sluice::policy
