// SPDX-License-Identifier: Apache-2.0
// Landlock: the part of the file system that a worker may reach, whatever its user id; the kernel
// refuses the rest, and signals, tracing and abstract Unix sockets to others (since 6.12).
//
// Called in the new process before it becomes the worker; cannot be undone. Stands beside the other
// walls, and in the place of a root folder of its own where the host does not allow that.
#pragma once

#include <string>
#include <vector>

#include "mediator/base/result.h"

namespace sluice::spawner {

struct LandlockPaths {
  std::vector<std::string> read;   // read and execute
  std::vector<std::string> write;  // and everything else; folders and device files
};

// 0: this kernel has no Landlock.
int landlock_version();
// Paths that are not there are passed over. Needs no_new_privs.
Result<void> landlock_restrict(const LandlockPaths& paths);

}  // namespace sluice::spawner
