// SPDX-License-Identifier: Apache-2.0
// What the sources of memory-calls share.
#pragma once

#include "tests/system/programs/expect.h"

namespace sluice::test {

// In the current context (batch_calls.cc).
void batches_of_boxes();

}  // namespace sluice::test
