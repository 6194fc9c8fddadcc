// SPDX-License-Identifier: Apache-2.0
// RunningFile: <runtime_dir>/workers, the file that says which processes of a sluiced run, so that
// the next one finds them after a crash. Written by the spawner, one thread; root's, or sluiced's
// own user's.
//
//   header   which boot; sluiced, spawner (pid and start time each); the folder of the cgroups
//   slots    a worker each: pid and start time; zero: none
//
// A pid alone may be somebody else's by now. So each is compared by its start time after a pidfd
// has been opened, and is signalled through that pidfd. The file is locked as long as its spawner
// lives.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"

namespace sluice::spawner {

struct ProcessMark {
  int64_t pid = 0;
  uint64_t started = 0;  // clock ticks since boot: field 22 of /proc/PID/stat
  bool operator==(const ProcessMark&) const = default;
};

// The process with this pid now; zeros: there is none. `proc`: a descriptor of /proc.
ProcessMark mark_of(int proc, pid_t pid);

class RunningFile {
 public:
  // Takes the file over: ends all that an earlier sluiced has left, and then writes down ourselves.
  // `sluiced`: whose spawner this is. Error EBUSY: that earlier sluiced is alive.
  static Result<RunningFile> take(const std::string& runtime_dir, int proc, pid_t sluiced);

  // How many workers of an earlier sluiced were ended, and those that could not be.
  size_t ended() const { return ended_; }
  size_t stuck() const { return stuck_; }
  void add_ended(size_t n) { ended_ += n; }
  void set_cgroups(const std::string& path);
  void set_worker(size_t slot, const ProcessMark& mark);

 private:
  Fd fd_;
  size_t ended_ = 0, stuck_ = 0;
};

}  // namespace sluice::spawner
