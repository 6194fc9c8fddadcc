// SPDX-License-Identifier: Apache-2.0
// `sluice-agent status` and `sluice-agent doctor`: does a program of this machine reach its GPU,
// and if not, what is wrong and what to do.
//
// One thread. The driver is loaded in a child process: what hangs or crashes there is a finding.
// Errors are findings, too; nothing here fails.
#pragma once

#include <string>
#include <vector>

namespace sluice::guest {

struct Finding {
  enum class State {
    kRight,
    kWrong,
    kSkipped,  // could not be checked, as something before is wrong
  };
  std::string name;  // one word, for scripts; does not change its meaning
  State state = State::kSkipped;
  std::string fact;  // what was found, one line
  std::string mend;  // what to do; empty if it is right
};

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
//   libcuda   the library that programs load is ours
//   driver    it starts, with a version and a GPU
//   channel   a call comes back from the worker
//   runtime   a libcudart that works with it, for programs that were built with -cudart shared
//   launch    a small kernel computes what it should
std::vector<Finding> examine(const DoctorOptions& options);

bool all_right(const std::vector<Finding>& findings);
// A line for each, mends below.
std::string as_text(const std::vector<Finding>& findings);
// {"right": BOOL, "checks": [{"name", "state", "fact", "mend"}]}
std::string as_json(const std::vector<Finding>& findings);

}  // namespace sluice::guest
