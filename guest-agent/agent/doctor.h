// SPDX-License-Identifier: Apache-2.0
// `sluice-agent status` and `sluice-agent doctor`: does a program of this machine reach its GPU,
// and if not, what is wrong and what to do.
//
// One thread. The driver is loaded in a child process: what hangs or crashes there is a finding.
// Errors are findings, too; nothing here fails.
#pragma once

#include <string>
#include <vector>

#include "mediator/base/findings.h"

namespace sluice::guest {

struct DoctorOptions {
  std::string socket;          // where programs join
  std::string sysfs = "/sys";  // but for tests
  std::string driver = "libcuda.so.1";
  bool launch = true;   // whether a kernel is run
  int deadline_s = 60;  // until the driver has answered; a queue for the GPU may be long
};

// In the order in which a program needs them:
//   device    a vGPU's PCI device, or a local socket in its place
//   agent     somebody answers at the socket
//   host      its release and the channel's version, beside this guest's
//   transport how the agent has the device, and what that costs
//   libcuda   the library that programs load is ours
//   driver    it starts, with a version and a GPU
//   channel   a call comes back from the worker
//   runtime   a libcudart that works with it, for programs that were built with -cudart shared
//   launch    a small kernel computes what it should
std::vector<Finding> examine(const DoctorOptions& options);

}  // namespace sluice::guest
