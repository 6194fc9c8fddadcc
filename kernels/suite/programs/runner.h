// SPDX-License-Identifier: Apache-2.0
// Runs a workload on the first CUDA device: keeps `depth` units queued, waits for the oldest,
// checks, queues the next. A unit is one launch, or a chain of dependent ones. Each place in the
// queue (slot) has buffers of its own, so that a unit can be checked while the others run.
//
// One thread, which also computes the CPU references. Uses the plain driver API and nothing of
// Sluice. Throws DriverError where a call fails.
#pragma once

#include <csignal>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/suite/workloads/options.h"
#include "kernels/suite/workloads/workload.h"

namespace sluice::suite {

struct Report {
  std::string program;
  std::string device;
  std::uint64_t launches = 0;  // kernel launches that ended
  double seconds = 0;          // from the first launch to the last check
  double check_seconds = 0;    // of these, spent reading results back and computing references
  std::uint64_t right = 0;     // units checked, by outcome
  std::uint64_t wrong = 0;
  std::string stopped_by;  // "launches", "seconds", "signal", "error"
  std::string error;       // empty: none
};

// One line without a newline, for people's scripts; the keys are Report's and the options' names.
std::string to_json(const Report& report, const Options& options, std::uint64_t size);

// Whether a unit is checked: one of every `verify_every` in a row (0: none), drawn at random
// (always the same), so that every slot of the queue is checked from time to time.
bool is_checked(std::uint64_t unit, std::uint64_t verify_every);

// The whole run; `report` is kept up to date so that it tells what happened before an exception.
// The run ends early, as if its time were over, once `stop` is not 0 (a signal handler sets it).
void run_workload(Workload& workload, const Options& options, Report& report,
                  const volatile std::sig_atomic_t& stop);

// What main() of every program does: options, signals, run, messages, JSON. Returns the exit code.
int run_program(const char* name, std::unique_ptr<Workload> (*make)(const Options&), int argc,
                const char* const* argv);

}  // namespace sluice::suite
