// SPDX-License-Identifier: Apache-2.0
// A CUDA driver for the tests of the suite's runner: the functions that the suite's programs call,
// in this process, on host memory, with kernels computed by the CPU references. Linked into the
// unit tests instead of a libcuda, so that tests can make a "GPU" that leaves launches out, runs
// them twice or spoils results, and see that the programs notice. Also built as a library,
// fake-cuda, for what loads its driver at run time.
//
// One thread. Work in streams is either done at once or as late as the API allows (`lazy`), so
// that a missing wait between streams gives a wrong result in one of the two.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "abi/cuda_driver.h"

namespace sluice::suite::testing {

struct FakeDriver {
  bool lazy = true;
  // Called for each kernel launch when it runs, with the number of launches that ran before; it
  // decides how often the kernel's work is done (1: a right GPU), and may spoil things after.
  std::function<int(std::uint64_t launch)> times = [](std::uint64_t) { return 1; };
  // Called after launch number `launch` with the output buffer.
  std::function<void(std::uint64_t launch, void* out)> spoil = [](std::uint64_t, void*) {};
  // The call of this name fails with this result.
  std::string failing_call;
  CUresult failure = CUDA_SUCCESS;

  std::uint64_t launches_run = 0;
  std::uint64_t launches_queued = 0;                 // not yet run
  std::uint64_t fewest_queued_in_wait = UINT64_MAX;  // when the program waited for an event
  std::uint64_t waits = 0;
  std::uint64_t live_objects = 0;  // streams, events, modules and buffers not given back
};

// The one driver; a fresh state for each test.
FakeDriver& fake_driver();
void reset_fake_driver();

}  // namespace sluice::suite::testing
