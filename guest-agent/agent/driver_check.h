// SPDX-License-Identifier: Apache-2.0
// The doctor's checks that load the CUDA driver. Runs in a child of the doctor's, which may hang or
// die of it; each check's line is written as soon as it is known.
#pragma once

#include <string>

namespace sluice::guest {

// Writes to `to` a line for each check (doctor.h): name, right or wrong, fact and mend between
// tabs. Stops at the first that is wrong.
void check_driver(const std::string& library, bool launch, int to);

}  // namespace sluice::guest
