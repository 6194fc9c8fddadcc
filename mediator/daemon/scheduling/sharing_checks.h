// SPDX-License-Identifier: Apache-2.0
// What the checks of scheduler.policy, scheduler.spatial and scheduler.slices have in common. Asked
// when sluiced starts.
#pragma once

#include <string>
#include <vector>

#include "policies/policy.h"

namespace sluice {

// Of an environment, NAME=value each; empty if it is not there.
inline std::string value_of(const std::vector<std::string>& environment, const std::string& name) {
  for (const std::string& e : environment)
    if (e.compare(0, name.size() + 1, name + "=") == 0) return e.substr(name.size() + 1);
  return "";
}

// Names of the policies that `can`, the default first: "a, b".
template <class Can>
std::string policies_that(const Can& can) {
  std::string names;
  for (const policy::Registration& row : policy::registry())
    if (can(row)) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

template <class Can>
bool policy_can(const std::string& name, const Can& can) {
  const policy::Registration* row = policy::find_policy(name);
  return row && can(*row);
}

}  // namespace sluice
