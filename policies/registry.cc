// SPDX-License-Identifier: Apache-2.0
// The table of policies, made of registry.inc.
#include "policies/policy.h"

namespace sluice::policy {

#define SLUICE_POLICY(id, file, name_, summary_, ...) \
  std::unique_ptr<Policy> make_##id(const Config&);
#include "policies/registry.inc"
#undef SLUICE_POLICY

const std::vector<Registration>& registry() {
  static const std::vector<Registration> rows = {
#define SLUICE_POLICY(id, file, name_, summary_, ...) \
  {.name = name_, .summary = summary_, .make = make_##id, __VA_ARGS__},
#include "policies/registry.inc"
#undef SLUICE_POLICY
  };
  return rows;
}

const Registration* find_policy(std::string_view name) {
  for (const Registration& row : registry())
    if (row.name == name) return &row;
  return nullptr;
}

}  // namespace sluice::policy
