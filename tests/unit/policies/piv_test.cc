// SPDX-License-Identifier: Apache-2.0
// piv (EffiSha, section 7): a higher priority takes the GPU at once.
#include "tests/unit/policies/priority_at_once.h"

namespace sluice::policy {

INSTANTIATE_TEST_SUITE_P(Piv, PriorityAtOnce, ::testing::Values("piv"));

}  // namespace sluice::policy
