// SPDX-License-Identifier: Apache-2.0
// SMs in units: on some GPUs SMs can be addressed only so many at a time (Machine::sm_unit). To a
// policy that gives parts of the GPU one such unit is an SM: in_units() stands before it and
// translates, for every driver, in this one place.
//   unit k = SMs [k * sm_unit, (k + 1) * sm_unit). SMs that fill no unit belong to the last one, so
//   nobody loses them; if there is not even one unit, all SMs are one.
// The policy counts in unit-ns what its driver counts in SM-ns; nothing is lost by rounding.
#pragma once

#include <memory>

#include "policies/policy.h"

namespace sluice::policy {

// What make() makes, for `config` with units as its SMs. With sm_unit 1, or where the GPU is given
// whole, make(config) itself.
std::unique_ptr<Policy> in_units(const Config& config,
                                 std::unique_ptr<Policy> (*make)(const Config&));

// Whether a range of SMs can be given on such a GPU. sm_unit > 0.
inline bool is_whole_units(uint32_t sm_count, uint32_t sm_unit, SmRange sms) {
  const auto is_edge = [&](uint32_t sm) {
    return sm == sm_count || sm == 0 || (sm % sm_unit == 0 && sm + sm_unit <= sm_count);
  };
  return is_edge(sms.lo) && (sms.hi == 0xffff || is_edge(sms.hi));
}

}  // namespace sluice::policy
