// SPDX-License-Identifier: Apache-2.0
// KernelLog: what NVIDIA's kernel module writes into the kernel's log about faults (Xid), by
// process. A worker that was taken over can hide a fault of its kernels from sluiced, but not from
// that log. Owned by the Spawner, which has the privilege to read it; one thread; never blocks.
//
// Lines are the kernel's own: what a program writes into /dev/kmsg has another facility, and is
// passed over. The number of the process stands before all that a process may choose (its name).
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"

namespace sluice::spawner {

struct Xid {
  int number = 0;  // 31: an address that is not mapped; 13: another exception of an SM
  pid_t pid = 0;   // as the first pid namespace has it
};

// One record of /dev/kmsg, "PRIORITY,SEQUENCE,TIME,FLAGS;TEXT". nullopt: no Xid, or of no process.
std::optional<Xid> parse_xid(std::string_view record);

class KernelLog {
 public:
  // From its present end on. An error says why faults are not seen here.
  static Result<KernelLog> open(const std::string& path);
  int fd() const { return fd_.get(); }
  // All that has come, in order. False: the log is lost.
  bool read(const std::function<void(const Xid&)>& on_xid);

 private:
  Fd fd_;
  std::string rest_;  // the beginning of a record, of a file that does not keep them whole
};

}  // namespace sluice::spawner
