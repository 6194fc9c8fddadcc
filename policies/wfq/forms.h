// SPDX-License-Identifier: Apache-2.0
// The forms of wfq that wfq.cc chooses from, besides that on a whole GPU (whole.h). Pure.
#pragma once

#include <memory>

#include "policies/policy.h"

namespace sluice::policy {

std::unique_ptr<Policy> make_wfq_slices(const Config&);   // slices.cc: proportional preemptors
std::unique_ptr<Policy> make_wfq_spatial(const Config&);  // spatial.cc: Machine::spatial

}  // namespace sluice::policy
