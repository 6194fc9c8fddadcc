// SPDX-License-Identifier: Apache-2.0
// PriorityAtOnce: what piv and ppq are both held to. priority_at_once.cc has the tests.
#pragma once

#include "tests/unit/policies/kernel_driver.h"

namespace sluice::policy {

class PriorityAtOnce : public ::testing::TestWithParam<const char*> {};

}  // namespace sluice::policy
