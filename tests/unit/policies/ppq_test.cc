// SPDX-License-Identifier: Apache-2.0
// ppq (preemptive multiprogramming, section 4.2): a higher priority takes the GPU at once.
#include "tests/unit/policies/priority_at_once.h"

namespace sluice::policy {

INSTANTIATE_TEST_SUITE_P(Ppq, PriorityAtOnce, ::testing::Values("ppq"));

}  // namespace sluice::policy
