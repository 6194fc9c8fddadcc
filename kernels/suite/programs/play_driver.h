// SPDX-License-Identifier: Apache-2.0
// Plays a case of the catalogue through the CUDA driver API: on NVIDIA's library, on the software
// GPU, or on a guest's, whichever libcuda.so.1 the program found.
//
// One thread with a context current; synchronous; every buffer is given back. Throws DriverError
// where a call fails, std::runtime_error where a case does not fit its module.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/suite/catalog/catalog.h"

namespace sluice::suite {

struct DriverPlay {
  std::string wrong;           // empty: all results are right
  std::uint64_t launches = 0;  // over all repetitions
  double longest_us = 0;       // of the launches of the first time through, by events
  std::string longest;         // which one that was
};

// Plays the case `repeat` times on one set of buffers, filled anew each time; checks each time.
DriverPlay play_on_driver(const Case& work, std::uint64_t repeat = 1);

}  // namespace sluice::suite
