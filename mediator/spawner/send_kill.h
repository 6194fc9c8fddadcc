// SPDX-License-Identifier: Apache-2.0
// Kills a process that may be of another user. The spawner's; one thread.
//
// Workers have uids of their own, so SIGKILL takes CAP_KILL. A service that has CAP_SETUID only
// takes another way: a child of the spawner becomes the worker's user and sends the signal.
#pragma once

#include <sys/types.h>

namespace sluice::spawner {

// Sends SIGKILL to the process `pid`, which `pidfd` refers to. `proc`: a descriptor of /proc.
// Does not wait, neither for that process nor for the child: the worker could stop the child, which
// has its uid. The caller reaps children that it does not know. False: it may not be signalled.
bool send_kill(int proc, pid_t pid, int pidfd);

}  // namespace sluice::spawner
